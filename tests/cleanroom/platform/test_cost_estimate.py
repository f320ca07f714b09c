"""What a run was said to cost, against what it came to."""

from __future__ import annotations

from typing import Any

import pytest

from tacit.cleanroom.platform.cost_estimate import (
    CostSample,
    estimate_labels,
    estimate_statistic,
    estimate_training,
    sample_cost,
)
from tacit.cleanroom.platform.released_labels import ask_for_labels
from tacit.cleanroom.platform.statistic import fit_statistic
from tacit.cleanroom.platform.steps import AdapterPlan
from tacit.cleanroom.platform.training import train_adapter
from tacit.cleanroom.protocol.modes import Mode
from tacit.errors import BadInput
from tests.support.cleanroom_platform_world import TASK, model, world

WITHIN = 0.02


@pytest.mark.parametrize(
    ("mode", "terms", "plan"),
    [
        (Mode.AGGREGATE, {}, {"codec": "int8", "batch": 32}),  # 16 steps an epoch: their requests weigh
        (Mode.AGGREGATE, {}, {"codec": "fp32", "epochs": 1}),
        (Mode.AGGREGATE, {"dense_sequences": True}, {"codec": "bf16"}),
        (Mode.AGGREGATE, {"codecs": ("qsgd-8",)}, {"codec": "qsgd-8"}),
        (Mode.NOISED, {"releases_per_record": 3}, {"epochs": 2}),
    ],
)
def test_a_run_takes_the_bytes_that_were_said(mode: Mode, terms: dict[str, Any], plan: dict[str, Any]) -> None:
    here, fitted = world(mode, rows=500, **terms), model(rank=3)
    wanted = AdapterPlan.for_terms(here.terms, **{"batch": 128, **plan})
    looked = sample_cost(fitted, "shoes", here.examples, wanted, here.terms)
    layout = fitted.adapter_layout("shoes")
    said = estimate_training(layout, wanted, here.terms, 500, sampled=looked, link_bytes_per_second=1e6)
    done = train_adapter(fitted, "shoes", here.examples, here.tokens, here.link, wanted, run="r")
    assert said.bytes_sent == pytest.approx(done.bytes_sent, rel=WITHIN)
    assert said.bytes_received == pytest.approx(done.bytes_received, rel=WITHIN)
    assert (said.steps, said.examples) == (done.steps, done.examples)
    assert said.seconds_sending == pytest.approx((said.bytes_sent + said.bytes_received) / 1e6)
    assert said.seconds_computing is not None
    assert said.releases == here.most_releases()
    assert (said.epsilon, said.delta) == (done.statement.epsilon, done.statement.delta)
    # Without a sample the longest sequences are assumed, which is more than comes.
    assert estimate_training(layout, wanted, here.terms, 500).bytes_sent > 0.999 * said.bytes_sent
    assert estimate_training(layout, wanted, here.terms, 500).seconds_sending is None


def test_a_statistic_and_labels_take_the_bytes_that_were_said() -> None:
    once, fitted = world(Mode.STATISTIC, rows=500), model()
    done = fit_statistic(
        fitted, "shoes", once.examples, once.tokens, once.link, task=TASK, run="r", directions=6
    )
    said = estimate_statistic(once.terms, 500, cells=done.head.cells.count, indices=3, features=6)
    assert said.bytes_sent == pytest.approx(done.bytes_sent, rel=WITHIN)
    assert said.bytes_received == pytest.approx(done.bytes_received, rel=0.05)  # mostly its receipt, here
    assert said.releases == once.most_releases() == 1
    handed = world(Mode.RELEASE, rows=500)
    released = ask_for_labels(handed.tokens, handed.link, task=TASK, run="r")
    labels = estimate_labels(handed.terms, 500, link_bytes_per_second=2.0)
    assert labels.bytes_sent == pytest.approx(released.bytes_sent, rel=0.03)  # mostly its request, here
    assert labels.bytes_received == pytest.approx(released.bytes_received, rel=0.05)
    assert labels.seconds_sending == pytest.approx((labels.bytes_sent + labels.bytes_received) / 2)
    assert labels.releases == 0
    assert labels.as_json()["mode"] == "release"


def test_seconds_follow_the_stopwatch() -> None:
    here, ticks = world(Mode.AGGREGATE, rows=100), iter(range(0, 10_000, 5))
    plan = AdapterPlan(batch=50, epochs=2)
    looked = sample_cost(
        model(), "shoes", here.examples, plan, here.terms, stopwatch=lambda: float(next(ticks))
    )
    assert looked.seconds_an_example == pytest.approx(5 / 100)
    said = estimate_training(model().adapter_layout("shoes"), plan, here.terms, 100, sampled=looked)
    assert said.seconds_computing == pytest.approx(10)


def test_what_was_not_agreed_has_no_cost() -> None:
    here = world(Mode.NOISED, rows=100)
    layout = model().adapter_layout("shoes")
    with pytest.raises(BadInput, match="epochs <= 1"):
        estimate_training(layout, AdapterPlan(batch=50, loss="raw", epochs=2), here.terms, 100)  # type: ignore[arg-type]
    wanted = AdapterPlan.for_terms(here.terms, batch=50)
    with pytest.raises(BadInput, match="link_bytes_per_second > 0"):
        estimate_training(
            layout, wanted, here.terms, 100, sampled=CostSample(1.0, 1.0), link_bytes_per_second=0.0
        )
