"""Memory that nodes of one host share, so that large messages between them are not copied through sockets.

A process lends out one piece of memory (``lent``): what its nodes publish as columns is gathered there (filters/_columns.pxi).
Where two nodes of one host meet, each says where its memory is (``Memory``), and a peer that can open it says what it read
there (``Seen``). From then on a frame whose bulk lies in that memory is written as ``Lies``: where, how much, and the rest of the
message. The peer copies the bytes out, in order with all else that comes over the link, and says how far it has come (``Taken``);
until then they stay. What is left there and not taken is bounded (``LEFT_BYTES``): beyond that, events wait as they do for a full
socket.

Nothing depends on it. Who cannot open the memory (another host, user or container) does not answer, and gets all over the socket.

Peers are not trusted. A node opens what a peer names with rights of its own, so the peer must prove that the memory is its own and
meant for this link, by a token that only those know who see the memory. It must be sealed against shrinking (or a look at it could
end this process), it is mapped for reading, and nobody looks at the bytes before they are copied, as their owner may change them at
any time. A link that breaks leaves bytes behind that its peer may still be about to copy: every step of the memory has a stamp,
which changes before the step is used again, and who copies looks at the stamps afterwards.

The memory has no name, so nothing is left behind when a process is killed. The kernel lets processes of the same user open it, and
nobody but its owner write to it. Nodes that must keep secrets from each other on one host run as different users, with keys, or
with ``shared_memory=False``.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.filters import loops
from gossamer.machine import Message
from gossamer.node.wire import (
    Frame,
    Hello,
    Lies,
    Memory,
    Pieces,
    Seen,
    Taken,
    WireError,
    encode,
    filled,
)

if TYPE_CHECKING:
    from fcntl import F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl

HERE = False  # whether this system has such memory
with contextlib.suppress(ImportError):
    from fcntl import F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl

    HERE = hasattr(os, "memfd_create")

MEMORY_BYTES = 64 << 20  # that a process lends; it takes what is used of it at once, and keeps that
LEFT_BYTES = 8 << 20  # that one peer has not taken; both ends hold to it
STEP_BYTES = (
    256 << 10
)  # as in _columns.pxi: the first step has a stamp of 8 bytes for each of the others,
TOKEN_AT = STEP_BYTES - 16  # and this, which nobody knows who does not see it
_NAME = "gossamer"
_HUGE = 2 << 20
_SEAL_FUTURE_WRITE = 0x10  # not in every Python's fcntl


class Lent:
    """This process's own."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, MEMORY_BYTES)
            self.token = secrets.token_bytes(16)
            os.pwrite(self.descriptor, self.token, TOKEN_AT)
            loops.lend(
                self.descriptor, MEMORY_BYTES, secrets.randbits(62)
            )  # stamps that nobody guesses
            with contextlib.suppress(OSError):  # an older kernel
                fcntl(self.descriptor, F_ADD_SEALS, _SEAL_FUTURE_WRITE)
            fcntl(self.descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
        except OSError:
            os.close(self.descriptor)
            raise

    def offer(self, us: Hello, them: Hello) -> Memory:
        return Memory(os.getpid(), self.descriptor, MEMORY_BYTES, proof(self.token, us, them))


def proof(token: bytes, owner: Hello, reader: Hello) -> bytes:
    """That whoever knows the token lends this memory to this reader. Ids are proved where there are keys."""
    about = b"".join(
        number.to_bytes(8, "big") for one in (owner, reader) for number in (one.peer, one.process)
    )
    return hmac.digest(token, about, "sha256")


_lent: list[Lent | None] = []


def lent() -> Lent | None:
    """What this process lends; None: nothing, for want of compiled loops or of such memory."""
    if not _lent:
        _lent.append(None)
        if HERE and loops.native is not None and not _is_counted():
            with contextlib.suppress(OSError):
                _lent[0] = Lent()
    return _lent[0]


def counted() -> dict[str, int]:
    """For operators: how often columns found no room, as peers have not taken what lies there, and so go by the sockets."""
    missed = loops.missed()
    return {"shared_memory_full": missed} if missed else {}


def _is_counted() -> bool:
    """Whether the system gives no memory that it may not have: then to touch memory like this could end the process."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    return False


def _forked() -> None:
    """A child must not write where its parent does."""
    if _lent and _lent[0] is not None:
        loops.lend(-1, 0, 0)
        os.close(_lent[0].descriptor)
    _lent.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Window:
    """A peer's memory, to read."""

    def __init__(self, offer: Memory) -> None:
        """OSError, or a ValueError: it cannot be opened, or is not what it should be."""
        path = Path(f"/proc/{offer.process}/fd/{offer.descriptor}")
        if not str(path.readlink()).startswith(
            f"/memfd:{_NAME}"
        ):  # before it is opened: to open a device may have effects
            raise ValueError("no memory of a node")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            is_whole = os.fstat(descriptor).st_size == offer.size and not offer.size % _HUGE
            if not fcntl(descriptor, F_GET_SEALS) & F_SEAL_SHRINK or not is_whole:
                raise ValueError("memory that may shrink")
            self._view, self._size = memoryview(loops.mapped(descriptor, offer.size)), offer.size
        finally:
            os.close(descriptor)
        self.token = bytes(self._view[TOKEN_AT:STEP_BYTES])

    def copy(self, at: int, size: int, stamp: int) -> memoryview:
        if at < STEP_BYTES or not 0 < size <= self._size - at:
            raise WireError("wrong shape", f"{size} bytes at {at} of memory that has {self._size}")
        found = loops.room(size)
        found[:] = self._view[at : at + size]
        loops.fence()
        first, last = at // STEP_BYTES - 1, (at + size - 1) // STEP_BYTES - 1
        if self._view[8 * first : 8 * last + 8] != stamp.to_bytes(8, sys.byteorder) * (
            last - first + 1
        ):
            raise WireError(
                "truncated", "its memory is used again already: the link must be an old one"
            )
        return found


class Sharing:
    """One link's part in it, both ways."""

    def __init__(self, us: Hello, them: Hello) -> None:
        self.own = lent()
        self._us, self._them = us, them
        self._offered = False  # the peer has said where its memory is, whether or not we can see it
        self.is_seen = False  # the peer has found our memory
        self._window: Window | None = None  # its memory
        self._left: deque[Pieces] = deque()  # frames whose bytes lie there until it has taken them
        self._left_bytes = self._left_count = self._taken = 0
        self._copied = self._told = 0  # of its frames, in all
        self._untold_bytes = 0
        self.bytes_in = self.bytes_out = 0

    def offer(self) -> bytes:
        """What to say first; nothing if there is nothing to lend."""
        return encode(self.own.offer(self._us, self._them)) if self.own is not None else b""

    # ----------------------------------------------------------------- sending

    def instead(self, frame: Frame) -> bytes | None:
        """What to write instead of a frame that stays where it is; empty: nothing, it goes itself. None: not before the peer has
        taken some of those that went before it.
        """
        if not self.is_seen or not isinstance(frame, Pieces) or not frame.lies:
            return b""
        if self._left and self._left_bytes + len(frame) > LEFT_BYTES:
            return None
        self._left.append(frame)
        self._left_count += 1
        self._left_bytes += len(frame)
        self.bytes_out += len(frame)
        return frame.lies

    def _free(self, count: int) -> None:
        if not self._taken <= count <= self._left_count:
            raise WireError("wrong shape", f"{count} of {self._left_count} messages taken")
        for _ in range(count - self._taken):
            self._left_bytes -= len(self._left.popleft())
        self._taken = count

    # --------------------------------------------------------------- receiving

    def receive(self, message: Message) -> Message | bytes | None:
        """A message that lay in the peer's memory, or what to answer."""
        if isinstance(message, Lies):
            if self._window is None:
                raise WireError("wrong shape", "a message that lies in memory that was never seen")
            if self._untold_bytes and self._untold_bytes + message.size > LEFT_BYTES:
                raise WireError(
                    "flood", "it leaves more in memory than may wait there"
                )  # and copying would take long
            data = self._window.copy(message.at, message.size, message.stamp)
            self._copied += 1
            self._untold_bytes += message.size
            self.bytes_in += message.size
            return filled(message, data)
        if isinstance(message, Memory):
            if self._offered:
                raise WireError("wrong shape", "memory for the second time")
            self._offered = True
            with contextlib.suppress(
                OSError, ValueError
            ):  # another user's, another container's: it hears nothing, and sends all
                window = Window(message)
                if hmac.compare_digest(message.proof, proof(window.token, self._them, self._us)):
                    self._window = window
                    return encode(Seen(window.token))
            return None
        if isinstance(message, Seen):
            self.is_seen = self.own is not None and secrets.compare_digest(
                message.token, self.own.token
            )
            return None
        assert isinstance(message, Taken)
        self._free(message.count)
        return None

    def owed(self) -> bytes:
        """What to tell the peer of what was copied since it was told last."""
        if self._copied == self._told:
            return b""
        self._told, self._untold_bytes = self._copied, 0
        return encode(Taken(self._copied))

    def close(self) -> None:
        """The link is gone, and what was left there is not needed any more."""
        self._left.clear()
        self._window = None


SHARING = frozenset((Memory, Seen, Lies, Taken))
