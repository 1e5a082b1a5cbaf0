"""Opening connections to addresses. Which ones, and how often, is the machine's business (``Dial``).

A host that is a name is asked of the resolver, and some of the addresses that it stands for are dialled: a name may stand for many
nodes, this one among them. It is asked again when the machine dials it again, ever more rarely while the answer stays the same.
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
DIALLING_MAX = 64  # attempts under way
KNOWN_MAX = 4096  # addresses whose peer is remembered
NAMES_MAX = 256  # names whose addresses are remembered
RESOLVE_SECONDS = (
    1.0  # between questions about a name, doubled while the answer is the same or none
)
RESOLVE_SECONDS_MAX = 60.0
RESOLVE_SECONDS_ALONE = 4.0  # the most while there is no link at all
RESOLVED_DIALS = 4  # of the addresses of a name, dialled at a time


class AddressError(ValueError):
    """Not a host:port."""


def parse_address(address: str, *, dialled: bool = False) -> tuple[str, int]:
    """Host and port. ``dialled``: one that others are to reach, so port 0 is none."""
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
            f"{address!r} has port 0, which nobody can reach; write the port that is listened on"
        )
    return host, int(port)


def reason_of(error: Exception) -> str:
    """What the system says: the event loops add numbers and the address, in words of their own."""
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
    """A name that was asked of the resolver."""

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
        self._told = told  # by the user: a failure is worth a word
        self._names: dict[str, _Name] = {}
        self._random = SystemRandom()
        self.alone: Callable[[], object] = lambda: (
            None
        )  # called when all that we were told turned out to be this node
        self._peers: dict[
            str, Peer
        ] = {}  # who was found behind an address: one peer may have several
        self._mine: dict[str, None] = {}  # addresses that turned out to be this node's own
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def dial(self, address: str, peer: Peer | None = None) -> None:
        """Try once, for whoever is there or for this peer only. Nothing is said if it fails; a link comes up if it works."""
        driver = self._driver
        if self._stopping or address in self._mine or address in self._dialling:
            return
        if address == driver.address:
            self._remember_mine(address)
            return
        if self._is_told(address):
            peer = None  # by name, so to say: whoever is there is who is meant
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
            host, port = parse_address(address)  # from a peer, perhaps
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
        except (
            OSError,
            TimeoutError,
            ValueError,
        ) as error:  # ValueError: a name that no resolver takes
            driver.counters["dials_failed"] += 1
            if self._is_told(address):  # others come and go
                driver.last_problem = f"cannot reach {address}: {reason_of(error)}"
        else:
            if connection.reason == "myself":
                self._remember_mine(address)
            elif connection.hello is not None:
                self._peers[address] = connection.peer
                if len(self._peers) > KNOWN_MAX:
                    self._peers.pop(next(iter(self._peers)))

    async def _resolve(self, address: str, host: str, port: int, peer: Peer | None) -> None:
        """Ask what a name stands for, and dial some of it; all of that whose peer is linked costs nothing."""
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
        """Everybody has one list of addresses, and this node is the only one that is on it, so far."""

        def mine(address: str) -> bool:
            name = self._names.get(address)
            if name is not None:
                return bool(name.addresses) and all(map(mine, name.addresses))
            return address in self._mine

        if self._told and all(map(mine, self._told)):
            self.alone()


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
