"""The laboratory of the skip list: experiments, measures and models of seed 001.

config      one run as data
workload    filters, events, and the oracle
checkers    one property each
run         nodes and users, and the counting
measure     the numbers of `gossamer simulate skiplist`
model       the converged list of a million entries, vectorised
swarm       everything drawn from a seed
ranges      the two ways to subscribe to ranges, side by side
directory   the classes that each node knows of
"""
