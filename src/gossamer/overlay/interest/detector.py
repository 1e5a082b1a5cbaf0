"""Signs of life, probes, suspicions, and verdicts.

Each node looks after its neighbours in the overlay. So at least K others look after every node, and
the cost does not grow with the fabric. Any message is a sign of life. A ``Beat`` comes at least
once a period. After some silence a node probes, itself and through others, and these vouch for
peers that they have heard. After ``suspect_after`` without a sign the node tells all others
(``Suspicion``). The suspect hears of it and answers with a greater version of its record. This
withdraws the suspicion everywhere. Otherwise the nodes that suspect it by their own evidence give
the verdict (``Gone``), and they give it the sooner the more of them agree.

A broken link that cannot be opened again is stronger evidence than silence. When all nodes that
look after a node have this evidence, the verdict comes within seconds. A pause (SIGSTOP, a long
collection) breaks no links.

No node is removed unheard: a verdict on a node that is not under suspicion here counts as a
suspicion first, and a suspicion must have been heard of for a while. A node that has slept itself
(its timer is late), or that hears from hardly any neighbour, trusts its own silence less
(``strain``).
"""

from __future__ import annotations

from random import Random

from gossamer.machine import MILLISECOND, NEVER, SECOND, Effect, Micros, Peer, Send
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.gossip import Gossip
from gossamer.overlay.interest.links import Links
from gossamer.overlay.interest.messages import Gone, News, Probe, Suspicion, Vouch
from gossamer.overlay.interest.view import View

# Nodes that are asked to probe for us.
HELPERS = 3
# Suspecting nodes that make a quick verdict.
CONFIRM = 3
STRAIN_MAX = 4
# The time to answer a verdict that came without a suspicion.
CONDEMNED = Micros(2 * SECOND)
# The time to answer a suspicion that was heard of, before a verdict on it is carried out. It is a
# little less than the shortest time from a suspicion to a verdict at the nodes that give it.
MOMENT = Micros(750 * MILLISECOND)
# The most probes that others have asked us for.
PROBES_MAX = 1024


class Suspect:
    __slots__ = (
        "by",
        "condemned",
        "life",
        "membership",
        "mine",
        "resets",
        "since",
        "version",
        "watchers",
    )

    def __init__(self, life: int, version: int, now: Micros) -> None:
        self.life, self.version, self.since = life, version, now
        self.by: dict[Peer, None] = {}
        # Those of them whose links broke.
        self.resets: dict[Peer, None] = {}
        # By our own evidence.
        self.mine = False
        # When a verdict that was heard is carried out.
        self.condemned = NEVER
        # The nodes that look after it, as of a membership.
        self.watchers: tuple[Peer, ...] = ()
        self.membership = -1


