"""Rounds by schedule: devices are asked what they showed and was clicked, and the answer makes the next rates.

In each period of `every_hours` one round is opened, at both parties, by the ad server itself. It asks for
impressions and clicks by context and campaign, at one level of the contexts that menus are offered for. What it
releases becomes a version of statistics, in use from the next epoch that is opened.

    a ledger that cannot pay        one line in the log, a figure, and nothing is opened; asked again later
    a proxy that does not answer    the round is kept, and this very one is opened there later
    fewer answers than asked for    the round ends without a result; the rates stay as they are
    more counts than `cells_most`   what ranks lowest in its menus is not asked about, and keeps the rates of
                                    its more general contexts; one line says how much that is

A round is kept, with its question, before anybody hears of it, under the name of its period; a result becomes a
version under the round's digest. So a restart at any point, or a second process, opens nothing twice and
counts nothing twice.

    Guarantee:  what the round promises to each device (`RunPlan`): (epsilon, delta)-DP of all that it releases.
                A period's round is another release: they add up on the ledger's line, and the line's limit
                bounds all of them together.
    Neighbours: the contribution of one device set to zero; who reported is known to the proxy.
    Assumes:    what both parties of gathering assume; menus, which say what is asked, are public, and made of
                public data, earlier releases and charges alone.
    Source:     `gather/estimate/plan.py`, `gather/server/party.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgpack
import numpy as np

from tacit.bill.protocol.menus import Lane, PricedMenu, context_bytes, parse_context
from tacit.config import blame_key
from tacit.deliver.campaigns.store import Author
from tacit.deliver.campaigns.versions import NewVersion, StoredVersion, VersionKind, VersionStore
from tacit.deliver.protocol.disclosure import context_number
from tacit.display import brief
from tacit.errors import BadInput, NotYet, Refused, TacitError, TooFew
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.rounds import Question, Round
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node, is_coarser, load_hierarchy
from tacit.schema.contexts.listed import node_above
from tacit.services.background import DAY_SECONDS, NOTHING_MORE, AppPart, LookTask, Reading
from tacit.services.device_rounds import FAMILY
from tacit.services.endpoints import Clock
from tacit.services.log import error_line
from tacit.services.problems import LOG, NotGranted, TroubleLog
from tacit.services.rounds import AnnouncedRound
from tacit.services.settings import Parties, load_parties
from tacit.services.statistics_settings import StatisticsSettings

if TYPE_CHECKING:
    from tacit.deliver.server.released_statistics import ReleasedStatistics
    from tacit.services.ads.parts import RunningAds
    from tacit.services.round_file import PlannedRound

SCHEDULE = "schedule"
"""As whom the schedule changes something, in the trail."""
LOOK_SECONDS = 15.0
NOTHING_SECONDS = 1.0  # until menus are looked for again, where there are none yet
REFUSED_SECONDS = 600.0  # until a ledger that could not pay is asked again
BACK_SECONDS = 30 * DAY_SECONDS  # a round that closed earlier and has no result will have none
NEVER_MENU = 1_000  # the rank of a campaign that stands in a coarser menu alone, beyond any of its own


class RoundsParty(Protocol):
    """The server's own part in rounds."""

    def expect_granted(self, round: Round) -> None:
        """NotGranted where its ledger cannot pay."""

    def open(self, announced: AnnouncedRound) -> None:
        """Here and at the proxy; again: nothing changes. OSError where the proxy does not answer."""

    def result(self, digest: bytes, now: int) -> RoundResult:
        """NotYet or TooFew where there is none."""


@dataclass(frozen=True, eq=False)
class MenuQuestion:
    """What is asked of devices: a question, its contexts in the question's order, and how many pairs of context
    and campaign found no room."""

    question: Question
    nodes: tuple[Node, ...]
    left_out: int


