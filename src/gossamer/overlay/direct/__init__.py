"""``route = direct``: publishers know the filters of those who want a topic, match at the source, and send each node its part."""
