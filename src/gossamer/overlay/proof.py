"""Signatures: a statement about a node counts only if that node has signed it.

It is sans-IO. The driver brings the keys (net/keys.py), and the simulator brings keys of its own
(sim/keys.py). A node without keys has ``UNSIGNED``: its signatures are empty and every one of them
counts, so the same code runs with and without keys.

Each kind of statement is signed under a name of its own. So a signature of one kind never counts
for another kind, whatever the bytes are.
"""

from __future__ import annotations

from typing import Protocol

from gossamer.machine import Peer

RECORD = b"record"
FAREWELL = b"farewell"
ADVERT = b"advert"
BATCH = b"batch"

# Of an Ed25519 signature, in bytes.
SIGNATURE_MAX = 64


class Proof(Protocol):
    """Signs in the name of this node, and judges the signatures of all nodes."""

    # Whether there are keys. Without keys a caller need not prepare the bytes to sign.
    @property
    def is_on(self) -> bool: ...

    def sign(self, kind: bytes, content: bytes) -> bytes:
        """This node's signature. It is empty without keys."""
        ...

    def proves(self, peer: Peer, kind: bytes, content: bytes, signature: bytes) -> bool | None:
        """Whether the peer has signed this. None means that the peer's key is not known yet."""
        ...


class Unsigned:
    """A fabric without keys: nothing is signed, and every statement counts."""

    is_on = False

    def sign(self, kind: bytes, content: bytes) -> bytes:
        return b""

    def proves(self, peer: Peer, kind: bytes, content: bytes, signature: bytes) -> bool | None:
        return True


UNSIGNED = Unsigned()
