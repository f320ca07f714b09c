"""A round as its operator writes it down, in one TOML file.

    task = "clicks-by-city"     # the run's name; with the level it names the round, once for ever
    scope = "clicks"            # of the ledger line that pays, at both parties
    level = 0                   # of the run, from 0
    cells = 1000                # length of a report; or question = "FILE", a question's bytes
    hours = 24                  # how long it is open, from now
    parties = 100000            # devices enrolled
    smallest_batch = 1000       # reports below which nothing is released

    epsilon = 1.0               # the promise of the whole run, per device:
    delta = 1e-8                # (default: a power of ten below 1 / (100 parties))
    events = 10                 # most events of a device in the run
    each = 10                   # and most in one cell (default: events)
    levels = 3                  # rounds of the run
    totals_only = false         # true: no clicks are asked for, an event counts once per level, with less noise
    noise = "servers"           # who adds it: servers, or users (default: servers, unless `silent` is stated)
    silent = 0.1                # the share of devices that may leave its noise out, where users add it
    law = "discrete-laplace"    # or discrete-gaussian, skellam (default: the least planned error of them)
    proof = false               # each report proves that its counts are in range
    skew = 60                   # seconds by which clocks may differ

All levels of a run say the same of everything but level, cells or question, and hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.errors import BadInput, Refused
from tacit.files import write_once
from tacit.gather.estimate.plan import (
    CountNoiseLaw,
    NoiseBy,
    NoiseOption,
    RunPlan,
    noise_options,
    noise_record,
    plan_run,
)
from tacit.gather.estimate.top_down import GatherTask
from tacit.gather.protocol.promises import Contribution
from tacit.gather.protocol.rounds import MOST_CELLS, Question, Round
from tacit.services.rounds import AnnouncedRound
from tacit.services.settings import Parties

NEEDED = ("task", "scope", "level", "hours", "parties", "smallest_batch", "epsilon", "events", "levels")
OPTIONAL = ("cells", "question", "delta", "each", "totals_only", "noise", "silent", "law", "proof", "skew")
MOST_HOURS = 24 * 366
KEPT_SUFFIX = ".round"


@dataclass(frozen=True)
class PlannedRound:
    """A round to open, the plan of its noise, and the laws that could keep its promise, the least first."""

    announced: AnnouncedRound
    plan: RunPlan
    options: tuple[NoiseOption, ...]

    @property
    def round(self) -> Round:
        return self.announced.round

    def as_json(self) -> dict[str, Any]:
        """What is asked and promised, at what cost, and every law that its noise could have had."""
        round = self.round
        return {
            "task": round.task,
            "level": round.level,
            "digest": round.digest.hex(),
            "opens": round.opens,
            "closes": round.closes,
            "cells": round.cells,
            "epsilon": float(round.promise.epsilon),
            "delta": float(round.promise.delta),
            "levels": round.promise.levels,
            "noise_sd": self.plan.published_sd(round.parties),
            **noise_record(self.plan, self.options),
            "cost": {"epsilon": float(round.cost.epsilon), "delta": float(round.cost.delta)},
            "scope": round.scope,
        }


def read_round_file(path: Path, parties: Parties, *, check: bytes, now: int) -> PlannedRound:
    """The round that the file asks for, open from now; `check` is the hash of the parties' check key."""
    with error_prefix(str(path)):
        return plan_round(read_toml(path, "settings"), parties, path.resolve().parent, check=check, now=now)


def keep_round(asked: PlannedRound, path: Path) -> PlannedRound:
    """The same round again if the file was opened before: its bytes are kept beside it before they first leave.

    Opening may fail half way, at one party and not the other. Who asks again must ask for the very same round,
    and not for one that opens a minute later.
    """
    place = path.with_suffix(KEPT_SUFFIX)
    try:
        before = AnnouncedRound.from_bytes(write_once(place, asked.announced.to_bytes()))
    except Refused:
        raise BadInput(f"{place}: expected the round that was opened, got other bytes") from None
    then = replace(asked.round, opens=before.round.opens, closes=before.round.closes)
    lasts = before.round.closes - before.round.opens == asked.round.closes - asked.round.opens
    if not lasts or AnnouncedRound(then, asked.announced.question) != before:
        raise BadInput(
            f"{path}: expected what {place.name} beside it was opened with, got other values: a round never "
            "changes; ask for another one in a file of its own, with another task or level"
        )
    return replace(asked, announced=before)


def plan_round(
    record: Mapping[str, Any],
    parties: Parties,
    folder: Path,
    *,
    check: bytes,
    now: int,
    asked: Question | None = None,
) -> PlannedRound:
    """The round that such a record asks for, with `asked` in the place of its cells or its question's file."""
    section = ConfigTable(record, "", (*NEEDED, *OPTIONAL), folder)
    given = section.everything()
    for key in NEEDED:
        if key not in given:
            raise BadInput(f"{key}: expected a value, got no such key")
    proof = section.flag("proof")
    wanted: dict[str, Any] = {
        "contribution": Contribution(given["events"], given.get("each"), section.flag("totals_only")),
        **{key: given[key] for key in ("levels", "parties", "epsilon")},
        **{key: given.get(key) for key in ("delta", "silent")},
    }
    by = NoiseBy(section.text("noise")) if "noise" in given else NoiseBy.SERVERS if proof else None
    run = plan_run(**wanted, by=by, law=CountNoiseLaw(section.text("law")) if "law" in given else None)
    task = GatherTask(
        name=section.text("task"),
        parties=given["parties"],
        smallest_batch=given["smallest_batch"],
        scope=section.text("scope"),
        proxy_key=parties.proxy.public_key,
        server_key=parties.server.public_key,
        skew=section.whole("skew", at_most=86_400, default=60),
        check=check if proof else None,
    )
    hours = expect.positive("hours", given["hours"])
    if hours > MOST_HOURS:
        raise BadInput(f"hours: expected at most {MOST_HOURS}, got {given['hours']}")
    question = _question(section, given) if asked is None else asked
    round = task.round(
        run,
        question,
        level=section.whole("level", at_most=1_000),
        opens=now,
        closes=now + max(1, int(hours * 3600)),
    )
    announced = AnnouncedRound(round, b"" if isinstance(question, int) else question.to_bytes())
    return PlannedRound(announced, run, noise_options(**wanted))


def _question(section: ConfigTable, given: Mapping[str, Any]) -> Question | int:
    """What is asked, or how many cells there are where that was agreed on otherwise."""
    if ("cells" in given) == ("question" in given):
        raise BadInput("cells: expected either cells or question, got both or neither")
    if "cells" in given:
        return section.whole("cells", at_most=MOST_CELLS)
    place = section.file("question")
    try:
        return Question.from_bytes(place.read_bytes())
    except OSError as problem:
        raise BadInput(
            f"question: expected a file at {place}, got {(problem.strerror or '').lower()}"
        ) from None
    except Refused:
        raise BadInput(f"question: expected the bytes of a Question in {place}, got others") from None
