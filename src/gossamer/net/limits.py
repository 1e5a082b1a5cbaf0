"""What peers may take of a node; guard.py and connection.py see to it."""

from __future__ import annotations

from msgspec import Struct


class PeerLimits(Struct, frozen=True, kw_only=True):
    """What peers may take of a node. Far above what honest ones need."""

    connections: int = 1024  # open sockets in all
    address_connections: int = 512  # from one address, so that it cannot take all
    half_open: int = 256  # that have not said hello yet
    address_half_open: int = 64  # from one address
    handshakes: int = (
        200  # begun by others within a second, from one address: each costs a millisecond of work
    )
    messages: int = 50_000  # a second, from one peer, over ``window``
    bytes: int = (
        4 << 30
    )  # likewise: columns between processes of one machine come at 2 to 3 GB/s, and more over no network
    window: float = 4.0  # seconds
    rejected: int = 1000  # messages that it must not send
    shut_out: float = (
        30.0  # seconds for which one that was cut off is refused, where there are keys
    )
