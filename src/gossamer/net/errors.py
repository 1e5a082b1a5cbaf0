"""The errors of a node. Each message says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NodeError(RuntimeError):
    """Something is wrong with this node. The message says what to do."""


class NotStartedError(NodeError, AttributeError):
    """A node was used before it was started.

    It is also an AttributeError, so that ``hasattr`` works.
    """

    def __init__(self) -> None:
        super().__init__(
            "the node is not started: use 'async with gossamer.Node(...) as node', "
            "or 'await node.start()' first"
        )


class NotStarted:
    """Stands in for the parts that ``Node.start`` makes.

    So a node that was started pays nothing for this check.
    """

    def __getattr__(self, name: str) -> Any:
        raise NotStartedError


NOT_STARTED: Any = NotStarted()


class KeysError(NodeError):
    """Keys that are missing, unreadable, expired or of another node. The message says what to
    do.
    """


class IdentityError(NodeError):
    """This node's identity counts no longer: its certificate was revoked, or another process has
    the same keys or data directory.
    """


class JoinError(NodeError):
    """None of the addresses to join answered, or let this node in."""

    @classmethod
    def after(cls, join: Sequence[str], seconds: float, problem: str) -> JoinError:
        """The error for ``problem``, the driver's last one.

        If a node closed the connection, the advice is not to start a node.
        """
        about = f"{', '.join(join)} within {seconds:g} s ({problem or 'no answer'})"
        if problem.startswith("closed "):
            return cls(f"no node let this one in at {about}")
        if problem.startswith("cannot resolve "):
            return cls(f"no node answered at {about}; is the name right?")
        return cls(
            f"no node answered at {about}; is one running there? "
            "start it with: gossamer node --listen HOST:PORT"
        )


class StorageError(NodeError):
    """The data directory did not store something, for example because its disk is full."""

    @classmethod
    def of(cls, what: str, directory: object, error: Exception | None, then: str) -> StorageError:
        """``what`` names the failed step, and ``then`` the next step after the disk works again."""
        return cls(f"{what}: {failed_disk(directory, error)}, then {then} (no restart is needed)")


def failed_disk(directory: object, error: Exception | None) -> str:
    """The problem of a data directory, and its remedy."""
    text = str(error)
    remedy = "see that its disk works"
    if "full" in text or "No space" in text:
        remedy = "free some space there"
    elif "readonly" in text or "ermission" in text:
        remedy = "make it writable"
    return f"the data directory failed: {text} (in {directory}); {remedy}"


class SlowSubscriberError(NodeError):
    """This subscription was cut off because its events were not taken in time."""


class UndeliveredError(NodeError):
    """The node was closed while accepted events had no receipt, and it has no data directory for
    them.
    """


class BarrierError(NodeError):
    """Not every live node has confirmed a subscription in time. It was undone."""
