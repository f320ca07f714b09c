"""Training through a room: what autograd would do at home, and the same bytes for the same step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from tacit.cleanroom.model.derivatives import adapter_derivatives
from tacit.cleanroom.model.learning import LearnSettings, tune_adapter
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.gradients import project_gradient
from tacit.cleanroom.platform.metrics import ask_metrics
from tacit.cleanroom.platform.released_labels import ask_for_labels, train_on_released
from tacit.cleanroom.platform.statistic import fit_statistic
from tacit.cleanroom.platform.steps import AdapterPlan, step_rows, steps_per_epoch
from tacit.cleanroom.platform.training import TrainingProgress, train_adapter
from tacit.cleanroom.protocol.answers import StepAnswer
from tacit.cleanroom.protocol.audit_log import check_receipt, verify_log
from tacit.cleanroom.protocol.codecs import codec_named
from tacit.cleanroom.protocol.losses import Loss, slopes
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.requests import StepRequest
from tacit.cleanroom.protocol.row_derivatives import Derivatives, RowDerivatives
from tacit.cleanroom.protocol.slabs import decode_slab
from tacit.errors import BadInput, RoomError, RoomRefused
from tests.support.cleanroom_platform_world import NOW, TASK, World, examples, model, tokens_of, world

FAST = AdapterPlan(batch=128, epochs=2, one_cycle=False, learning_rate=5e-3)
ALMOST_NO_FLIPS = Fraction(40)  # one flip in 2^57


@dataclass(frozen=True, eq=False)
class Listening:
    """A link that writes down what passes."""

    inner: World
    said: list[tuple[StepRequest, list[bytes], StepAnswer]] = field(default_factory=list)

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        answer = self.inner.link.step(request, slabs)
        self.said.append((request, list(slabs), answer))
        return answer

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner.link, name)


def trained_at_home(plan: AdapterPlan, rows: int, steps: int, loss: Loss, keep: float) -> ConversionModel:
    """torch's own Adam on the mean loss, by autograd through the model."""
    home, data = model(), examples(rows)
    parameters = home.adapter("shoes").parameters
    adam = torch.optim.Adam(parameters, lr=plan.learning_rate)
    for number in range(steps):
        chosen = step_rows(plan, rows, steps_per_epoch(rows, plan.batch or rows, 32), number)
        logits, labels = home.logits(data.batch(chosen), TASK), data.labels(TASK)[chosen].astype(np.float32)
        adam.zero_grad()
        if loss is Loss.RAW:
            binary_cross_entropy_with_logits(logits, torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
        else:
            slope = slopes(logits.detach().numpy(), labels, loss, keep) / len(chosen)
            logits.backward(torch.from_numpy(slope.astype(np.float32)))  # type: ignore[no-untyped-call]
        adam.step()
    return home


@pytest.mark.parametrize("loss", list(Loss))
def test_lossless_bytes_and_no_flips_are_local_training(loss: Loss) -> None:
    here = world(Mode.AGGREGATE, epsilon=ALMOST_NO_FLIPS)
    through, plan = model(), replace(FAST, codec="fp32", loss=loss)
    trained = train_adapter(through, "shoes", here.examples, here.tokens, here.link, plan, run="r")
    assert trained.steps == 10
    home = trained_at_home(plan, 600, trained.steps, loss, here.terms.keep)
    moved = float(np.abs(home.adapter_values("shoes") - model().adapter_values("shoes")).max())
    assert moved > 0.02
    assert through.adapter_values("shoes") == pytest.approx(home.adapter_values("shoes"), abs=1e-4 * moved)


def test_eight_bits_come_close() -> None:
    here = world(Mode.AGGREGATE, epsilon=ALMOST_NO_FLIPS)
    through, plan = model(), replace(FAST, codec="int8", loss=Loss.RAW)
    trained = train_adapter(through, "shoes", here.examples, here.tokens, here.link, plan, run="r")
    home = trained_at_home(plan, 600, trained.steps, Loss.RAW, 1.0).adapter_values("shoes")
    off = np.linalg.norm(through.adapter_values("shoes") - home)
    assert 0 < off < 0.05 * np.linalg.norm(home - model().adapter_values("shoes"))


def test_slabs_can_be_read_again_and_a_second_run_sends_the_same_bytes() -> None:
    here = world(Mode.AGGREGATE)
    plan = AdapterPlan(batch=128, epochs=1)
    first, second = Listening(here), Listening(here)
    for link in (first, second):
        train_adapter(model(), "shoes", here.examples, here.tokens, link, plan, run="r")  # type: ignore[arg-type]
    for (request, slabs, answer), (again, same, repeated) in zip(first.said, second.said, strict=True):
        assert request.digest == again.digest
        assert slabs == same
        assert np.array_equal(answer.sum, repeated.sum)
    other = Listening(here)
    train_adapter(model(), "shoes", here.examples, here.tokens, other, plan, run="s")  # type: ignore[arg-type]
    assert other.said[0][1] != first.said[0][1]  # another run rounds anew


def test_every_epoch_has_every_row_once() -> None:
    plan = AdapterPlan(batch=100, seed=3)
    steps = steps_per_epoch(1030, 100, 64)
    epochs = [
        np.concatenate([step_rows(plan, 1030, steps, e * steps + s) for s in range(steps)]) for e in (0, 1)
    ]
    assert all(sorted(epoch.tolist()) == list(range(1030)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()
    assert (
        step_rows(plan, 1030, steps, 0).tolist() == epochs[0][: len(step_rows(plan, 1030, steps, 0))].tolist()
    )


@pytest.mark.parametrize(
    ("rows", "batch", "smallest"), [(1030, 100, 64), (130, 100, 80), (90, 100, 64), (257, 256, 256)]
)
def test_no_batch_is_smaller_than_agreed(rows: int, batch: int, smallest: int) -> None:
    steps = steps_per_epoch(rows, batch, smallest)
    sizes = [len(step_rows(AdapterPlan(batch=batch), rows, steps, step)) for step in range(steps)]
    assert sum(sizes) == rows
    assert min(sizes) >= smallest


def test_progress_and_what_the_run_carries() -> None:
    here = world(Mode.AGGREGATE)
    seen: list[TrainingProgress] = []
    ticks = iter(range(10_000))
    plan = AdapterPlan(batch=200, epochs=2, loss_every=2)
    trained = train_adapter(
        model(), "shoes", here.examples, here.tokens, here.link, plan, run="r", progress=seen.append,
        stopwatch=lambda: float(next(ticks)),
    )  # fmt: skip
    assert [each.step for each in seen] == [1, 2, 3, 4, 5, 6]
    assert {each.steps for each in seen} == {6}
    assert [each.examples for each in seen] == [200, 400, 600, 800, 1000, 1200]
    assert [each.bytes_sent for each in seen] == sorted({each.bytes_sent for each in seen})
    assert all(each.examples_a_second > 0 for each in seen)
    assert all(each.remaining.epsilon_left == 0 for each in seen)  # paid with the first step
    assert [each.loss is not None for each in seen] == [True, False, True, False, True, False]
    assert seen[0].loss is not None
    assert seen[0].loss.low < 1.735 < seen[0].loss.high
    assert trained.bytes_sent == seen[-1].bytes_sent
    assert trained.statement == here.terms.statement()
    assert trained.bytes_a_second is not None
    entries = here.link.audit(0)
    for receipt in trained.receipts:
        check_receipt(receipt, here.terms.room_key)
    verify_log(entries, heads=trained.receipts)
    # A receipt from another log would be noticed.
    assert len({receipt.sequence for receipt in trained.receipts}) == trained.steps


def test_noised_sums_use_each_record_as_often_as_there_are_epochs() -> None:
    here = world(Mode.NOISED, releases_per_record=2)
    plan = AdapterPlan.for_terms(here.terms, batch=128)
    assert (plan.loss, plan.epochs, plan.project, plan.optimizer) == (Loss.RAW, 2, False, "sgd")
    seen: list[TrainingProgress] = []
    trained = train_adapter(
        model(), "shoes", here.examples, here.tokens, here.link, plan, run="r", progress=seen.append
    )
    assert here.most_releases() == 2
    assert all(each.loss is None for each in seen)
    assert trained.statement.epsilon <= 3
    with pytest.raises(RoomRefused, match="release"):
        train_adapter(model(), "shoes", here.examples, here.tokens, here.link, plan, run="another")
    assert here.most_releases() == 2


def test_projecting_takes_away_most_of_the_noise() -> None:
    """One plain step, so that the adapter's move is the gradient: compared with the sum without noise."""
    moves = {}
    for name, given, plan in (
        ("exact", {"mode": Mode.AGGREGATE, "epsilon": ALMOST_NO_FLIPS}, {"loss": Loss.RAW}),
        ("noisy", {"mode": Mode.NOISED, "clip_norm": 50.0}, {"loss": Loss.RAW}),
        ("projected", {"mode": Mode.NOISED, "clip_norm": 50.0}, {"loss": Loss.RAW, "project": True}),
    ):
        here = world(given.pop("mode"), rows=48, **given)  # type: ignore[arg-type]
        fitted = model(rank=8)
        all_of_it = AdapterPlan(batch=48, epochs=1, learning_rate=1.0, one_cycle=False, optimizer="sgd", **plan)  # type: ignore[arg-type]
        before = fitted.adapter_values("shoes")
        train_adapter(fitted, "shoes", here.examples, here.tokens, here.link, all_of_it, run="r")
        moves[name] = fitted.adapter_values("shoes") - before
    noise, left = moves["noisy"] - moves["exact"], moves["projected"] - moves["exact"]
    # At most 48 of the parameters' directions stay; twice that share is many standard deviations away.
    assert np.sum(left**2) < 2 * 48 / len(noise) * np.sum(noise**2)
    assert 48 / len(noise) < 0.1
    assert left @ noise == pytest.approx(left @ left, rel=1e-2)  # what is left is a part of that noise


def test_projecting_is_onto_what_the_room_decoded() -> None:
    """Its sum is one of rounded derivatives: a plain step stays in their span, and not in that of the exact."""
    here, fitted = world(Mode.NOISED, rows=48), model(rank=8)
    plan = AdapterPlan.for_terms(here.terms, batch=48, epochs=1, learning_rate=1.0, codec="int8", project=True)
    heard, layout, before = Listening(here), fitted.adapter_layout("shoes"), fitted.adapter_values("shoes")
    chosen = step_rows(plan, 48, 1, 0)
    _, exact = adapter_derivatives(fitted, here.examples.batch(chosen), TASK, "shoes")
    train_adapter(fitted, "shoes", here.examples, here.tokens, heard, plan, run="r")  # type: ignore[arg-type]
    move = (fitted.adapter_values("shoes") - before).astype(np.float64)
    ((_, slabs, _),) = heard.said
    (slab,) = (decode_slab(data, layout, codec_named("int8"), 16) for data in slabs)

    def left_out(of: Derivatives) -> float:
        return float(np.linalg.norm(move - project_gradient(move, of, layout)) / np.linalg.norm(move))

    assert left_out(slab.blocks) < 1e-4  # float32
    assert left_out(exact) > 1e-2


@pytest.mark.parametrize(
    ("mode", "terms", "plan", "words"),
    [
        (Mode.NOISED, {}, {"loss": Loss.RAW, "epochs": 2}, "epochs <= 1"),
        (Mode.NOISED, {}, {"epochs": 1}, "loss raw"),
        (Mode.NOISED, {}, {"loss": Loss.RAW, "epochs": 1, "loss_every": 1}, "further release"),
        (Mode.AGGREGATE, {"metrics": False}, {"loss_every": 1}, "no metrics"),
        (Mode.AGGREGATE, {}, {"batch": 16}, "32 rows or more"),
        (Mode.AGGREGATE, {}, {"codec": "top-10"}, "codec among"),
        (Mode.AGGREGATE, {}, {"task": "cart"}, "task among"),
        (Mode.RELEASE, {}, {}, "mode release"),
        (Mode.STATISTIC, {}, {}, "mode statistic"),
    ],
)
def test_what_was_not_agreed_is_known_before_anything_is_sent(
    mode: Mode, terms: dict[str, object], plan: dict[str, object], words: str
) -> None:
    here = world(mode, rows=100, **terms)
    entries = len(here.link.audit(0))
    wanted = AdapterPlan(**{"batch": 50, **plan})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=words):
        train_adapter(model(), "shoes", here.examples, here.tokens, here.link, wanted, run="r")
    assert len(here.link.audit(0)) == entries


def test_tokens_must_fit_the_examples() -> None:
    here = world(Mode.AGGREGATE, rows=100)
    with pytest.raises(BadInput, match="one line for each of 100 examples"):
        train_adapter(model(), "shoes", here.examples, tokens_of(99), here.link, AdapterPlan(batch=50), run="r")


def test_a_plan_refuses_what_cannot_be_meant() -> None:
    for wrong in (
        {"epochs": 0},
        {"learning_rate": 0.0},
        {"optimizer": "newton"},
        {"loss": "hinge"},
        {"project": 1},
    ):
        with pytest.raises(BadInput):
            AdapterPlan(**wrong)


def test_release_mode_trains_at_home_on_the_flips() -> None:
    here = world(Mode.RELEASE)
    through, plan = model(), AdapterPlan(batch=128, epochs=2)
    released = train_on_released(through, "shoes", here.examples, here.tokens, here.link, plan, run="r")
    again = ask_for_labels(here.tokens, here.link, task=TASK, run="another")
    assert np.array_equal(released.labels, again.labels)  # flipped once, for ever
    truth = here.examples.labels(TASK)
    assert 0 < np.count_nonzero(released.labels != truth) < 0.15 * len(truth)
    home, settings = model(), LearnSettings(2, 128, plan.learning_rate)
    tune_adapter(
        home, "shoes", here.examples, TASK, released.labels, settings, loss=Loss.FORWARD, keep=released.keep
    )
    assert np.array_equal(through.adapter_values("shoes"), home.adapter_values("shoes"))
    assert released.bytes_sent < 20 * 600
    assert released.statement == here.terms.statement()
    other = world(Mode.AGGREGATE, rows=100)
    with pytest.raises(BadInput, match="mode release"):
        ask_for_labels(other.tokens, other.link, task=TASK, run="r")


def test_metrics_are_free_on_flips_and_one_of_the_releases_otherwise() -> None:
    free, paid = world(Mode.AGGREGATE), world(Mode.NOISED)
    logits = np.linspace(-3, 1, 600)
    for number in range(3):
        ask_metrics(logits, free.tokens, free.link, free.terms, task=TASK, run="m", number=number)
    assert free.most_releases() == 0
    told = ask_metrics(logits, paid.tokens, paid.link, paid.terms, task=TASK, run="m", number=0, bins=8)
    again = ask_metrics(logits, paid.tokens, paid.link, paid.terms, task=TASK, run="m", number=0, bins=8)
    assert told == again
    assert paid.most_releases() == 1
    truth = paid.examples.labels(TASK).sum()
    assert told.positives.low - 20 < truth < told.positives.high + 20
    with pytest.raises(RoomRefused):
        ask_metrics(logits, paid.tokens, paid.link, paid.terms, task=TASK, run="m", number=1, bins=8)


def test_time_comes_from_the_clock_that_a_held_room_is_given() -> None:
    here = world(Mode.AGGREGATE, rows=100, expires=NOW + 1)
    object.__setattr__(here.link, "clock", lambda: NOW + 1)
    with pytest.raises(RoomRefused, match="expired"):
        train_adapter(model(), "shoes", here.examples, here.tokens, here.link, AdapterPlan(batch=50), run="r")


@pytest.mark.parametrize("mode", [Mode.AGGREGATE, Mode.RELEASE, Mode.STATISTIC])
def test_records_that_the_room_does_not_know_stop_a_run_before_it_learns(mode: Mode) -> None:
    """600 records of which none is known: 0 positives with noise of 5 to 6, where 30 are a tenth of what the
    untrained model predicts; a deviation of 3 beyond is needed to be let pass, chance below .002."""
    here, fitted = world(mode), model()
    before = fitted.adapter_values("shoes")
    strangers = here.tokens ^ np.uint8(255)

    def run(name: str, tokens: NDArray[np.uint8], share: float) -> object:
        plan = replace(FAST, least_share=share)
        if mode is Mode.STATISTIC:
            asked = here.examples, tokens, here.link
            return fit_statistic(model(), "shoes", *asked, task=TASK, run=name, least_share=share)
        if mode is Mode.RELEASE:
            return train_on_released(fitted, "shoes", here.examples, tokens, here.link, plan, run=name)
        return train_adapter(fitted, "shoes", here.examples, tokens, here.link, plan, run=name)

    with pytest.raises(
        RoomError, match=r"expected at least 0.1 of the [0-9]+ positives that the model predicts"
    ):
        run("first", strangers, 0.1)
    assert np.array_equal(fitted.adapter_values("shoes"), before)
    assert next(iter(here.link.room.joined().values())).found == 0
    if mode is not Mode.STATISTIC:  # which these records have no second one of
        run("all the same", strangers, 0.0)
    run("joined", here.tokens, 0.1)


def with_values(rank: int = 0) -> ConversionModel:
    made = model()
    made.remove_adapter("shoes")
    made.add_adapter("shoes", 8, rank, seed=2, values=examples(600))
    return made


@pytest.mark.parametrize("rank", [0, 2])
def test_embeddings_through_a_room_are_local_training(rank: int) -> None:
    """Steps send the rows that they touch, under numbers of their own: what comes back is autograd's."""
    here = world(Mode.AGGREGATE, epsilon=ALMOST_NO_FLIPS)
    plan = replace(FAST, codec="fp32", loss=Loss.RAW)
    heard, through, home = Listening(here), with_values(rank), with_values(rank)
    trained = train_adapter(through, "shoes", here.examples, here.tokens, heard, plan, run="r")  # type: ignore[arg-type]
    adam = torch.optim.Adam(home.adapter("shoes").parameters, lr=plan.learning_rate)
    for number in range(trained.steps):
        chosen = step_rows(plan, 600, 5, number)
        logits = home.logits(here.examples.batch(chosen), TASK)
        labels = torch.from_numpy(here.examples.labels(TASK)[chosen].astype(np.float32))
        adam.zero_grad()
        binary_cross_entropy_with_logits(logits, labels).backward()  # type: ignore[no-untyped-call]
        adam.step()
    moved = float(np.abs(home.adapter_values("shoes") - with_values(rank).adapter_values("shoes")).max())
    assert moved > 0.02
    assert through.adapter_values("shoes") == pytest.approx(home.adapter_values("shoes"), abs=1e-4 * moved)


@pytest.mark.parametrize("codec", ["bf16", "int8"])
def test_rounded_embeddings_come_close(codec: str) -> None:
    moves = {}
    for name in ("fp32", codec):
        here, through = world(Mode.AGGREGATE, epsilon=ALMOST_NO_FLIPS), with_values()
        plan = replace(FAST, codec=name, loss=Loss.RAW)
        train_adapter(through, "shoes", here.examples, here.tokens, here.link, plan, run="r")
        moves[name] = through.adapter_values("shoes")
    off = np.linalg.norm(moves[codec] - moves["fp32"])
    assert 0 < off < 0.1 * np.linalg.norm(moves["fp32"])


def test_a_row_has_another_number_in_every_step() -> None:
    """The room sees which examples share a value, and no order of the table's rows: numbers are drawn."""
    here = world(Mode.AGGREGATE)
    heard, through = Listening(here), with_values()
    plan = AdapterPlan(batch=600, epochs=6, codec="fp32")
    train_adapter(through, "shoes", here.examples, here.tokens, heard, plan, run="r")  # type: ignore[arg-type]
    seen = set()
    for request, slabs, _ in heard.said:
        (slab,) = (decode_slab(data, request.layout, codec_named("fp32"), 16) for data in slabs)
        rows = slab.blocks["fields.rows"]
        assert isinstance(rows, RowDerivatives)
        mine = rows.rows(int(np.flatnonzero((slab.tokens == here.tokens[0]).all(axis=1))[0]), 600)
        seen.add(tuple(mine.places[: mine.counts[0]].tolist()))
    # Two of twelve rows, drawn six times: all alike with chance 66^-5, below 1e-9.
    assert len(seen) > 1


def test_noised_rows_keep_to_their_releases_and_resume() -> None:
    here, through = world(Mode.NOISED, releases_per_record=2), with_values(1)
    plan = AdapterPlan.for_terms(here.terms, batch=128)
    trained = train_adapter(through, "shoes", here.examples, here.tokens, here.link, plan, run="r")
    assert here.most_releases() == 2
    assert trained.statement.epsilon <= 3
    again = with_values(1)
    train_adapter(again, "shoes", here.examples, here.tokens, here.link, plan, run="r")
    assert np.array_equal(again.adapter_values("shoes"), through.adapter_values("shoes"))
    projected = with_values(1)
    other = world(Mode.NOISED, releases_per_record=1)
    plan = AdapterPlan.for_terms(other.terms, batch=32, epochs=1, project=True)
    train_adapter(projected, "shoes", other.examples, other.tokens, other.link, plan, run="p")


def test_released_labels_tune_embeddings_too() -> None:
    here, through = world(Mode.RELEASE, epsilon=ALMOST_NO_FLIPS), with_values()
    train_on_released(through, "shoes", here.examples, here.tokens, here.link, FAST, run="r")
    assert np.abs(through.adapter_values("shoes")).max() > 0.01


def test_what_cannot_send_rows_is_refused_before_anything_is_sent() -> None:
    here = world(Mode.AGGREGATE, codecs=("fp32-dense", "int8"))
    with pytest.raises(BadInput, match="expected a codec that sends embeddings by rows, got fp32-dense"):
        train_adapter(
            with_values(),
            "shoes",
            here.examples,
            here.tokens,
            here.link,
            replace(FAST, codec="fp32-dense"),
            run="r",
        )

    @dataclass(frozen=True)
    class Earlier:
        inner: World

        def describe(self) -> object:
            return replace(self.inner.link.describe(), room_version="2")

    with pytest.raises(BadInput, match="expected a room of version 3 or later"):
        train_adapter(with_values(), "shoes", here.examples, here.tokens, Earlier(here), FAST, run="r")  # type: ignore[arg-type]
