"""The fabric for programs without an event loop: ``gossamer.Node``, blocking.

The node runs in a thread of its own.

    from gossamer import blocking

    with blocking.Node(join=["127.0.0.1:7400"]) as node:
        node.advertise("weather", "country STRING, temp INT")
        with node.subscribe("weather", "temp > 30") as events:
            receipt = node.publish("weather", {"country": "CH", "temp": 31})    # accepted
            receipt.wait().matched                                              # complete
            # or: for event in events: ...
            events.next(timeout=5.0)

Several threads may use a node. A subscription has one reader at a time. Arguments are those of
``gossamer.Node``. A node cannot be used in a process that was forked off the one that made it, and
not from a coroutine. Both get an error that says so.
"""

from gossamer.net.blocking import (
    Batches,
    BatchReceipt,
    Changes,
    Node,
    Receipt,
    Receipts,
    Subscription,
)

__all__ = ["BatchReceipt", "Batches", "Changes", "Node", "Receipt", "Receipts", "Subscription"]
