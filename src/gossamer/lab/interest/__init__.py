"""Experiments with the interest plane (seed 000) in the simulated world.

config       one run as data
names        topic names, and what messages weigh with them
run          nodes, users, counts: ``InterestRun``
checkers     one property each
measure      the figures: cold start, lone and steady changes, silence
experiments  one kind of trouble and one demand each
swarm        everything drawn from the seed
"""
