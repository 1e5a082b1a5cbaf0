"""Opens connections to addresses. The machine decides which addresses, and how often (``Dial``).

A host name is looked up by the resolver, and some of its addresses are dialled. A name may stand
for many nodes, and this node may be one of them. It is looked up again when the machine dials it
again, ever more rarely while the answer stays the same.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from secrets import SystemRandom
from typing import TYPE_CHECKING

from gossamer.machine import Peer
from gossamer.net.connection import Connection

if TYPE_CHECKING:
    from gossamer.net.driver import Driver

DIAL_SECONDS = 5.0
# The most attempts under way.
DIALLING_MAX = 64
# The most addresses whose peer is remembered.
KNOWN_MAX = 4096
# The most names whose addresses are remembered.
NAMES_MAX = 256
# The time between two look-ups of a name. It doubles while the answer is the same or missing.
RESOLVE_SECONDS = 1.0
RESOLVE_SECONDS_MAX = 60.0
# The longest time between two look-ups while there is no link at all.
RESOLVE_SECONDS_ALONE = 4.0
# The most addresses of a name that are dialled at a time.
RESOLVED_DIALS = 4


class AddressError(ValueError):
    """A text that is not host:port."""


def parse_address(address: str, *, dialled: bool = False) -> tuple[str, int]:
    """The host and the port.

    ``dialled`` refuses port 0, because other nodes cannot reach it.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if (
        not colon
        or not host
        or not host.isprintable()
        or not re.fullmatch("[0-9]{1,5}", port)
        or int(port) > 65535
    ):
        raise AddressError(
            f"{address!r} is not an address; write host:port, for example 127.0.0.1:7400"
        )
    if dialled and not int(port):
        raise AddressError(
            f"{address!r} has port 0, which no node can reach; "
            "write the port that the node listens on"
        )
    return host, int(port)


def reason_of(error: Exception) -> str:
    """The system's own words. The event loops add numbers and the address."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", "") or str(error) or "timed out"


def is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return False


class _Name:
    """A name that was looked up."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.asked_at = 0.0
        self.wait = RESOLVE_SECONDS

    def is_due(self, now: float, *, alone: bool) -> bool:
        return now >= self.asked_at + (
            min(self.wait, RESOLVE_SECONDS_ALONE) if alone else self.wait
        )


class Dialler:
    def __init__(self, driver: Driver, told: tuple[str, ...]) -> None:
        self._driver = driver
        # The user named these addresses, so a failure is reported.
        self._told = told
        self._names: dict[str, _Name] = {}
        self._random = SystemRandom()
        # Called when all addresses that the user named turned out to be this node's.
        self.alone: Callable[[], object] = lambda: None
        # The peer that was found behind an address. One peer may have several.
        self._peers: dict[str, Peer] = {}
        # Addresses that turned out to be this node's own.
        self._mine: dict[str, None] = {}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def dial(self, address: str, peer: Peer | None = None) -> None:
        """Tries once to connect, to the node at this address or to this peer only.

        A failure is not reported. A link comes up if it works.
        """
        driver = self._driver
        if self._stopping or address in self._mine or address in self._dialling:
            return
        if address == driver.address:
            self._remember_mine(address)
            return
        if self._is_told(address):
            # The user means the node at this address, whatever its peer is.
            peer = None
        if (self._peers.get(address) if peer is None else peer) in driver.links:
            return
        if len(self._dialling) >= DIALLING_MAX:
            driver.counters["dials_dropped"] += 1
            return
        name = self._names.get(address)
        if name is not None and not name.is_due(driver.loop.time(), alone=not driver.links):
            return
        task = driver.loop.create_task(self._dial(address, peer))
        self._dialling[address] = task
        task.add_done_callback(lambda done: self._dialling.pop(address, None))

    async def stop(self) -> None:
        self._stopping = True
        tasks = list(self._dialling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _dial(self, address: str, peer: Peer | None = None) -> None:
        driver = self._driver
        try:
            # The address may come from a peer.
            host, port = parse_address(address)
            if _is_name(host):
                await self._resolve(address, host, port, peer)
                return
            async with asyncio.timeout(DIAL_SECONDS):
                _, connection = await driver.loop.create_connection(
                    lambda: Connection(driver, address, peer), host, port
                )
                await asyncio.shield(connection.settled)
        except AddressError:
            driver.counters["bad_addresses"] += 1
        # A ValueError is raised for a name that no resolver takes.
        except (OSError, TimeoutError, ValueError) as error:
            driver.counters["dials_failed"] += 1
            # Other addresses come and go.
            if self._is_told(address):
                driver.last_problem = f"cannot reach {address}: {reason_of(error)}"
        else:
            if connection.reason == "myself":
                self._remember_mine(address)
            elif connection.hello is not None:
                self._peers[address] = connection.peer
                if len(self._peers) > KNOWN_MAX:
                    self._peers.pop(next(iter(self._peers)))

    async def _resolve(self, address: str, host: str, port: int, peer: Peer | None) -> None:
        """Looks a name up and dials some of its addresses.

        Addresses whose peer is linked are left out.
        """
        driver = self._driver
        name = self._names.setdefault(address, _Name())
        if len(self._names) > NAMES_MAX:
            self._names.pop(next(iter(self._names)))
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                answers = await driver.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = tuple(dict.fromkeys(_written(str(place[0]), port) for *_, place in answers))
        except (OSError, TimeoutError, ValueError) as error:
            found = ()
            driver.counters["names_unresolved"] += 1
            if address in self._told:
                driver.last_problem = f"cannot resolve {host}: {reason_of(error)}"
        same = not found or set(found) == set(name.addresses)
        name.wait = min(2 * name.wait, RESOLVE_SECONDS_MAX) if same else RESOLVE_SECONDS
        name.addresses, name.asked_at = found or name.addresses, driver.loop.time()
        strange = [
            one
            for one in found
            if one not in self._mine and self._peers.get(one) not in driver.links
        ]
        for one in self._random.sample(strange, min(RESOLVED_DIALS, len(strange))):
            self.dial(one, peer)
        self._look_alone()

    def _is_told(self, address: str) -> bool:
        return any(
            address == told or address in getattr(self._names.get(told), "addresses", ())
            for told in self._told
        )

    def _remember_mine(self, address: str) -> None:
        self._mine[address] = None
        if len(self._mine) > KNOWN_MAX:
            self._mine.pop(next(iter(self._mine)))
        self._look_alone()

    def _look_alone(self) -> None:
        """Calls ``alone`` if this node is the only one on the user's list of addresses so far.

        It is for fabrics where every node gets the same list.
        """

        def mine(address: str) -> bool:
            name = self._names.get(address)
            if name is not None:
                return bool(name.addresses) and all(map(mine, name.addresses))
            return address in self._mine

        if self._told and all(map(mine, self._told)):
            self.alone()


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
