"""What can go wrong with a node; each message says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NodeError(RuntimeError):
    """Something is wrong with this node; the message says what to do."""


class NotStartedError(NodeError, AttributeError):
    """A node was used before it was started. Also an AttributeError, because ``hasattr`` may be asked."""

    def __init__(self) -> None:
        super().__init__(
            "the node is not started: use 'async with gossamer.Node(...) as node', or 'await node.start()' first"
        )


class NotStarted:
    """Stands for what ``Node.start`` makes until it has, so that a node that was started pays nothing for saying this."""

    def __getattr__(self, name: str) -> Any:
        raise NotStartedError


NOT_STARTED: Any = NotStarted()


class KeysError(NodeError):
    """Keys that are missing, unreadable, expired or of somebody else; the message says what to do."""


class JoinError(NodeError):
    """None of the addresses to join answered, or let this node in."""

    @classmethod
    def after(cls, join: Sequence[str], seconds: float, problem: str) -> JoinError:
        """``problem``: the driver's last. To start a node is no remedy where one closed the connection."""
        about = f"{', '.join(join)} within {seconds:g} s ({problem or 'no answer'})"
        if problem.startswith("closed "):
            return cls(f"no node let this one in at {about}")
        if problem.startswith("cannot resolve "):
            return cls(f"no node answered at {about}; is the name right?")
        return cls(
            f"no node answered at {about}; is one running there? start it with: gossamer node --listen HOST:PORT"
        )


class StorageError(NodeError):
    """The data directory did not take what was to be stored, for example because its disk is full."""

    @classmethod
    def of(cls, what: str, directory: object, error: Exception | None, then: str) -> StorageError:
        """``what``: what has not been done; ``then``: what to do after the disk works again."""
        return cls(f"{what}: {failed_disk(directory, error)}, then {then} (no restart is needed)")


def failed_disk(directory: object, error: Exception | None) -> str:
    """What is wrong with a data directory, and the remedy."""
    text = str(error)
    remedy = "see that its disk works"
    if "full" in text or "No space" in text:
        remedy = "free some space there"
    elif "readonly" in text or "ermission" in text:
        remedy = "make it writable"
    return f"the data directory failed: {text} (in {directory}); {remedy}"


class SlowSubscriberError(NodeError):
    """This subscription was cut off: its events were not taken in time."""


class UndeliveredError(NodeError):
    """The node was closed while accepted events had no receipt, and it has no data directory to keep them in."""


class BarrierError(NodeError):
    """Not every live node has confirmed a subscription in time. It was undone."""
