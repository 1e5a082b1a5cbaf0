"""The laboratory: code that reproduces and studies the seeds, and that no live node needs.

``interest``, ``skiplist`` and ``tree`` hold the experiments, measures, checkers, swarms and
steady-state models of the three overlays, and the variants of the seeds that only experiments run.
The modules beside them run such experiments in bulk on Spark and draw the seeds' figures.
Nothing below this package imports it; import-linter holds that.
"""
