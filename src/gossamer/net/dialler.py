"""Opening connections to addresses. Which ones, and how often, is the machine's business (``Dial``)."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from gossamer.machine import Peer
from gossamer.net.connection import Connection

if TYPE_CHECKING:
    from gossamer.net.driver import Driver

DIAL_SECONDS = 5.0
DIALLING_MAX = 64  # attempts under way
KNOWN_MAX = 4096  # addresses whose peer is remembered


class AddressError(ValueError):
    """Not a host:port."""


def parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not host.isprintable() or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise AddressError(f"{address!r} is not an address; write host:port, for example 127.0.0.1:7400")
    return host, int(port)


class Dialler:
    def __init__(self, driver: Driver, told: tuple[str, ...]) -> None:
        self._driver = driver
        self._told = told  # by the user: a failure is worth a word
        self._peers: dict[str, Peer] = {}  # who was found behind an address: one peer may have several
        self._mine: dict[str, None] = {}  # addresses that turned out to be this node's own
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def dial(self, address: str) -> None:
        """Try once. Nothing is said if it fails; a link comes up if it works."""
        driver = self._driver
        if self._stopping or address == driver.address or address in self._mine or address in self._dialling:
            return
        if self._peers.get(address) in driver.links:
            return
        if len(self._dialling) >= DIALLING_MAX:
            driver.counters["dials_dropped"] += 1
            return
        task = driver.loop.create_task(self._dial(address))
        self._dialling[address] = task
        task.add_done_callback(lambda done: self._dialling.pop(address, None))

    async def stop(self) -> None:
        self._stopping = True
        tasks = list(self._dialling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _dial(self, address: str) -> None:
        driver = self._driver
        try:
            host, port = parse_address(address)  # from a peer, perhaps
            async with asyncio.timeout(DIAL_SECONDS):
                _, connection = await driver.loop.create_connection(lambda: Connection(driver, address), host, port)
                await asyncio.shield(connection.settled)
        except AddressError:
            driver.counters["bad_addresses"] += 1
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that no resolver takes
            driver.counters["dials_failed"] += 1
            if address in self._told:  # others come and go
                driver.last_problem = f"cannot reach {address}: {str(error) or 'timed out'}"
        else:
            if connection.reason == "myself":
                self._remember_mine(address)
            elif connection.hello is not None:
                self._peers[address] = connection.peer
                if len(self._peers) > KNOWN_MAX:
                    self._peers.pop(next(iter(self._peers)))

    def _remember_mine(self, address: str) -> None:
        self._mine[address] = None
        if len(self._mine) > KNOWN_MAX:
            self._mine.pop(next(iter(self._mine)))