def ask_about_menus(
    menus: Sequence[PricedMenu], hierarchy: Hierarchy, *, levels: Levels | None = None, cells_most: int
) -> MenuQuestion | None:
    """The question for these menus' contexts of one level, by default the finest; None where there are none.

    A context is asked about with the campaigns of its own menu and of coarser menus that it lies in, since who
    told less saw those there. What finds no room, by its public rank, is left out.
    """
    personal = [menu for menu in menus if menu.lane is Lane.PERSONAL]
    asked = _finest(personal) if levels is None else levels
    own = {menu.node: menu for menu in personal if menu.node.levels == asked}
    if not own:
        return None
    above: dict[Node, list[PricedMenu]] = {}
    coarser = {menu.node: menu for menu in personal if menu.node.levels != asked}
    for levels_above in {node.levels for node in coarser if is_coarser(node.levels, asked)}:
        for node in own:
            found = node_above(hierarchy, node, levels_above)
            if found in coarser:
                above.setdefault(node, []).append(coarser[found])
    ranked: list[tuple[int, int, Node]] = []  # rank, campaign
    for node, menu in own.items():
        ranks = {each.campaign: rank for rank, each in enumerate(menu.entries)}
        for other in above.get(node, ()):
            for rank, each in enumerate(other.entries):
                ranks.setdefault(each.campaign, NEVER_MENU + rank)
        ranked += [(rank, campaign, node) for campaign, rank in ranks.items()]
    kept_nodes = sorted(own)[:cells_most]
    room = (cells_most - len(kept_nodes)) // 2
    allowed = set(kept_nodes)
    ranked = sorted(each for each in ranked if each[2] in allowed)
    return _question(asked, kept_nodes, ranked[:room], len(ranked) - min(room, len(ranked)))


def _finest(menus: Sequence[PricedMenu]) -> Levels:
    """Of the levels that menus have one that none is finer than; of several the one with most menus."""
    counted: dict[Levels, int] = {}
    for menu in menus:
        counted[menu.node.levels] = counted.get(menu.node.levels, 0) + 1
    finest = [
        each for each in counted if not any(other != each and is_coarser(each, other) for other in counted)
    ]
    return max(finest, key=lambda each: (counted[each], each), default=())


def _question(
    levels: Levels, nodes: Sequence[Node], ranked: Sequence[tuple[int, int, Node]], left_out: int
) -> MenuQuestion:
    by_number = {context_number(node): node for node in nodes}
    if len(by_number) < len(nodes):
        raise BadInput("expected contexts with different numbers, got two of the same: ask at other levels")
    campaigns: dict[Node, list[int]] = {node: [] for node in nodes}
    for _, campaign, node in ranked:
        campaigns[node].append(campaign)
    numbers = sorted(by_number)
    ordered = tuple(by_number[number] for number in numbers)
    offsets = np.cumsum([0, *(len(campaigns[node]) for node in ordered)], dtype=np.int64)
    ads = [sorted(campaigns[node]) for node in ordered]
    flat = np.array([each for some in ads for each in some], np.int64)
    return MenuQuestion(Question(levels, np.array(numbers, np.int64), offsets, flat), ordered, left_out)


@dataclass(frozen=True, eq=False)
class KeptRound:
    """A scheduled round as it is kept before it is announced: with its contexts, which the question names by
    numbers only."""

    announced: AnnouncedRound
    nodes: tuple[Node, ...]

    def to_bytes(self) -> bytes:
        return bytes(msgpack.packb((self.announced.to_bytes(), [context_bytes(node) for node in self.nodes])))

    @classmethod
    def from_bytes(cls, data: bytes) -> KeptRound:
        try:
            announced, nodes = msgpack.unpackb(data)
            found = cls(AnnouncedRound.from_bytes(announced), tuple(parse_context(each) for each in nodes))
        except (ValueError, TypeError, TacitError):
            raise BadInput("expected a scheduled round as it was kept, got other bytes") from None
        numbers = [context_number(node) for node in found.nodes]
        if numbers != found.question.nodes.tolist():
            raise BadInput("expected the contexts that the round's question names, got others")
        return found

    @property
    def question(self) -> Question:
        return Question.of_round(self.announced.round, self.announced.question)

    def statistics(self, result: RoundResult) -> ReleasedStatistics:
        """What the round released, by context and campaign."""
        from tacit.deliver.server.released_statistics import ReleasedStatistics

        question, values = self.question, result.values.astype(np.int64)
        clicks = values[question.clicks]
        return ReleasedStatistics(
            self.nodes,
            values[question.totals],
            question.offsets,
            question.ad,
            clicks,
            clicks + values[question.no_clicks],
            float(result.noise_variance) ** 0.5,
            result.count,
        )


