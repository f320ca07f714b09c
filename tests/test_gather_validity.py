"""Proofs that counts are in range: every honest report passes, and neither party learns anything by it."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exact_tests import assert_matches_pmf
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.gather.wire.masks import mask
from tacit.gather.wire.sealing import Role
from tacit.gather.wire.validity import circuit, proof
from tacit.gather.wire.validity.bounds import Bounds
from tacit.gather.wire.validity.proof import FIELD, Proven
from tacit.kernels import reference_field
from tacit.kernels.field import PRIME
from validity_liar import BINDING, FORMS, KEY, Liar, digits_of, honest


def drawn_counts(form: Proven, rng: np.random.Generator) -> NDArray[np.int64]:
    """Counts within the bounds, often at them."""
    counts, left = np.zeros(form.cells, np.int64), form.bounds.total
    for cell in rng.permutation(form.cells):
        most = min(form.bounds.each, left)
        counts[cell] = rng.choice([0, most, int(rng.integers(0, most + 1))])
        left -= int(counts[cell])
    return counts


# Completeness


@settings(max_examples=80)
@given(st.integers(1, 60), st.integers(1, 120), st.integers(1, 500), st.integers(1, 3), st.integers(0, 2**32))
def test_every_vector_within_its_bounds_is_proved(
    cells: int, each: int, total: int, proofs: int, seed: int
) -> None:
    form, source = Proven(Bounds(each, total), cells, proofs), Simulation(seed)
    vectors = [drawn_counts(form, np.random.default_rng((seed, i))) for i in range(2)]
    bindings = [source.bytes(48) for _ in vectors]
    parts = [form.split(*case, source) for case in zip(vectors, bindings, strict=True)]
    proxy = form.prepare(Role.PROXY, [each[0] for each in parts], bindings, KEY)
    server = form.prepare(Role.SERVER, [each[1] for each in parts], bindings, KEY)
    assert form.valid(proxy.messages, server.messages).all()
    assert not proxy.refused.any()
    np.testing.assert_array_equal(FIELD.lift(FIELD.add(proxy.shares, server.shares)), vectors)
    assert {len(each[0]) for each in parts} == {form.proxy_bytes}
    assert {len(each[1]) for each in parts} == {form.server_bytes} == {32}
    assert {len(each) for each in proxy.messages + server.messages} == {form.message_bytes}


@pytest.mark.parametrize(("each", "most"), [(e, m) for e in range(1, 31) for m in range(1, 17) if e % m == 0])
def test_digits_spell_all_counts_and_no_others(each: int, most: int) -> None:
    weights = circuit._weights(each, most)
    digits = product(range(most + 1), repeat=len(weights))
    assert {sum(d * w for d, w in zip(some, weights, strict=True)) for some in digits} == set(range(each + 1))
    spelled = circuit._spelled(np.arange(each + 1), weights, most)
    assert 0 <= spelled.min() <= spelled.max() <= most
    np.testing.assert_array_equal(spelled @ np.array(weights), np.arange(each + 1))


@pytest.mark.parametrize(("largest", "most"), [(1, 1), (7, 1), (8, 1), (26, 2), (27, 2), (1000, 4), (3, 9)])
def test_digits_spell_every_rest(largest: int, most: int) -> None:
    weights = circuit._powers(largest, most)
    spelled = circuit._spelled(np.arange(largest + 1), weights, most)
    assert 0 <= spelled.min() <= spelled.max() <= most
    np.testing.assert_array_equal(spelled @ np.array(weights), np.arange(largest + 1))


def test_the_shape_is_the_smallest_of_all() -> None:
    assert Proven(Bounds(1, 1000), 1000).proxy_bytes == 9152  # of which 8000 are the counts
    assert Proven(Bounds(4, 40), 1000).proxy_bytes == 10104  # bits would take 25 KB
    for form in FORMS.values():
        shape = form.circuit.shape
        assert shape.digits <= shape.wires * (shape.size - 1) < shape.digits + shape.size - 1


# Zero knowledge, in the field itself; every law in a tiny field is looked at in test_kernels_field.py


def quarters(elements: NDArray[np.uint64]) -> Counter[int]:
    """Which quarter of all words each is in: uniform elements are in each with 1/4, to 2^-32."""
    return Counter((elements.reshape(-1) >> np.uint64(62)).tolist())


def read(several: list[bytes]) -> NDArray[np.uint64]:
    """(several, elements): what follows 32 bytes of a blind or a hash."""
    return np.array([np.frombuffer(each, "<u8", offset=32) for each in several], np.uint64)


UNIFORM = dict.fromkeys(range(4), 0.25)


@pytest.mark.parametrize("marked", [0, 1])
def test_one_part_and_both_messages_look_uniform_whatever_the_counts(marked: int) -> None:
    """Over 250 reports of the same bits: the proxy's elements, and the wires as both messages tell them."""
    form = FORMS["bits"]
    counts = np.zeros(form.cells, np.int64)
    counts[0] = marked
    parts = [form.split(counts, BINDING, Simulation(i)) for i in range(250)]
    assert_matches_pmf(quarters(read([each[0] for each in parts])), UNIFORM)
    for party in told(form, parts):
        assert_matches_pmf(quarters(party), UNIFORM)
    together = wires_of(form, parts)
    assert_matches_pmf(quarters(together), UNIFORM)
    for wire in together.T:
        assert len(np.unique(wire)) == len(wire)

    careless = Liar(form, digits_of(form, {0: marked}))
    parts = [careless.parts(seed=f"{i}", no_wire_seeds=True) for i in range(250)]
    for party in told(form, parts):
        assert_matches_pmf(quarters(party), UNIFORM)  # one message is hidden by the shares still
    with pytest.raises(AssertionError):
        assert_matches_pmf(quarters(wires_of(form, parts)), UNIFORM)


