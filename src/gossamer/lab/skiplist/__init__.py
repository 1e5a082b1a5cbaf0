"""Experiments with the skip list (seed 001) in the simulated world.

checkers   one property each                     run        nodes, users, and what is counted
config     one run as data                       measure    the numbers of `gossamer simulate skiplist`
workload   filters, events, and the oracle       model      the converged list of a million entries, vectorised
swarm      everything drawn from a seed          ranges     the two ways to subscribe to ranges, side by side
directory  who knows which classes are in use, and when
"""
