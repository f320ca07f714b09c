"""Plans promise what they should before anything is read, and runs do what the plan says."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.data.encoding.vocabulary import VocabularySelection
from tacit.data.splits import RowSet
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, EntropyMisuse, SelfCheckFailed
from tacit.privacy.budget import Budget
from tacit.privacy.releases import GaussianStatistic, SubsampledGaussian, leaves
from tacit.privacy.units import Cap, Relation, Split, Unit, UnitKind, Window
from tacit.train.estimator import Estimator
from tacit.train.examples import Examples, time_windows
from tacit.train.labels.mechanism import Bins
from tacit.train.labels.randomizers import FlipLabels
from tacit.train.labels.windows import ReportingWindows
from tacit.train.methods import DpSgd, Hybrid, LabelDp, Plain, StatisticMethod, TrainingMethod
from tacit.train.models.factorization_machine import FmModel, LogisticRegression
from tacit.train.models.model import Part
from tacit.train.plan import LabelPhase, Plan, PrivatePhase
from tacit.train.settings import Learning, PrivateLearning
from tacit.train.sgd.optimizers import Adam, Sgd
from tacit.train.statistic.method import NoisyStatistic
from tacit.train.statistic.offset import FIXED_TABLE, OffsetModel
from tacit.train.steps import Run, RunProgress
from tacit.train.targets import Head
from tests.support.training_examples import FAST, MODEL, ROWS, SECRET, learnable


def fitted(method: TrainingMethod, examples: Examples, seed: int = 1) -> Estimator:
    source = Simulation(f"fit {seed}")
    return Estimator(MODEL, method, source=source, secret=SECRET, simulated=True).fit(examples)


def test_every_method_learns_and_privacy_costs() -> None:
    examples, test = learnable(1), learnable(1)
    methods: dict[str, TrainingMethod] = {
        "plain": Plain(Learning(epochs=6, batch=256, rate=0.02, optimizer=Adam())),
        "labels": LabelDp(3, learning=Learning(epochs=6, batch=256, rate=0.02)),
        "dp-sgd": DpSgd(6, "1e-5", learning=FAST),
        "hybrid": Hybrid(6, "1e-5", k=0.5, learning=FAST),
        "by user": Hybrid(6, "1e-5", k=0.5, unit=Unit(UnitKind.USER), cap=Cap(3), learning=FAST),
    }
    scores = {name: fitted(method, examples).score(test) for name, method in methods.items()}
    assert scores["plain"] > 0.85
    assert 0.65 < scores["labels"] < scores["plain"] - 0.05  # it cannot see the sensitive half
    assert 0.7 < scores["dp-sgd"] <= scores["plain"]
    assert 0.7 < scores["hybrid"] <= scores["plain"]
    assert 0.6 < scores["by user"] <= scores["hybrid"] + 0.02


def test_a_plan_promises_what_was_asked_and_no_more() -> None:
    examples = learnable()
    plan = Hybrid(4, "1e-6", k=0.25, learning=FAST).plan(examples)
    statement = plan.statement
    assert statement is not None
    assert statement.relation is Relation.REPLACE_ONE
    assert 3.98 < statement.epsilon <= 4  # within .2% of what was asked, never above
    labels, private = plan.phases
    assert isinstance(labels, LabelPhase)
    assert isinstance(private, PrivatePhase)
    assert labels.part is Part.TRUNCATED
    assert labels.labelling is not None
    assert float(labels.labelling.epsilon) == 1
    # Joint composition needs no more noise than splitting epsilon by addition.
    apart = DpSgd(3, "1e-6", learning=FAST).plan(examples).phases[0]
    assert isinstance(apart, PrivatePhase)
    assert private.clipping.noise_multiplier <= apart.clipping.noise_multiplier * 1.0005


def test_a_plan_says_what_scores_mean() -> None:
    examples = learnable()
    for method in (Plain(), LabelDp(4), DpSgd(4, "1e-6", learning=FAST), Hybrid(4, "1e-6", learning=FAST)):
        assert method.plan(examples).head is Head.LOGISTIC
    assert Plan((), (), None, None, examples).head is Head.LOGISTIC  # a statistic's fit has no phases
    counts = FlipLabels(Bins.counts(1))
    counted = LabelDp(4, mechanism=counts, learning=Learning(epochs=1, batch=512))
    assert counted.plan(examples).head is Head.POISSON
    model = fitted(counted, examples)
    assert model.head is Head.POISSON
    assert model.predict(examples).min() > 0
    with pytest.raises(BadInput, match="got a poisson head: use predict"):
        model.predict_proba(examples)


def test_values_are_learned_in_their_own_units() -> None:
    """The same reports in units and in thousandths: predictions differ by the unit alone."""
    examples = learnable()
    learning = Learning(epochs=2, batch=512, rate=0.05)
    small, large = (
        fitted(
            LabelDp(4, mechanism=FlipLabels(Bins((0.5,), (0.0, unit))), learning=learning), examples
        ).predict(examples)
        for unit in (1.0, 1000.0)
    )
    assert large == pytest.approx(1000 * small, rel=1e-4, abs=1e-2)
    assert small.mean() == pytest.approx(examples.labels.mean(), abs=0.05)
    assert np.corrcoef(small, examples.labels)[0, 1] > 0.2


WINDOWS = ReportingWindows((3_600, 86_400), (Fraction(1, 3), Fraction(2, 3)), (Fraction(1, 2), Fraction(1)))


def waiting(seed: int = 1) -> Examples:
    """Half of the conversions come within the hour, half in the hours after."""
    examples = learnable(seed)
    late = np.random.default_rng(9).random(len(examples)) < 0.5
    return replace(examples, delay=np.where(examples.labels, np.where(late, 7_200, 60), -1))


def test_labels_that_are_reported_twice_promise_all_reports() -> None:
    examples, end = waiting(), 6000 * 60
    method = LabelDp(6, windows=WINDOWS, now=end)
    plan = method.plan(examples)
    assert plan.statement is not None
    assert plan.charge is not None
    assert 6 <= plan.statement.epsilon < 6 * (1 + 1e-12)
    assert [leaf.release.words for release in plan.releases for leaf in leaves(release)] == [
        "randomized response on 2 classes, ε = 2 per label",
        "randomized response on 2 classes, ε = 4 per label",
    ]
    early = replace(method, as_of=2 * 3_600).plan(examples)  # an hour's rows have their first report
    assert early.releases == plan.releases
    assert early.charge == plan.charge
    (phase,) = early.phases
    assert isinstance(phase, LabelPhase)
    assert phase.labelling is not None
    assert phase.labelling.count == 61
    assert len(phase.labelling.allocation) == len(examples)
    assert early.phases[0].schedule.steps < plan.phases[0].schedule.steps


def test_reports_so_far_are_learned_from_as_they_are() -> None:
    """Where half of what converts is known, predictions are of what will have converted."""
    examples = waiting()
    learning = Learning(epochs=6, batch=256, rate=0.02)
    first, last = 6000 * 60 + 3_600, 20 * 86_400  # by when every row has its first report, and its last
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    for as_of, arrived in ((first, half), (last, half), (first, quarter)):
        windows = ReportingWindows((3_600, 10 * 86_400), (half, half), (arrived, Fraction(1)))
        method = LabelDp(6, windows=windows, now=last, as_of=as_of, learning=learning)
        model = fitted(method, examples)
        ratio = model.predict(examples).mean() / examples.labels.mean()
        right = arrived == half  # else it takes half for a quarter, and predicts more than there is
        assert 0.93 < ratio < 1.07 if right else ratio > 1.3
        assert model.score(examples) > 0.6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"now": None}, "expected the time as of which labels are read, or now, got neither"),
        ({"as_of": 10**9}, "expected reports as of a time that has come, got 1000000000, after 360000"),
        ({"as_of": 60}, "expected at least one closed reporting window at now=60"),
        ({"epsilon": Fraction(1, 500)}, "expected epsilon >= 0.001 for each label"),
        ({"mechanism": FlipLabels(Bins.counts(1))}, "expected flips of 0 or 1 for labels that are reported"),
    ],
)
def test_reports_that_cannot_be_planned_are_refused(changed: dict[str, Any], message: str) -> None:
    said: dict[str, Any] = {"epsilon": 6, "windows": WINDOWS, "now": 360_000, **changed}
    with pytest.raises(BadInput, match=message):
        LabelDp(**said).plan(waiting())
    with pytest.raises(BadInput, match="expected seconds to conversion"):
        LabelDp(6, windows=WINDOWS, now=360_000).plan(learnable())


def test_the_windows_that_examples_lie_in() -> None:
    examples = learnable()  # 6000 minutes from second 0 on
    assert time_windows(examples, Window.days(1)) == [0, 1, 2, 3, 4]
    assert time_windows(examples, Window.days(1, origin=3_600)) == [-1, 0, 1, 2, 3, 4]


def test_the_ends_of_the_hybrid_are_the_baselines() -> None:
    examples = learnable()
    left, sgd = (
        m.plan(examples) for m in (Hybrid(4, "1e-6", k=0, learning=FAST), DpSgd(4, "1e-6", learning=FAST))
    )
    assert left == sgd
    right, labels = Hybrid(4, "1e-6", k=1).plan(examples), LabelDp(4).plan(examples)
    assert right.statement == labels.statement
    assert right.part is Part.TRUNCATED
    assert labels.statement is not None
    assert labels.statement.delta == 0
    assert labels.statement.relation is Relation.REPLACE_LABEL


def test_auto_spends_on_labels_only_where_they_can_teach() -> None:
    examples = learnable()
    worth = 2 * math.asinh(1 / (2 * math.sqrt(0.05 * 0.95)))  # where flips add a label's own variance
    assert 1 / (4 * math.sinh(worth / 2) ** 2) == pytest.approx(0.05 * 0.95)
    flips = FlipLabels()
    assert Hybrid(12, "1e-6", mechanism=flips).share(examples) == pytest.approx(worth / 12)
    assert Hybrid(9, "1e-6", mechanism=flips).share(examples) == 0  # it would take more than a third
    public = PrivateLearning(start_rate=0.5)
    asked = Hybrid(6, "1e-6", mechanism=flips, learning=public)
    assert asked.share(examples) == pytest.approx(2 * math.asinh(1) / 6)
    few = examples.subset(np.arange(50))
    assert Hybrid(12, "1e-6", mechanism=flips).share(few) == 0  # too few for two dozen values


def test_auto_tells_a_statistic_where_records_outweigh_its_noise() -> None:
    examples = learnable()
    plan = Hybrid(4, "1e-6", learning=FAST).plan(examples)
    assert plan.statistic is not None
    told, steps, _ = plan.releases
    assert isinstance(told, GaussianStatistic)
    assert isinstance(steps, SubsampledGaussian)
    alone = DpSgd(4, "1e-6", learning=FAST).plan(examples).phases[0]
    assert isinstance(alone, PrivatePhase)
    assert 1 < steps.noise_multiplier / alone.clipping.noise_multiplier < 1.06
    assert plan.statement is not None
    assert plan.statement.epsilon <= 4
    assert plan.statement.relation is Relation.REPLACE_ONE
    assert plan.charge is not None
    assert plan.charge.sensitive_features
    assert Hybrid(4, "1e-6").share(learnable(2)) == Hybrid(4, "1e-6").share(examples)  # whatever the labels
    assert Hybrid(4, "1e-6").share(examples) == pytest.approx(
        plan.statistic.plan.statement.epsilon / 4, rel=1e-3
    )
    said = {default.key: default for default in plan.defaults}
    assert said["privacy.k"].value == Hybrid(4, "1e-6").share(examples)
    for fewer, epsilon in ((examples.subset(np.arange(20)), 4), (examples, Fraction(1, 100))):
        left_out = Hybrid(epsilon, "1e-6", learning=FAST).plan(fewer)
        assert left_out.statistic is None
        assert Hybrid(epsilon, "1e-6").share(fewer) == 0
        (why,) = [default for default in left_out.defaults if default.key == "privacy.k"]
        assert "would tell too little" in why.words


def test_dp_sgd_learns_what_a_statistic_leaves_over() -> None:
    """Steps that hardly move anything rank as the statistic does, whose score is added to theirs."""
    examples = learnable()
    slow = PrivateLearning(epochs=1, batch=500, rate=1e-9, optimizer=Sgd(), recalibrate=False)
    method = Hybrid(8, "1e-5", k=0.9, statistic=NoisyStatistic(rank=0), learning=slow)
    plan = method.plan(examples)
    estimator = Estimator(MODEL, method, source=Simulation(1), simulated=True).fit(examples, plan)
    model = estimator.model
    assert isinstance(model, OffsetModel)
    assert estimator.score(examples) > 0.55
    rows = np.arange(50)
    ids = model.ids(examples, rows, Part.WHOLE)
    own = model.own.forward({"table": ids["table"]}, Part.WHOLE).scores
    fixed = model.fixed.forward({"table": ids[FIXED_TABLE]}, Part.WHOLE).scores
    np.testing.assert_allclose(model.forward(ids, Part.WHOLE).scores, own + fixed, rtol=1e-6)
    before = model.forward(ids, Part.WHOLE).scores
    model.rescale(1.7, -0.4)
    np.testing.assert_allclose(model.forward(ids, Part.WHOLE).scores, 1.7 * before - 0.4, atol=1e-5)


def test_a_run_beside_a_statistic_is_held_to_its_plan() -> None:
    examples = learnable()
    plan = Hybrid(4, "1e-6", learning=FAST).plan(examples)
    plain = MODEL.build(examples.sizes, Simulation(1).normal)
    with pytest.raises(BadInput, match="expected a model beside a statistic"):
        Run(plan, plain, examples, Simulation(1), simulated=True)
    beside = plan.trained_shape(MODEL).build(examples.sizes, Simulation(1).normal)
    alone = DpSgd(4, "1e-6", learning=FAST).plan(examples)
    with pytest.raises(BadInput, match="expected a model with nothing beside it"):
        Run(alone, beside, examples, Simulation(1), simulated=True)
    unpaid = replace(plan, releases=plan.releases[1:])
    with pytest.raises(SelfCheckFailed, match="a statistic that was paid for"):
        Run(unpaid, beside, examples, Simulation(1), simulated=True).go()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"k": 1}, "expected k below 1 with a statistic"),
        ({"frozen": True}, "no frozen public tower with a statistic"),
        ({"statistic": 3}, "expected statistic to be a NoisyStatistic, got 3"),
    ],
)
def test_statistics_that_cannot_be_told_first_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Hybrid(**{"epsilon": 4, "delta": "1e-6", "k": 0.5, "statistic": NoisyStatistic(), **wrong})


def test_a_frozen_public_tower_stays_as_the_first_phase_left_it() -> None:
    examples = learnable()
    alone = replace(FAST, recalibrate=False)  # which would scale both towers alike
    plan = Hybrid(6, "1e-5", k=0.5, frozen=True, learning=alone).plan(examples)
    public = examples.sizes.public_rows
    tables = []
    for phases in (plan.phases[:1], plan.phases):
        model: FmModel = MODEL.build(examples.sizes, Simulation("start").normal)
        Run(replace(plan, phases=phases), model, examples, Simulation(3), SECRET, simulated=True).go()
        tables.append(model.table)
    assert np.array_equal(tables[0][:public], tables[1][:public])
    assert np.all(tables[0][public:] != tables[1][public:])


def test_what_was_selected_before_is_part_of_the_promise_and_paid_for_once() -> None:
    selection = VocabularySelection.for_budget(Budget.of("0.5", "1e-7"), fields=2)
    examples = learnable(selection=selection)
    without = DpSgd(2, "1e-6", learning=FAST).plan(learnable())
    plan = DpSgd(2, "1e-6", learning=FAST).plan(examples)
    assert plan.statement is not None
    assert plan.charge is not None
    assert plan.statement.epsilon <= 2
    assert len(plan.statement.mechanisms) == 3  # selection, steps, recalibration
    assert float(plan.charge.budget.epsilon) < plan.statement.epsilon
    louder, quieter = plan.phases[0], without.phases[0]
    assert isinstance(louder, PrivatePhase)
    assert isinstance(quieter, PrivatePhase)
    assert louder.clipping.noise_multiplier > quieter.clipping.noise_multiplier


def test_units_with_private_keys_are_refused_before_anything_is_read() -> None:
    examples = learnable(public_keys=frozenset({"row", "time"}), label=None)
    for method in (DpSgd(2, "1e-6", unit=Unit(UnitKind.USER)), LabelDp(2, unit=Unit(UnitKind.USER))):
        with pytest.raises(BadInput, match="column 'user' to be public"):
            method.plan(examples)
    with pytest.raises(BadInput, match="'advertiser'"):
        LabelDp(2, unit=Unit(UnitKind.USER_ADVERTISER)).plan(learnable())
    with pytest.raises(BadInput, match="closed windows"):
        DpSgd(2, "1e-6", unit=Unit(UnitKind.USER, Window.days(1)), now=60).plan(learnable())
    with pytest.raises(BadInput, match="at least one example"):
        DpSgd(2, "1e-6").plan(learnable(at=RowSet(slice(0, 0))))


def test_a_user_is_sampled_and_clipped_as_one() -> None:
    examples = learnable()
    plan = DpSgd(2, "1e-6", unit=Unit(UnitKind.USER), learning=FAST).plan(examples)
    phase = plan.phases[0]
    assert isinstance(phase, PrivatePhase)
    assert phase.groups is not None
    assert phase.sampling_probability == 500 / 2000  # of users, not of impressions
    assert np.array_equal(phase.groups, np.arange(ROWS) // 3)


def test_labels_come_out_the_same_for_the_same_secret_only() -> None:
    examples = learnable()
    plan = LabelDp(1, unit=Unit(UnitKind.USER), cap=Cap(3, split=Split.BY_COUNT)).plan(examples)
    model = MODEL.build(examples.sizes, Simulation(1).normal)

    def targets(secret: bytes) -> NDArray[np.float32]:
        run = Run(plan, model, examples, Simulation(1), secret, simulated=True)
        return run._targets(plan.phases[0]).values

    assert np.array_equal(targets(SECRET), targets(SECRET))
    assert not np.array_equal(targets(SECRET), targets(bytes(32)))


def test_a_seed_is_refused_where_the_result_may_leave() -> None:
    examples = learnable()
    plan = DpSgd(2, "1e-6", learning=FAST).plan(examples)
    model = MODEL.build(examples.sizes, Simulation(1).normal)
    with pytest.raises(EntropyMisuse, match="cryptographic"):
        Run(plan, model, examples, Simulation(1))
    Run(plan, model, examples, Entropy())
    with pytest.raises(BadInput, match="secret"):
        Run(LabelDp(1).plan(examples), model, examples, Entropy())
    simulated = fitted(LabelDp(2), examples)
    assert simulated.statement is None  # what was simulated promises nothing


def test_a_plan_is_for_its_own_examples() -> None:
    examples = learnable()
    plan = LabelDp(1, unit=Unit(UnitKind.USER)).plan(examples)
    everybody_one_user = learnable(keys={**examples.keys, "user": np.zeros(ROWS, np.uint64)})
    model = MODEL.build(examples.sizes, Simulation(1).normal)
    with pytest.raises(BadInput, match="examples that the plan was made for"):
        Run(plan, model, everybody_one_user, Entropy(), SECRET)


def test_progress_tells_nothing_that_is_private() -> None:
    examples = learnable()
    seen: list[RunProgress] = []
    plan = Hybrid(6, "1e-5", k=0.5, learning=PrivateLearning(epochs=1, batch=500)).plan(examples)
    model = MODEL.build(examples.sizes, Simulation(1).normal)
    Run(plan, model, examples, Simulation(1), SECRET, simulated=True).go(seen.append)
    private = [progress for progress in seen if progress.phase_name == "dp-sgd"]
    expected = [500.0 * step for step in range(1, 13)]  # not drawn
    assert [progress.examples for progress in private] == expected
    assert all(progress.loss is None for progress in private)
    assert [progress.loss for progress in seen if progress.phase_name == "labels"][-1] is not None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 0}, "epsilon > 0"),
        ({"delta": 0}, "delta in"),
        ({"k": 1.5}, "k in"),
        ({"k": "some"}, "k to be a finite number"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Hybrid(**{"epsilon": 4, "delta": "1e-6", **wrong}).plan(learnable())  # type: ignore[arg-type]


def test_labels_that_are_not_0_or_1_are_refused() -> None:
    for label in (np.full(ROWS, 2, np.uint8), np.full(ROWS, np.nan)):
        examples = learnable(label=label)
        plan = Plain().plan(examples)
        with pytest.raises(BadInput, match="column label: expected 0 or 1"):
            Run(plan, MODEL.build(examples.sizes, Simulation(1).normal), examples, Entropy()).go()


def test_an_epsilon_that_cannot_teach_is_refused_before_it_is_paid_for() -> None:
    with pytest.raises(BadInput, match=r">= 0\.001 for each label"):
        LabelDp("0.0005").plan(learnable())


def test_a_penalty_pulls_the_weights_of_a_model_without_embeddings() -> None:
    examples = learnable()
    weights = {}
    for penalty in (0.0, 0.01, 100.0):
        method = Plain(Learning(4, 500, 0.02, optimizer=Adam(), penalty=penalty))
        model = LogisticRegression().build(examples.sizes, Simulation(1).normal)
        Run(method.plan(examples), model, examples, Simulation(2), simulated=True).go()
        weights[penalty] = float(np.abs(model.table).mean())
    assert weights[0.01] < 0.9 * weights[0.0]
    assert weights[100.0] < 0.1 * weights[0.0]


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (DpSgd, {"epsilon": -1}, "expected epsilon > 0, got -1"),
        (DpSgd, {"delta": 2}, "expected delta in (0, 1), got 2"),
        (DpSgd, {"delta": 0}, "expected delta in (0, 1), got 0"),
        (DpSgd, {"unit": "user"}, "expected unit to be a Unit, got 'user'"),
        (DpSgd, {"learning": Learning()}, "expected learning to be a PrivateLearning, got"),
        (DpSgd, {"now": "now"}, "expected now to be a whole number, got 'now'"),
        (LabelDp, {"epsilon": "x"}, "expected epsilon to be a finite number, got 'x'"),
        (LabelDp, {"cap": 3}, "expected cap to be a Cap, got 3"),
        (LabelDp, {"key": "label"}, "expected key to be a FlipKey, got 'label'"),
        (LabelDp, {"mechanism": "flip"}, "expected mechanism to make noisy labels, such as FlipLabels(), got"),
        (LabelDp, {"part": "all"}, "expected part to be one of whole, truncated, sensitive, got 'all'"),
        (Hybrid, {"k": 1.1}, "expected k in [0, 1], got 1.1"),
        (Hybrid, {"k": -0.1}, "expected k in [0, 1], got -0.1"),
        (Hybrid, {"k": "all"}, "expected k to be a finite number, got 'all'"),
        (Hybrid, {"delta": 1}, "expected delta in (0, 1), got 1"),
        (Hybrid, {"frozen": "no"}, "expected frozen to be a bool, got 'no'"),
        (StatisticMethod, {"epsilon": 0}, "expected epsilon > 0, got 0"),
        (StatisticMethod, {"delta": 1}, "expected delta in (0, 1), got 1"),
        (StatisticMethod, {"statistic": 4}, "expected statistic to be a NoisyStatistic, got 4"),
        (Plain, {"learning": 3}, "expected learning to be a Learning, got 3"),
    ],
)
def test_a_method_is_checked_where_it_is_made(kind: type, given: dict[str, object], said: str) -> None:
    good: dict[str, object] = {"epsilon": 1, "delta": "1e-6"}
    known = {name: good[name] for name in good if name in kind.__annotations__}
    kind(**known)
    with pytest.raises(BadInput, match=re.escape(said)):
        kind(**known | given)


def test_a_part_by_its_name_is_that_part() -> None:
    """A word that is only like the member would have trained on sensitive features without a word about it."""
    plan = LabelDp(1, part="truncated").plan(learnable())  # type: ignore[arg-type]
    assert plan.part is Part.TRUNCATED
    assert plan.charge is not None
    assert not plan.charge.sensitive_features
