"""What an operator should know of and do, decided purely from what was looked up.

An alert says what is the matter, what to do in one sentence, and the runbook of *Operations*, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit import expect

OVERDUE_SECONDS = 600  # after its end in which a round may be settled by itself
NEARLY_SPENT = 0.1  # of a ledger line's epsilon
NOTICE_SECONDS = 300  # before it expires at which a notice that waits is late


class Runbook(expect.Choice):
    """Sections of *Operations*, docs/operations.md, by their headings."""

    SILENCE = "A party does not answer"
    DISK = "A full disk"
    PROXY = "A lost proxy"
    MENUS = "No menus"
    ROUND = "A stuck round"
    CLOCK = "A clock gone wrong"
    COHORTS = "Small cohorts"
    HELD = "Held charges"
    BUDGET = "Privacy budget"
    OVER = "Over the share"


class Urgency(expect.Choice):
    """Whether something is broken now, or is going to need a hand."""

    NOW = "now"
    SOON = "soon"


@dataclass(frozen=True)
class Alert:
    """What is the matter with what, and what to do about it."""

    kind: str
    urgency: Urgency
    says: str
    do: str
    runbook: Runbook | None = None
    view: str = ""  # of the console that shows more

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "urgency": str(self.urgency),
            "says": self.says,
            "do": self.do,
            "runbook": None if self.runbook is None else str(self.runbook),
            "view": self.view,
        }


@dataclass(frozen=True)
class Situation:
    """All that alerts are decided from.

    health            checks of /healthz by name, and whether each found its subject well
    open_until        the second until which epochs are open without a gap; None where none is open
    epoch_seconds     how long an epoch lasts
    spent             campaigns that run and have nothing left, by number, with their advertisers
    held_micros       shown, and waiting for money
    out_of_tokens     menus of the open epoch that may sign no more tokens, of how many
    overdue           rounds that closed and are not settled: their names, and for how many seconds
    small_cohorts     batches of personal menus below the size that their menus ask for, of how many
    nearly_spent      ledger lines with little left, in words
    notices           that wait, and the second at which the first expires
    over_share        campaigns that can be over their budgets by more than pacing's share, with advertisers
    """

    now: int
    health: Mapping[str, bool] = field(default_factory=dict)
    open_until: int | None = None
    epoch_seconds: int = 600
    spent: Mapping[int, str] = field(default_factory=dict)
    held_micros: int = 0
    out_of_tokens: tuple[int, int] = (0, 0)
    overdue: Mapping[str, int] = field(default_factory=dict)
    small_cohorts: tuple[int, int] = (0, 0)
    nearly_spent: Sequence[str] = ()
    notices: tuple[int, int | None] = (0, None)
    over_share: Mapping[int, str] = field(default_factory=dict)


_FULL = "See whether its disk is full or its database away."
_FREE = "Free or add space: below 256 MB nothing is taken."
HEALTH: Mapping[str, tuple[str, str, Runbook | None]] = {
    "store": ("the store of statistics takes no writes", _FULL, Runbook.DISK),
    "billing_store": ("the store of charges takes no writes", _FULL, Runbook.DISK),
    "disk": ("the disk of the statistics is nearly full", _FREE, Runbook.DISK),
    "billing_disk": ("the disk of the charges is nearly full", _FREE, Runbook.DISK),
    "ledger": ("the privacy ledger does not answer", "Nothing is released meanwhile: see its store.", None),
    "link": ("the proxy does not answer", "See whether it runs and both clocks agree.", Runbook.PROXY),
    "revision": ("the store's tables are another version's", "Run the version that upgraded it.", None),
    "checks": ("the health checks hang", "A disk or database no longer answers: see to it.", Runbook.SILENCE),
}  # fmt: skip


def find_alerts(found: Situation) -> list[Alert]:
    """What is broken now first, then what will be."""
    alerts = [
        *_health(found),
        *_epochs(found),
        *_money(found),
        *_tokens(found),
        *_rounds(found),
        *_privacy(found),
        *_notices(found),
    ]
    return sorted(alerts, key=lambda each: each.urgency is not Urgency.NOW)


def _health(found: Situation) -> list[Alert]:
    unknown = "a check of /healthz fails: {}", "Look at the service's log, which names it.", None
    alerts = []
    for name in sorted(name for name, well in found.health.items() if not well and name != "epoch"):
        says, do, runbook = HEALTH.get(name, unknown)
        alerts.append(Alert(f"health-{name}", Urgency.NOW, _sentence(says.format(name)), do, runbook))
    return alerts


def _epochs(found: Situation) -> list[Alert]:
    if found.open_until is None:
        do = "The proxy must countersign each epoch: see whether it answers, and whether any campaign can pay."
        return [Alert("no-epoch", Urgency.NOW, "No menus are offered now.", do, Runbook.MENUS)]
    left = found.open_until - found.now
    if left < found.epoch_seconds // 4:
        says = f"The next epoch is not there yet, and this one closes in {max(left, 0)} seconds."
        do = "See whether the proxy answers and both clocks agree; then `tacit serve rotate`."
        return [Alert("epoch-cover", Urgency.SOON, says, do, Runbook.PROXY)]
    if left > 3 * found.epoch_seconds:
        says = f"Epochs are open for the next {left} seconds, longer than any should be."
        return [Alert("clock", Urgency.NOW, says, "Compare both parties' clocks.", Runbook.CLOCK)]
    return []


def _money(found: Situation) -> list[Alert]:
    alerts = []
    if found.over_share:
        many = _plural(len(found.over_share), "campaign", "campaigns")
        says = f"{many} can be over budget by more than the stated share: {_named(found.over_share)}."
        do = "Nothing more of it is offered: wait until its epochs are over, and lower no budget under way."
        alerts.append(Alert("over-share", Urgency.SOON, says, do, Runbook.OVER, "pacing"))
    if found.spent:
        many = _plural(len(found.spent), "campaign has", "campaigns have")
        says = f"{many} spent all: {_named(found.spent)}."
        do = "Raise the budget, or leave it: it is left out of the next menus."
        alerts.append(Alert("budget-spent", Urgency.SOON, says, do, view="campaigns"))
    if found.held_micros:
        says = f"{found.held_micros / 1e6:,.2f} of impressions that were shown cannot be charged."
        do = "Raise those campaigns' budgets: what is held is then charged, the oldest first."
        alerts.append(Alert("held", Urgency.SOON, says, do, Runbook.HELD, "campaigns"))
    return alerts


def _tokens(found: Situation) -> list[Alert]:
    out, of = found.out_of_tokens
    if not out:
        return []
    says = f"{out} of {of} menus may sign no more tokens in this epoch."
    do = "Their campaigns have as much out as pacing allows: raise budgets, or wait for the next epoch."
    return [Alert("tokens", Urgency.SOON, says, do, view="pacing")]


def _rounds(found: Situation) -> list[Alert]:
    do = "See whether the proxy answers and both ledgers grant what the round costs."
    return [
        Alert(
            "round-overdue", Urgency.NOW, f"Round {name} closed {_duration(seconds)} ago and is not settled.",
            do, Runbook.ROUND, "rounds",
        )
        for name, seconds in sorted(found.overdue.items())
        if seconds > OVERDUE_SECONDS
    ]  # fmt: skip


def _privacy(found: Situation) -> list[Alert]:
    alerts = []
    small, of = found.small_cohorts
    if small:
        says = f"{small} of the last {of} personal cohorts were smaller than their menus ask for."
        do = "Lengthen epochs or tell contexts more coarsely: `tacit serve plan` says how far."
        alerts.append(Alert("small-cohorts", Urgency.SOON, says, do, Runbook.COHORTS, "cohorts"))
    for line in found.nearly_spent:
        says = f"Less than a tenth is left on the ledger line {line}."
        do = "Plan what is still to be released on it: a limit is raised only if people are told."
        alerts.append(Alert("ledger", Urgency.SOON, says, do, Runbook.BUDGET, "ledger"))
    return alerts


def _notices(found: Situation) -> list[Alert]:
    count, expires = found.notices
    if not count or expires is None or expires - found.now > NOTICE_SECONDS:
        return []
    says = f"{_plural(count, 'notice of an exchange waits', 'notices of exchanges wait')} and may expire."
    return [Alert("notices", Urgency.NOW, says, "See whether the proxy answers.", Runbook.PROXY)]


def _named(campaigns: Mapping[int, str]) -> str:
    """The first few of them, and how many more."""
    shown = ", ".join(f"{number} ({name})" for number, name in sorted(campaigns.items())[:3])
    return f"{shown} and {len(campaigns) - 3} more" if len(campaigns) > 3 else shown


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _duration(seconds: int) -> str:
    if seconds < 7_200:
        return f"{seconds // 60} minutes"
    return f"{seconds // 3_600} hours" if seconds < 172_800 else f"{seconds // 86_400} days"
