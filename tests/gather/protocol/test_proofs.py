"""Proofs that counts are in range: honest reports pass and tell neither party anything, and no lie passes."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.gather.protocol import proofs as proving
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import mask
from tacit.gather.protocol.promises import CountBounds
from tacit.gather.protocol.proofs import FIELD, ProvenSharing
from tacit.kernels import reference_field
from tacit.kernels.field import PRIME, balances, evaluations
from tests.support.exact_tests import assert_matches_pmf
from tests.support.validity_liar import BINDING, FORMS, KEY, Liar, digits_of, forms, honest, judged


def drawn_counts(form: ProvenSharing, rng: np.random.Generator) -> NDArray[np.int64]:
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
    form, source = ProvenSharing(CountBounds(each, total), cells, proofs), Simulation(seed)
    vectors = [drawn_counts(form, np.random.default_rng((seed, i))) for i in range(2)]
    bindings = [source.bytes(48) for _ in vectors]
    parts = [form.split(*case, source) for case in zip(vectors, bindings, strict=True)]
    proxy = form.prepare(PartyRole.PROXY, [each[0] for each in parts], bindings, KEY)
    server = form.prepare(PartyRole.SERVER, [each[1] for each in parts], bindings, KEY)
    assert form.valid(proxy.messages, server.messages).all()
    assert not proxy.refused.any()
    np.testing.assert_array_equal(FIELD.lift(FIELD.add(proxy.shares, server.shares)), vectors)
    assert {len(each[0]) for each in parts} == {form.proxy_bytes}
    assert {len(each[1]) for each in parts} == {form.server_bytes} == {32}
    assert {len(each) for each in proxy.messages + server.messages} == {form.message_bytes}


@pytest.mark.parametrize(("each", "most"), [(e, m) for e in range(1, 31) for m in range(1, 17) if e % m == 0])
def test_digits_spell_all_counts_and_no_others(each: int, most: int) -> None:
    weights = proving._weights(each, most)
    digits = product(range(most + 1), repeat=len(weights))
    assert {sum(d * w for d, w in zip(some, weights, strict=True)) for some in digits} == set(range(each + 1))
    spelled = proving._spell_digits(np.arange(each + 1), weights, most)
    assert 0 <= spelled.min() <= spelled.max() <= most
    np.testing.assert_array_equal(spelled @ np.array(weights), np.arange(each + 1))


@pytest.mark.parametrize(("largest", "most"), [(1, 1), (7, 1), (8, 1), (26, 2), (27, 2), (1000, 4), (3, 9)])
def test_digits_spell_every_rest(largest: int, most: int) -> None:
    weights = proving._powers(largest, most)
    spelled = proving._spell_digits(np.arange(largest + 1), weights, most)
    assert 0 <= spelled.min() <= spelled.max() <= most
    np.testing.assert_array_equal(spelled @ np.array(weights), np.arange(largest + 1))


def test_the_shape_is_the_smallest_of_all() -> None:
    assert ProvenSharing(CountBounds(1, 1000), 1000).proxy_bytes == 9152  # of which 8000 are the counts
    assert ProvenSharing(CountBounds(4, 40), 1000).proxy_bytes == 10104  # bits would take 25 KB
    for form in FORMS.values():
        shape = form.circuit.shape
        assert shape.digits <= shape.wires * (shape.size - 1) < shape.digits + shape.size - 1


# Zero knowledge, in the field itself; every law in a tiny field is looked at in tests/kernels/test_field.py


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


def told(form: ProvenSharing, parts: list[tuple[bytes, bytes]]) -> list[NDArray[np.uint64]]:
    """Of proxy and server: (reports, elements) of their messages."""
    plains, bindings = zip(*parts, strict=True), [BINDING] * len(parts)
    return [
        read(form.prepare(role, some, bindings, KEY).messages)
        for role, some in zip(PartyRole, plains, strict=True)
    ]


def wires_of(form: ProvenSharing, parts: list[tuple[bytes, bytes]]) -> NDArray[np.uint64]:
    """(reports, proofs x wires): their values at the points, which both parties learn."""
    together = FIELD.add(*told(form, parts))[:, 1:].reshape(len(parts), form.proofs, -1)
    return np.asarray(together[:, :, :-1].reshape(len(parts), -1))


def test_the_hash_of_a_part_is_blinded() -> None:
    """The server knows the mask: unblinded, it could try vectors until one has the proxy's hash."""
    form = FORMS["bits"]
    proxy, server = honest(form)
    told = form.prepare(PartyRole.PROXY, [proxy], [BINDING], KEY).messages[0][: proving.PART_BYTES]
    committed = proxy[: 32 + 8 * form.circuit.shape.digits]
    assert told == proving._part(PartyRole.PROXY, BINDING, committed)
    other = form.prepare(PartyRole.PROXY, [bytes(32) + proxy[32:]], [BINDING], KEY).messages[0][
        : proving.PART_BYTES
    ]
    assert told != other  # the very same share of the digits
    assert told != proving._part(PartyRole.SERVER, BINDING, committed)
    assert server not in proxy


