"""Either party tightens, both together loosen; a signature is good in one place of one agreement."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.cleanroom.protocol import signatures
from tacit.cleanroom.protocol.agreement import ALLOWS_MORE, Agreement, AgreementStep, loosened_fields
from tacit.cleanroom.protocol.encoding import RoomRefusal
from tacit.cleanroom.protocol.modes import Signer
from tacit.cleanroom.protocol.terms import Terms
from tacit.entropy import Simulation
from tacit.errors import BadInput, RoomRefused
from tests.support.room_terms import KEYS, TOLD, signed, terms

OTHER_KEY = signatures.new_key(Simulation("somebody else"))


def test_every_field_has_a_rule() -> None:
    assert set(ALLOWS_MORE) == {field.name for field in fields(Terms)}


WIDE: dict[str, Any] = {
    "mode": "noised", "delta": "1e-6", "epsilon": 4, "releases_per_record": 5, "tasks": ("a", "b"),
    "codecs": ("int8", "fp32"), "smallest_batch": 100,
}  # fmt: skip
TIGHTER: dict[str, Any] = {
    "epsilon": 3, "delta": "1e-7", "releases_per_record": 4, "expires": 1_900, "begins": 1_001,
    "smallest_batch": 101, "dense_sequences": True, "metrics": False, "tasks": ("a",), "codecs": ("fp32",),
}  # fmt: skip
NEEDS_BOTH: dict[str, Any] = {
    "name": "autumn", "platform": "other.example", "room": "other.example", "clip_norm": 0.5, "window": 1,
    "label_version": 1, "platform_key": signatures.public_key(OTHER_KEY),
    "room_key": signatures.public_key(OTHER_KEY),
}  # fmt: skip


@pytest.mark.parametrize("key", sorted(TIGHTER))
def test_one_field_has_a_tighter_side(key: str) -> None:
    old, new = terms(**WIDE), terms(**{**WIDE, key: TIGHTER[key]})
    assert loosened_fields(old, new) == ()
    assert loosened_fields(new, old) == (key,)


@pytest.mark.parametrize("key", sorted(NEEDS_BOTH))
def test_one_field_has_none(key: str) -> None:
    old, new = terms(**WIDE), terms(**{**WIDE, key: NEEDS_BOTH[key]})
    assert loosened_fields(old, new) == loosened_fields(new, old) == (key,)


def test_another_way_of_releasing_needs_both() -> None:
    assert "mode" in loosened_fields(terms(), terms(mode="release"))
    assert loosened_fields(terms(join="psi", most_ids=5), terms(join="psi", most_ids=4)) == ("most_ids",)
    assert set(loosened_fields(terms(), terms(join="psi", most_ids=5))) == {"join", "most_ids"}
    laplace = {**WIDE, "noise": "laplace", "delta": 0}
    assert loosened_fields(terms(**WIDE), terms(**laplace)) == ("noise",)


def test_a_task_fewer_must_not_sharpen_the_flips_of_the_others() -> None:
    three = terms(epsilon=3, tasks=("a", "b", "c"))
    assert loosened_fields(three, replace(three, tasks=("a",))) == (
        "tasks",
    )  # a would be flipped at 3 instead of 1
    assert loosened_fields(three, replace(three, tasks=("a",), epsilon=Fraction(1))) == ()


# Each field takes few values, so that terms which only tighten are not rare.
SOME = st.builds(
    terms,
    epsilon=st.sampled_from([1, 2, 3]),
    tasks=st.sampled_from([("a",), ("a", "b"), ("b", "a"), ("b",), ("a", "b", "c")]),
    codecs=st.sampled_from([("int8",), ("int8", "fp32"), ("fp32",)]),
    smallest_batch=st.sampled_from([10, 20]),
    dense_sequences=st.booleans(),
    metrics=st.booleans(),
    begins=st.sampled_from([1_000, 1_100]),
    expires=st.sampled_from([1_900, 2_000]),
    mode=st.sampled_from(["aggregate", "release"]),
)
NOISED = st.builds(
    terms,
    mode=st.just("noised"),
    epsilon=st.sampled_from([1, 2, 3]),
    delta=st.sampled_from(["1e-6", "1e-7"]),
    releases_per_record=st.sampled_from([1, 2, 3]),
    tasks=st.sampled_from([("a",), ("a", "b")]),
    smallest_batch=st.sampled_from([10, 20]),
)


@given(old=st.one_of(SOME, NOISED), new=st.one_of(SOME, NOISED))
@settings(max_examples=300, deadline=None)
def test_what_is_not_loosened_promises_at_least_as_much(old: Terms, new: Terms) -> None:
    if loosened_fields(old, new):
        assert old != new
        return
    assert new.epsilon <= old.epsilon
    assert new.delta <= old.delta
    assert new.releases_per_record <= old.releases_per_record
    assert new.smallest_batch >= old.smallest_batch
    assert old.begins <= new.begins < new.expires <= old.expires
    assert set(new.tasks) <= set(old.tasks)
    assert set(new.codecs) <= set(old.codecs)
    assert new.metrics <= old.metrics
    assert new.dense_sequences >= old.dense_sequences
    for same in ("mode", "noise", "join", "clip_norm", "window", "label_version", "platform_key", "room_key"):
        assert getattr(new, same) == getattr(old, same)
    if new.mode.flips:
        assert new.keep <= old.keep  # each single label, too


def test_tightening_twice_is_tightening() -> None:
    """All triples of 240 terms in which every kind of rule takes part."""
    varied = {
        "epsilon": (1, 2, 3),
        "tasks": (("a",), ("a", "b"), ("b", "a"), ("b",), ("a", "b", "c")),
        "smallest_batch": (10, 20),
        "metrics": (False, True),
        "mode": ("aggregate", "release"),
        "expires": (1_900, 2_000),
    }
    every = [terms(**dict(zip(varied, values, strict=True))) for values in product(*varied.values())]
    tight = np.array([[not loosened_fields(one, two) for two in every] for one in every])
    assert tight.diagonal().all()
    assert len(every) < tight.sum() < tight.size // 4
    assert not ((tight.astype(int) @ tight.astype(int) > 0) & ~tight).any()


# Signing.


def refusal(agreement: Agreement) -> str:
    with pytest.raises(RoomRefused) as caught:
        agreement.verify()
    assert caught.value.reason is RoomRefusal.NOT_SIGNED
    return str(caught.value)


def test_first_terms_need_both() -> None:
    proposed = Agreement.propose(terms())
    assert proposed.waits_for == (Signer.PLATFORM, Signer.ROOM)
    half = proposed.sign(Signer.ROOM, KEYS[Signer.ROOM])
    assert half.waits_for == (Signer.PLATFORM,)
    assert "platform" in refusal(half)
    with pytest.raises(RoomRefused, match="waits for"):
        half.in_force  # noqa: B018
    both = half.sign(Signer.PLATFORM, KEYS[Signer.PLATFORM])
    both.verify()
    assert both.in_force == terms()
    assert Agreement.from_bytes(both.to_bytes()) == both


@pytest.mark.parametrize("role", list(Signer))
def test_either_tightens_alone(role: Signer) -> None:
    tight = terms(epsilon=1, smallest_batch=1_000)
    amended = signed(terms()).amend(tight, role, KEYS[role])
    amended.verify()
    assert amended.in_force == tight
    assert amended.waits_for == ()


def test_loosening_waits_for_both() -> None:
    loose = terms(epsilon=5)
    proposed = signed(terms()).amend(loose, Signer.PLATFORM, KEYS[Signer.PLATFORM])
    assert proposed.in_force == terms()
    assert proposed.waits_for == (Signer.ROOM,)
    refusal(proposed)
    agreed = proposed.sign(Signer.ROOM, KEYS[Signer.ROOM])
    agreed.verify()
    assert agreed.in_force == loose


def test_a_tighter_amendment_replaces_a_waiting_proposal() -> None:
    waiting = signed(terms()).amend(terms(epsilon=5), Signer.PLATFORM, KEYS[Signer.PLATFORM])
    tight = waiting.amend(terms(epsilon=2), Signer.ROOM, KEYS[Signer.ROOM])
    assert len(tight.steps) == 2
    assert tight.in_force == terms(epsilon=2)


def test_a_stranger_cannot_sign() -> None:
    for role in Signer:
        with pytest.raises(BadInput, match="another"):
            Agreement.propose(terms()).sign(role, OTHER_KEY)
        with pytest.raises(BadInput, match="another"):
            Agreement.propose(terms()).sign(
                role, KEYS[Signer.ROOM if role is Signer.PLATFORM else Signer.PLATFORM]
            )


def moved(agreement: Agreement, place: int, **other: Any) -> Agreement:
    steps = list(agreement.steps)
    steps[place] = replace(steps[place], **other)
    return Agreement(tuple(steps))


def test_signatures_hold_for_one_role_one_place_and_one_history() -> None:
    first = signed(terms())
    by_role = first.steps[0].signatures
    swapped = {Signer.PLATFORM: by_role[Signer.ROOM], Signer.ROOM: by_role[Signer.PLATFORM]}
    assert "false" in refusal(moved(first, 0, signatures=swapped))
    assert "false" in refusal(moved(first, 0, terms=terms(epsilon=4)))
    assert "follow" in refusal(moved(first, 0, serial=1))
    assert "follow" in refusal(moved(first, 0, before="1" * 64))


def test_an_old_amendment_cannot_come_back() -> None:
    # At step 1 both agree on 5, at step 2 the room tightens to 2. The platform tries to return to 5.
    loose = signed(terms()).amend(terms(epsilon=5), Signer.PLATFORM, KEYS[Signer.PLATFORM])
    loose = loose.sign(Signer.ROOM, KEYS[Signer.ROOM])
    tight = loose.amend(terms(epsilon=2), Signer.ROOM, KEYS[Signer.ROOM])
    old = loose.steps[1]
    again = AgreementStep(3, tight.steps[-1].digest, old.terms, old.signatures)
    assert "false" in refusal(Agreement((*tight.steps, again)))
    assert not loose.extends(tight)  # a room does not take up the older file
    assert tight.extends(loose)
    assert tight.extends(tight)


def test_a_signature_of_the_same_step_in_another_history_is_false() -> None:
    # Both histories end with terms 3 -> 2 at step 2, but by another step 1.
    ways = []
    for middle in (terms(epsilon=3, smallest_batch=300), terms(epsilon=3, smallest_batch=400)):
        way = signed(terms(epsilon=4)).amend(middle, Signer.ROOM, KEYS[Signer.ROOM])
        ways.append(way.amend(terms(epsilon=2, smallest_batch=500), Signer.ROOM, KEYS[Signer.ROOM]))
    mixed = moved(ways[0], 2, signatures=ways[1].steps[2].signatures)
    assert "false" in refusal(mixed)


def test_keys_change_with_both_and_then_the_new_ones_sign() -> None:
    new = terms(platform_key=signatures.public_key(OTHER_KEY))
    amended = signed(terms()).amend(new, Signer.PLATFORM, KEYS[Signer.PLATFORM])
    assert amended.in_force == terms()
    amended = amended.sign(Signer.ROOM, KEYS[Signer.ROOM])
    assert amended.in_force == new
    tight = replace(new, epsilon=Fraction(1))
    with pytest.raises(BadInput, match="key"):
        amended.amend(tight, Signer.PLATFORM, KEYS[Signer.PLATFORM])
    assert amended.amend(tight, Signer.PLATFORM, OTHER_KEY).in_force == tight


def test_a_stripped_step_does_not_hold() -> None:
    way = signed(terms()).amend(terms(epsilon=2), Signer.ROOM, KEYS[Signer.ROOM])
    assert "follow" in refusal(Agreement(way.steps[1:]))
    assert "waits" in refusal(moved(way, 1, signatures={}))
    assert "waits" in refusal(moved(way, 0, signatures={Signer.ROOM: way.steps[0].signatures[Signer.ROOM]}))


def test_a_history_without_one_of_its_signatures_extends_it_only_where_all_stays_in_force() -> None:
    """Anybody can strip a signature from a file; what was in force must not turn into a proposal by it."""
    first = signed(terms())
    loose = first.amend(terms(epsilon=5), Signer.PLATFORM, KEYS[Signer.PLATFORM]).sign(
        Signer.ROOM, KEYS[Signer.ROOM]
    )
    tight = loose.amend(terms(epsilon=2), Signer.ROOM, KEYS[Signer.ROOM])
    twice = tight.sign(Signer.PLATFORM, KEYS[Signer.PLATFORM])
    for whole in (first, loose, tight, twice):
        last = whole.steps[-1]
        for role in last.signatures:
            left = {other: given for other, given in last.signatures.items() if other is not role}
            stripped = moved(whole, last.serial, signatures=left)
            stays = stripped.waits_for == ()
            assert stays == (whole is twice)  # a tightening keeps its other signature
            assert stripped.extends(whole) == stays
            assert whole.extends(stripped)
            for place in range(last.serial):
                refusal(moved(stripped, place, signatures={}))
    # Nor does another step in the place of the stripped one.
    other = moved(tight, 2, signatures={}).amend(terms(epsilon=4), Signer.PLATFORM, KEYS[Signer.PLATFORM])
    assert not other.extends(tight)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_never_holds(data: st.DataObject) -> None:
    way = signed(terms()).amend(terms(epsilon=2), Signer.ROOM, KEYS[Signer.ROOM])
    whole = bytearray(way.to_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((BadInput, RoomRefused)):
        Agreement.from_bytes(bytes(whole)).verify()


@pytest.mark.parametrize(
    "record",
    [
        [], {}, {"steps": []}, {"steps": [1]}, {"steps": [{}]}, {"steps": 3}, {"steps": [], "more": 1},
        {"steps": [{"serial": True, "before": "0" * 64, "signatures": {}, "terms": terms().as_json()}]},
        {"steps": [{"serial": 1, "before": "0" * 64, "signatures": {}, "terms": terms().as_json()}]},
        {"steps": [{"serial": 0, "before": "0", "signatures": {}, "terms": terms().as_json()}]},
        {"steps": [{"serial": 0, "before": "0" * 64, "signatures": [], "terms": terms().as_json()}]},
        {"steps": [{"serial": 0, "before": "0" * 64, "signatures": {"x": ""}, "terms": terms().as_json()}]},
        {"steps": [{"serial": 0, "before": "0" * 64, "signatures": {"room": "A" * 128}, "terms": TOLD}]},
    ],
    ids=range(13),
)  # fmt: skip
def test_other_records_are_refused(record: object) -> None:
    with pytest.raises(BadInput):
        Agreement.from_bytes(json.dumps(record, sort_keys=True, separators=(",", ":")).encode())


def test_the_same_terms_are_no_amendment() -> None:
    with pytest.raises(BadInput, match="other terms"):
        signed(terms()).amend(terms(), Signer.ROOM, KEYS[Signer.ROOM])


def test_a_purpose_is_part_of_a_signature() -> None:
    key = KEYS[Signer.ROOM]
    given_for = signatures.sign(key, "one", {"a": 1})
    public = signatures.public_key(key)
    assert signatures.is_signed(public, given_for, "one", {"a": 1})
    assert not signatures.is_signed(public, given_for, "two", {"a": 1})
    assert not signatures.is_signed(public, given_for, "one", {"a": 2})
    assert not signatures.is_signed(public, given_for[:-1], "one", {"a": 1})
    assert not signatures.is_signed("0" * 64, given_for, "one", {"a": 1})
    assert signatures.public_key(signatures.private_key(key.private_bytes_raw())) == public
