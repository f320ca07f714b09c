"""Arms that serve the same requests: what each showed on each trace is measured once and kept.

The server sends ads for what was disclosed, the client picks by its context (`ServingArm`). A record is
named by the digest of its trace, its arm and the code of both, so that studies share what they have in
common, and an interrupted study continues where it stopped.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tacit.arrays import Flags, Floats, Integers
from tacit.deliver.server.estimates import RateEstimator
from tacit.deliver.server.shrinkage import BackOff
from tacit.files import write_atomically
from tacit.kernels.greedy import lazy_greedy
from tacit.schema.contexts.hierarchy import Levels
from tacit_lab.studies.contexts.bootstrap import PeopleTally
from tacit_lab.studies.contexts.trial import TrialBlock, VisitsTrial, block_levels
from tacit_lab.studies.digests import digest, package_of, spell_out
from tacit_lab.studies.processes import map_in_processes
from tacit_lab.studies.study import StudyRequest, StudyScale

Arrays = Mapping[str, Any]  # names to arrays


def load_arrays(path: Path) -> Arrays | None:
    """What is there; None if nothing is, or nothing that can be read: then it is to be made again."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:  # which leaves open what it cannot read
            return dict(arrays)
    except (FileNotFoundError, EOFError, ValueError, zipfile.BadZipFile):
        return None


def save_arrays(path: Path, arrays: Arrays) -> None:
    spelled = io.BytesIO()
    np.savez_compressed(spelled, **arrays)
    write_atomically(path, spelled.getvalue(), durable=False)


SUPPORT = 2  # the paper's: what an estimate needs
PAPER_THRESHOLD, PAPER_ADS = 0.3, 10
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NOTHING = -1  # disclosed: then nothing is sent

Rescore = Callable[[int, Integers, Floats], tuple[Integers, Floats]]
"""A test, the ads sent and their rates in its exact context; back come the ads to pick from and theirs."""


@dataclass(frozen=True)
class ServingArm:
    """Who discloses what, how many ads are sent for it, and by which estimates.

    ads         how many are sent; a set for fewer ads is the beginning of that for more
    own         what the client knows by itself
    thresholds  click-through rates below which no ad is sent, nor shown
    """

    levels: Levels
    ads: int = PAPER_ADS
    estimator: RateEstimator = field(default_factory=lambda: BackOff(SUPPORT))
    own: Callable[[VisitsTrial], Rescore] | None = None
    disclose: Callable[[VisitsTrial, Levels], Integers] = field(default_factory=lambda: AtLevels())
    thresholds: tuple[float, ...] = THRESHOLDS

    @property
    def packages(self) -> tuple[str, ...]:
        return (*package_of(self.own), *package_of(self.disclose))

    def on(self, trial: VisitsTrial) -> ServedTests:
        return serve_tests(trial, self, self.thresholds)


@dataclass(frozen=True)
class AtLevels:
    """Everybody discloses their context at the levels that were asked for."""

    def __call__(self, trial: VisitsTrial, levels: Levels) -> Integers:
        return trial.disclosed(levels)


@dataclass(frozen=True, eq=False)
class ServedTests:
    """What each test was shown, (tests, thresholds), and how many bits people disclosed for it on average."""

    shown: Flags
    clicked: Flags | Floats  # or chances of it
    bits: float


def serve_tests(trial: VisitsTrial, arm: ServingArm, thresholds: Sequence[float]) -> ServedTests:
    """Thresholds are click-through rates below which no ad is sent, nor shown; at 0 one is always shown, the
    first that was sent where none has a rate in the test's own context."""
    shown, clicked = (np.zeros((len(trial.tests), len(thresholds)), bool) for _ in range(2))
    wanted = trial.trace.place[trial.tests]
    disclosed = arm.disclose(trial, arm.levels)
    own = None if arm.own is None else arm.own(trial)
    for block in trial.blocks(block_levels(arm.levels), arm.estimator):
        for group, tests in disclosed_groups(block, disclosed):
            offers = ContextOffers.of(block, group)
            for at, threshold in enumerate(thresholds):
                ads = offers.select(arm.ads, threshold)
                for test, context in tests:
                    picked = _pick_ad(block, test, context, ads, threshold, own)
                    if picked is not None:
                        shown[test, at], clicked[test, at] = True, picked == wanted[test]
    return ServedTests(shown, clicked, trial.bits(disclosed))


