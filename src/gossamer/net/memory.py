"""Memory that nodes of one host share, so that large messages need not be copied through sockets.

docs/decisions/0021-shared-memory-on-one-host.md gives the reasons.

A process lends out one piece of memory (``lent``). The columns that its nodes publish are gathered
there (filters/_columns.pxi). When two nodes of one host meet, each says where its memory is
(``Memory``). A peer that can open the memory replies with the token that it read there
(``MemorySeen``). From then on a frame whose columns lie in that memory is sent as ``InMemory``: the
place, the size, and the rest of the message. The peer copies the bytes out, in order with
everything else on the link, and says how many messages it has copied (``MemoryTaken``). The bytes
stay until then. The bytes that a peer has not taken are bounded (``LEFT_BYTES``). Beyond that,
events wait as they do for a full socket.

Nothing depends on it. A peer that cannot open the memory (on another host, of another user, in
another container) does not reply, and gets everything over the socket.

Peers are not trusted. A node opens with its own rights the memory that a peer names. So the peer
must prove that the memory is its own and meant for this link, by a token that only a process knows
that sees the memory. The memory must be sealed against shrinking, because reading memory that has
shrunk would end this process. It is mapped for reading. Nothing reads the bytes before they are
copied, because their owner may change them at any time. A link that breaks leaves bytes behind that
its peer may still be about to copy. So every step of the memory has a stamp that changes before the
step is used again, and the copying node checks the stamps afterwards.

The memory has no name, so nothing is left behind when a process is killed. The kernel lets
processes of the same user open it, and only its owner write to it. Nodes that must keep secrets
from each other on one host run as different users, with keys, or with ``shared_memory=False``.
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
    InMemory,
    Memory,
    MemorySeen,
    MemoryTaken,
    Pieces,
    WireError,
    encode,
    filled,
)

if TYPE_CHECKING:
    from fcntl import F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl

# Whether this system has such memory.
HERE = False
with contextlib.suppress(ImportError):
    from fcntl import F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl

    HERE = hasattr(os, "memfd_create")

# The bytes that a process lends. It takes the used part at once and keeps it.
MEMORY_BYTES = 64 << 20
# The most bytes that one peer has not taken. Both ends enforce it.
LEFT_BYTES = 8 << 20
# As in _columns.pxi. The first step has a stamp of 8 bytes for each of the other steps. At its end
# stands the token, which only a process knows that sees the memory.
STEP_BYTES = 256 << 10
TOKEN_AT = STEP_BYTES - 16
_NAME = "gossamer"
_HUGE = 2 << 20
# Not every Python's fcntl has this number.
_SEAL_FUTURE_WRITE = 0x10


class Lent:
    """The memory that this process lends."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, MEMORY_BYTES)
            self.token = secrets.token_bytes(16)
            os.pwrite(self.descriptor, self.token, TOKEN_AT)
            # Nobody can guess these stamps.
            loops.lend(self.descriptor, MEMORY_BYTES, secrets.randbits(62))
            # An older kernel does not know this seal.
            with contextlib.suppress(OSError):
                fcntl(self.descriptor, F_ADD_SEALS, _SEAL_FUTURE_WRITE)
            fcntl(self.descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
        except OSError:
            os.close(self.descriptor)
            raise

    def offer(self, us: Hello, them: Hello) -> Memory:
        return Memory(os.getpid(), self.descriptor, MEMORY_BYTES, proof(self.token, us, them))


def proof(token: bytes, owner: Hello, reader: Hello) -> bytes:
    """The proof that the owner knows the token and lends this memory to this reader.

    With keys, the ids in it are proved too.
    """
    about = b"".join(
        number.to_bytes(8, "big") for one in (owner, reader) for number in (one.peer, one.process)
    )
    return hmac.digest(token, about, "sha256")


_lent: list[Lent | None] = []


def lent() -> Lent | None:
    """The memory that this process lends.

    None means that the loops are not compiled, or that the system has no such memory.
    """
    if not _lent:
        _lent.append(None)
        if HERE and loops.native is not None and not _is_counted():
            with contextlib.suppress(OSError):
                _lent[0] = Lent()
    return _lent[0]


def counted() -> dict[str, int]:
    """A counter for operators: how often columns found no room in the lent memory.

    Then peers have not taken the bytes that lie there, and the columns go by the sockets.
    """
    missed = loops.missed()
    return {"shared_memory_full": missed} if missed else {}


def _is_counted() -> bool:
    """Whether the system refuses memory beyond its limit.

    Then touching memory like this could end the process.
    """
    with contextlib.suppress(OSError):
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    return False


def _forked() -> None:
    """Stops lending in a forked child, which must not write where its parent does."""
    if _lent and _lent[0] is not None:
        loops.lend(-1, 0, 0)
        os.close(_lent[0].descriptor)
    _lent.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Window:
    """A peer's memory, to read."""

    def __init__(self, offer: Memory) -> None:
        """Raises an OSError or a ValueError if it cannot be opened, or is not a node's memory."""
        path = Path(f"/proc/{offer.process}/fd/{offer.descriptor}")
        # This comes before opening it, because opening a device may have effects.
        if not str(path.readlink()).startswith(f"/memfd:{_NAME}"):
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
    """One link's use of shared memory, in both directions."""

    def __init__(self, us: Hello, them: Hello) -> None:
        self.own = lent()
        self._us, self._them = us, them
        # The peer has said where its memory is, whether or not this node can open it.
        self._offered = False
        # The peer has opened our memory.
        self.is_seen = False
        # The peer's memory.
        self._window: Window | None = None
        # Frames whose bytes stay in our memory until the peer has taken them.
        self._left: deque[Pieces] = deque()
        self._left_bytes = self._left_count = self._taken = 0
        # The number of the peer's frames that were copied, and the number that the peer was told.
        self.copied = self.told = 0
        self._untold_bytes = 0
        self.bytes_in = self.bytes_out = 0

    def offer(self) -> bytes:
        """The first message of the link, or nothing if there is no memory to lend."""
        return encode(self.own.offer(self._us, self._them)) if self.own is not None else b""

    def instead(self, frame: Frame) -> bytes | None:
        """The bytes to write instead of a frame that stays where it is.

        They are empty if the frame itself is to be written. None means that the peer must first
        take some of the earlier frames.
        """
        if not self.is_seen or not isinstance(frame, Pieces) or not frame.in_memory:
            return b""
        if self._left and self._left_bytes + len(frame) > LEFT_BYTES:
            return None
        self._left.append(frame)
        self._left_count += 1
        self._left_bytes += len(frame)
        self.bytes_out += len(frame)
        return frame.in_memory

    def _free(self, count: int) -> None:
        if not self._taken <= count <= self._left_count:
            raise WireError("wrong shape", f"{count} of {self._left_count} messages taken")
        for _ in range(count - self._taken):
            self._left_bytes -= len(self._left.popleft())
        self._taken = count

    def receive(self, message: Message) -> Message | bytes | None:
        """A message that lay in the peer's memory, or the bytes to reply with."""
        if isinstance(message, InMemory):
            if self._window is None:
                raise WireError("wrong shape", "a message in memory that this node has not opened")
            if self._untold_bytes and self._untold_bytes + message.size > LEFT_BYTES:
                # The limit also keeps the copying short.
                raise WireError("flood", "it leaves more in memory than may wait there")
            data = self._window.copy(message.at, message.size, message.stamp)
            self.copied += 1
            self._untold_bytes += message.size
            self.bytes_in += message.size
            return filled(message, data)
        if isinstance(message, Memory):
            if self._offered:
                raise WireError("wrong shape", "memory for the second time")
            self._offered = True
            # The memory may be of another user or container. Without a reply the peer uses the
            # socket for everything.
            with contextlib.suppress(OSError, ValueError):
                window = Window(message)
                if hmac.compare_digest(message.proof, proof(window.token, self._them, self._us)):
                    self._window = window
                    return encode(MemorySeen(window.token))
            return None
        if isinstance(message, MemorySeen):
            self.is_seen = self.own is not None and secrets.compare_digest(
                message.token, self.own.token
            )
            return None
        assert isinstance(message, MemoryTaken)
        self._free(message.count)
        return None

    def owed(self) -> bytes:
        """The message that tells the peer how many frames were copied, if it was told of fewer."""
        if self.copied == self.told:
            return b""
        self.told, self._untold_bytes = self.copied, 0
        return encode(MemoryTaken(self.copied))

    def close(self) -> None:
        """The link is gone, so its bytes in the memory are not needed any more."""
        self._left.clear()
        self._window = None


SHARING = frozenset((Memory, MemorySeen, InMemory, MemoryTaken))
