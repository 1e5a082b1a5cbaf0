"""GosSkip (seed 001): content filters in dictionary order, linked by gossip into a perfect skip list. Read ALGORITHM.md first.

position   places in the order, and the circle that they form      entry     one entry's links, and Figure 2
messages   what travels                                            level0    join, leave, failure, repair
route      where an event goes next                                events    walks, reports that tile, receipts
leases     empty gaps that publishers may rely on                  marks     the seed's routing entries for ranges
lines      connections to whom an entry must talk                  places    filters to keys, at most 256 a node
core       SkipList: the machine                                   subscriber  from a filter to the moment its events are due
receipts   publications, receipts, answers, what has been seen     host      what the parts share
"""