def test_every_proof_has_random_values_of_its_own() -> None:
    """Two points of one wire would tell its digits."""
    form = FORMS["digits"]
    proxy, server = honest(form)
    shape = form.circuit.shape
    hiding = mask(server, BINDING, proving._PURPOSE, FIELD, form.circuit.width)
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
            CountBounds(each, total)  # type: ignore[arg-type]
    for cells, proofs in ((0, 2), (2**24 + 1, 2), (3, 0)):
        with pytest.raises(BadInput):
            ProvenSharing(CountBounds(1, 1), cells, proofs)
    with pytest.raises(BadInput, match="cells x each"):
        ProvenSharing(CountBounds(2**61, 1), 2)
    for counts, why in (([2], "every count"), ([-1], "every count"), ([1] * 4, "add up")):
        vector = np.array(counts + [0] * (12 - len(counts)))
        with pytest.raises(BadInput, match=why):
            form.split(vector, BINDING, source)
    with pytest.raises(BadInput, match="12 values"):
        form.split(np.zeros(11, np.int64), BINDING, source)
    with pytest.raises(BadInput, match="int64"):
        form.split(np.zeros(12, np.int32), BINDING, source)
    with pytest.raises(BadInput, match="check key"):
        form.prepare(PartyRole.SERVER, [bytes(32)], [BINDING], b"short")
    with pytest.raises(BadInput, match="add up"):
        CountBounds(2**61, 2**61).check(np.full(9, 2**61))  # a sum that wraps in 64 bits


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
    prepared = [form.prepare(role, [part], [BINDING], KEY) for role, part in zip(PartyRole, parts, strict=True)]
    everything = b"".join((*parts, *(each.messages[0] for each in prepared)))
    assert hashlib.sha256(everything).hexdigest() == GOLDEN[name]


def test_bounds_under_which_a_sum_could_wrap_are_refused() -> None:
    """Without this, eight counts that add up to three times the total were accepted."""
    with pytest.raises(BadInput, match="smaller total"):
        ProvenSharing(CountBounds(437893890380859375, 2**60 + 1), 8)
    assert ProvenSharing(CountBounds(1, 2**57), 8).circuit.width


# Soundness: reports out of bounds, tampered or put together from others


