"""A run that finds itself wrong stops, and nothing of it leaves."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import SelfCheckFailed
from tacit.torch import PrivateRun, bookkeeping, gradients
from tacit.torch import run as runs
from tacit.train.sgd.draws import poisson_sample
from tests.support.torch_runs import (
    FEATURES,
    Batch,
    double_run,
    expect_stopped,
    kept,
    losses,
    make_run,
    network,
    train,
    weights,
)


@pytest.mark.parametrize("make", [make_run, double_run])
def test_too_little_noise_is_found(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(epochs=3)
    monkeypatch.setattr(run, "_noise_stddev", 0.7 * run._noise_stddev)
    expect_stopped(run, "expected the noise of the gradients to have the variance that was paid for")


def test_no_clipping_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gradients, "_clipped", lambda squares, _: (squares.sqrt(), torch.full_like(squares, 1 / 40))
    )
    expect_stopped(make_run(max_grad_norm=0.1), "clipping: expected gradients scaled to norms of at most 0.1")


def test_understated_norms_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = bookkeeping.squared_norms
    monkeypatch.setattr(gradients, "squared_norms", lambda passes: 0.9 * right(passes))
    expect_stopped(make_run(), "expected a record's gradient to be as long as its layers say, got a longer one")


@pytest.mark.parametrize("batch", [40, 390])
@pytest.mark.parametrize("wrong", ["0.weight", "2.bias"])
def test_wrong_sums_are_found(batch: int, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth too much in one parameter."""
    right = gradients.BookkeptGradients._check_sums

    def more(self: Any, loss: Tensor, sums: Any, most: float) -> None:
        sums[wrong] *= 1.01
        right(self, loss, sums, most)

    monkeypatch.setattr(gradients.BookkeptGradients, "_check_sums", more)
    expect_stopped(
        make_run(batch=batch), f"clipping: expected the sum of clipped gradients of {wrong} to equal"
    )


def test_losses_that_follow_from_other_records_are_found() -> None:
    def mixed(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch[0])
        return nn.functional.softplus(scores - scores.roll(1)) + batch[1]

    with pytest.raises(
        SelfCheckFailed, match=r"does its loss follow from other records|sum of clipped gradients"
    ):
        train(make_run(), by=mixed)


def test_records_that_are_mixed_before_the_forward_pass_are_not_found_and_the_run_says_so() -> None:
    """A limit, which whoever mends it may write anew: nothing flows back through labels."""

    def weighed(module: nn.Module, batch: Batch) -> Tensor:
        return losses(module, batch) / (0.1 + batch[1].mean())

    assert train(make_run(), by=weighed).finished
    page = Path(__file__).parents[2] / "docs" / "own_torch_model.md"
    for words in (str(PrivateRun.__doc__), page.read_text(encoding="utf-8")):
        assert "labels.mean()" in words
        assert re.search(r"NOT detected in general|in general nobody finds out", words)
        assert "losses that follow from\nother records of the batch are met too" not in words


def test_gradients_that_are_no_numbers_stop_the_run() -> None:
    with pytest.raises(SelfCheckFailed, match="expected finite gradient norms, got others"):
        train(make_run(), by=lambda module, batch: losses(module, (batch[0] * math.inf, batch[1])))


def test_a_sampler_that_reads_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runs, "poisson_sample", lambda count, share, words: poisson_sample(count, 1.5 * share, words)
    )
    expect_stopped(make_run(epochs=40), "sampling: expected")


class Averaging(nn.Module):
    """Keeps an average of what it reads, in a buffer or in a state of its own."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.inner, self.seen = way, network(), 0.0
        start = torch.full((FEATURES,), math.nan if way == "never" else 0.0)
        self.register_buffer("average", start, persistent=way != "left out")

    def get_extra_state(self) -> dict[str, float]:
        return {"seen": self.seen}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.seen = state["seen"]

    def forward(self, values: Tensor) -> Tensor:
        if self.way in ("in place", "left out"):
            self.get_buffer("average").mul_(0.9).add_(values.detach().mean(dim=0), alpha=0.1)
        elif self.way == "anew":
            self.average = values.detach().mean(dim=0)
        elif self.way == "extra":
            self.seen = float(values.sum())
        return self.inner(values)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("way", "name"),
    [("in place", "average"), ("left out", "average"), ("anew", "average"), ("extra", "_extra_state")],
)
def test_a_buffer_that_is_made_of_records_stops_the_run(way: str, name: str) -> None:
    run = make_run(Averaging(way))
    before = weights(run)
    expect_stopped(run, f"^{name}: expected a buffer that stays as it was, got another")
    assert all(torch.equal(before[name], each) for name, each in weights(run).items())


@pytest.mark.parametrize("leave", [PrivateRun.state_dict, PrivateRun.finish])
def test_a_buffer_that_is_changed_after_a_step_does_not_leave(leave: Any) -> None:
    run = train(make_run(Averaging("never")), most=3)
    run.module.get_buffer("average").fill_(1.0)
    with pytest.raises(SelfCheckFailed, match=r"^average: expected a buffer that stays as it was"):
        leave(run)


def test_buffers_that_stay_are_kept_and_go_on() -> None:
    state = kept(train(make_run(Averaging("never")), most=3))
    run = make_run(Averaging("never"))
    run.load_state_dict(state)
    assert train(run).finished
