"""The clean-room suite at toy size: every bar is named, figures come out whole, sizes are what they must be."""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tacit.cleanroom.in_process import InProcessRoom
from tacit.cleanroom.model.settings import ModelSettings
from tacit.cleanroom.protocol.codecs import Codec
from tacit.cleanroom.protocol.layout import ParameterLayout
from tacit.cleanroom.protocol.slabs import Slab, encode_slab
from tacit.data.generators.conversions import FIELD_NAMES
from tacit.data.generators.worlds import GeneratedRows
from tacit.privacy.randomness import WordSource
from tacit.services.room.operation import open_room
from tacit.services.room.settings import load_room_settings
from tacit_lab.bench import cleanroom, cleanroom_costs
from tacit_lab.bench.cleanroom import PARTS, PartyFiles, cases, draw_examples, quality
from tacit_lab.bench.cleanroom_costs import (
    bytes_an_example,
    platform_work,
    room_memory,
    room_work,
    sizes,
    step_growth,
)
from tacit_lab.bench.cleanroom_workload import TASK, CleanroomScale, StepWork, make_model
from tacit_lab.bench.measurement import (
    Item,
    Measurement,
    PairedContestant,
    TurnCosts,
    UnitCost,
    take_paired_turns,
)

MODEL = ModelSettings(
    fields=(20, 30, 40),
    sequence_tables=(9, 7),
    positions=5,
    dim=4,
    width=8,
    heads=2,
    interactions=1,
    hidden=0,
    tower=(8,),
    tasks=(TASK,),
)
TOY = CleanroomScale(
    model=MODEL,
    rank=3,
    other_ranks=(1,),
    sized_rows=6,
    timed_rows=16,
    rounds=2,
    room_rounds=2,
    growing_rows=(64, 128),
    streamed_slabs=2,
    log_rows=1200,
    tuned_rank=2,
    seeds=2,
    served_rows=24,
    served_batch=12,
    served_small_rows=16,
    served_small_batch=8,
    served_turns=1,
)


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


def by_name(measured: Iterable[Measurement]) -> dict[str, Measurement]:
    found = {each.name: each for each in measured}
    assert all(math.isfinite(each.value) and each.settings for each in found.values())
    return found


def test_the_scale_survives_the_way_into_a_process() -> None:
    assert CleanroomScale.from_json(TOY.as_json()) == TOY


def in_this_process(command: list[str], **_: object) -> SimpleNamespace:
    """What the process of a part would print."""
    said, before = io.StringIO(), sys.argv
    try:
        sys.argv = command[command.index("-m") + 1 :]
        with contextlib.redirect_stdout(said):
            cleanroom.main()
    finally:
        sys.argv = before
    return SimpleNamespace(stdout=said.getvalue())


