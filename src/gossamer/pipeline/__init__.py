"""The Spark pipeline: from traces to verdicts and figures.

    tables      every table: grain, key, columns
    contracts   the check of a table when it is written
    mapping     a user's files and columns -> our tables, in TOML
    formats     files of every format -> rows of text with their origin
    traces      rows of text -> peers, items, holdings, sessions, rtts | quarantine
    workload    items -> filters and events, as in seed 001
    synthetic   filters and events drawn from a space, over topics
    churn       the stays of the workload's peers
    templates   filters' texts that differ only in literals, as Spark's parser reads them
    bands       ranges cut into cells, which are joined without a cross join
    prefixes    LIKE patterns, joined by the text before their first wildcard
    simple      filters with a few equalities and one range; spans finds their events by sorting
    oracle      events x filters -> expected, by Spark's reading; and the verdict on hand-overs
    fanout      simulations in Spark tasks: one configuration is one row and one task
    runs        a grid of simulations, one in each Spark task -> runs, ..., deliveries, loads
    metrics     runs judged by the oracle
    charts      bars and lines; drawing has shapes as SVG and PNG; pages the parts of a page
    report      self-contained HTML pages
    job         how stages run: fingerprints, skipping, commits; reads and writes tables
    stages      the stages of `gossamer pipeline run`
    verify      a live fabric judged from its nodes' trace files
    source      Spark's data source and sink "gossamer"; gateway publishes for the sink
    taskcounts  the tasks that Spark has done, for a progress bar
    shipping    the package for the executors of a cluster
    session     a Spark session that starts on any machine

docs/pipeline.md is the guide. Importing this package imports nothing heavy.
"""