def disclosed_groups(
    block: TrialBlock, disclosed: Integers
) -> Iterator[tuple[Integers, list[tuple[int, int]]]]:
    """For each disclosed node with tests: the contexts that the server thinks of, and (test, context) pairs."""
    said = disclosed[block.context]
    order = np.argsort(said, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(said[order])) + 1)
    tests: dict[int, list[tuple[int, int]]] = {}
    for test, at in zip(block.tests.tolist(), block.at.tolist(), strict=True):
        tests.setdefault(int(said[at]), []).append((test, at))
    for contexts in members:
        node = int(said[contexts[0]])
        here = tests.get(node)
        if here and node != NOTHING:
            # Where nobody was seen, the contexts are all as likely, and their estimates those of an ancestor.
            likely = contexts[block.weight[contexts] > 0]
            yield (likely if len(likely) else contexts), here


def likelihood(block: TrialBlock, contexts: Integers) -> Floats:
    """(contexts,) how likely the server takes each of these to be."""
    weight = block.weight[contexts]
    if not weight.any():
        weight = np.ones(len(contexts))
    likely: Floats = weight / weight.sum()
    return likely


@dataclass(frozen=True, eq=False)
class ContextOffers:
    """The rates of all ads in some contexts, for as many choices among them as there are thresholds."""

    rate: Floats  # (ads, contexts)
    highest: Floats  # (ads,)
    weight: Floats  # (contexts,)

    @classmethod
    def of(cls, block: TrialBlock, contexts: Integers) -> ContextOffers:
        rate = np.ascontiguousarray(block.rate[contexts].T)
        return cls(rate, rate.max(axis=1), likelihood(block, contexts))

    def select(self, ads: int, threshold: float) -> Integers:
        """The best `ads` ads for these contexts together; rates below the threshold are worth nothing."""
        useful = np.flatnonzero((self.highest >= threshold) & (self.highest > 0))
        if not len(useful):
            return useful
        rate = self.rate[useful]
        picked = lazy_greedy(np.where(rate >= threshold, rate, 0.0), self.weight, min(ads, len(useful)))
        return useful[picked.ads]


def _pick_ad(
    block: TrialBlock, test: int, context: int, sent: Integers, threshold: float, own: Rescore | None
) -> int | None:
    ads, rates = block.ad[sent], block.rate[context, sent]
    if own is not None:
        ads, rates = own(test, ads, rates)
    if not len(ads):
        return None
    best = int(np.argmax(rates))
    return int(ads[best]) if rates[best] >= threshold else None


PACKAGES = (
    "data",
    "schema",
    "kernels",
    "deliver",
    "tacit_lab/studies/contexts/trial",
    "tacit_lab/studies/contexts/contest",
)

Key = TypeVar("Key", bound=Hashable)


class TrialSource(Protocol):
    """Where a trial comes from: a frozen value whose fields decide all of it."""

    def trial(self) -> VisitsTrial: ...


class ContestArm(Protocol):
    """An arm: a frozen value. `packages`: whose code its figures hang on, beside PACKAGES and its own."""

    @property
    def packages(self) -> tuple[str, ...]: ...

    def on(self, trial: VisitsTrial) -> ServedTests: ...


@dataclass(frozen=True, eq=False)
class ArmTallies:
    """An arm's tallies: over all requests, over first visits to a place, and over repeats."""

    everything: PeopleTally
    discovery: PeopleTally
    repeats: PeopleTally

    @classmethod
    def of(cls, record: Arrays) -> ArmTallies:
        user, again, shown, clicked = (record[name] for name in ("user", "again", "shown", "clicked"))
        return cls(*(PeopleTally.of(user, shown, clicked, among) for among in (None, ~again, again)))

    @classmethod
    def together(cls, founds: Sequence[ArmTallies]) -> ArmTallies:
        """The people of several trials."""
        parts = zip(*((each.everything, each.discovery, each.repeats) for each in founds), strict=True)
        return cls(*map(PeopleTally.together, parts))

    def parts(self) -> Mapping[str, PeopleTally]:
        """Those that have any requests."""
        return {name: tally for name, tally in self._parts().items() if tally.requests.any()}

    def empty_parts(self) -> list[str]:
        """The parts that have none."""
        return [name for name, tally in self._parts().items() if not tally.requests.any()]

    def _parts(self) -> Mapping[str, PeopleTally]:
        return {"all": self.everything, "first visits": self.discovery, "repeats": self.repeats}