@pytest.mark.parametrize("own_process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_part_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch, own_process: bool) -> None:
    if not own_process:
        monkeypatch.setattr(cleanroom, "subprocess", SimpleNamespace(run=in_this_process, PIPE=None))
    monkeypatch.setattr(cleanroom, "PARTS", {"platform": PARTS["platform"]})
    found = by_name(cleanroom.run(plain, TOY))
    assert list(found) == ["platform_derivatives_vs_backward", "platform_step_vs_backward"]
    assert all("1 thread" in each.settings for each in found.values())


def test_memory_does_not_grow_with_the_stream() -> None:
    (measured,) = room_memory(replace(TOY, streamed_slabs=20))
    assert measured.bar == 1.1
    assert measured.value < 1.5  # so small a model's sums and slabs do not outweigh the tokens' 16 bytes a row


def test_a_room_that_keeps_its_slabs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []

    def keeping(slab: Slab, layout: ParameterLayout, codec: Codec, words: WordSource) -> bytes:
        kept.append(encode_slab(slab, layout, codec, words))
        return kept[-1]

    monkeypatch.setattr(cleanroom_costs, "encode_slab", keeping)
    (measured,) = room_memory(replace(TOY, streamed_slabs=20))
    assert measured.value > 1.5


def test_sizes_are_held_to_bars_at_the_main_rank_and_short_sequences() -> None:
    found = by_name(sizes(TOY))
    assert {name: each.bar for name, each in found.items() if each.bar} == {
        "bytes_not_sequence_dense_fp32_vs_fp32_short_rank3": 30,
        "bytes_dense_fp32_vs_int8_short_rank3": 40,
        "bytes_dense_qsgd8_vs_int8_short_rank3": 10,
    }
    told = found["bytes_dense_fp32_vs_int8_full_rank3"].settings
    assert "BELOW 40x against fp32-dense and BELOW 10x against qsgd-8" in told  # so small a model gains little


def test_dense_fp32_is_as_large_as_its_numbers_and_little_more() -> None:
    work = StepWork.make(make_model(MODEL, 3), 50, "full")
    numbers = 4 * work.layout.parameters
    assert numbers < bytes_an_example(work, "fp32-dense") < numbers + 120
    assert bytes_an_example(work, "int8") < bytes_an_example(work, "fp32") < numbers


def test_a_kind_of_layers_alone_leaves_the_others_out() -> None:
    work = StepWork.make(make_model(MODEL, 3), 5, "short")
    kinds = [work.only(sequences=which) for which in (True, False)]
    assert sum(kind.layout.parameters for kind in kinds) == work.layout.parameters
    assert all(block.positions > 1 for block in kinds[0].layout.blocks)
    assert all(block.positions == 1 for block in kinds[1].layout.blocks)


def test_the_room_and_the_platform_are_timed() -> None:
    found = by_name([*room_work(TOY), *platform_work(TOY), *step_growth(TOY)])
    bars = {
        "room_dense_fp32_vs_int8": 2.0,
        "room_dense_fp32_vs_fp32": 2.0,
        "room_dense_qsgd8_vs_int8": 2.0,
        "room_clipped_in_float32": 1.3,
        "room_clipped_in_float64": 1.3,
    }
    assert {name: found[name].bar for name in bars} == bars
    assert 1.9 < found["growth_bytes_a_doubling"].value <= 2.0
    assert found["platform_step_vs_backward"].value > found["platform_derivatives_vs_backward"].value


@contextlib.contextmanager
def held(files: PartyFiles) -> Iterator[InProcessRoom]:
    """The room that `tacit room serve` would serve, in this process."""
    room = open_room(load_room_settings(files.folder / "room" / "room.toml"))
    yield InProcessRoom(room, "platform", lambda: files.terms.begins + 1)


@pytest.mark.parametrize("network", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_over_the_network_is_beside_what_both_sides_compute(
    monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    if not network:
        monkeypatch.setattr(cleanroom, "serve_room", held)
    large, small = cases(TOY)
    assert (large.bar, small.bar) == (2.0, None)
    found = by_name(large.measure(TOY.served_turns))
    assert found["loopback_wall_vs_compute"].bar == 2.0
    assert "2 steps of 12 rows" in found["loopback_wall_vs_compute"].settings


def test_rounding_is_judged_by_auc_with_known_probabilities() -> None:
    found = by_name(quality(TOY))
    assert found["auc_change_int8_percent"].bar == 0.1
    assert found["auc_change_int8_percent"].value > 0  # so few rows are not the same for both


class TwoClicks:
    """A world of two rows, written out."""

    name = "two clicks"

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        columns = {name: [number, rows + number] for number, name in enumerate(FIELD_NAMES)}
        columns |= {"advertiser": [3, 8], "click_id": [70, 71], TASK: [0, 1]}
        lists = {f"sequence_{part}": [[1, 2, 3], [2]] for part in ("topic", "item", "action")}
        lists["sequence_item"] = [[40, 41, 42], [50]]
        rows_of = pa.RecordBatch.from_pydict(columns | lists)
        yield GeneratedRows(rows_of, pa.RecordBatch.from_pydict({"probability": [0.25, 0.5]}))

    def side_tables(self) -> dict[str, pa.Table]:
        return {}


def test_drawn_clicks_are_those_of_the_world() -> None:
    examples, truth = draw_examples(TwoClicks(), 2)
    assert examples.lengths.tolist() == [3, 1]
    assert examples.sequences[:, :4, 1].tolist() == [[40, 41, 42, 0], [50, 0, 0, 0]]
    assert examples.sequences[0, :4, 0].tolist() == [1, 2, 3, 0]
    assert examples.fields[1].tolist() == [2 + number for number in range(len(FIELD_NAMES))]
    assert (examples.advertiser.tolist(), examples.labels(TASK).tolist()) == ([3, 8], [0, 1])
    assert truth.tolist() == [0.25, 0.5]


def test_ratios_are_taken_within_a_turn() -> None:
    slow, fast = (
        (UnitCost(2.0, 0), UnitCost(20.0, 0), UnitCost(6.0, 0)),
        (UnitCost(1.0, 0), UnitCost(10.0, 0), UnitCost(2.0, 0)),
    )
    assert TurnCosts({"slow": slow, "fast": fast}).ratio("slow", "fast") == 2.0


def test_turns_alternate_their_order() -> None:
    came: list[str] = []
    contestants = {name: PairedContestant(lambda name=name: came.append(name), 1) for name in "ab"}  # type: ignore[misc]
    take_paired_turns(contestants, 2)
    assert "".join(came) == "baabbaab"
