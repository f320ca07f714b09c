"""A run that dies at any moment and goes on: the same adapter in the end, and nothing released twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.cleanroom.platform import checkpoints, training
from tacit.cleanroom.platform.checkpoints import RunState
from tacit.cleanroom.platform.steps import AdapterDescent, AdapterPlan, Optimizer
from tacit.cleanroom.platform.training import AdapterRunSummary, train_adapter
from tacit.cleanroom.protocol.answers import AuditReceipt, StepAnswer
from tacit.cleanroom.protocol.modes import Mode
from tacit.cleanroom.protocol.requests import StepRequest
from tacit.errors import BadInput, RoomRefused
from tests.support.cleanroom_platform_world import NOW, World, examples, model, world

EPOCHS, STEPS = 3, 6
ROWS = 100
MOMENTS = ("before sending", "while sending", "after sending", "before the checkpoint", "while writing it")


class Killed(BaseException):
    """The process ends here."""


@dataclass(frozen=True, eq=False)
class Dying:
    """A link that dies with its process at one moment of one step."""

    inner: World
    step_number: int
    moment: str

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        here = request.number == self.step_number
        if here and self.moment == "before sending":
            raise Killed
        if here and self.moment == "while sending":
            return self.inner.link.step(request, _cut_short(slabs))
        answer = self.inner.link.step(request, slabs)
        if here and self.moment == "after sending":
            raise Killed
        return answer

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner.link, name)


def _cut_short(slabs: Iterable[bytes]) -> Iterable[bytes]:
    yield from list(slabs)[:-1]
    raise Killed


def plan_for(here: World) -> AdapterPlan:
    return AdapterPlan.for_terms(here.terms, batch=50, epochs=EPOCHS, codec="int8")


def trained(
    here: World, checkpoint: Path | None, link: object = None
) -> tuple[NDArray[np.float32], AdapterRunSummary]:
    """A fresh process: a fresh model, as it was before the run."""
    fitted = model()
    done = train_adapter(
        fitted, "shoes", here.examples, here.tokens, link or here.link, plan_for(here), run="spring-1",  # type: ignore[arg-type]
        checkpoint=checkpoint,
    )  # fmt: skip
    return fitted.adapter_values("shoes"), done


def room_for(mode: Mode) -> World:
    given = {"releases_per_record": EPOCHS} if mode is Mode.NOISED else {}
    return world(mode, rows=ROWS, **given)


def releases(here: World) -> int:
    """How many steps the room has counted, and not only answered again."""
    return sum(entry.event["kind"] == "step" and entry.event["counted"] for entry in here.link.audit(0))


@pytest.fixture(scope="module")
def uninterrupted() -> dict[Mode, NDArray[np.float32]]:
    found = {}
    for mode in (Mode.AGGREGATE, Mode.NOISED):
        here = room_for(mode)
        found[mode], done = trained(here, None)
        assert done.steps == STEPS
    return found


@pytest.mark.parametrize(
    "moments",
    [
        ("no moment", *MOMENTS),
        *(pytest.param((moment,) * STEPS, id=moment, marks=pytest.mark.slow) for moment in MOMENTS),
    ],
)
@pytest.mark.parametrize("mode", [Mode.AGGREGATE, Mode.NOISED])
def test_killed_at_any_moment_of_any_step_and_gone_on(
    mode: Mode, moments: tuple[str, ...], uninterrupted: dict[Mode, NDArray[np.float32]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One run that dies in its steps, at another moment of each; or, slowly, at the same moment of all."""
    here, checkpoint = room_for(mode), tmp_path / "run" / "checkpoint"
    for number, moment in enumerate(moments):
        if moment not in MOMENTS:
            continue
        with monkeypatch.context() as patched:
            if moment in ("before the checkpoint", "while writing it"):
                writes = moment == "while writing it"
                patched.setattr(
                    training,
                    "save_checkpoint",
                    _dies_at(number + 1, checkpoints.save_checkpoint, writes=writes),
                )
            with pytest.raises(Killed):
                trained(here, checkpoint, Dying(here, number, moment))
        assert not list(checkpoint.parent.glob(".*"))
    values, done = trained(here, checkpoint)
    assert np.array_equal(values, uninterrupted[mode])
    assert done.steps == STEPS
    assert done.examples == EPOCHS * ROWS
    if mode is Mode.NOISED:
        assert here.most_releases() == EPOCHS
        assert releases(here) == STEPS


