"""The Spark pipeline: from traces to verdicts and figures.

    tables      every table: grain, key, columns
    contracts   the check on write
    mapping     from a user's files and columns to our tables, in TOML
    formats     files of every format -> rows of text with their origin
    traces      rows of text -> peers, items, holdings, sessions, rtts | quarantine
    workload    items -> filters, events (seed 001's way)
    synthetic   filters and events drawn from a space, over topics
    churn       who of the workload is there when
    templates   filters' texts that differ in literals only, as Spark's parser reads them
    bands       ranges cut into cells, to be joined without a cross join
    oracle      events x filters -> expected, by Spark's reading of the text; and the verdict on what was handed over
    runs        a grid of simulations, one a Spark task -> runs, subscriptions, publications, deliveries, loads
    metrics     runs judged by the oracle
    figures     inline SVG charts
    experiments one simulation of any overlay as a row; grid fans many out, in waves
    models      the planes up to a million nodes, vectorised in Spark's tasks
    studies     what the seeds' experiments are; seedfigures their figures; reproduce the whole, to a page
    drawing     shapes as SVG and PNG; charts bars and lines; pages the parts of a page; book tables as rows
    shipping    the package for the executors of a cluster
    report      self-contained HTML pages
    job         how stages run: fingerprints, skipping, commits; reads and writes
    stages      the stages of `gossamer pipeline run`
    verify      a live fabric judged from its nodes' trace files
    progress    what Spark's tasks are doing, for a progress bar
    session     a Spark session that starts anywhere

docs/pipeline.md is the guide. Importing this package imports nothing heavy.
"""
