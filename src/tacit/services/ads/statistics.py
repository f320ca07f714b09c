"""Rounds by schedule: devices are asked what they showed, what was clicked and what led to a conversion.

The answers make the next rates.

In each period of `every_hours` a round is opened, at both parties, by the ad server itself. It asks for
impressions and clicks by context and campaign, at one level of the contexts that menus are offered for. Where
campaigns bid per conversion, a second one asks for impressions and conversions of theirs. What a round releases
becomes a version of statistics, of its family's kind, in use from the next epoch that is opened.

    a ledger that cannot pay        one line in the log, a figure, and nothing is opened; asked again later
    a proxy that does not answer    the round is kept, and this very one is opened there later
    fewer answers than asked for    the round ends without a result; the rates stay as they are
    more counts than `cells_most`   what ranks lowest in its menus is not asked about, and keeps the rates of
                                    its more general contexts; one line says how much that is

A round is kept, with its question, before anybody hears of it, under the name of its period; a result becomes a
version under the round's digest. So a restart at any point, or a second process, opens nothing twice and
counts nothing twice.

    Guarantee:  what the round promises to each device (`RunPlan`): (epsilon, delta)-DP of all that it releases.
                Each round of each period is another release: they add up on the ledger's one line, clicks and
                conversions alike, and the line's limit bounds all of them together.
    Neighbours: the contribution of one device set to zero; who reported is known to the proxy.
    Assumes:    what both parties of gathering assume; menus and what campaigns bid on, which say what is asked,
                are public, and made of public data, earlier releases and charges alone.
    Source:     `gather/estimate/plan.py`, `gather/server/party.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tacit.bill.protocol.menus import PricedMenu
from tacit.config import blame_key
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.campaigns.store import Author
from tacit.deliver.campaigns.versions import NewVersion, StoredVersion, VersionKind, VersionStore
from tacit.deliver.device.shown_log import LOOK_BACK_SECONDS, UNCOUNTED_SECONDS, RoundFamily
from tacit.display import brief
from tacit.errors import NotYet, Refused, TacitError, TooFew
from tacit.gather.protocol.messages import RoundResult
from tacit.gather.protocol.rounds import Round
from tacit.schema.contexts.hierarchy import Hierarchy, load_hierarchy
from tacit.services.ads.menu_questions import AskedPair, KeptRound, MenuQuestion, ask_about_menus
from tacit.services.background import DAY_SECONDS, NOTHING_MORE, AppPart, LookTask, Reading
from tacit.services.device_rounds import family_of
from tacit.services.endpoints import Clock
from tacit.services.log import error_line
from tacit.services.problems import LOG, NotGranted, TroubleLog
from tacit.services.rounds import AnnouncedRound
from tacit.services.settings import Parties, load_parties
from tacit.services.statistics_settings import StatisticsSettings

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds
    from tacit.services.round_file import PlannedRound

SCHEDULE = "schedule"
"""As whom the schedule changes something, in the trail."""
LOOK_SECONDS = 15.0
NOTHING_SECONDS = 1.0  # until menus are looked for again, where there are none yet
REFUSED_SECONDS = 600.0  # until a ledger that could not pay is asked again
BACK_SECONDS = 30 * DAY_SECONDS  # a round that closed earlier and has no result will have none
EARLIER_SECONDS = LOOK_BACK_SECONDS + UNCOUNTED_SECONDS  # for which a device keeps an impression to be counted
RELEASES = {
    RoundFamily.CLICKS: VersionKind.STATISTICS,
    RoundFamily.CONVERSIONS: VersionKind.CONVERSION_STATISTICS,
}
"""What the rounds of a family release."""


class RoundsParty(Protocol):
    """The server's own part in rounds."""

    def expect_granted(self, round: Round, beside: Iterable[Round] = ()) -> None:
        """NotGranted where its ledger cannot pay, also for what is open beside it and not paid for yet."""

    def open(self, announced: AnnouncedRound) -> None:
        """Here and at the proxy; again: nothing changes. OSError where the proxy does not answer."""

    def result(self, digest: bytes, now: int) -> RoundResult:
        """NotYet or TooFew where there is none."""