def test_without_random_values_the_counts_show() -> None:
    """The twin that must fail: both messages together are then the same every time, and tell counts apart."""
    form = FORMS["bits"]
    shown = [
        np.unique(wires_of(form, [liar.parts(seed=f"{i}", no_wire_seeds=True) for i in range(3)]), axis=0)
        for liar in (Liar(form, digits_of(form, {0: marked})) for marked in (0, 1))
    ]
    assert len(shown[0]) == len(shown[1]) == 1
    assert (shown[0] != shown[1]).any()


def told(form: Proven, parts: list[tuple[bytes, bytes]]) -> list[NDArray[np.uint64]]:
    """Of proxy and server: (reports, elements) of their messages."""
    plains, bindings = zip(*parts, strict=True), [BINDING] * len(parts)
    return [
        read(form.prepare(role, some, bindings, KEY).messages) for role, some in zip(Role, plains, strict=True)
    ]


def wires_of(form: Proven, parts: list[tuple[bytes, bytes]]) -> NDArray[np.uint64]:
    """(reports, proofs x wires): their values at the points, which both parties learn."""
    together = FIELD.add(*told(form, parts))[:, 1:].reshape(len(parts), form.proofs, -1)
    return np.asarray(together[:, :, :-1].reshape(len(parts), -1))


def test_the_hash_of_a_part_is_blinded() -> None:
    """The server knows the mask: unblinded, it could try vectors until one has the proxy's hash."""
    form = FORMS["bits"]
    proxy, server = honest(form)
    told = form.prepare(Role.PROXY, [proxy], [BINDING], KEY).messages[0][: proof.PART_BYTES]
    committed = proxy[: 32 + 8 * form.circuit.shape.digits]
    assert told == proof._part(Role.PROXY, BINDING, committed)
    other = form.prepare(Role.PROXY, [bytes(32) + proxy[32:]], [BINDING], KEY).messages[0][: proof.PART_BYTES]
    assert told != other  # the very same share of the digits
    assert told != proof._part(Role.SERVER, BINDING, committed)
    assert server not in proxy


