"""Real check-ins of two cities as requests for a private choice, served in the order of the log.

A request is a visit in the last part of the log. It discloses the root of its category; candidates are the
venues of that root that were visited most in the first part, and their shares are the public scores. What only
the device knows is the person's own history so far: of the visits in that root, how many were to each
candidate, shrunk towards the public share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from tacit.arrays import Floats, Integers
from tacit.data.generators.worlds import seeded_generator
from tacit.deliver.protocol.factor_laws import Spread
from tacit.deliver.protocol.plans import plan_choice
from tacit.deliver.protocol.priors import ScorePrior
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.privacy.choice.choice import ChoiceLaw
from tacit.privacy.choice.noisy_max import NoisyMax
from tacit.privacy.choice.scores import Scaled
from tacit.privacy.choice.top_choice import TopChoice
from tacit.train.evaluation.intervals import InfluenceEstimate, MeasuredValue
from tacit_lab.studies.choice.reports import (
    COUNTED,
    DEFAULT,
    GAMMAS,
    NOISES,
    OLD,
    PUBLISHED,
    PUBLISHED_GAMMA,
    REPORTS,
    RESPONSE,
    within,
)
from tacit_lab.studies.choice.truths import counted_prior, log_ratios
from tacit_lab.studies.published import published_file

CITIES = {"New York": ("checkins_nyc", "venue_id"), "Jakarta": ("visits_jakarta", "place")}
PUBLIC_PART = 0.85  # of the log, by its order
CANDIDATES = 10
SHRINKAGE = 4.0  # visits that the public shares count as
BLOCK = 500  # requests between two times of learning
FEWEST_REQUESTS = 1_000
_STREAM = 34

Menus = dict[str, tuple[list[str], Floats]]  # by root: candidates, and their shares of its visits


@dataclass(frozen=True, eq=False)
class CityRequests:
    """Requests in order: of which root, by whom, and private scores in the root's public order.

    counted  ln(private / public) of one candidate for each person of the first part
    """

    public: dict[str, Floats]
    root: Sequence[str]
    person: Integers
    private: Sequence[Floats]
    counted: Floats

    @property
    def people(self) -> int:
        return int(self.person.max()) + 1

    @property
    def greedy(self) -> Floats:
        return np.array([scores.max() - scores[0] for scores in self.private])

    def share(self, gain: Floats) -> MeasuredValue:
        """Which part of the greedy gain this is, with an interval over people."""
        greedy = self.greedy
        part = gain.sum() / greedy.sum()
        influence = (gain - part * greedy) / greedy.sum()
        return InfluenceEstimate(float(part), influence, self.person, self.people - 1).with_interval()


def read_city(folder: Path, city: str, rows: int | None = None) -> tuple[CityRequests, Path]:
    """The requests of a city's log (or of its first `rows`) in a folder of published files, and the file."""
    name, venue = CITIES[city]
    place = published_file(folder, name)
    wanted = ["user", "category_path", venue]
    try:
        options = pc.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()))
        table = pc.read_csv(place, convert_options=options)
    except (pa.ArrowInvalid, KeyError):
        raise BadInput(f"{place}: expected columns {', '.join(wanted)}, got others") from None
    columns = [table.column(each).to_pylist()[:rows] for each in wanted]
    visits = [(user, path.partition(">")[0], item) for user, path, item in zip(*columns, strict=True) if path]
    requests = requests_of(visits)
    if rows is None and len(requests.root) < FEWEST_REQUESTS:
        raise BadInput(f"{place}: expected at least {FEWEST_REQUESTS:,} requests, got {len(requests.root):,}")
    return requests, place


