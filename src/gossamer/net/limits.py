"""Limits on the use that peers may make of a node. guard.py and connection.py enforce them."""

from __future__ import annotations

from msgspec import Struct

from gossamer.node.bounds import check_seconds, check_whole


class PeerLimits(Struct, frozen=True, kw_only=True):
    """Limits on the use that peers may make of a node. They lie far above the needs of honest
    peers.
    """

    # Open sockets in all.
    connections: int = 1024
    # Open sockets from one address, so that it cannot take all.
    address_connections: int = 512
    # Connections that have not said hello yet.
    half_open: int = 256
    # Such connections from one address.
    address_half_open: int = 64
    # Begun by others within a second, from one address. Each costs a millisecond of work.
    handshakes: int = 200
    # Messages a second from one peer, over ``window``.
    messages: int = 50_000
    # Bytes a second from one peer, over ``window``. Between processes of one machine columns come
    # at 2 to 3 GB/s, and at more when no network is involved.
    bytes: int = 4 << 30
    # In seconds.
    window: float = 4.0
    # Messages that the peer must not send.
    rejected: int = 1000
    # With keys, the seconds for which a peer that was cut off is refused.
    shut_out: float = 30.0
    # With keys, the age in seconds beyond which the list of revoked certificates is too old.
    # Then it talks to nobody until it gets a later one. 0: any age will do.
    revocations_max_age: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "window":
                check_seconds(name, value, 0.001, 3600.0)
            elif name in ("shut_out", "revocations_max_age"):
                check_seconds(name, value)
            else:
                check_whole(name, value, 1, 1 << 40)