class ScheduledRounds:
    """Opens the rounds of each period, and makes versions of what they released. It may be cut off anywhere."""

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
        conversions: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`menus` are those that are offered now; `check` is the hash of the parties' check key; `conversions`
        are the campaigns that bid per conversion."""
        self._settings, self._party, self._versions, self._menus = settings, party, versions, menus
        self._hierarchy, self._parties, self._check, self._clock = hierarchy, parties, check, clock
        self._settled: set[int] = set()  # rounds, by their version's number, of which nothing more will come
        self._opened: set[int] = set()
        self._conversions = conversions
        self._passed = ""  # the task of a period in which there were no conversions to ask for
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
        """Open what this period has of each family; the seconds until the next look."""
        kept = self._versions.versions(VersionKind.ROUND)
        known = {each.source for each in kept}
        for family, asked in self._settings.families().items():
            task = f"{family}-{self._clock() // self._settings.every_seconds}"
            if task in known or task == self._passed:
                continue
            menus = self._menus()
            if not menus:
                return NOTHING_SECONDS  # nothing is offered: there is nothing to count
            question = self._question(family, menus, kept)
            if question is not None:
                self._keep_and_open({**asked, "task": task}, question)
            elif family is RoundFamily.CLICKS:
                return NOTHING_SECONDS
            else:
                self._passed = task
        return LOOK_SECONDS

    def _question(
        self, family: RoundFamily, menus: Sequence[PricedMenu], kept: Sequence[StoredVersion]
    ) -> MenuQuestion | None:
        levels, most = self._settings.levels, self._settings.cells_most
        if family is RoundFamily.CLICKS:
            return ask_about_menus(menus, self._hierarchy, levels=levels, cells_most=most)
        bidding, earlier = self._asked_before(kept)
        return ask_about_menus(
            menus, self._hierarchy, levels=levels, cells_most=most, campaigns=bidding, earlier=earlier
        )

    def _asked_before(self, kept: Sequence[StoredVersion]) -> tuple[set[int], set[AskedPair]]:
        """Campaigns that bid per conversion, or did when impressions were shown that are counted now; and what
        menus had then, as rounds of clicks asked about it."""
        bidding, asked = set(self._conversions()), set[AskedPair]()
        since = self._clock() - EARLIER_SECONDS
        recent = [each for each in kept if each.body.get("opens", 0) >= since]
        if not bidding and all(family_of(each.source) is RoundFamily.CLICKS for each in recent):
            return bidding, asked
        for each in recent:
            content = self._versions.content(each.number)
            pairs = set() if content is None else KeptRound.from_bytes(content).pairs()
            if family_of(each.source) is RoundFamily.CLICKS:
                asked |= pairs
            else:
                bidding |= {campaign for _, campaign in pairs}
        return bidding, asked

    def _keep_and_open(self, wanted: Mapping[str, Any], asked: MenuQuestion) -> None:
        """Keep the round that is asked for, unless another process was faster, and open it."""
        from tacit.services.round_file import plan_round  # it brings SciPy

        now = self._clock()
        planned = plan_round(
            wanted, self._parties, Path(), check=self._check, now=now, asked=asked.question
        )  # fmt: skip
        self._party.expect_granted(planned.round, self._waiting())
        kept = KeptRound(planned.announced, asked.nodes)
        body = {**_said_of(planned), "left_out": asked.left_out}
        version = NewVersion(VersionKind.ROUND, planned.round.task, body, kept.to_bytes())
        stored, new = self._versions.add(version, Author(SCHEDULE, now))
        if stored is None or not new:
            return
        if asked.left_out:
            LOG.warning(
                "%d pairs of context and campaign are not asked about in round %s: statistics.cells_most is %d",
                asked.left_out, stored.source, self._settings.cells_most,
            )  # fmt: skip
        self._open(stored, kept)

    def _waiting(self) -> list[Round]:
        """Rounds that are kept and may still have to be paid for."""
        found = []
        for each in self._versions.versions(VersionKind.ROUND):
            is_waiting = each.number not in self._settled
            content = self._versions.content(each.number) if is_waiting else None
            if content is not None:
                found.append(KeptRound.from_bytes(content).announced.round)
        return found

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
        kind = RELEASES[family_of(stored.source) or RoundFamily.CLICKS]
        source = f"round {kept.announced.round.digest.hex()}"
        version = NewVersion(kind, source, body, statistics.to_bytes())
        before = self._versions.in_use(kind)
        is_newer = before is None or before.body.get("closes", 0) <= body["closes"]
        added, new = self._versions.add(version, Author(SCHEDULE, now), use=is_newer)
        if new and added is not None:
            LOG.info(
                "round %s released the counts of %d devices: %s %d%s", stored.source, result.count, kind,
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

    def bid_per_conversion() -> Collection[int]:
        campaigns = running.campaigns.ad_campaigns()
        return [each.number for each in campaigns if each.event is BidEvent.CONVERSION]

    rounds = ScheduledRounds(
        settings, gathering.party, running.versions, menus_now, hierarchy=hierarchy, parties=parties,
        check=gathering.check, clock=running.clock, conversions=bid_per_conversion,
    )  # fmt: skip
    return AppPart(owned_works=lambda: [rounds.task()], looks=[rounds.readings])
