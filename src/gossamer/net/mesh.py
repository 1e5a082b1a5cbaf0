"""Who to have links with: the join addresses, and others that neighbours tell of, until there are ``degree`` links.

A thin stand-in for the interest plane's membership (issue "Interest view"): addresses spread by gossip, a node dials until it
has enough links, and keeps trying the addresses that it was told to join, so that a fabric whose seed restarts grows
together again.
"""

from __future__ import annotations

import asyncio
import re
from random import Random

from gossamer.machine import LinkState, Peer
from gossamer.net.connection import Connection
from gossamer.net.driver import Driver
from gossamer.node.wire import ADDRESSES_MAX, Contacts

KNOWN_MAX = 1024
DIAL_SECONDS = 5.0
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 2.0  # well within the grace that flood gives a neighbour
GOSSIP_SECONDS = 2.0
STAGGER_SECONDS = 0.3


class AddressError(ValueError):
    """Not a host:port."""


def parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not host.isprintable() or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise AddressError(f"{address!r} is not an address; write host:port, for example 127.0.0.1:7400")
    return host, int(port)


class Mesh:
    def __init__(self, driver: Driver, join: tuple[str, ...], degree: int, rng: Random) -> None:
        self.driver, self.join, self.degree, self.rng = driver, join, degree, rng
        self.joined = asyncio.Event()
        self._known: dict[str, None] = {}  # addresses heard of, oldest first
        self._peers: dict[str, Peer] = {}  # who was found behind an address: one peer may have several
        self._mine: dict[str, None] = {}  # addresses that turned out to be this node's own
        self._dialling: dict[str, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopping = False
        driver.contacts = self.learn
        driver.changed = self._changed

    def start(self) -> None:
        for address in self.join:
            self._spawn(self._keep(address))
        self._spawn(self._gossip())

    async def stop(self) -> None:
        self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def learn(self, addresses: tuple[str, ...]) -> None:
        for address in addresses:
            if address and address != self.driver.address and address not in self._mine:
                try:
                    parse_address(address)
                except AddressError:
                    self.driver.counters["bad_addresses"] += 1
                    continue
                self._known.pop(address, None)
                self._known[address] = None
        while len(self._known) > KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._grow()

    # ------------------------------------------------------------------ inside

    def _linked(self) -> dict[str, None]:
        """Addresses that there is a link to: as dialled, and as the peer gives its own."""
        found = {address: None for address, peer in self._peers.items() if peer in self.driver.links}
        for connection in self.driver.links.values():
            if connection.dialled:
                found[connection.dialled] = None
            if connection.hello is not None and connection.hello.address:
                found[connection.hello.address] = None
        return found

    def _changed(self, peer: Peer, state: LinkState) -> None:
        if state is LinkState.UP:
            self.joined.set()
            connection = self.driver.links[peer]
            assert connection.hello is not None
            newcomer = connection.hello.address
            others = [other for other in self.driver.links if other != peer]
            self.driver.send_to(peer, self._contacts())
            if newcomer:
                for other in self.rng.sample(others, min(3, len(others))):
                    self.driver.send_to(other, Contacts((newcomer,)))
                self.learn((newcomer,))
        elif state in (LinkState.DOWN, LinkState.CUT):
            self._grow()

    def _contacts(self) -> Contacts:
        linked = [c.hello.address for c in self.driver.links.values() if c.hello is not None and c.hello.address]
        known = list(self._known)
        more = self.rng.sample(known, min(len(known), ADDRESSES_MAX // 2))
        return Contacts(tuple(dict.fromkeys([*linked[: ADDRESSES_MAX // 2], *more])))

    def _grow(self) -> None:
        if self._stopping:
            return
        missing = self.degree - len(self.driver.links) - len(self._dialling)
        if missing <= 0:
            return
        linked = self._linked()
        candidates = [address for address in self._known if address not in linked and address not in self._dialling]
        for address in self.rng.sample(candidates, min(missing, len(candidates))):
            self._dialling[address] = None
            self._spawn(self._try(address))

    async def _try(self, address: str) -> None:
        try:
            await asyncio.sleep(STAGGER_SECONDS * self.rng.random())  # both ends have heard of each other at the same time
            if address not in self._linked() and not await self._dial(address):
                self._known.pop(address, None)  # heard of again if it comes back
        finally:
            self._dialling.pop(address, None)
        self._grow()

    async def _keep(self, address: str) -> None:
        """Keep a link to an address that the user told us to join."""
        wait = RETRY_SECONDS
        while True:
            if address in self._linked() or await self._dial(address):
                wait = RETRY_SECONDS_MAX
            await asyncio.sleep(wait * (0.5 + self.rng.random()))
            wait = min(wait * 2, RETRY_SECONDS_MAX)

    async def _dial(self, address: str) -> bool:
        host, port = parse_address(address)
        loop = self.driver.loop
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                _, connection = await loop.create_connection(lambda: Connection(self.driver, address), host, port)
                await asyncio.shield(connection.settled)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that no resolver takes
            self.driver.counters["dials_failed"] += 1
            if address in self.join:  # others come and go
                self.driver.last_problem = f"cannot reach {address}: {str(error) or 'timed out'}"
            return False
        if connection.reason == "myself":
            self._mine[address] = None
        elif connection.hello is not None:
            self._peers[address] = connection.peer
            if len(self._peers) > KNOWN_MAX:
                self._peers.pop(next(iter(self._peers)))
        return connection.hello is not None and connection.reason not in ("myself", "other fabric")

    async def _gossip(self) -> None:
        while True:
            await asyncio.sleep(GOSSIP_SECONDS * (0.5 + self.rng.random()))
            if self.driver.links:
                self.driver.send_to(self.rng.choice(list(self.driver.links)), self._contacts())
            self._grow()

    def _spawn(self, work: object) -> None:
        if self._stopping:
            work.close()  # type: ignore[attr-defined]
            return
        task: asyncio.Task[None] = self.driver.loop.create_task(work)  # type: ignore[arg-type]
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
