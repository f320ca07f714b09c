"""Reports out of bounds, tampered or put together from others: none of them is found valid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.errors import BadInput
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.sealing import Role
from tacit.gather.wire.validity import proof
from tacit.gather.wire.validity.bounds import Bounds
from tacit.gather.wire.validity.proof import FIELD, Proven
from tacit.kernels.field import PRIME, balances, evaluations
from validity_liar import BINDING, FORMS, KEY, Liar, digits_of, forms, honest, judged


def lies(form: Proven) -> dict[str, NDArray[np.uint64]]:
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
def test_the_liar_passes_when_it_says_the_truth(form: Proven) -> None:
    """Else the tests of its lies would show nothing."""
    assert judged(form, Liar(form, digits_of(form, {0: 1})).parts())
    assert judged(form, honest(form))


@forms
def test_no_lie_passes(form: Proven) -> None:
    for name, digits in lies(form).items():
        assert not judged(form, Liar(form, digits).parts()), name


@forms
def test_a_device_that_knew_the_points_would_pass(form: Proven) -> None:
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
        form.prepare(role, [part], [BINDING], KEY[::-1]) for role, part in zip(Role, parts, strict=True)
    ]
    assert not form.valid(prepared[0].messages, prepared[1].messages)[0]


def test_a_device_that_chose_its_challenges_would_pass_only_with_them() -> None:
    """A challenge c with 2 + 6 c = 0 is blind to the digits 2, 3. So a challenge is a hash of the report."""
    form = Proven(Bounds(1, 5), 12)
    blind = (-2 * pow(6, -1, PRIME)) % PRIME
    chosen = np.full((1, form.proofs), blind, np.uint64)
    parts = Liar(form, digits_of(form, {0: 2, 1: 3})).parts(challenges=chosen)
    prepared = [form.prepare(role, [part], [BINDING], KEY) for role, part in zip(Role, parts, strict=True)]
    told = [np.frombuffer(each.messages[0], "<u8", offset=proof.PART_BYTES) for each in prepared]
    values = FIELD.add(told[0], told[1])[1:].reshape(1, form.proofs, -1)
    assert not balances(np.ascontiguousarray(values), chosen, 1).any()  # it would have held
    assert not judged(form, parts)


@forms
def test_whatever_is_changed_is_noticed(form: Proven) -> None:
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
def test_parts_belong_to_one_report(form: Proven) -> None:
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
    proxy = form.prepare(Role.PROXY, [each[0] for each in parts], [BINDING] * 5, KEY)
    server = form.prepare(Role.SERVER, [each[1] for each in parts], [BINDING] * 5, KEY)
    assert form.valid(proxy.messages, server.messages).tolist() == [True, False, True, False, True]
    assert proxy.refused.tolist() == [0, 0, 0, Refusal.MALFORMED, 0]
    assert not form.valid(proxy.messages, server.messages[1:] + server.messages[:1]).any()
    none = form.prepare(Role.PROXY, [], [], KEY)
    assert none.shares.shape == (0, form.cells)
    assert form.valid([], []).tolist() == []


@forms
def test_malformed_parts_are_refused_and_leave_nothing(form: Proven) -> None:
    proxy, server = honest(form)
    beyond = proxy[:-8] + PRIME.to_bytes(8, "little")
    wrong = [(Role.PROXY, plain) for plain in (b"", proxy[:-1], proxy + b"\0", beyond, b"\xff" * len(proxy))]
    for role, plain in [*wrong, (Role.SERVER, b""), (Role.SERVER, server + b"\0"), (Role.SERVER, proxy)]:
        prepared = form.prepare(role, [plain], [BINDING], KEY)
        assert prepared.refused.tolist() == [Refusal.MALFORMED]
        assert not prepared.shares.any()
        assert prepared.messages == [bytes(form.message_bytes)]


def test_malformed_messages_prove_nothing() -> None:
    form = FORMS["bits"]
    own, other = (
        form.prepare(role, [part], [BINDING], KEY).messages[0]
        for role, part in zip(Role, honest(form), strict=True)
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
    form = Proven(Bounds(1, 1000), 1000)
    assert form.soundness_error(2**64) <= 2**-53
    assert form.soundness_error(2**40) <= 2**-75
    assert form.soundness_error(1) <= form.soundness_error(2**40) <= form.soundness_error(2**64)
    assert Proven(Bounds(1, 1000), 1000, proofs=1).soundness_error(2**64) == pytest.approx(1)  # one is too few
    shape = form.circuit.shape
    a, b = (shape.wires - 1) / PRIME, 2 * (shape.size - 1) / PRIME
    assert form.soundness_error(2**40) == pytest.approx(b**2 + 2**41 * a * b + 2**40 * a**2, rel=1e-9, abs=0)
    assert math.log2(form.soundness_error(2**80)) < -37