class ScheduledRounds:
    """Opens a round per period, and makes a version of what it released. It may be cut off anywhere."""

    def __init__(
        self,
        settings: StatisticsSettings,
        party: RoundsParty,
        versions: VersionStore,
        menus: Callable[[], Sequence[PricedMenu]],
        *,
        hierarchy: Hierarchy,
        parties: Parties,
        check: bytes,
        clock: Clock,
    ) -> None:
        """`menus` are those that are offered now; `check` is the hash of the parties' check key."""
        self._settings, self._party, self._versions, self._menus = settings, party, versions, menus
        self._hierarchy, self._parties, self._check, self._clock = hierarchy, parties, check, clock
        self._settled: set[int] = set()  # rounds, by their version's number, of which nothing more will come
        self._opened: set[int] = set()
        self._trouble = TroubleLog("rounds of statistics go on again")
        self._is_refused = False

    def __repr__(self) -> str:
        return brief(self, every_seconds=self._settings.every_seconds)

    def task(self) -> LookTask:
        return LookTask(self.look, LOOK_SECONDS)

    def look(self) -> float:
        """Open what is due, and take what was released; the seconds until the next look."""
        self._is_refused = False
        try:
            self._follow_rounds()
            pause = self._open_due()
        except OSError as problem:
            self._trouble.tell(
                f"the proxy did not open a round of statistics, will ask again: {error_line(problem)}"
            )
        except NotGranted as refused:
            self._is_refused = True
            self._trouble.tell(f"no round of statistics is opened: {error_line(refused)}")
            return REFUSED_SECONDS
        except TacitError as problem:
            self._trouble.tell(f"rounds of statistics do not go on, will try again: {error_line(problem)}")
        else:
            self._trouble.tell("")
            return pause
        return LOOK_SECONDS

    # Opening

    def _open_due(self) -> float:
        """Keep the round of this period, unless one is kept, and open it; the seconds until the next look."""
        from tacit.services.round_file import plan_round  # it brings SciPy

        now = self._clock()
        task = f"{FAMILY}-{now // self._settings.every_seconds}"
        if any(each.source == task for each in self._versions.versions(VersionKind.ROUND)):
            return LOOK_SECONDS
        asked = ask_about_menus(
            self._menus(), self._hierarchy, levels=self._settings.levels, cells_most=self._settings.cells_most
        )
        if asked is None:
            return NOTHING_SECONDS  # nothing is offered: there is nothing to count
        planned = plan_round(
            {**self._settings.asked, "task": task}, self._parties, Path(), check=self._check, now=now,
            asked=asked.question,
        )  # fmt: skip
        self._party.expect_granted(planned.round)
        kept = KeptRound(planned.announced, asked.nodes)
        body = {**_said_of(planned), "left_out": asked.left_out}
        version = NewVersion(VersionKind.ROUND, task, body, kept.to_bytes())
        stored, new = self._versions.add(version, Author(SCHEDULE, now))
        if stored is None or not new:
            return LOOK_SECONDS  # another process was faster
        if asked.left_out:
            LOG.warning(
                "%d pairs of context and campaign are not asked about in round %s: statistics.cells_most is %d",
                asked.left_out, task, self._settings.cells_most,
            )  # fmt: skip
        self._open(stored, kept)
        return LOOK_SECONDS

    def _open(self, stored: StoredVersion, kept: KeptRound) -> None:
        if stored.number in self._opened or self._clock() >= kept.announced.round.closes:
            return
        self._party.open(kept.announced)
        self._opened.add(stored.number)
        LOG.info("round %s is open: %d counts", stored.source, kept.announced.round.cells)

    # Results

    def _follow_rounds(self) -> None:
        now = self._clock()
        for stored in reversed(self._versions.versions(VersionKind.ROUND)):
            if stored.number in self._settled:
                continue
            if stored.body["closes"] < now - BACK_SECONDS:
                self._settled.add(stored.number)
                continue
            content = self._versions.content(stored.number)
            if content is not None:
                self._follow(stored, KeptRound.from_bytes(content), now)

    def _follow(self, stored: StoredVersion, kept: KeptRound, now: int) -> None:
        self._open(stored, kept)
        try:
            result = self._party.result(kept.announced.round.digest, now)
        except NotYet:
            return
        except TooFew as few:
            LOG.warning("round %s has too few answers: %s", stored.source, error_line(few))
        except Refused as refused:  # it was closed before the server ever heard of it
            LOG.warning("round %s was never opened: %s", stored.source, error_line(refused))
        else:
            self._add_statistics(stored, kept, result, now)
        self._settled.add(stored.number)

    def _add_statistics(self, stored: StoredVersion, kept: KeptRound, result: RoundResult, now: int) -> None:
        statistics = kept.statistics(result)
        body = {
            **stored.body,
            "reports": statistics.reports,
            "noise_sd": statistics.noise_sd,
            "contexts": len(statistics.nodes),
            "campaigns": len(statistics.campaigns),
        }
        version = NewVersion(
            VersionKind.STATISTICS, f"round {kept.announced.round.digest.hex()}", body, statistics.to_bytes()
        )
        before = self._versions.in_use(VersionKind.STATISTICS)
        is_newer = before is None or before.body.get("closes", 0) <= body["closes"]
        added, new = self._versions.add(version, Author(SCHEDULE, now), use=is_newer)
        if new and added is not None:
            LOG.info(
                "round %s released the counts of %d devices: statistics %d%s", stored.source, result.count,
                added.number, ", from the next epoch on" if is_newer else ", kept beside newer ones",
            )  # fmt: skip

    # Figures

    def readings(self) -> Sequence[Reading]:
        now, used = self._clock(), self._versions.in_use(VersionKind.STATISTICS)
        waiting = [
            each for each in self._versions.versions(VersionKind.ROUND) if each.number not in self._settled
        ]
        age = 0 if used is None else max(0, now - used.body.get("closes", now))
        return [
            Reading("tacit_statistics_rounds_waiting", "Scheduled rounds without a result yet.", len(waiting)),
            Reading(
                "tacit_statistics_refused", "Whether the last round was not opened for want of a grant.",
                self._is_refused,
            ),
            Reading("tacit_statistics_age_seconds", "How long ago the statistics in use were closed.", age),
        ]  # fmt: skip


