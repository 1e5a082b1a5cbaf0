"""Keys for simulated nodes: cheap, and the same in every run.

A certificate and a signature are hashes under a secret that only this module has. So a simulated
liar cannot make them for another node: it may only repeat what that node has signed. Both are as
long as real ones, so the bytes that a run counts are right.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from gossamer.machine import Peer
from gossamer.node.rights import Identity, Rights
from gossamer.overlay.proof import SIGNATURE_MAX

# Real certificates with a few permissions have about this number of bytes.
CERTIFICATE_BYTES = 480
_MAC = 64
_decode = msgspec.msgpack.Decoder(
    tuple[int, str, int, int, int, tuple[str, ...], tuple[str, ...], int]
).decode


class SimulatedKeys:
    """The authority of a simulated fabric, and the keys of all its nodes."""

    def __init__(self, seed: int) -> None:
        self._secret = blake2b(b"fabric %d" % seed, digest_size=32).digest()
        # The number of signatures that were judged.
        self.judged = 0

    def key(self, peer: Peer) -> bytes:
        """The public key of a node. It says nothing about the secret one."""
        return self._mac(b"public", b"%d" % peer)[:32]

    def identity(
        self,
        peer: Peer,
        publish: tuple[str, ...] = ("*",),
        subscribe: tuple[str, ...] = ("*",),
        generation: int = 1,
    ) -> Identity:
        """What the authority has issued for a node."""
        fields = (peer, f"{peer:x}", generation, 0, 1 << 62, publish, subscribe, generation)
        packed = msgspec.msgpack.encode(fields)
        body = len(packed).to_bytes(2, "big") + packed
        body += bytes(max(0, CERTIFICATE_BYTES - _MAC - len(body)))
        identity = self.prove(body + self._mac(b"authority", body))
        assert identity is not None
        return identity

    def prove(self, certificate: bytes) -> Identity | None:
        """The holder of a certificate, if the authority has made it."""
        body, mac = certificate[:-_MAC], certificate[-_MAC:]
        if len(mac) < _MAC or mac != self._mac(b"authority", body):
            return None
        # The bytes behind it are padding.
        packed = body[2 : 2 + int.from_bytes(body[:2], "big")]
        peer, name, serial, begin, end, publish, subscribe, generation = _decode(packed)
        return Identity(
            Peer(peer), name, serial, begin, end, publish, subscribe, certificate, generation,
            self.key(Peer(peer)),
        )  # fmt: skip

    def rights(self, me: Identity) -> Rights:
        return Rights(me, self.prove, lambda identity: True)

    def proof(self, rights: Rights) -> SimulatedProof:
        return SimulatedProof(self, rights)

    def signed(self, peer: Peer, kind: bytes, content: bytes) -> bytes:
        return self._mac(b"node %d" % peer, kind + b"\0" + content)[:SIGNATURE_MAX]

    def _mac(self, owner: bytes, content: bytes) -> bytes:
        key = blake2b(owner, digest_size=32, key=self._secret).digest()
        return blake2b(content, digest_size=_MAC, key=key).digest()


class SimulatedProof:
    """The keys of one simulated node."""

    is_on = True

    def __init__(self, keys: SimulatedKeys, rights: Rights) -> None:
        self._keys, self._rights = keys, rights

    def sign(self, kind: bytes, content: bytes) -> bytes:
        return self._keys.signed(self._rights.me.peer, kind, content)

    def proves(self, peer: Peer, kind: bytes, content: bytes, signature: bytes) -> bool | None:
        if self._rights.key(peer) is None:
            return None
        self._keys.judged += 1
        return signature == self._keys.signed(peer, kind, content)
