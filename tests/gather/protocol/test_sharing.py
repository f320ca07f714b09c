"""A vector's two parts: groups, masks and seals, and that one part alone says nothing."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from tacit.entropy import Simulation
from tacit.errors import BadInput, Refused
from tacit.gather.protocol.credentials import PartyRole, SealingKey, seal
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import FIELD_PRIME, Group, Residues, mask
from tacit.gather.protocol.sharing import MaskedSharing, sharing_scheme
from tacit.sealing import SEAL_OVERHEAD
from tests.support.exact_tests import ALPHA, assert_matches_pmf
from tests.support.gather_rounds import PROXY_KEY, SERVER_KEY, a_round

HALF_BYTE = dict.fromkeys(range(16), 1 / 16)
EDGES = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, FIELD_PRIME - 1]

Maker = Callable[[bytes, bytes, Group, int], Residues]


def honest(seed: bytes, binding: bytes, group: Group, length: int) -> Residues:
    return mask(seed, binding, b"counts", group, length)


def forgets_the_report(seed: bytes, binding: bytes, group: Group, length: int) -> Residues:
    return honest(seed, bytes(len(binding)), group, length)


def keeps_32_bits(seed: bytes, binding: bytes, group: Group, length: int) -> Residues:
    return honest(seed[:4] + bytes(28), binding, group, length)


def never_above_half(seed: bytes, binding: bytes, group: Group, length: int) -> Residues:
    halved: Residues = honest(seed, binding, group, length) >> group.dtype.type(1)
    return halved


def residues(group: Group, *shape: int) -> st.SearchStrategy[Residues]:
    size = int(np.prod(shape))
    below = [edge for edge in EDGES if edge < group.modulus]
    element = st.one_of(st.integers(0, group.modulus - 1), st.sampled_from([*below, group.modulus - 1]))
    rows = st.lists(element, min_size=size, max_size=size)
    return rows.map(lambda row: np.array(row, group.dtype).reshape(shape))


@pytest.mark.parametrize("group", Group)
@settings(max_examples=40)
@given(data=st.data())
def test_groups_add_as_whole_numbers_do(group: Group, data: st.DataObject) -> None:
    a, b = data.draw(residues(group, 7)), data.draw(residues(group, 7))
    plain_a, plain_b = a.tolist(), b.tolist()
    assert group.add(a, b).tolist() == [(x + y) % group.modulus for x, y in zip(plain_a, plain_b, strict=True)]
    difference = [(x - y) % group.modulus for x, y in zip(plain_a, plain_b, strict=True)]
    assert group.subtract(a, b).tolist() == difference
    assert group.from_bytes(group.to_bytes(a), 7).tolist() == plain_a
    assert (a.tolist(), b.tolist()) == (plain_a, plain_b)  # arguments stay as they were


@pytest.mark.parametrize("group", Group)
@settings(max_examples=40)
@given(data=st.data())
def test_totals_are_exact(group: Group, data: st.DataObject) -> None:
    shares = data.draw(residues(group, 9, 3))
    expected = [sum(column) % group.modulus for column in shares.T.tolist()]
    assert group.total(shares).tolist() == expected
    assert group.total(np.asfortranarray(shares)).tolist() == expected
    assert group.total(shares[:0]).tolist() == [0, 0, 0]
    assert group.total(shares).dtype == group.dtype


def test_a_total_of_many_large_elements_does_not_overflow() -> None:
    rows = 100_000
    shares = np.broadcast_to(np.array([FIELD_PRIME - 1, 2**63, 2**32 - 1], np.uint64), (rows, 3))
    expected = [rows * each % FIELD_PRIME for each in (FIELD_PRIME - 1, 2**63, 2**32 - 1)]
    assert Group.FIELD64.total(shares).tolist() == expected


@pytest.mark.parametrize("group", Group)
@settings(max_examples=40)
@given(data=st.data())
def test_lifting_undoes_residues(group: Group, data: st.DataObject) -> None:
    half = group.modulus // 2
    values = data.draw(st.lists(st.integers(-half + 1, half - 1), min_size=1, max_size=8))
    array = np.array(values, np.int64)
    assert group.residues(array).tolist() == [value % group.modulus for value in values]
    assert group.lift(group.residues(array)).tolist() == values
    strided = np.repeat(array, 2)[::2]
    assert group.lift(group.residues(strided)).tolist() == values


def test_lifting_at_its_ends() -> None:
    ring, half = np.array([-(2**31), 2**31 - 1]), FIELD_PRIME // 2
    assert Group.RING32.lift(Group.RING32.residues(ring)).tolist() == ring.tolist()
    assert Group.FIELD64.lift(np.array([half, half + 1], np.uint64)).tolist() == [half, -half]


def test_residues_are_of_whole_numbers() -> None:
    with pytest.raises(BadInput, match="int64"):
        Group.RING64.residues(np.array([1.0]))


@pytest.mark.parametrize("group", Group)
def test_bytes_that_are_no_elements_are_refused(group: Group) -> None:
    good = group.to_bytes(np.arange(3).astype(group.dtype))
    assert len(good) == 3 * group.width
    bad = [good[:-1], good + b"\0", b""]
    if group is Group.FIELD64:
        bad += [FIELD_PRIME.to_bytes(8, "little") * 3, b"\xff" * 24]
    for data in bad:
        with pytest.raises(Refused) as refusal:
            group.from_bytes(data, 3)
        assert refusal.value.reason is MessageVerdict.MALFORMED


def test_uniform_elements_skip_what_the_field_lacks() -> None:
    words = [5, FIELD_PRIME, FIELD_PRIME - 1, 2**64 - 1, 2**64 - 1, 7, FIELD_PRIME + 1, 9, 11]
    data = b"".join(word.to_bytes(8, "little") for word in words)

    def stream() -> Callable[[int], bytes]:
        place = 0

        def take(count: int) -> bytes:
            nonlocal place
            place += count
            return data[place - count : place]

        return take

    assert Group.FIELD64.uniform(3, stream()).tolist() == [5, FIELD_PRIME - 1, 7]
    assert Group.FIELD64.uniform(5, stream()).tolist() == [5, FIELD_PRIME - 1, 7, 9, 11]
    assert Group.RING64.uniform(2, stream()).tolist() == words[:2]


@pytest.mark.parametrize("group", Group)
def test_a_mask_is_what_its_text_says(group: Group) -> None:
    """By AES one block at a time and Python's whole numbers."""
    seed, binding, purpose = bytes(range(32)), bytes(range(48)), b"counts"
    key = hashlib.sha256(b"tacit gather mask 1" + bytes([len(purpose)]) + purpose + seed + binding).digest()
    block = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    stream = b"".join(block.update(number.to_bytes(16, "big")) for number in range(600))
    words = [
        int.from_bytes(stream[at : at + group.width], "little") for at in range(0, len(stream), group.width)
    ]
    expected = [word for word in words if word < group.modulus][:1000]
    assert mask(seed, binding, purpose, group, 1000).tolist() == expected