def test_every_proof_has_random_values_of_its_own() -> None:
    """Two points of one wire would tell its digits."""
    form = FORMS["digits"]
    proxy, server = honest(form)
    shape = form.circuit.shape
    hiding = mask(server, BINDING, proof._PURPOSE, FIELD, form.circuit.width)
    whole = FIELD.add(read([proxy])[0], hiding)
    assert whole[: shape.digits].max() <= shape.most
    random = whole[shape.digits :].reshape(form.proofs, -1)[:, : shape.wires]
    assert len(np.unique(random)) == random.size


def test_points_are_uniform_outside_of_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["digits"]
    assert form._points(BINDING, KEY) != form._points(b"\1" + BINDING[1:], KEY)
    assert form._points(BINDING, KEY) != form._points(BINDING, KEY[::-1])
    assert len(set(form._points(BINDING, KEY))) == form.proofs == 2
    root = reference_field.domain(form.circuit.shape.size)[1]
    words = [PRIME, root, 2**64 - 1, 5, 1, PRIME - 1, 0, 7]
    blocks = iter([np.array(some, "<u8").tobytes() for some in (words[:4], words[4:])])
    monkeypatch.setattr("hmac.digest", lambda *_: next(blocks))
    assert form._points(BINDING, KEY) == [5, 0]


# Refusals and the wire


def test_wrong_bounds_and_vectors_are_refused() -> None:
    form, source = FORMS["bits"], Simulation(1)
    for each, total in ((0, 1), (1, 0), (-1, 1), (1.5, 2), (True, 2), (2**62, 1), (1, 2**62)):
        with pytest.raises(BadInput):
            Bounds(each, total)  # type: ignore[arg-type]
    for cells, proofs in ((0, 2), (2**24 + 1, 2), (3, 0)):
        with pytest.raises(BadInput):
            Proven(Bounds(1, 1), cells, proofs)
    with pytest.raises(BadInput, match="cells x each"):
        Proven(Bounds(2**61, 1), 2)
    for counts, why in (([2], "every count"), ([-1], "every count"), ([1] * 4, "add up")):
        vector = np.array(counts + [0] * (12 - len(counts)))
        with pytest.raises(BadInput, match=why):
            form.split(vector, BINDING, source)
    with pytest.raises(BadInput, match="12 values"):
        form.split(np.zeros(11, np.int64), BINDING, source)
    with pytest.raises(BadInput, match="int64"):
        form.split(np.zeros(12, np.int32), BINDING, source)
    with pytest.raises(BadInput, match="check key"):
        form.prepare(Role.SERVER, [bytes(32)], [BINDING], b"short")
    with pytest.raises(BadInput, match="add up"):
        Bounds(2**61, 2**61).check(np.full(9, 2**61))  # a sum that wraps in 64 bits


GOLDEN = {
    "bits": "c605e89aa8fe9f1e48dba2c4fb7e0d64f0cc57eab395ac675a5016356a489c9b",
    "digits": "c4ab3f935737c407130fb8b1a0284ae516d16a3842e2918cce44513775625eb8",
    "two digits a count": "d94b0f66251e340e8922c1f81265b3d2427bd8f539b1329b441f33c149ac0a0a",
}
"""SHA-256 of both parts and both messages: other programs must make and read the same bytes."""


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_these(name: str) -> None:
    form = FORMS[name]
    parts = honest(form, "golden")
    prepared = [form.prepare(role, [part], [BINDING], KEY) for role, part in zip(Role, parts, strict=True)]
    everything = b"".join((*parts, *(each.messages[0] for each in prepared)))
    assert hashlib.sha256(everything).hexdigest() == GOLDEN[name]


def test_bounds_under_which_a_sum_could_wrap_are_refused() -> None:
    """Without this, eight counts that add up to three times the total were accepted."""
    with pytest.raises(BadInput, match="smaller total"):
        Proven(Bounds(437893890380859375, 2**60 + 1), 8)
    assert Proven(Bounds(1, 2**57), 8).circuit.width
