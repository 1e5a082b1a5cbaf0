"""The dispatch tree over a ring of keys (seed 002). ALGORITHM.md says how it works, and why.

arcs         keys, arcs, and pieces that tile the ring
messages     everything that travels
ring         the ``Ring`` interface (section 3) and its providers that know all hosts: ideal, view
reference    trees over the keys (3.2) and the neighbours of hosts in them (3.3, 3.4)
maintain     neighbours, kept (3.4)
links        links that are dialled when they are needed, and closed when they are not
routes       subscription forwarding with covering (2.1)
router       batches: the tree as a router of the delivery engine
host         all of it as one machine
"""
