"""GosSkip (seed 001) puts content filters in dictionary order, and gossip links them into a perfect
skip list.

Read ALGORITHM.md first. These are the modules:

position     places in the order, and the circle that they form
entry        one entry's links, Figure 2, and where an event goes next
messages     the messages
level0       leaving, failure and repair
joining      joins
beside       messages between neighbours of level 0
walks        events on their way: the router of the delivery engine
search       look-ups
leases       empty gaps that publishers may rely on
marks        the seed's routing entries for ranges
lines        connections to the nodes that an entry must talk to
places       filters to keys, at most 256 a node
subscriber   from a filter to the moment from which its events are due
host         what the parts share
core         SkipList: the machine
"""