def test_long_masks_go_on_where_short_ones_end() -> None:
    seed, binding = bytes(32), bytes(48)
    long = mask(seed, binding, b"x", Group.RING64, 20_000)
    assert (long[:8192] == mask(seed, binding, b"x", Group.RING64, 8192)).all()
    for changed in (
        mask(seed, binding, b"y", Group.RING64, 8),
        mask(seed, b"\1" * 48, b"x", Group.RING64, 8),
        mask(seed, b"x" + binding[:-1], b"", Group.RING64, 8),
    ):
        assert not (changed == long[:8]).any()
    with pytest.raises(BadInput, match="32 bytes"):
        mask(bytes(31), binding, b"x", Group.RING64, 8)


def assert_ends_are_uniform(shares: Residues) -> None:
    """The lowest and the highest four bits of (reports, cells), each cell by itself; false alarms <= ALPHA."""
    for column in shares.T:
        for digits in (column & column.dtype.type(15), column >> column.dtype.type(8 * column.itemsize - 4)):
            assert_matches_pmf(Counter(digits.tolist()), HALF_BYTE, alpha=ALPHA / (2 * shares.shape[1]))


def parts_of(group: Group, values: NDArray[np.int64], make: Maker, reports: int = 2000) -> Residues:
    """(reports, cells): the proxy's parts of that many reports of the same values."""
    entropy = Simulation(f"parts of {group}")
    rows = [
        group.subtract(group.residues(values), make(entropy.bytes(32), entropy.bytes(48), group, len(values)))
        for _ in range(reports)
    ]
    return np.array(rows)


