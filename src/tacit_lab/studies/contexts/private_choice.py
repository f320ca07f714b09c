"""What a reported choice costs: the client's pick among the ads that were sent, under differential privacy.

The server knows which contexts lie below the disclosed node and how likely each is, so it can plan the
choice for them: (k, m) of a truncated randomized response is the best for contexts drawn by their counts.
Precision is exact in expectation over the choice, by its law; an ad is always shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.arrays import Floats
from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.server.shrinkage import Shrinkage
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.choice.top_choice import TopChoice, best_top_plan
from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.contexts import bootstrap
from tacit_lab.studies.contexts.bootstrap import (
    PeopleTally,
    at_threshold,
    compare,
    interval_line,
    make_panels,
    measure,
    rises,
    say,
)
from tacit_lab.studies.contexts.contest import (
    PAPER_ADS,
    ArmTallies,
    ContextOffers,
    ServedTests,
    disclosed_groups,
    likelihood,
    run_contest,
)
from tacit_lab.studies.contexts.setting import OF_VISITS, OURS, SEEDS, trial_sources
from tacit_lab.studies.contexts.shrinkage import STRENGTH
from tacit_lab.studies.contexts.trial import LAST, TrialBlock, VisitsTrial
from tacit_lab.studies.plotting import Mechanism, Series
from tacit_lab.studies.report import Axes, write_outcome
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Claim, Finding, Study, StudyOutcome, StudyRequest, StudyScale

NAME = "contexts-private"
EPSILONS = (0.5, 1, 2, 3, 4, 6, 8)
DECIDED = 3
DRAWS = 400  # contexts that a choice is planned for
SERVER, EXACT, PLANNED, PLAIN = "server alone", "no privacy", "trunc, planned", "RR on all that were sent"
GAINED = f"precision, {PLANNED} at epsilon {DECIDED} less {SERVER}"
_STREAM = 63

T11 = Claim(
    "T11",
    "section 5.3, the server alone",
    "a private choice among ten ads is more precise than what the server alone would show",
)

ARMS = (
    (SERVER, 0.0),
    (EXACT, 0.0),
    *((PLANNED, epsilon) for epsilon in EPSILONS),
    *((PLAIN, epsilon) for epsilon in EPSILONS),
)


@dataclass(frozen=True, eq=False)
class DisclosedRequests:
    """Tests that disclosed one node, with the ads that were sent for it, the publicly best first.

    likely   (draws, ads) rates in contexts as likely as the server thinks them
    private  (tests, ads) rates in the tests' own contexts
    wanted   (tests,) the place of the ad that was clicked, or -1
    """

    tests: list[int]
    likely: Floats
    private: Floats
    wanted: np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def run(asked: StudyRequest) -> StudyOutcome:
    began = time.monotonic()
    held = run_contest(asked, NAME, trial_sources(asked), {NAME: PrivateChoices()})
    found = held.found[NAME]
    table, listed = [], []
    for place, (arm, epsilon) in enumerate(ARMS):
        row = [arm, f"{epsilon:g}" if epsilon else ""]
        for part, tally in found.parts().items():
            figure = measure(tally, at_threshold(place, "precision"))
            table.append(bootstrap.figure_row(figure, choice=arm, epsilon=epsilon or None, requests=part))
            row.append(say(figure, 3))
        listed.append(row)
    return write_outcome(
        NAME,
        asked,
        unit="request",
        relation="any exact context and history replaced",
        began=began,
        data=held.words,
        parameters={"levels": list(LAST), "ads": PAPER_ADS, "epsilons": list(EPSILONS), "draws": DRAWS},
        table=[*table, bootstrap.contrast_row(GAINED, _measure_gain(found))],
        columns=("choice", "epsilon", *(f"precision, {part}" for part in found.parts())),
        rows=listed,
        panels=make_panels(
            (title, _lines(getattr(found, part)))
            for part, title in (("everything", "All requests"), ("discovery", "First visits"))
        ),
        axes=Axes("epsilon a choice", "precision, an ad always shown", ticks=EPSILONS, share_y=True),
    )


def group_requests(trial: VisitsTrial) -> Iterator[DisclosedRequests]:
    """All tests, by what they disclosed."""
    disclosed = trial.disclosed(LAST)
    wanted = trial.trace.place[trial.tests]
    for block in trial.blocks(LAST, Shrinkage(STRENGTH)):
        for contexts, pairs in disclosed_groups(block, disclosed):
            likely = _likely(block, contexts)
            ads = ContextOffers.of(block, contexts).select(PAPER_ADS, threshold=0.0)
            if len(ads):
                ads = ads[np.argsort(-likely[:, ads].mean(axis=0), kind="stable")]
                tests, at = (list(each) for each in zip(*pairs, strict=True))
                hit = block.ad[ads] == wanted[tests][:, None]
                place = np.where(hit.any(axis=1), hit.argmax(axis=1), -1)
                yield DisclosedRequests(tests, likely[:, ads], block.rate[at][:, ads], place)


def click_chances(request: DisclosedRequests, law: ChoiceLaw | None) -> Floats:
    """(tests,) how likely the clicked ad is shown; without a law the best is."""
    if law is None:
        picked = request.private.argmax(axis=1)
        return np.asarray(picked == request.wanted, np.float64)
    pmf = law.pmf(request.private)
    return np.asarray(np.where(request.wanted >= 0, pmf[np.arange(len(pmf)), request.wanted], 0.0))


def _laws(request: DisclosedRequests) -> Iterator[ChoiceLaw | None]:
    """In the order of ARMS."""
    size = request.private.shape[1]
    yield TopChoice.for_epsilon(1, size, 1, 1)  # the publicly best, whatever the scores
    yield None
    for epsilon in EPSILONS:
        yield best_top_plan(request.likely, epsilon).mechanism(epsilon)
    for epsilon in EPSILONS:
        yield TopChoice.for_epsilon(epsilon, size, size, 1)


def _likely(block: TrialBlock, contexts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Floats:
    """(draws, ads of the block) rates in contexts drawn by how often each was seen."""
    draws = seeded_generator(1, _STREAM, int(contexts[0]))
    drawn = draws.choice(contexts, DRAWS, p=likelihood(block, contexts))
    return np.asarray(block.rate[drawn])


@dataclass(frozen=True)
class PrivateChoices:
    """All of ARMS at once, in the place of thresholds; clicks are chances."""

    epsilons: tuple[float, ...] = EPSILONS
    draws: int = DRAWS

    @property
    def packages(self) -> tuple[str, ...]:
        return ("privacy",)

    def on(self, trial: VisitsTrial) -> ServedTests:
        clicked = np.zeros((len(trial.tests), len(ARMS)))
        shown = np.zeros((len(trial.tests), len(ARMS)), bool)
        for request in group_requests(trial):
            shown[request.tests] = True
            for place, law in enumerate(_laws(request)):
                clicked[request.tests, place] = click_chances(request, law)
        return ServedTests(shown, clicked, trial.bits(trial.disclosed(LAST)))


def _lines(tally: PeopleTally) -> list[Series | None]:
    looks = {PLANNED: Mechanism.OURS, PLAIN: Mechanism.RR}
    lines = [
        interval_line(
            name,
            EPSILONS,
            [measure(tally, at_threshold(ARMS.index((name, each)), "precision")) for each in EPSILONS],
            look,
        )
        for name, look in looks.items()
    ]
    for name, look in ((EXACT, Mechanism.NON_PRIVATE), (SERVER, Mechanism.DISCLOSURE)):
        value = measure(tally, at_threshold(ARMS.index((name, 0.0)), "precision")).value
        if not np.isnan(value):
            lines.append(Series(name, [EPSILONS[0], EPSILONS[-1]], [value] * 2, mechanism=look))
    return lines


def _measure_gain(found: ArmTallies) -> MeasuredValue:
    planned, server = (
        at_threshold(ARMS.index(arm), "precision") for arm in ((PLANNED, DECIDED), (SERVER, 0.0))
    )
    return compare(found.everything, found.everything, planned, other_statistic=server)


def judge(kept: ResultFiles) -> list[Finding]:
    gained = bootstrap.read_contrast(kept, GAINED)
    before, after = (
        say(bootstrap.read_figure(kept, choice=arm, epsilon=epsilon, requests="all"), 3)
        for arm, epsilon in ((SERVER, None), (PLANNED, DECIDED))
    )
    return [
        Finding(
            T11,
            f"at (4,2,2) and epsilon {DECIDED} the planned choice's precision is above the server's alone, an "
            "ad always shown, whole interval over people",
            f"{say(gained, 3)}: from {before} to {after}",
            rises(gained),
        )
    ]


STUDY = Study(
    NAME,
    "What a private choice costs among candidates for a context",
    OURS,
    "beside figure 5",
    (T11,),
    {StudyScale.TOY: 0.1, StudyScale.SMALL: 0.3, StudyScale.FULL: 30.0},
    SEEDS,
    run,
    judge,
    OF_VISITS,
)
