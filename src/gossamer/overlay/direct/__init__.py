"""``route = direct``: publishers know the filters of all nodes that want a topic, match, and send
each node its part.
"""