class Detector:
    def __init__(
        self,
        me: Peer,
        config: InterestConfig,
        view: View,
        links: Links,
        gossip: Gossip,
        rng: Random,
    ) -> None:
        self.suspects: dict[Peer, Suspect] = {}
        self.strain = 0
        # To be carried out by the owner: peer and life.
        self.verdicts: list[tuple[Peer, int]] = []
        self._me, self._config, self._view, self._links, self._gossip, self._rng = (
            me,
            config,
            view,
            links,
            gossip,
            rng,
        )
        self._vouched: dict[Peer, Micros] = {}
        # Links that broke, and when.
        self._reset: dict[Peer, Micros] = {}
        # Peers that we probe for others, and those others.
        self.asked: dict[Peer, dict[Peer, None]] = {}
        self._calm = 0

    def heard(self, peer: Peer, now: Micros) -> list[Effect]:
        """A message came from this peer itself."""
        effects: list[Effect] = []
        askers = self.asked.pop(peer, None)
        if askers:
            effects.append(
                Send(tuple(asker for asker in askers if asker in self._links.up), Vouch(peer))
            )
        if self.suspects and peer in self.suspects:
            self._withdraw(peer)
        return effects

    def up(self, peer: Peer) -> None:
        self._reset.pop(peer, None)

    def reset(self, peer: Peer, now: Micros) -> None:
        """The peer's link broke."""
        if peer in self._view.members:
            self._reset[peer] = now

    def probe(self, asker: Peer, peer: Peer, now: Micros) -> list[Effect]:
        """Another node asks whether a peer is alive."""
        link = self._links.up.get(peer)
        if link is None:
            return []
        if now - link.heard <= self._config.beat:
            return [Send((asker,), Vouch(peer))]
        if len(self.asked) < PROBES_MAX:
            self.asked.setdefault(peer, {})[asker] = None
        return [Send((peer,), Probe(peer))]

    def vouch(self, peer: Peer, now: Micros) -> None:
        if peer in self._links.wanted:
            self._vouched[peer] = now
            self._withdraw(peer)

    def slept(self, now: Micros) -> None:
        """This node itself has been asleep, so others had no chance to be heard."""
        self.strain = min(STRAIN_MAX, self.strain + 1)
        for link in self._links.up.values():
            link.heard = now
        for peer in self._links.missing:
            self._links.missing[peer] = now
        for suspect in self.suspects.values():
            suspect.since = now
            if suspect.condemned != NEVER:
                suspect.condemned = Micros(now + CONDEMNED)

    def strained(self) -> None:
        """Others suspect this node. Perhaps it is slow, and its own clock is not to be trusted."""
        self.strain = min(STRAIN_MAX, self.strain + 1)

    def _withdraw(self, peer: Peer) -> None:
        suspect = self.suspects.get(peer)
        if suspect is not None and suspect.mine:
            suspect.mine = False
            suspect.by.pop(self._me, None)
            suspect.resets.pop(self._me, None)
            if not suspect.by and suspect.condemned == NEVER:
                del self.suspects[peer]

    def _sign(self, peer: Peer) -> Micros:
        """The time of the last sign of life."""
        link = self._links.up.get(peer)
        last = link.heard if link is not None else self._links.missing.get(peer, NEVER)
        return max(last, self._vouched.get(peer, last))

    def tick(self, now: Micros) -> list[Effect]:
        """Looks after the neighbours, a few times in each period."""
        config, links = self._config, self._links
        effects: list[Effect] = []
        patience = config.suspect_after * (2 + self.strain) // 2
        silent = 0
        for peer in links.wanted:
            quiet = now - self._sign(peer)
            if quiet > 2 * config.beat:
                silent += 1
            broke = self._reset.get(peer)
            was_reset = (
                broke is not None
                and peer not in links.up
                and self._vouched.get(peer, Micros(-1)) < broke
            )
            is_overdue = quiet > patience or (
                was_reset and now - (broke or now) > config.reset_after
            )
            if quiet > config.beat * 3 // 2 or was_reset:
                effects += self._probe_all(peer)
            if is_overdue:
                self._suspect(peer, was_reset, now)
        if silent * 2 > len(links.wanted) and len(links.wanted) > 2:
            self.strain, self._calm = min(STRAIN_MAX, self.strain + 1), 0
        else:
            self._calm += 1
            if self._calm % 16 == 0 and self.strain:
                self.strain -= 1
        effects += self._judge(now)
        if len(self._vouched) > 4 * config.links_max:
            self._vouched = {peer: at for peer, at in self._vouched.items() if peer in links.wanted}
        return effects

    def _probe_all(self, peer: Peer) -> list[Effect]:
        links = self._links
        effects: list[Effect] = []
        if peer in links.up:
            effects.append(Send((peer,), Probe(peer)))
        others = [other for other, link in links.up.items() if other != peer and link.greeted]
        while len(others) > HELPERS:
            del others[int(self._rng.random() * len(others))]
        if others:
            effects.append(Send(tuple(others), Probe(peer)))
        return effects

    def _suspect(self, peer: Peer, was_reset: bool, now: Micros) -> None:
        known = self._view.members.get(peer)
        if known is None:
            return
        suspect = self.suspects.get(peer)
        if suspect is None:
            suspect = self.suspects[peer] = Suspect(known.record.life, known.record.version, now)
        if not suspect.mine or (was_reset and self._me not in suspect.resets):
            if not suspect.mine:
                # Claims of others, and claims that we withdrew, do not shorten the time.
                suspect.mine, suspect.since = True, now
            suspect.by[self._me] = None
            if was_reset:
                suspect.resets[self._me] = None
            self._gossip.rumour(
                Suspicion(peer, suspect.life, suspect.version, self._me, was_reset), None
            )

    def _judge(self, now: Micros) -> list[Effect]:
        effects: list[Effect] = []
        for peer, suspect in list(self.suspects.items()):
            if now >= suspect.condemned or (
                suspect.mine and now - suspect.since >= self._delay(peer, suspect)
            ):
                del self.suspects[peer]
                self.verdicts.append((peer, suspect.life))
            elif (
                not suspect.mine
                and suspect.condemned == NEVER
                and now - suspect.since > 2 * self._config.verdict_alone
            ):
                # The nodes that suspected it have had time for a verdict, and gave none.
                del self.suspects[peer]
            # The suspect should know of it, because it can answer.
            elif suspect.mine and peer in self._links.up:
                claim = Suspicion(peer, suspect.life, suspect.version, self._me, False)
                effects.append(Send((peer,), News(suspicions=(claim,))))
        return effects

    def _delay(self, peer: Peer, suspect: Suspect) -> int:
        """The time from the suspicion to the verdict."""
        config = self._config
        if suspect.membership != self._view.membership:
            suspect.membership = self._view.membership
            suspect.watchers = self._view.neighbours(peer)
        watchers = [other for other in suspect.watchers if other not in self.suspects]
        if watchers and all(other in suspect.resets for other in watchers):
            return config.reset_verdict
        needed = max(1, min(CONFIRM, len(watchers)))
        share = min(1.0, (len(suspect.by) - 1) / (needed - 1)) if needed > 1 else 1.0
        return int(config.verdict_alone - share * (config.verdict_alone - config.verdict_min))

    def accused(self, claim: Suspicion, source: Peer, now: Micros) -> None:
        """Another node suspects a peer, which is not this node."""
        peer, by = Peer(claim.peer), Peer(claim.by)
        known = self._view.members.get(peer)
        if known is None or by not in self._view.members:
            return
        record = known.record
        if (claim.life, claim.version) < (record.life, record.version) or claim.life != record.life:
            return
        suspect = self.suspects.get(peer)
        if suspect is None:
            suspect = self.suspects[peer] = Suspect(claim.life, record.version, now)
        # A claim may name any version. Only a version that the peer has said counts, so its next
        # one withdraws the suspicion.
        suspect.version = max(suspect.version, record.version)
        if by not in suspect.by or (claim.reset and by not in suspect.resets):
            suspect.by[by] = None
            if claim.reset:
                suspect.resets[by] = None
            self._gossip.rumour(claim, source)

    def condemned(self, gone: Gone, now: Micros) -> bool:
        """A verdict was heard.

        True means that it is carried out now. Otherwise the peer has a moment to answer.
        """
        peer = Peer(gone.peer)
        suspect = self.suspects.get(peer)
        if gone.left or (suspect is not None and self._is_heard(suspect, now)):
            self.suspects.pop(peer, None)
            return True
        if suspect is None:
            known = self._view.members[peer]
            suspect = self.suspects[peer] = Suspect(known.record.life, known.record.version, now)
        if suspect.condemned == NEVER:
            wait = Micros(suspect.since + MOMENT) if suspect.by else Micros(now + CONDEMNED)
            suspect.condemned = wait
        return False

    def _is_heard(self, suspect: Suspect, now: Micros) -> bool:
        """Whether the suspect has had time to answer."""
        is_suspected = suspect.condemned == NEVER and len(suspect.by) > 0
        return is_suspected and now - suspect.since >= MOMENT

    def renewed(self, peer: Peer, life: int, version: int) -> None:
        """A greater record of a peer has come."""
        suspect = self.suspects.get(peer)
        if suspect is not None and (
            life > suspect.life or (suspect.condemned == NEVER and version > suspect.version)
        ):
            del self.suspects[peer]

    def removed(self, peer: Peer) -> None:
        self.suspects.pop(peer, None)
        self._vouched.pop(peer, None)
        self._reset.pop(peer, None)
        self.asked.pop(peer, None)