@dataclass(frozen=True, eq=False)
class ContestResult(Generic[Key]):
    """What every arm came to over the people of all traces, and the bits that it disclosed on average."""

    found: Mapping[Key, ArmTallies]
    bits: Mapping[Key, float]
    met: Mapping[str, int]  # over all traces: visits, left_out, tests, devices

    @property
    def words(self) -> str:
        """What the requests were."""
        visits, left_out, tests = (self.met[name] for name in ("visits", "left_out", "tests"))
        bad = f" ({left_out:,} bad row{'s' * (left_out != 1)} left out)" if left_out else ""
        first = next(iter(self.found.values()))  # all arms meet the same requests
        lacking = "".join(f", no {part} among them" for part in first.empty_parts())
        return f"{visits:,} visits{bad}, {tests:,} of them tested{lacking}"


def run_contest(
    asked: StudyRequest, name: str, sources: Sequence[TrialSource], arms: Mapping[Key, ContestArm]
) -> ContestResult[Key]:
    """All arms on each trace; a process holds one trace at a time, since its rates are large."""
    place = {(source, key): _place(asked.cache, source, arm) for source in sources for key, arm in arms.items()}
    missing = {
        source: {path: arms[key] for key in arms if load_arrays(path := place[source, key]) is None}
        for source in sources
    }
    # At toy scale all is done before another process would have started.
    processes = 1 if asked.scale is StudyScale.TOY else asked.processes
    items = list(share_work({source: each for source, each in missing.items() if each}, processes))
    label = f"{name}: arms on traces"
    if items:
        asked.progress(label, 0, len(items))
    for done, _ in enumerate(map_in_processes(_measure, items, processes), start=1):
        asked.progress(label, done, len(items))
    records = {key: [_read_record(place[source, key]) for source in sources] for key in arms}
    first = next(iter(records.values()))
    return ContestResult(
        {key: ArmTallies.together([ArmTallies.of(record) for record in each]) for key, each in records.items()},
        {key: float(np.mean([record["bits"] for record in each])) for key, each in records.items()},
        {name: int(sum(record[name] for record in first)) for name in _MET},
    )


_MET = ("visits", "left_out", "tests", "devices")
Item = tuple[TrialSource, Mapping[Path, ContestArm]]


def _place(cache: Path, source: TrialSource, arm: ContestArm) -> Path:
    packages = (*PACKAGES, *arm.packages, *package_of(arm), *package_of(source))
    return cache / "served" / f"{digest(spell_out(source), spell_out(arm), packages=packages)}.npz"


def share_work(missing: Mapping[TrialSource, Mapping[Path, ContestArm]], processes: int) -> Iterator[Item]:
    """A trace with all of its arms; where traces do not share out evenly, the last ones' arms are."""
    whole = len(missing) - len(missing) % processes
    for at, (source, arms) in enumerate(missing.items()):
        parts = 1 if at < whole else min(processes, len(arms))
        for part in range(parts):
            yield source, dict(list(arms.items())[part::parts])


def _measure(item: Item) -> None:
    source, arms = item
    trial = source.trial()
    for path, arm in arms.items():
        save_arrays(path, _record(trial, arm.on(trial)))


def _record(trial: VisitsTrial, served: ServedTests) -> Arrays:
    trace = trial.trace
    return {
        "shown": served.shown,
        "clicked": served.clicked,
        "bits": np.array(served.bits),
        "user": trace.user[trial.tests],
        "again": trace.again[trial.tests],
        "visits": np.array(trace.rows),
        "left_out": np.array(trace.left_out),
        "tests": np.array(len(trial.tests)),
        "devices": np.array(len(np.unique(trace.user[trial.learnt]))),
    }


def _read_record(path: Path) -> Arrays:
    record = load_arrays(path)
    assert record is not None, "it was there, or was made just now"
    return record
