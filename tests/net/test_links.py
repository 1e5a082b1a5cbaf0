"""The link contract on real sockets (machine.py): order, and refused event messages.

A full queue hands refused event messages back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import gossamer
from gossamer.machine import Effect, LinkState, Message, Micros, Peer, Send
from gossamer.net import connection
from gossamer.node import wire
from gossamer.node.history import Part, Past
from gossamer.overlay.batch import Leave, Report
from gossamer.trace import Dropped
from livenet import HELLO, go, until

pytestmark = pytest.mark.live

PEER = Peer(77)
ROWS = b"\x91\x91\x01" + bytes(200_000)
CAPACITY = 4 << 20


def told(number: int) -> Past:
    """An event message that no delivery engine keeps a book of: it goes back as it is."""
    part = Part(1, number, 1, (), ROWS)
    return Past("t", 1, number, (part,), (0, 0), True, (0, 0), 0, (0, 0), (0, 0), 0)


class Spy:
    """Notes the messages and states that a node's machine gets for one link, and the calls that
    bring them.
    """

    def __init__(self, node: gossamer.Node) -> None:
        self.core = node._core
        self.states: list[LinkState] = []
        self.refused: list[Past] = []
        self.calls = 0  # into the machine, under way
        self._link, self._refused = node._core.link, node._core.refused
        node._core.link = self.link  # type: ignore[method-assign]
        node._core.refused = self.hand_back  # type: ignore[method-assign]

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        assert not self.calls, "a call of the machine from within a call of the machine"
        self.states.append(state)
        return self._link(peer, state, now)

    def hand_back(self, peer: Peer, message: Message, now: Micros) -> list[Effect]:
        assert not self.calls, "a call of the machine from within a call of the machine"
        assert peer == PEER
        assert isinstance(message, Past)
        assert self.states[-1] is LinkState.FULL
        self.refused.append(message)
        return self._refused(peer, message, now)


@asynccontextmanager
async def deaf(node: gossamer.Node) -> AsyncIterator[tuple[Any, Any]]:
    """A peer that has said hello, and reads when the test does."""
    host, port = node.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
    writer.write(HELLO)
    await until(lambda: PEER in node._driver.links)
    yield reader, writer
    writer.close()


async def numbers(reader: asyncio.StreamReader, wanted: int) -> list[int]:
    """Read until this many have come; their numbers, in the order of their coming."""
    unframer, found = wire.Unframer(), []
    while len(found) < wanted:
        for message in unframer.feed(await reader.read(1 << 16)):
            if isinstance(message, Past):
                found.append(message.serial)
    return found


def test_a_full_queue_hands_event_messages_back_and_they_go_when_it_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "EVENT_QUEUE_BYTES", CAPACITY)
    monkeypatch.setattr(connection, "EVENT_QUEUE_LOW", CAPACITY // 4)

    async def main() -> None:
        async with gossamer.Node() as node:
            spy = Spy(node)
            async with deaf(node) as (reader, _):
                dropped: list[Dropped] = []
                noted = node._driver.noted
                node._driver.noted = lambda record: (
                    dropped.append(record) if isinstance(record, Dropped) else noted(record)
                )
                sent = 0
                while len(spy.refused) < 20:
                    node._driver.perform([Send((PEER,), told(sent))])
                    sent += 1
                    await asyncio.sleep(0)
                assert [one.serial for one in spy.refused] == list(range(sent - 20, sent))
                assert spy.states == [LinkState.UP, LinkState.FULL]
                assert node.status()["counters"]["refused_messages"] == 20
                assert await numbers(reader, sent) == list(range(sent))
                assert LinkState.READY in spy.states
                assert not dropped

    go(main())


def test_refused_messages_are_handed_back_after_all_effects_of_the_call() -> None:
    """It holds also where the effects break the rule that nothing calls a machine from within
    them.
    """

    async def main() -> None:
        async with gossamer.Node() as node:
            spy = Spy(node)
            async with deaf(node):
                link = node._driver.links[PEER]
                written: list[str] = []
                send = link.send

                def note(frame: wire.Frame, *, is_event: bool) -> bool:
                    taken = not is_event and send(frame, is_event=False)
                    written.append("control" if taken else f"{len(spy.refused)} refused")
                    if is_event and not link._full:
                        link._full = True
                        node._driver.link_changed(link, LinkState.FULL)
                    return taken

                link.send = note  # type: ignore[method-assign]
                to = (PEER,)
                node._driver.perform([Send(to, told(1)), Send(to, told(2)), Send(to, Leave())])
                assert written == ["0 refused", "0 refused", "control"]
                assert [one.serial for one in spy.refused] == [1, 2]
                assert spy.states == [LinkState.UP, LinkState.FULL]

    go(main())


def test_control_messages_keep_their_order_and_what_is_behind_a_hangup_is_not_heard() -> None:
    async def main() -> None:
        async with gossamer.Node() as node:
            heard: list[Message] = []
            async with deaf(node) as (_, writer):

                def receive(sender: Peer, message: Message, now: Micros) -> list[Effect]:
                    heard.append(message)
                    return []

                node._core.receive = receive  # type: ignore[method-assign]
                said: list[Message] = []
                for number in range(40):
                    said += Report(1, 1, number, 0, True), Leave((number,)), told(number)
                    if not number % 3:
                        said.append(Report(1, 1, 1_000 + number, 0, True))
                writer.write(b"".join(wire.encode(message) for message in said))
                await until(lambda: len(heard) == len(said))
                for kinds in ((Report, Leave), (Past,)):
                    assert [one for one in heard if isinstance(one, kinds)] == [
                        one for one in said if isinstance(one, kinds)
                    ]
                # A link that is closed in the middle of the bytes that were read says nothing more.
                link, before = node._driver.links[PEER], len(heard)

                def close(sender: Peer, message: Message, now: Micros) -> list[Effect]:
                    heard.append(message)
                    link.close("garbage", "as the test wants it")
                    return []

                node._core.receive = close  # type: ignore[method-assign]
                writer.write(wire.encode(Leave()) * 3)
                await until(lambda: PEER not in node._driver.links)
                await asyncio.sleep(0.02)
                assert len(heard) == before + 1

    go(main())
