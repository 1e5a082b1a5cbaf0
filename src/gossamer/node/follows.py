"""All subscriptions of a node that follow (follow.py), with their messages and their disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gossamer.filters import FilterError
from gossamer.machine import NEVER, Dial, Effect, LinkState, Micros, Note, Peer, Send, Store, Token
from gossamer.node.durable import NAME, TAPS_MAX, Tap, TapError, restore_taps
from gossamer.node.follow import Follow, Wish
from gossamer.node.history import Archive, AskPast, Past
from gossamer.node.local import Local, LocalSubscription
from gossamer.node.missed import Missed
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import ViewChange
from gossamer.trace import Dropped, Rejected, hex_peer


class Follows:
    def __init__(
        self,
        me: Peer,
        archive: Archive,
        interest: Interest | None,
        local: Local,
        out: list[Effect],
        *,
        token: Callable[[], Token],
        use: Callable[[Peer, Micros], None],
        durable: bool,
        tracing: bool,
        restored: Mapping[str, bytes],
    ) -> None:
        self.taps: dict[str, Tap] = restore_taps(restored)
        self.follows: dict[int, Follow] = {}
        self.out, self.tracing = out, tracing
        self._me, self._archive, self._interest, self._local = me, archive, interest, local
        self._token, self._use, self._durable = token, use, durable
        self._storing: dict[Token, Tap] = {}
        # Whether this node still has to tell a peer of events that it missed. The owner sets it.
        self.owes: Callable[[Peer], bool] = lambda peer: False
        # Since the driver last looked: Stores that are done, and Stores that never will be. The
        # driver clears both.
        self.done: list[Token] = []
        self.lost: list[Token] = []
        # Answers about this node's own past.
        self._answers: list[Past] = []

    def wish(self, subscription: LocalSubscription, wish: Wish, unix: int) -> None:
        """Makes a subscription follow. Raises a TapError."""
        if self._interest is None and not wish.ordered:
            raise TapError(
                "name=, since= and gaps= need a view of the fabric, "
                "which this node does not keep (interest)"
            )
        tap = self._tap(subscription, wish.name, unix) if wish.name else None
        subscription.follow = self.follows[subscription.number] = follow = Follow(
            self, subscription, wish, tap, unix
        )
        if tap is not None:
            tap.number, tap.is_new, tap.problem = subscription.number, False, ""
            if follow.tap is not None and tap.has_records:
                # The description of the tap is stored before its events.
                self._store(tap)

    def _tap(self, subscription: LocalSubscription, name: str, unix: int) -> Tap:
        topic, text = subscription.topic.name, subscription.filter.text
        if not self._durable:
            raise TapError(
                f"a durable subscription ({name!r}) needs a disk: "
                "give the node a data directory (data_dir)"
            )
        if NAME.fullmatch(name) is None:
            raise TapError(
                f"{name!r} is no name for a durable subscription: "
                "letters, digits, '_', '.', '-', at most 128"
            )
        tap = self.taps.get(name)
        if tap is None:
            if len(self.taps) >= TAPS_MAX:
                raise TapError(
                    f"this node has {TAPS_MAX} durable subscriptions, its maximum; "
                    "forget one (Node.forget)"
                )
            tap = self.taps[name] = Tap.create(name, topic, text, unix)
        if tap.number:
            raise TapError(
                f"durable subscription {name!r} is in use: close it first, or take another name"
            )
        if (tap.about.topic, tap.about.filter) != (topic, text):
            raise TapError(
                f"durable subscription {name!r} is to {tap.about.topic!r} "
                f"WHERE {tap.about.filter}, which is not {topic!r} WHERE "
                f"{text}; take another name, or forget the old one first (Node.forget)"
            )
        return tap

    def removed(self, number: int) -> None:
        """A subscription is gone. Its tap stays."""
        follow = self.follows.pop(number, None)
        if follow is not None and follow.tap is not None:
            follow.tap.number = 0
            if follow.tap.has_records:
                self._store(follow.tap)

    def forget(self, name: str) -> list[Effect]:
        """Gives up a durable subscription, with all that is kept for it."""
        tap = self.taps.get(name)
        if tap is None:
            raise TapError(
                f"no durable subscription {name!r} here; "
                f"there are: {', '.join(sorted(self.taps)) or 'none'}"
            )
        if tap.number:
            raise TapError(f"durable subscription {name!r} is in use: close it first")
        del self.taps[name]
        # Its Stores that are still on their way come before this one on the disk, so they need not
        # be undone.
        return [Store(self._token(), tap.forget())]

    def void(self, topic: str, reason: str) -> None:
        """Replaces the events of this topic on disk, which can no longer be read, by gaps."""
        for tap in self.taps.values():
            if tap.about.topic == topic:
                tap.void(reason)
                if tap.has_records:
                    self._store(tap)

    def ack(self, number: int, offset: int, now: Micros, *, through: bool) -> Token:
        """Acknowledges an offset.

        Returns the token after which it is on disk, or 0 if it is there already.
        """
        follow = self.follows.get(number)
        if follow is None or follow.tap is None:
            raise TapError("only a durable subscription (name=) that is open acknowledges")
        tap = follow.tap
        count = tap.ack(offset, through=through)
        if count:
            self._local.taken(number, count, now)
            follow.taken(now)
            return self.token(tap)
        return self.storing(tap)

    def taken(self, number: int, now: Micros) -> None:
        follow = self.follows.get(number)
        if follow is not None:
            follow.taken(now)

    def token(self, tap: Tap) -> Token:
        """The token of the next Store of this tap."""
        if not tap.token:
            tap.token = self._token()
        return tap.token

    def storing(self, tap: Tap) -> Token:
        """The last Store of this tap that is not done yet; 0 if there is none."""
        return tap.token or max(
            (token for token, one in self._storing.items() if one is tap), default=Token(0)
        )

    def loosen(self, subscription: LocalSubscription) -> None:
        self._local.loosen(subscription)

    def limit(self, subscription: LocalSubscription) -> int:
        return self._local.limit(subscription)

    def is_in_conflict(self, topic: str) -> bool:
        return topic in self._archive.conflicts

    def members(self) -> list[Peer]:
        return list(self._interest.view.members) if self._interest is not None else []

    def is_member(self, peer: int) -> bool:
        return peer == self._me or (
            self._interest is not None and peer in self._interest.view.members
        )

    def ask(self, peer: Peer, ask: AskPast, now: Micros) -> None:
        interest = self._interest
        if peer == self._me:
            answer = self._archive.answer(ask)
            if answer is not None:
                self._answers.append(answer)
        elif interest is not None and peer in interest.links:
            self._use(peer, now)
            self.out.append(Send((peer,), ask))
        elif interest is not None and peer in interest.view.members:
            address = interest.view.members[peer].record.address
            if address:
                self.out.append(Dial(address, peer))
        elif interest is None:
            self.out.append(Send((peer,), ask))

    @property
    def deadline(self) -> Micros:
        if not self.follows:
            return NEVER
        if self._answers or any(
            follow.tap is not None and follow.tap.has_records for follow in self.follows.values()
        ):
            return Micros(0)
        return min(follow.deadline for follow in self.follows.values())

    def receive(self, sender: Peer, message: AskPast | Past, now: Micros) -> None:
        if type(message) is AskPast:
            if self.owes(sender):
                # The peer must first hear of the events that it missed, and then of this node's
                # floor. It asks again.
                return
            self._use(sender, now)
            try:
                answer = self._archive.answer(message)
                if answer is not None:
                    self.out.append(Send((sender,), answer))
            except FilterError as error:
                reason = str(error).splitlines()[0]
                self.out.append(
                    Note(
                        Rejected(
                            hex_peer(sender), f"asks for the past of {message.topic!r}: {reason}"
                        )
                    )
                )
        elif type(message) is Past:
            follow = self.follows.get(message.number)
            if follow is not None and follow.subscription.topic.name == message.topic:
                follow.past(sender, message, now)

    def wake(self, now: Micros) -> None:
        for follow in self.follows.values():
            follow.wake(now)
        while self._answers:
            answers, self._answers = self._answers, []
            for answer in answers:
                self.receive(self._me, answer, now)
            for follow in self.follows.values():
                follow.wake(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.UP:
            for follow in self.follows.values():
                follow.linked(peer, now)

    def missed(self, message: Missed, now: Micros) -> None:
        reason = "others completed them without this node, which they had cut off"
        self.out.append(Note(Dropped("batch", 1, reason)))
        for follow in self.follows.values():
            if follow.subscription.topic.name == message.topic:
                follow.missed(message, now)

    def changed(self, change: ViewChange, now: Micros) -> None:
        if self._interest is not None and change.peer == self._interest.me:
            return
        for follow in self.follows.values():
            follow.changed(change, now)

    def stored(self, token: Token) -> bool:
        """Whether the Store was one of a tap."""
        tap = self._storing.pop(token, None)
        if tap is None:
            return False
        tap.confirm(token)
        self.done.append(token)
        follow = self.follows.get(tap.number)
        if follow is not None:
            follow.stored(token)
        return True

    def unstored(self, tokens: Sequence[Token]) -> tuple[list[Token], list[int]]:
        """The disk has failed.

        Returns all Stores that are void now, and the subscriptions that end.
        """
        lost: dict[Token, None] = {}
        ended: list[int] = []
        for token in tokens:
            tap = self._storing.get(token)
            if tap is None:
                continue
            lost |= dict.fromkeys(tap.undo())
            if tap.number:
                ended.append(tap.number)
                del self.follows[tap.number]
                tap.number, tap.problem = 0, "its node could not store its events"
            if not tap.is_kept and self.taps.get(tap.name) is tap:
                # Nothing of it is on disk.
                del self.taps[tap.name]
            self._storing = {each: one for each, one in self._storing.items() if one is not tap}
        self.lost += lost
        return list(lost), ended

    def flush(self, now: Micros) -> None:
        """Takes up subscriptions that have come into force, and stores. It runs after every call
        to the node.
        """
        for follow in self.follows.values():
            if follow.subscription.in_force is not follow.in_force:
                if follow.in_force:
                    follow.lapsed()
                else:
                    follow.entered(now)
        self.wake(now)
        for follow in self.follows.values():
            if follow.tap is not None and follow.tap.has_records:
                self._store(follow.tap)
            self._local.loosen(follow.subscription)

    def _store(self, tap: Tap) -> None:
        token, tap.token = self.token(tap), Token(0)
        self._storing[token] = tap
        self.out.append(Store(token, tap.records(token), is_awaited=True))
