"""The Spark pipeline: from traces to verdicts and figures.

    tables      every table: grain, key, columns, and the check on write
    traces      CSV rows -> traces | quarantine
    workload    traces -> filters, events (seed 001's way)
    oracle      events x filters -> expected, by Spark's reading of the text; and the verdict on what was handed over
    runs        a grid of simulations, one a Spark task -> runs, deliveries, loads
    metrics     runs judged by expected
    figures     inline SVG charts
    report      self-contained HTML pages
    job         how stages run: fingerprints, skipping, commits; reads and writes
    stages      the stages of `gossamer pipeline run`
    verify      a live fabric judged from its nodes' trace files
    progress    what Spark's tasks are doing, for a progress bar
    session     a Spark session that starts anywhere

docs/pipeline.md is the guide. Importing this package imports nothing heavy.
"""
