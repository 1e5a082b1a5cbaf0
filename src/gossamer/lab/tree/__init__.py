"""Experiments with the dispatch tree (seed 002) in the simulated world.

codec        the tree's messages as frames chord        a ring that no node keeps whole: Chord, as
corrected by Zave; ``lookup`` asks hosts along it zave         her two invariants and what follows
from them rings        Chord alone: hosts that join, fail and meet checkers     one property of the
tree each config       one run as data run          hosts, subscribers, publishers: ``TreeRun``
measure      ``gossamer simulate tree`` steady       closed forms for many hosts, without events
experiments  loss and churn, two rings that merge, the failure of the root swarm        everything
drawn from the seed
"""