def _said_of(planned: PlannedRound) -> dict[str, Any]:
    """What is said of a round and of all that is made of it: its times, its cost, its privacy statement."""
    names = ("task", "opens", "closes", "cells", "epsilon", "delta", "noise_sd", "scope", "cost")
    told = planned.as_json()
    said = {name: told[name] for name in names}
    said |= {"round": told["digest"], "statement": planned.plan.statement.as_json()}
    return dict(json.loads(json.dumps(said)))


def statistics_part(running: RunningAds) -> AppPart:
    """Rounds by schedule, where the settings have the table [statistics]."""
    settings, gathering = running.settings.statistics, running.gathering
    if settings is None or gathering is None or gathering.party is None:
        return NOTHING_MORE
    with blame_key("statistics.contexts"):
        hierarchy = load_hierarchy(settings.contexts)
    with blame_key("statistics.parties"):
        parties = load_parties(settings.parties)

    def menus_now() -> Sequence[PricedMenu]:
        offered = running.keeper.offered()
        stored = None if offered is None else running.store.epoch(offered.epoch)
        return [] if stored is None else [kept.menu for kept in stored.menus]

    rounds = ScheduledRounds(
        settings, gathering.party, running.versions, menus_now, hierarchy=hierarchy, parties=parties,
        check=gathering.check, clock=running.clock,
    )  # fmt: skip
    return AppPart(owned_works=lambda: [rounds.task()], looks=[rounds.readings])
