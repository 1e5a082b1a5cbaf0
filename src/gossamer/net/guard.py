"""Limits on connections and peers, and the checks that keys demand over time.

A connection is *half open* until its peer has said hello and, with keys, has shown its certificate.
There are few places for half-open connections. When they are taken the oldest one goes, because an
honest peer needs milliseconds. A peer that sends more than its share is cut off. With keys it
cannot come back under another name, so it is refused for a while.

With keys the guard does three things once a second. It reads files again that have changed. It cuts
links whose peer's certificate has expired or was revoked. It passes a list of revoked certificates
on to every neighbour if the list is new here. If the list is older than the operator allows, it
cuts all links, because a node that was revoked since could be among the peers.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

from gossamer.machine import Peer
from gossamer.net.errors import KeysError
from gossamer.net.keys import Keys
from gossamer.net.limits import PeerLimits
from gossamer.node.rights import Identity
from gossamer.node.wire import MISCONDUCT, Revocations

if TYPE_CHECKING:
    from gossamer.net.connection import Connection
    from gossamer.net.driver import Driver

TICK_SECONDS = 1.0
SHUT_OUT_MAX = 4096
# Descriptors of the process's limit that are not for connections.
DESCRIPTORS_SPARE = 64


class Guard:
    def __init__(self, driver: Driver, keys: Keys | None, limits: PeerLimits) -> None:
        self.keys, self.limits = keys, limits
        self._driver, self._loop = driver, driver.loop
        # The oldest come first.
        self._half_open: dict[Connection, None] = {}
        # The number of connections for each address.
        self._from: Counter[str] = Counter()
        # The number of handshakes in this second for each address.
        self._begun: Counter[str] = Counter()
        self._begun_at = 0.0
        self._shut_out: dict[Peer, float] = {}
        self._told = keys.adopted if keys is not None else 0
        self._connections = _descriptors(limits.connections)
        # The refusal of this node's own certificate a moment ago.
        self._own = ""
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick) if keys is not None else None

    def admit(self, connection: Connection) -> str:
        """Why a connection that was just opened must be closed; "" if it may stay.

        It makes room among the half-open connections.
        """
        limits, address = self.limits, connection.address
        if len(self._driver.connections) >= self._connections:
            return "too many connections"
        if connection.dialled is None:
            if self._from[address] >= limits.address_connections:
                return "too many connections"
            if self.keys is not None and not self._may_begin(address):
                return "too many handshakes"
            mine = [one for one in self._half_open if one.address == address]
            if len(mine) >= limits.address_half_open:
                mine[0].close(
                    "crowded out",
                    "the oldest of too many connections from one address that say no hello",
                )
            if len(self._half_open) >= limits.half_open:
                next(iter(self._half_open)).close(
                    "crowded out", "the oldest of too many connections that say no hello"
                )
            self._half_open[connection] = None
        self._from[address] += 1
        return ""

    def _may_begin(self, address: str) -> bool:
        now = self._loop.time()
        if now - self._begun_at >= 1.0:
            self._begun_at = now
            self._begun.clear()
        self._begun[address] += 1
        return self._begun[address] <= self.limits.handshakes

    def greeted(self, connection: Connection) -> None:
        self._half_open.pop(connection, None)

    def closed(self, connection: Connection, reason: str) -> None:
        """The connection is closed."""
        self._half_open.pop(connection, None)
        identity = connection.identity
        # An expired or revoked certificate is refused by itself. Its holder may have another one by
        # now.
        is_misconduct = reason in MISCONDUCT and reason not in ("expired", "revoked")
        if identity is not None and is_misconduct and self.keys is not None:
            self._shut_out.pop(identity.peer, None)
            self._shut_out[identity.peer] = self._loop.time() + self.limits.shut_out
            if len(self._shut_out) > SHUT_OUT_MAX:
                del self._shut_out[next(iter(self._shut_out))]

    def unplugged(self, connection: Connection) -> None:
        """The socket of the connection is gone."""
        self._from[connection.address] -= 1
        if self._from[connection.address] <= 0:
            del self._from[connection.address]

    def is_shut_out(self, peer: Peer) -> bool:
        until = self._shut_out.get(peer)
        if until is not None and until <= self._loop.time():
            del self._shut_out[peer]
            until = None
        return until is not None

    def revocations(self) -> int:
        """Names this node's lists of revoked certificates, for its Hello; 0 if it has none."""
        lists = self.keys.lists if self.keys is not None else {}
        if not lists:
            return 0
        named = repr(sorted((mark, one.number) for mark, one in lists.items()))
        return int.from_bytes(blake2b(named.encode(), digest_size=8).digest(), "big") | 1

    def tell(self, connection: Connection) -> None:
        """Sends our lists to a peer that has other ones, or none.

        They go before everything else. A peer whose own list is too old takes nothing else before.
        """
        assert connection.hello is not None
        if connection.hello.revocations != self.revocations():
            self._send_lists(connection)

    def _send_lists(self, connection: Connection) -> None:
        assert self.keys is not None
        for mark, one in self.keys.lists.items():
            self._driver.send_to(connection.peer, Revocations(mark, one.number, one.der))

    def hear(self, connection: Connection, message: Revocations) -> None:
        """Takes the list of a neighbour."""
        keys = self.keys
        if keys is None:
            return
        if message.authority not in keys.authorities:
            # The neighbour trusts an authority that is new, or one that has retired here.
            self._driver.counters["revocation lists of other authorities"] += 1
            return
        known = keys.lists.get(message.authority)
        if known is not None and message.number <= known.number:
            return
        try:
            is_later = keys.adopt(message.signed)
        except KeysError as error:
            connection.close("false list", str(error))
            return
        if is_later:
            self._spread(connection)
        else:
            connection.close("false list", "an earlier list under a later number")

    def is_stale(self, identity: Identity | None) -> bool:
        """Whether this node's list is too old to say that this certificate counts."""
        seconds = self.limits.revocations_max_age
        keys = self.keys
        return (
            bool(seconds)
            and keys is not None
            and identity is not None
            and keys.is_stale(identity, seconds)
        )

    def holds_back(self, connection: Connection) -> bool:
        """Whether a peer must not be linked to, because this node's list is too old.

        A peer that has other lists sends them first, and is judged by them.
        """
        connection.awaits_list = self.is_stale(connection.identity)
        if connection.awaits_list:
            assert connection.hello is not None
            if connection.hello.revocations in (0, self.revocations()):
                connection.close("old list", self.stale())
        return connection.awaits_list

    def stale(self) -> str:
        """The problem of a list that is too old, and its remedy."""
        return (
            "this node's list of revoked certificates is older than revocations_max_age allows "
            f"({self.limits.revocations_max_age:g} s), so it talks to no node; sign it anew: "
            "gossamer keys refresh AUTHORITY --to DIR"
        )

    def _spread(self, source: Connection | None = None) -> None:
        """Acts on a new list: cuts the links of peers on it, and tells all others."""
        keys = self.keys
        assert keys is not None
        self._told = keys.adopted
        self._driver.counters["revocation lists taken"] += 1
        self.check()
        for connection in list(self._driver.links.values()):
            if connection is not source:
                self._send_lists(connection)
        self._driver.revoked()
        self._driver.settle()

    def check(self) -> None:
        """Cuts the links of peers whose certificates count no longer.

        A peer has proved by its handshake that it has the key. So if its certificate was renewed
        since, the link goes on with the new one.
        """
        keys, rights = self.keys, self._driver.rights
        assert keys is not None
        for connection in list(self._driver.connections):
            identity = connection.identity
            if identity is None or connection.closed:
                continue
            refusal = keys.refusal(identity)
            newer = rights.identity(identity.peer) if refusal and rights is not None else None
            if newer is not None and keys.valid(newer):
                connection.identity = newer
            elif refusal:
                connection.close(refusal, f"the certificate of {identity.name}")
            elif not connection.awaits_list and self.is_stale(identity):
                connection.close("old list", self.stale())
        if rights is not None:
            rights.changed()

    def _tick(self) -> None:
        keys = self.keys
        assert keys is not None
        if keys.reload():
            self._driver.counters["keys read again"] += 1
            if keys.problem:
                self._driver.last_problem = keys.problem
            elif self._driver.rights is not None and self._driver.rights.renew(keys.identity):
                self._driver.renewed(keys.identity)
                self._driver.settle()
        if keys.adopted != self._told:
            self._spread()
        else:
            self.check()
        own = keys.refusal(keys.identity)
        if own in ("revoked", "of another authority") and own != self._own:
            self._driver.disowned()
        self._own = own
        if own:
            self._driver.last_problem = (
                f"this node's own certificate is {own}: no other node will talk to it; renew it"
            )
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _descriptors(wanted: int) -> int:
    """The number of connections that the process may open."""
    try:
        import resource
    # Not every system has this module.
    except ImportError:
        return wanted
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        wanted if soft == resource.RLIM_INFINITY else max(8, min(wanted, soft - DESCRIPTORS_SPARE))
    )