@pytest.mark.parametrize("group", Group)
def test_the_proxys_part_is_uniform_whatever_the_values_are(group: Group) -> None:
    for values in (np.zeros(2, np.int64), np.array([1, 2**20])):
        assert_ends_are_uniform(parts_of(group, values, honest))
        with pytest.raises(AssertionError):
            assert_ends_are_uniform(parts_of(group, values, never_above_half))


def differences(make: Maker, reports: int = 2000) -> Residues:
    """(reports, 1): between two reports of one device whose seed, by mistake, was the same."""
    entropy = Simulation("differences")
    group, rows = Group.RING64, []
    for _ in range(reports):
        seed = entropy.bytes(32)
        before, after = (
            group.subtract(group.residues(np.array([value])), make(seed, entropy.bytes(48), group, 1))
            for value in (0, 1)
        )
        rows.append(group.subtract(after, before))
    return np.array(rows)


def test_another_report_has_another_mask_even_for_the_same_seed() -> None:
    assert_ends_are_uniform(differences(honest))
    with pytest.raises(AssertionError):
        assert_ends_are_uniform(differences(forgets_the_report))


def assert_every_seed_bit_counts(make: Maker) -> None:
    """Each of the 256 bits turns about half of the mask's bits; false alarms at most ALPHA."""
    seed, binding = int.from_bytes(Simulation("seed").bytes(32), "little"), bytes(48)
    before = make(seed.to_bytes(32, "little"), binding, Group.RING64, 100)
    for bit in range(256):
        after = make((seed ^ 1 << bit).to_bytes(32, "little"), binding, Group.RING64, 100)
        turned = int(np.bitwise_count(before ^ after).sum())
        assert binomtest(turned, 6400, 0.5).pvalue >= ALPHA / 256, f"{bit=} {turned=}"


def test_the_whole_seed_counts() -> None:
    assert_every_seed_bit_counts(honest)
    with pytest.raises(AssertionError):
        assert_every_seed_bit_counts(keeps_32_bits)


@pytest.mark.parametrize("group", Group)
def test_the_servers_part_is_drawn_without_the_values(group: Group) -> None:
    form, binding = MaskedSharing(group, 3), bytes(48)
    seeds = {
        form.split(np.array(values), binding, Simulation(5))[1] for values in ([0, 0, 0], [1, 2, 3], [-9, 0, 9])
    }
    assert seeds == {Simulation(5).bytes(32)}


@pytest.mark.parametrize("group", Group)
@settings(max_examples=40)
@given(data=st.data())
def test_the_two_parties_shares_add_up_to_the_sum(group: Group, data: st.DataObject) -> None:
    cells, reports = 4, data.draw(st.integers(1, 5))
    form, entropy = MaskedSharing(group, cells), Simulation(1)
    row = st.lists(st.integers(-1000, 1000), min_size=cells, max_size=cells)
    rows = data.draw(st.lists(row, min_size=reports, max_size=reports))
    bindings = [entropy.bytes(48) for _ in rows]
    parts = [form.split(np.array(row), bound, entropy) for row, bound in zip(rows, bindings, strict=True)]
    assert {(len(a), len(b)) for a, b in parts} == {(form.proxy_bytes, form.server_bytes)}
    proxy = form.prepare(PartyRole.PROXY, [a for a, _ in parts], bindings, b"")
    server = form.prepare(PartyRole.SERVER, [b for _, b in parts], bindings, b"")
    assert not proxy.refused.any()
    assert not server.refused.any()
    total = group.add(group.total(proxy.shares), group.total(server.shares))
    assert group.lift(total).tolist() == np.array(rows).sum(axis=0).tolist()
    assert form.valid(proxy.messages, server.messages).tolist() == [True] * reports
    assert {len(each) for each in (*proxy.messages, *server.messages)} == {form.message_bytes}


@pytest.mark.parametrize("group", Group)
def test_parts_of_other_sizes_are_refused_and_leave_no_trace(group: Group) -> None:
    form, binding = MaskedSharing(group, 2), bytes(48)
    good_proxy, good_server = form.split(np.array([1, 2]), binding, Simulation(1))
    for role, good in ((PartyRole.PROXY, good_proxy), (PartyRole.SERVER, good_server)):
        bad = [good[:-1], good + b"\0", b""]
        if role is PartyRole.PROXY and group is Group.FIELD64:
            bad.append(b"\xff" * 16)
        prepared = form.prepare(role, [*bad, good], [binding] * (len(bad) + 1), b"")
        assert prepared.refused.tolist() == [MessageVerdict.MALFORMED] * len(bad) + [MessageVerdict.ACCEPTED]
        assert not prepared.shares[:-1].any()
        assert prepared.shares[-1].any()
    assert form.prepare(PartyRole.PROXY, [], [], b"").shares.shape == (0, 2)
    with pytest.raises(BadInput, match="2 values"):
        form.split(np.array([1, 2, 3]), binding, Simulation(1))


