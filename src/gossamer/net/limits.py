"""What peers may take of a node; guard.py and connection.py see to it."""

from __future__ import annotations

from msgspec import Struct

from gossamer.node.bounds import check_seconds, check_whole


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

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "window":
                check_seconds(name, value, 0.001, 3600.0)
            elif name == "shut_out":
                check_seconds(name, value)
            else:
                check_whole(name, value, 1, 1 << 40)
