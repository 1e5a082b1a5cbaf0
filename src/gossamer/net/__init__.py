"""Real sockets: the TCP transport, the asyncio driver, discovery, the disk, and
``gossamer.Node``.
"""