def _dies_at(step: int, really: Any, *, writes: bool) -> object:
    """In place of keeping the checkpoint after this step; or when only its draft is there, whole."""

    def keep(path: Path, training: str, progressed: RunState, descent: AdapterDescent) -> None:
        if progressed.step == step and not writes:
            raise Killed
        with pytest.MonkeyPatch.context() as patched:
            if progressed.step == step:
                patched.setattr(Path, "replace", _dies)
            really(path, training, progressed, descent)

    return keep


def _dies(*_: object) -> None:
    raise Killed


def test_a_run_that_is_lost_with_its_checkpoint_repeats_itself_without_a_second_release(
    uninterrupted: dict[Mode, NDArray[np.float32]],
) -> None:
    here = room_for(Mode.NOISED)
    for _ in range(2):
        values, _ = trained(here, None)
        assert np.array_equal(values, uninterrupted[Mode.NOISED])
    assert releases(here) == STEPS


def test_another_order_under_the_same_name_is_refused() -> None:
    here = room_for(Mode.NOISED)
    other = AdapterPlan.for_terms(here.terms, batch=50, epochs=EPOCHS, seed=1)
    with pytest.raises(Killed):
        trained(here, None, Dying(here, 1, "before sending"))
    with pytest.raises(RoomRefused):
        train_adapter(model(), "shoes", here.examples, here.tokens, here.link, other, run="spring-1")
    assert releases(here) == 1


def test_a_finished_run_asks_nothing_more(tmp_path: Path) -> None:
    here, checkpoint = room_for(Mode.AGGREGATE), tmp_path / "checkpoint"
    values, done = trained(here, checkpoint)
    entries = len(here.link.audit(0))
    again, same = trained(here, checkpoint)
    assert np.array_equal(values, again)
    assert len(here.link.audit(0)) == entries
    assert (same.steps, same.bytes_sent, same.receipts) == (done.steps, done.bytes_sent, done.receipts)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    here, checkpoint = room_for(Mode.AGGREGATE), tmp_path / "checkpoint"
    with pytest.raises(Killed):
        trained(here, checkpoint, Dying(here, 2, "before sending"))
    begun_elsewhere = model()
    begun_elsewhere.set_adapter_values("shoes", begun_elsewhere.adapter_values("shoes") + np.float32(1e-3))
    own: dict[str, Any] = {"model": model(), "examples": here.examples, "tokens": here.tokens}
    own |= {"plan": plan_for(here), "run": "spring-1"}
    for changed in (
        {"run": "spring-2"},
        {"plan": replace(own["plan"], seed=1)},
        {"plan": replace(own["plan"], codec="fp32")},
        {"tokens": here.tokens[::-1].copy()},
        {"model": begun_elsewhere},
        {"model": model(seed=2)},  # the same adapter, on another base
        {"examples": examples(ROWS, seed=1)},
    ):
        given = own | changed
        with pytest.raises(BadInput, match="checkpoint of this run"):
            train_adapter(
                given["model"], "shoes", given["examples"], given["tokens"], here.link, given["plan"],
                run=given["run"], checkpoint=checkpoint,
            )  # fmt: skip
    assert releases(here) == 0
    _, done = trained(here, checkpoint)  # what it was begun with, it goes on with
    assert done.steps == STEPS


def descent(size: int = 5, optimizer: Optimizer = Optimizer.ADAM) -> AdapterDescent:
    made = AdapterDescent(optimizer, np.linspace(-1, 1, size, dtype=np.float32))
    made.step(np.arange(size, dtype=np.float32), 0.1)
    return made


