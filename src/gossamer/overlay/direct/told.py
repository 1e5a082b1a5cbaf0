"""The subscriber's side: this node's wishes on each topic, and the publishers that have been told.

A wish is a filter and a group. Publishers *watch*: they are told of every change of the wishes. The
changes are numbered, and only the last change of each wish is kept. A wish that has ended is a
change too, until all watchers have it. So a publisher that has all changes up to a number needs
only the later ones, and a new one begins with nothing. A wish is *laid* when all watchers have it.
A publisher that begins to watch later gets it at once.
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

# The time to the next call to a publisher that lacks a change and has no link.
DIAL_AGAIN = Micros(250 * MILLISECOND)
# The most wishes that a node tells of a topic. With more it takes all events, and matches them
# itself.
WANTS_MAX = 65_536
# The most topics that have watchers.
WATCHED_MAX = 65_536

# The text of the filter, and the group.
_Wish = tuple[str, str]


class Watcher:
    __slots__ = ("has", "is_told", "session")

    def __init__(self, has: int, session: int) -> None:
        self.has, self.session = has, session
        # It was told over the present link, and its answer is on the way.
        self.is_told = False


class Wishes:
    """This node's wishes on one topic."""

    def __init__(self, versions: Iterator[int]) -> None:
        # The number of the last change.
        self.version = 0
        self.numbers = 0
        # All topics share these numbers, so a topic that is forgotten and comes back repeats none.
        self._versions = versions
        # By the number of the wish: its version, text and group, in the order of the versions.
        self.log: dict[int, tuple[int, str | None, str]] = {}
        # The wishes among these that have ended, with their versions, in the same order.
        self.gone: dict[int, int] = {}
        # The number of each wish, and the subscriptions that share it.
        self.wishes: dict[_Wish, tuple[int, dict[int, None]]] = {}
        # By the number of the subscription.
        self.of: dict[int, _Wish] = {}
        self.watchers: dict[Peer, Watcher] = {}
        # Versions and subscriptions.
        self.unlaid: list[tuple[int, int]] = []

    def change(self, number: int, text: str | None, group: str) -> None:
        self.version = next(self._versions)
        self.log.pop(number, None)
        self.log[number] = (self.version, text, group)
        if text is None:
            self.gone[number] = self.version

    @property
    def everywhere(self) -> int:
        """The version that all watchers have."""
        return min((watcher.has for watcher in self.watchers.values()), default=self.version)

    def laid(self) -> list[int]:
        """The subscriptions that all watchers have been told of."""
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
        """Forgets the wishes that have ended, if all watchers know that."""
        if self.gone:
            everywhere = self.everywhere
            while self.gone and next(iter(self.gone.values())) <= everywhere:
                number = next(iter(self.gone))
                del self.gone[number], self.log[number]

    def after(self, has: int) -> tuple[int, tuple[Want, ...]]:
        """The changes that follow, up to one message full, and the version that they lead to."""
        changes: list[Want] = []
        version, characters = has, 0
        # The latest changes are the last ones.
        later = list(takewhile(lambda one: one[1][0] > has, reversed(self.log.items())))
        for number, (changed, text, group) in reversed(later):
            characters += len(text or "") + len(group)
            if changes and (len(changes) == CHANGES_MAX or characters > CHANGES_CHARACTERS):
                return version, tuple(changes)
            changes.append((number, text, group))
            version = changed
        return self.version, tuple(changes)


class Told:
    """The wishes on all topics, by the hash of the topic. The owner takes the subscriptions in
    ``laid``.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.topics: dict[int, Wishes] = {}
        self.laid: list[int] = []
        self.deadline = NEVER
        self._versions = count(1)
        # The topics, by the number of the subscription.
        self._of: dict[int, int] = {}
        # Topics of which a watcher may lack a change.
        self._behind: dict[int, None] = {}
        self._linked: dict[Peer, None] = {}

    def subscribe(
        self, number: int, hash: int, text: str, group: str, now: Micros
    ) -> tuple[int, str, str] | None:
        """Returns the number, text and group of the wish if it is new."""
        topic = self.topics.setdefault(hash, Wishes(self._versions))
        if len(text) > FILTER_TEXT_MAX or (
            len(topic.wishes) >= WANTS_MAX and (text, group) not in topic.wishes
        ):
            # This node gets all events, and matches them itself.
            text = ""
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
        """Others had taken this node for dead, and forgotten its wishes. They ask again, and hear
        all of them.
        """
        for topic in self.topics.values():
            topic.watchers.clear()
            topic.unlaid = [
                (topic.log[topic.wishes[wish][0]][0], number) for number, wish in topic.of.items()
            ]
            topic.forget_gone()
            self.laid += topic.laid()

    def watch(self, sender: Peer, message: Watch, now: Micros) -> Wanted | None:
        """A publisher watches, or has the changes that it was told. Returns the changes that it
        lacks.
        """
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
            # It is late.
            return None
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
        """A publisher is dead, or has begun ``anew``. Then it may have watched before this node
        heard of its new life, and it is told again.
        """
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
        """There is a link to a peer, which is told the changes that it lacks at once."""
        self._linked[peer] = None
        self._lost(peer, now)

    def unlinked(self, peer: Peer, now: Micros) -> None:
        """The link is down. The last message or its answer may be lost, so the next link repeats
        it.
        """
        self._linked.pop(peer, None)
        self._lost(peer, now)

    def _lost(self, peer: Peer, now: Micros) -> None:
        for hash in self._behind:
            topic = self.topics.get(hash)
            watcher = topic.watchers.get(peer) if topic is not None else None
            if watcher is not None:
                watcher.is_told, self.deadline = False, now

    def wake(self, now: Micros) -> list[tuple[Peer, Wanted]]:
        """The changes that watchers lack, once for each link. A peer without a link is to be
        dialled.
        """
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
