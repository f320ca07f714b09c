"""The witness of a billing store: lines that add up, a torn end that was never acted on, and bounded growth."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BillError
from tacit.store.billing_witness import ROOM_BYTES, BillingWitness, StoreMark, WitnessedCampaign, merge_marks


def mark(batches: int, **charged: int) -> StoreMark:
    campaigns = {int(name[1:]): WitnessedCampaign("Bean & Leaf", each, 10**6) for name, each in charged.items()}
    return StoreMark(batches, f"{batches:064x}", batches // 10, 0, campaigns)


@pytest.fixture
def witness(tmp_path: Path) -> BillingWitness:
    return BillingWitness(tmp_path / "ads.witness")


def test_lines_say_together_what_was_seen(witness: BillingWitness) -> None:
    assert witness.read() is None
    witness.advance(mark(1, c1=5, c2=7))
    witness.advance(mark(2, c2=9))
    witness.advance(mark(12, c3=1))
    assert witness.path.read_bytes().count(b"\n") == 3
    found = BillingWitness(witness.path).read()
    assert found is not None
    assert (found.batches, found.epoch) == (12, 1)
    assert {number: each.charged_micros for number, each in found.campaigns.items()} == {1: 5, 2: 9, 3: 1}


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))), max_size=9
    )
)
def test_marks_add_up_however_they_are_grouped(said: list[tuple[int, dict[str, int]]]) -> None:
    marks = [mark(at, **{f"c{ord(name)}": each for name, each in some.items()}) for at, some in said]
    whole = StoreMark()
    for each in marks:
        whole = whole.merged(each)
    assert whole == merge_marks(marks)
    for number, found in whole.campaigns.items():
        seen = [one.campaigns[number].charged_micros for one in marks if number in one.campaigns]
        assert found.charged_micros == max(seen)


def test_a_torn_end_is_left_and_written_over(witness: BillingWitness) -> None:
    witness.advance(mark(1, c1=5))
    witness.advance(mark(2, c1=6))
    whole = witness.path.read_bytes()
    witness.path.write_bytes(whole[:-40])
    found = BillingWitness(witness.path).read()
    assert found is not None
    assert found.batches == 1
    again = BillingWitness(witness.path)
    again.advance(mark(3, c1=7))
    found = again.read()
    assert found is not None
    assert (found.batches, found.campaigns[1].charged_micros) == (3, 7)


@pytest.mark.parametrize("place", [0, 70, 100])
def test_damage_before_the_end_is_refused(witness: BillingWitness, place: int) -> None:
    witness.advance(mark(1, c1=5))
    witness.advance(mark(2, c1=6))
    content = bytearray(witness.path.read_bytes())
    content[place] ^= 1
    witness.path.write_bytes(bytes(content))
    with pytest.raises(BillError, match="is torn or cannot be read"):
        BillingWitness(witness.path).read()


def test_a_batch_costs_little_however_many_campaigns_there_are(witness: BillingWitness) -> None:
    many = {f"c{number}": 1 for number in range(10_000)}
    witness.advance(mark(1, **many))
    whole = witness.path.stat().st_size
    before = time.process_time()
    for at in range(2, 102):
        witness.advance(mark(at, c7=at))
    assert time.process_time() - before < 1.0  # a line each; all of it would be several seconds
    assert witness.path.stat().st_size < whole + 100 * 300


def test_it_is_written_anew_before_it_grows_without_end(witness: BillingWitness) -> None:
    for at in range(1, 2 + 2 * ROOM_BYTES // 200):
        witness.advance(mark(at, c1=at))
    assert witness.path.stat().st_size < ROOM_BYTES + 5_000
    found = witness.read()
    assert found is not None
    assert found.campaigns[1].charged_micros == found.batches == 1 + 2 * ROOM_BYTES // 200