def requests_of(visits: Sequence[tuple[str, str, str]]) -> CityRequests:
    """From visits in order, each of a person, a root and a venue."""
    first = int(PUBLIC_PART * len(visits))
    menus = _menus(visits[:first])
    own: dict[str, Counter[str]] = {}
    inside: dict[str, Counter[str]] = {}
    latest: dict[str, str] = {}

    def private(user: str, root: str) -> Floats:
        items, public = menus[root]
        history, all_there = own.get(user, Counter()), inside.get(user, Counter())
        seen = np.array([history[item] for item in items], np.float64)
        found: Floats = (seen + SHRINKAGE * public) / (all_there[root] + SHRINKAGE)
        return found

    def visited(user: str, root: str, item: str) -> None:
        own.setdefault(user, Counter())[item] += 1
        inside.setdefault(user, Counter())[root] += 1

    for user, root, item in visits[:first]:
        visited(user, root, item)
        if root in menus:
            latest[user] = root
    draws, ratios = seeded_generator(1, _STREAM, 0), []
    for user, root in latest.items():
        public = menus[root][1]
        ratios.append(log_ratios(public, private(user, root)[None], draws.integers(len(public), size=1)))
    number: dict[str, int] = {}
    roots, people, scores = [], [], []
    for user, root, item in visits[first:]:
        if root in menus:
            roots.append(root)
            people.append(number.setdefault(user, len(number)))
            scores.append(private(user, root))
        visited(user, root, item)
    shares = {root: public for root, (_, public) in menus.items()}
    return CityRequests(
        shares, roots, np.array(people, np.int64), scores, np.concatenate([np.zeros(0), *ratios])
    )


def _menus(visits: Sequence[tuple[str, str, str]]) -> Menus:
    counts: dict[str, Counter[str]] = {}
    for _, root, item in visits:
        counts.setdefault(root, Counter())[item] += 1
    menus = {}
    for root, found in counts.items():
        most = found.most_common(CANDIDATES)
        if len(most) > 1:
            shares = np.array([count for _, count in most], np.float64) / found.total()
            menus[root] = [item for item, _ in most], shares
    return menus


def city_gains(city: CityRequests, epsilon: float) -> dict[str, Floats]:
    """What each request gains over the public best, by arm: exact over the choice, in order."""
    priors: dict[str, ScorePrior] = {
        OLD: Spread(0.3),
        DEFAULT: Spread(),
        COUNTED: counted_prior(city.counted, seeded_generator(1, _STREAM, 1)),
    }
    found = {
        arm: _by_law(
            city, {root: plan_choice(public, prior, epsilon).law for root, public in city.public.items()}
        )
        for arm, prior in priors.items()
    }
    found[REPORTS] = _serve(city, epsilon)
    cut = [_by_law(city, _responses(city, epsilon, gamma)) for gamma in GAMMAS]
    found[RESPONSE] = max(cut, key=lambda gain: float(gain.sum()))
    found[PUBLISHED] = _by_law(city, _responses(city, epsilon, PUBLISHED_GAMMA))
    for arm, noise in NOISES.items():
        laws: dict[str, ChoiceLaw] = {
            root: NoisyMax.nominal(noise, Scaled(len(public)), epsilon) for root, public in city.public.items()
        }
        found[arm] = _by_law(city, laws)
    return found


def _responses(city: CityRequests, epsilon: float, gamma: float) -> dict[str, ChoiceLaw]:
    return {
        root: TopChoice.for_epsilon(epsilon, len(public), within(public, gamma), 1)
        for root, public in city.public.items()
    }


def _by_law(city: CityRequests, laws: dict[str, ChoiceLaw]) -> Floats:
    """Gains of all requests, each chosen by the law of its root."""
    gains = np.zeros(len(city.root))
    roots = np.asarray(city.root)
    for root, law in laws.items():
        rows = np.flatnonzero(roots == root)
        if len(rows):
            gains[rows] = _gains(law, np.stack([city.private[row] for row in rows.tolist()]))
    return gains


def _gains(law: ChoiceLaw, scores: Floats) -> Floats:
    found: Floats = (law.pmf(scores) * scores).sum(axis=1) - scores[:, 0]
    return found


def _serve(city: CityRequests, epsilon: float) -> Floats:
    """Planned by what all reports of earlier blocks say about the root, and of others as a few."""
    evidence, words = PriorEvidence(), Simulation(f"reports of check-ins at epsilon {epsilon:g}").words
    gains, roots = np.zeros(len(city.root)), np.asarray(city.root)
    for start in range(0, len(gains), BLOCK):
        block, reported = roots[start : start + BLOCK], []
        for root in dict.fromkeys(block.tolist()):
            public = city.public[root]
            rows = start + np.flatnonzero(block == root)
            scores = np.stack([city.private[row] for row in rows.tolist()])
            plan = plan_choice(public, evidence.prior(root), epsilon)
            gains[rows] = _gains(plan.law, scores)
            if not plan.skipped:
                counts = np.bincount(plan.choose(scores, words), minlength=len(public))
                reported.append(ReportedRanks(public, plan.law, counts, root))
        evidence = evidence.learn(reported)
    return gains
