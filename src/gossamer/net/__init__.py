"""Real sockets: TCP transport, the asyncio driver, discovery, disk, and ``gossamer.Node``."""
