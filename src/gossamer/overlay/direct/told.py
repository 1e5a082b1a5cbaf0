"""The subscriber's side: what this node wants on each topic, and which publishers have been told.

Changes are numbered. Of each filter only its last change is kept (a filter that is no longer wanted is a change too, until all who
watch have it), so whoever has all up to some number needs only what comes after, and a newcomer starts at nothing. A filter is
*laid* when everybody who watches has it; who begins to watch later gets it first thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile

from gossamer.machine import MILLISECOND, NEVER, Micros, Peer
from gossamer.overlay.direct.messages import (
    CHANGES_CHARACTERS,
    CHANGES_MAX,
    FILTER_TEXT_MAX,
    Unwatch,
    Want,
    Wanted,
    Watch,
)

DIAL_AGAIN = Micros(250 * MILLISECOND)  # to a publisher that is to be told and has no link
WANTS_MAX = 65_536  # different filters that a node tells of a topic; with more, it takes all events and looks for itself
WATCHED_MAX = 65_536  # topics of which somebody is told

_Wish = tuple[str, str]  # text and group


class Watcher:
    __slots__ = ("has", "is_told", "session")

    def __init__(self, has: int, session: int) -> None:
        self.has, self.session = has, session
        self.is_told = False  # over the present link, and its answer is on the way


class Wishes:
    """What this node wants on one topic."""

    def __init__(self, versions: Iterator[int]) -> None:
        self.version = 0  # of its last change
        self.numbers = 0
        self._versions = versions  # of all topics together: a topic that is forgotten and comes back repeats none
        self.log: dict[
            int, tuple[int, str | None, str]
        ] = {}  # number -> version, text, group; in the order of versions
        self.gone: dict[
            int, int
        ] = {}  # those of them that are no longer wanted, and their versions; in the same order
        self.wishes: dict[
            _Wish, tuple[int, dict[int, None]]
        ] = {}  # its number, and the subscriptions that share it
        self.of: dict[int, _Wish] = {}  # by subscription
        self.watchers: dict[Peer, Watcher] = {}
        self.unlaid: list[tuple[int, int]] = []  # version, subscription

    def change(self, number: int, text: str | None, group: str) -> None:
        self.version = next(self._versions)
        self.log.pop(number, None)
        self.log[number] = (self.version, text, group)
        if text is None:
            self.gone[number] = self.version

    @property
    def everywhere(self) -> int:
        """The version that everybody who watches has."""
        return min((watcher.has for watcher in self.watchers.values()), default=self.version)

    def laid(self) -> list[int]:
        """Subscriptions that everybody who watches has been told of."""
        if not self.unlaid:
            return []
        everywhere = self.everywhere
        done = [number for version, number in self.unlaid if version <= everywhere]
        if done:
            self.unlaid = [
                (version, number) for version, number in self.unlaid if version > everywhere
            ]
        return done

    def forget_gone(self) -> None:
        """What is no longer wanted, and everybody who watches knows it."""
        if self.gone:
            everywhere = self.everywhere
            while self.gone and next(iter(self.gone.values())) <= everywhere:
                number = next(iter(self.gone))
                del self.gone[number], self.log[number]

    def after(self, has: int) -> tuple[int, tuple[Want, ...]]:
        """The changes that follow, as many as one message takes; and the version they lead to."""
        changes: list[Want] = []
        version, characters = has, 0
        later = list(
            takewhile(lambda one: one[1][0] > has, reversed(self.log.items()))
        )  # the last ones are the latest
        for number, (changed, text, group) in reversed(later):
            characters += len(text or "") + len(group)
            if changes and (len(changes) == CHANGES_MAX or characters > CHANGES_CHARACTERS):
                return version, tuple(changes)
            changes.append((number, text, group))
            version = changed
        return self.version, tuple(changes)


class Told:
    """All topics, by hash. ``laid`` has subscriptions that are laid, for the owner to take."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.topics: dict[int, Wishes] = {}
        self.laid: list[int] = []
        self.deadline = NEVER
        self._versions = count(1)
        self._of: dict[int, int] = {}  # topic by subscription
        self._behind: dict[int, None] = {}  # topics of which somebody may lack something
        self._linked: dict[Peer, None] = {}

    def subscribe(
        self, number: int, hash: int, text: str, group: str, now: Micros
    ) -> tuple[int, str, str] | None:
        """Want something; its number, text and group, if nobody here wanted it before."""
        topic = self.topics.setdefault(hash, Wishes(self._versions))
        if len(text) > FILTER_TEXT_MAX or (
            len(topic.wishes) >= WANTS_MAX and (text, group) not in topic.wishes
        ):
            text = ""  # all events: what fits is found here
        wish = (text, group)
        known = topic.wishes.get(wish)
        is_new = known is None
        if known is None:
            topic.numbers += 1
            known = topic.wishes[wish] = (topic.numbers, {})
            topic.change(topic.numbers, text, group)
        known[1][number] = None
        topic.of[number], self._of[number] = wish, hash
        version = topic.log[known[0]][0]
        if version <= topic.everywhere:
            self.laid.append(number)
        else:
            topic.unlaid.append((version, number))
            self._behind[hash], self.deadline = None, now
        return (known[0], *wish) if is_new else None

    def unsubscribe(self, number: int, now: Micros) -> tuple[int, int | None]:
        """This node wants it no longer. Returns the topic, and the wish's number if no other
        subscription here shares it.
        """
        hash = self._of.pop(number)
        topic = self.topics[hash]
        wish = topic.of.pop(number)
        known, sharing = topic.wishes[wish]
        del sharing[number]
        topic.unlaid = [one for one in topic.unlaid if one[1] != number]
        if sharing:
            return hash, None
        del topic.wishes[wish]
        topic.change(known, None, wish[1])
        if topic.watchers:
            self._behind[hash], self.deadline = None, now
        self._settle(topic, hash)
        return hash, known

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead, and forgotten what it wants: they ask again, and hear all of it."""
        for topic in self.topics.values():
            topic.watchers.clear()
            topic.unlaid = [
                (topic.log[topic.wishes[wish][0]][0], number) for number, wish in topic.of.items()
            ]
            topic.forget_gone()
            self.laid += topic.laid()

    def watch(self, sender: Peer, message: Watch, now: Micros) -> Wanted | None:
        """Somebody watches, or has what it was told; returns what it lacks."""
        topic = self.topics.get(message.topic)
        if topic is None:
            if len(self.topics) >= WATCHED_MAX:
                return None
            topic = self.topics[message.topic] = Wishes(self._versions)
        known = message.epoch == self.epoch and message.have <= topic.version
        watcher = topic.watchers.get(sender)
        if watcher is None:
            watcher = topic.watchers[sender] = Watcher(0, message.session)
        elif message.session < watcher.session:
            return None  # late
        watcher.session = message.session
        watcher.has = message.have if known else 0
        if known and watcher.has == topic.version:
            watcher.is_told = False
            topic.forget_gone()
            self.laid += topic.laid()
            return None
        return self._tell(message.topic, topic, watcher)

    def unwatch(self, sender: Peer, message: Unwatch) -> None:
        topic = self.topics.get(message.topic)
        watcher = topic.watchers.get(sender) if topic is not None else None
        if topic is not None and watcher is not None and message.session >= watcher.session:
            del topic.watchers[sender]
            self._settle(topic, message.topic)

    def gone(self, peer: Peer, now: Micros, *, anew: bool = False) -> None:
        """A publisher is dead, or has begun ``anew``: then it may have watched before this node heard of that, and is asked."""
        for hash, topic in list(self.topics.items()):
            watcher = topic.watchers.get(peer)
            if watcher is not None and anew and topic.version:
                watcher.has = watcher.session = 0
                watcher.is_told = False
                self._behind[hash], self.deadline = None, now
            elif watcher is not None:
                del topic.watchers[peer]
                self._settle(topic, hash)

    def linked(self, peer: Peer, now: Micros) -> None:
        """There is a link to somebody: what it lacks need not wait."""
        self._linked[peer] = None
        self._lost(peer, now)

    def unlinked(self, peer: Peer, now: Micros) -> None:
        """The link is down: what was told, or its answer, may be lost, and is told again over the next one."""
        self._linked.pop(peer, None)
        self._lost(peer, now)

    def _lost(self, peer: Peer, now: Micros) -> None:
        for hash in self._behind:
            topic = self.topics.get(hash)
            watcher = topic.watchers.get(peer) if topic is not None else None
            if watcher is not None:
                watcher.is_told, self.deadline = False, now

    def wake(self, now: Micros) -> list[tuple[Peer, Wanted]]:
        """What those who watch lack, once for each link. A peer without a link is to be dialled."""
        found: list[tuple[Peer, Wanted]] = []
        self.deadline = NEVER
        for hash in list(self._behind):
            topic = self.topics.get(hash)
            lacking = (
                [(p, w) for p, w in topic.watchers.items() if w.has < topic.version]
                if topic is not None
                else []
            )
            if topic is None or not lacking:
                del self._behind[hash]
                continue
            for peer, watcher in lacking:
                if not watcher.is_told:
                    found.append((peer, self._tell(hash, topic, watcher)))
                if peer not in self._linked:
                    watcher.is_told = False
                    self.deadline = Micros(now + DIAL_AGAIN)
        return found

    def _tell(self, hash: int, topic: Wishes, watcher: Watcher) -> Wanted:
        watcher.is_told = True
        self._behind[hash] = None
        version, changes = topic.after(watcher.has)
        return Wanted(
            hash, self.epoch, watcher.has, version, topic.version, changes, watcher.session
        )

    def _settle(self, topic: Wishes, hash: int) -> None:
        topic.forget_gone()
        self.laid += topic.laid()
        if not topic.of and not topic.watchers and not topic.unlaid:
            del self.topics[hash]


__all__ = ["Told"]