def lies(form: ProvenSharing) -> dict[str, NDArray[np.uint64]]:
    each, total = form.bounds.each, form.bounds.total
    found = {
        "one too many": digits_of(form, {0: each + 1}),
        "less than nothing": digits_of(form, {0: -1}),
        "far too many": digits_of(form, {0: 10**6}),
        "half a count": digits_of(form, {0: pow(2, -1, PRIME)}),
        "as far as it goes": digits_of(form, {form.cells - 1: PRIME // 2}),
        "a wrong rest": digits_of(form, {0: 1}, rest=total),
        "a rest below nothing": digits_of(form, {0: 1}, rest=-1),
    }
    if form.cells > 1:
        found["less than nothing, made up for"] = digits_of(form, {0: -1, 1: 1})
    if form.cells * each > total:
        full = dict.fromkeys(range(form.cells), each)
        found["a sum too large"] = digits_of(form, full)
        found["a sum too large, with no rest"] = digits_of(form, full, rest=0)
    return found


@forms
def test_the_liar_passes_when_it_says_the_truth(form: ProvenSharing) -> None:
    """Else the tests of its lies would show nothing."""
    assert judged(form, Liar(form, digits_of(form, {0: 1})).parts())
    assert judged(form, honest(form))


@forms
def test_no_lie_passes(form: ProvenSharing) -> None:
    for name, digits in lies(form).items():
        assert not judged(form, Liar(form, digits).parts()), name


@forms
def test_a_device_that_knew_the_points_would_pass(form: ProvenSharing) -> None:
    """Which is why they come from a secret of the two parties. Under another secret the same report fails."""
    shape = form.circuit.shape
    points = np.array([form._points(BINDING, KEY)], np.uint64)

    def fitted(row: NDArray[np.uint64], challenges: NDArray[np.uint64]) -> None:
        """The quotient becomes a number, the one that fits at the point."""
        proofs = row[0, shape.digits :].reshape(form.proofs, -1)
        proofs[:, shape.wires :] = 0
        wanted = balances(evaluations(row, points, shape), challenges, shape.most)[0].tolist()
        for number, (point, value) in enumerate(zip(points[0].tolist(), wanted, strict=True)):
            vanishing = sum(pow(point, k, PRIME) for k in range(shape.size))
            proofs[number, shape.wires] = value * pow(vanishing, -1, PRIME) % PRIME

    parts = Liar(form, digits_of(form, {0: form.bounds.each + 1})).parts(rewritten=fitted)
    within = form.bounds.total - (form.circuit.shape.most + 1) >= 0
    assert judged(form, parts) or not within  # or the rest is a lie as well, and its digits are out of range
    prepared = [
        form.prepare(role, [part], [BINDING], KEY[::-1]) for role, part in zip(PartyRole, parts, strict=True)
    ]
    assert not form.valid(prepared[0].messages, prepared[1].messages)[0]


def test_a_device_that_chose_its_challenges_would_pass_only_with_them() -> None:
    """A challenge c with 2 + 6 c = 0 is blind to the digits 2, 3. So a challenge is a hash of the report."""
    form = ProvenSharing(CountBounds(1, 5), 12)
    blind = (-2 * pow(6, -1, PRIME)) % PRIME
    chosen = np.full((1, form.proofs), blind, np.uint64)
    parts = Liar(form, digits_of(form, {0: 2, 1: 3})).parts(challenges=chosen)
    prepared = [form.prepare(role, [part], [BINDING], KEY) for role, part in zip(PartyRole, parts, strict=True)]
    told = [np.frombuffer(each.messages[0], "<u8", offset=proving.PART_BYTES) for each in prepared]
    values = FIELD.add(told[0], told[1])[1:].reshape(1, form.proofs, -1)
    assert not balances(np.ascontiguousarray(values), chosen, 1).any()  # it would have held
    assert not judged(form, parts)


@forms
def test_whatever_is_changed_is_noticed(form: ProvenSharing) -> None:
    proxy, server = honest(form)
    shape = form.circuit.shape
    first, ends = 32 + 8 * shape.digits, [0, 31, 32, form.proxy_bytes - 8]
    for number in range(form.proofs):
        start = first + 8 * number * shape.proof
        ends += [start, start + 8 * shape.wires]
    for place in ends:
        for bit in (0, 1, 2):  # low bits: still elements of the field
            changed = bytearray(proxy)
            changed[place] ^= 1 << bit
            assert not judged(form, (bytes(changed), server)), place
    for place in (0, 31):
        changed = bytearray(server)
        changed[place] ^= 1
        assert not judged(form, (proxy, bytes(changed)))


@forms
def test_parts_belong_to_one_report(form: ProvenSharing) -> None:
    one, two = honest(form, "one"), honest(form, "two")
    assert judged(form, one)
    assert judged(form, two)
    assert not judged(form, (one[0], two[1]))
    elsewhere = b"\1" + BINDING[1:]
    assert not judged(form, one, elsewhere)
    assert not judged(form, one, BINDING, other=elsewhere)
    assert judged(form, honest(form, "one", elsewhere), elsewhere)


def test_batches_are_judged_one_by_one() -> None:
    form = FORMS["digits"]
    good = [honest(form, str(i)) for i in range(4)]
    bad = Liar(form, digits_of(form, {3: 5})).parts()
    parts = [good[0], bad, good[1], (good[2][0][:-1], good[2][1]), good[3]]
    proxy = form.prepare(PartyRole.PROXY, [each[0] for each in parts], [BINDING] * 5, KEY)
    server = form.prepare(PartyRole.SERVER, [each[1] for each in parts], [BINDING] * 5, KEY)
    assert form.valid(proxy.messages, server.messages).tolist() == [True, False, True, False, True]
    assert proxy.refused.tolist() == [0, 0, 0, MessageVerdict.MALFORMED, 0]
    assert not form.valid(proxy.messages, server.messages[1:] + server.messages[:1]).any()
    none = form.prepare(PartyRole.PROXY, [], [], KEY)
    assert none.shares.shape == (0, form.cells)
    assert form.valid([], []).tolist() == []


@forms
def test_malformed_parts_are_refused_and_leave_nothing(form: ProvenSharing) -> None:
    proxy, server = honest(form)
    beyond = proxy[:-8] + PRIME.to_bytes(8, "little")
    wrong = [
        (PartyRole.PROXY, plain) for plain in (b"", proxy[:-1], proxy + b"\0", beyond, b"\xff" * len(proxy))
    ]
    for role, plain in [
        *wrong,
        (PartyRole.SERVER, b""),
        (PartyRole.SERVER, server + b"\0"),
        (PartyRole.SERVER, proxy),
    ]:
        prepared = form.prepare(role, [plain], [BINDING], KEY)
        assert prepared.refused.tolist() == [MessageVerdict.MALFORMED]
        assert not prepared.shares.any()
        assert prepared.messages == [bytes(form.message_bytes)]


def test_malformed_messages_prove_nothing() -> None:
    form = FORMS["bits"]
    own, other = (
        form.prepare(role, [part], [BINDING], KEY).messages[0]
        for role, part in zip(PartyRole, honest(form), strict=True)
    )
    zero = bytes(form.message_bytes)
    for wrong in (b"", other[:-1], other + b"\0", zero, own):
        assert not form.valid([own], [wrong])[0]
        assert not form.valid([wrong], [own])[0]
    assert not form.valid([zero], [zero])[0]
    for place in range(0, form.message_bytes, 8):
        for one, two in ((own, other), (other, own)):
            changed = bytearray(two)
            changed[place] ^= 1
            assert not form.valid([one], [bytes(changed)])[0]
    nothing, wrapped = bytes(8), PRIME.to_bytes(8, "little")  # the sum is right, and must be spelled as such
    assert form.valid([own[:32] + nothing + own[40:]], [other[:32] + nothing + other[40:]])[0]
    assert not form.valid([own[:32] + wrapped + own[40:]], [other[:32] + nothing + other[40:]])[0]
    with pytest.raises(BadInput, match="as many messages"):
        form.valid([own], [])


def test_soundness_error_is_what_is_stated() -> None:
    form = ProvenSharing(CountBounds(1, 1000), 1000)
    assert form.soundness_error(2**64) <= 2**-53
    assert form.soundness_error(2**40) <= 2**-75
    assert form.soundness_error(1) <= form.soundness_error(2**40) <= form.soundness_error(2**64)
    assert ProvenSharing(CountBounds(1, 1000), 1000, proofs=1).soundness_error(2**64) == pytest.approx(
        1
    )  # one is too few
    shape = form.circuit.shape
    a, b = (shape.wires - 1) / PRIME, 2 * (shape.size - 1) / PRIME
    assert form.soundness_error(2**40) == pytest.approx(b**2 + 2**41 * a * b + 2**40 * a**2, rel=1e-9, abs=0)
    assert math.log2(form.soundness_error(2**80)) < -37