def test_a_rounds_form() -> None:
    assert sharing_scheme(a_round()) == MaskedSharing(Group.RING64, 13)


def test_only_the_right_party_opens_for_the_right_report() -> None:
    binding = bytes(48)
    sealed = seal(b"counts", PROXY_KEY.public, role=PartyRole.PROXY, binding=binding)
    assert len(sealed) == len(b"counts") + SEAL_OVERHEAD
    assert PROXY_KEY.open(sealed, role=PartyRole.PROXY, binding=binding) == b"counts"
    assert seal(b"counts", PROXY_KEY.public, role=PartyRole.PROXY, binding=binding) != sealed
    assert len(seal(bytes(32), SERVER_KEY.public, role=PartyRole.SERVER, binding=binding)) == 80
    tries = [
        (SERVER_KEY, sealed, PartyRole.PROXY, binding),
        (PROXY_KEY, sealed, PartyRole.SERVER, binding),
        (PROXY_KEY, sealed, PartyRole.PROXY, b"\1" + binding[1:]),
        (PROXY_KEY, sealed, PartyRole.PROXY, binding[:-1]),
        (PROXY_KEY, sealed + b"\0", PartyRole.PROXY, binding),
        (PROXY_KEY, bytes(32) + sealed[32:], PartyRole.PROXY, binding),  # a key of small order
        (PROXY_KEY, b"\1" + bytes(31) + sealed[32:], PartyRole.PROXY, binding),
        *((PROXY_KEY, sealed[:end], PartyRole.PROXY, binding) for end in range(len(sealed))),
        *(
            (PROXY_KEY, sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], PartyRole.PROXY, binding)
            for at in range(len(sealed))
        ),
    ]
    for key, data, role, bound in tries:
        with pytest.raises(Refused) as refusal:
            key.open(data, role=role, binding=bound)
        assert refusal.value.reason is MessageVerdict.UNOPENABLE


def test_keys_are_read_and_hidden() -> None:
    key = SealingKey.generate()
    assert SealingKey.from_bytes(key.to_bytes()).public == key.public
    assert key.to_bytes().hex() not in repr(key)
    assert key.public != SealingKey.generate().public
    with pytest.raises(BadInput, match="32 bytes"):
        SealingKey.from_bytes(bytes(31))
    for public in (bytes(31), bytes(32)):
        with pytest.raises(BadInput, match="public key"):
            seal(b"", public, role=PartyRole.PROXY, binding=b"")


def open_by_the_rfc(sealed: bytes, key: SealingKey, info: bytes) -> bytes:
    """HPKE's base mode from RFC 9180, sections 4 and 5, with HMAC alone: X25519, HKDF-SHA256, AES-128-GCM."""

    def extract(salt: bytes, suite: bytes, label: bytes, secret: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, "sha256")

    def expand(secret: bytes, suite: bytes, label: bytes, context: bytes, size: int) -> bytes:
        labelled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
        return hmac.digest(secret, labelled + b"\x01", "sha256")[:size]  # one block is enough here

    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
    ephemeral, hidden = sealed[:32], sealed[32:]
    agreed = key._private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
    shared = expand(extract(b"", kem, b"eae_prk", agreed), kem, b"shared_secret", ephemeral + key.public, 32)
    context = b"\x00" + extract(b"", suite, b"psk_id_hash", b"") + extract(b"", suite, b"info_hash", info)
    secret = extract(shared, suite, b"secret", b"")
    aead = AESGCM(expand(secret, suite, b"key", context, 16))
    return aead.decrypt(expand(secret, suite, b"base_nonce", context, 12), hidden, None)


@pytest.mark.parametrize("role", PartyRole)
def test_seals_are_those_of_the_rfc(role: PartyRole) -> None:
    sealed = seal(b"a part", PROXY_KEY.public, role=role, binding=b"b" * 48)
    info = b"tacit gather seal 1 " + role.encode() + b" " + b"b" * 48
    assert open_by_the_rfc(sealed, PROXY_KEY, info) == b"a part"