def test_a_checkpoint_brings_everything_back_and_is_private(tmp_path: Path) -> None:
    place, receipt = tmp_path / "checkpoint", AuditReceipt(3, "ab" * 32, bytes(range(64)))
    kept, progressed = descent(), RunState(2, 7, 100, 200, 300, (receipt,))
    checkpoints.save_checkpoint(place, "digest", progressed, kept)
    assert place.stat().st_mode & 0o777 == 0o600
    fresh = AdapterDescent(Optimizer.ADAM, np.zeros(5, np.float32))
    found = checkpoints.restore_checkpoint(place, "digest", fresh)
    assert found is not None
    assert asdict(found) == asdict(progressed)
    for both in (kept, fresh):
        both.step(np.ones(5, np.float32), 0.1)
    assert np.array_equal(kept.values, fresh.values)


def test_torn_and_foreign_files_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    checkpoints.save_checkpoint(place, "digest", RunState(2, 1), descent())
    whole = place.read_bytes()
    for size in range(0, len(whole), 7):
        place.write_bytes(whole[:size])
        with pytest.raises(BadInput, match="checkpoint"):
            checkpoints.restore_checkpoint(place, "digest", descent())
    place.write_bytes(whole)
    with pytest.raises(BadInput, match=r"values of shape \(6,\)"):
        checkpoints.restore_checkpoint(place, "digest", descent(6))
    with pytest.raises(BadInput, match="mean of shape"):
        checkpoints.restore_checkpoint(place, "digest", descent(5, Optimizer.SGD))


def test_a_tightened_agreement_lets_the_run_go_on(tmp_path: Path) -> None:
    """The room's terms may lose what the run does not need; its checkpoint is still its own."""
    here, checkpoint = room_for(Mode.AGGREGATE), tmp_path / "checkpoint"
    with pytest.raises(Killed):
        trained(here, checkpoint, Dying(here, 2, "before sending"))
    tighter = world(Mode.AGGREGATE, rows=ROWS, expires=NOW + 50)
    _, done = trained(tighter, checkpoint)
    assert done.steps == STEPS


def test_larger_smallest_batches_change_no_batch_of_a_run_that_has_begun(tmp_path: Path) -> None:
    """100 rows in batches of at most 40 are cut in three; from a smallest batch of 34 on, in two."""
    here, checkpoint = room_for(Mode.AGGREGATE), tmp_path / "checkpoint"
    plan = replace(plan_for(here), batch=40, epochs=2)

    def go_on(link: object, **terms: int) -> tuple[NDArray[np.float32], AdapterRunSummary]:
        at, fitted = world(Mode.AGGREGATE, rows=ROWS, **terms), model()
        through = Dying(at, 2, "before sending") if link == "dying" else at.link
        done = train_adapter(
            fitted, "shoes", at.examples, at.tokens, through, plan, run="r", checkpoint=checkpoint  # type: ignore[arg-type]
        )  # fmt: skip
        return fitted.adapter_values("shoes"), done

    whole, done = go_on("alive")
    assert done.steps == 6
    checkpoint.unlink()
    with pytest.raises(Killed):
        go_on("dying")
    with pytest.raises(BadInput, match="agreed 34 rows or more, got 33, from before it was tightened"):
        go_on("alive", smallest_batch=34)
    values, done = go_on("alive", smallest_batch=33)
    assert np.array_equal(values, whole)
    _, again = go_on("alive", smallest_batch=34)  # asks for nothing more
    assert again.steps == 6
    checkpoint.unlink()
    assert go_on("alive", smallest_batch=34)[1].steps == 4  # a new run is cut by the terms of its day


def test_the_newest_receipts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    here = room_for(Mode.AGGREGATE)
    _, all_of_them = trained(here, None)
    monkeypatch.setattr(training, "KEPT_RECEIPTS", 2)
    _, done = trained(room_for(Mode.AGGREGATE), None)
    assert [each.sequence for each in done.receipts] == [each.sequence for each in all_of_them.receipts[-2:]]
