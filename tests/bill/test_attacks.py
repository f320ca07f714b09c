"""What devices try, on both stores: reports, tokens and requests that are not what they say. Nothing of it is
charged, and the honest impression after it is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tacit.bill.protocol.directory import DirectoryLeaf, check_listed
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import Offer, OfferRequest
from tacit.bill.protocol.reports import ImpressionReport, choice_commitment
from tacit.bill.protocol.tokens import blind, finalize, token_message, token_nonce
from tacit.bill.server.token_keys import TokenKey
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.sealing import seal
from tests.support.billing_refusals import flipped
from tests.support.billing_scenes import Scene, reason_of
from tests.support.billing_worlds import EXPIRED, REQUESTS, TIMES, a_node, a_token

ACCEPTED, CONFLICT, FORGED = BillVerdict.ACCEPTED, BillVerdict.CONFLICT, BillVerdict.FORGED
FOREIGN = OpeningKey(b"f" * 32)
ANSWER_KEY = b"a" * 32


def test_honest_reports_are_charged_at_their_entries_prices(scene: Scene) -> None:
    """What the attacks are held against."""
    others = scene.report(1, menu=scene.other)
    assert scene.take(scene.report(1), scene.report(3), scene.report(0), others) == [ACCEPTED] * 4
    scene.bill()
    scene.assert_charged(1, 3, 0, more=[1])


@pytest.mark.parametrize("token", [bytes(256), b"\x01" * 256, b"\xff" * 256, bytes(255) + b"\x01"])
def test_forged_token(scene: Scene, token: bytes) -> None:
    assert scene.take(replace(scene.report(), token=token)) == [FORGED]
    scene.assert_nothing_charged()


def test_token_of_another_menu(scene: Scene) -> None:
    """Asked for under the cheaper menu's key, reported for the dearer one."""
    secret = scene.secret()
    for menu_id in (scene.menu.menu_id, scene.other.menu_id):
        token = a_token(menu_id, secret, scene.key(scene.menu))
        report = ImpressionReport.make(scene.other.menu_id, secret, token, 1, scene.sealing_key())
        assert scene.take(report) == [FORGED]
    scene.assert_nothing_charged()


def test_token_of_another_epoch(scene: Scene) -> None:
    """The same context and prices, an epoch earlier: another menu."""
    secret = scene.secret()
    token = a_token(scene.foreign.menu_id, secret, scene.key(scene.foreign))
    report = ImpressionReport.make(scene.menu.menu_id, secret, token, 1, scene.sealing_key())
    assert scene.take(report) == [FORGED]
    scene.assert_nothing_charged()


def test_token_minted_by_another_key_of_the_same_size(scene: Scene) -> None:
    secret = scene.secret()
    token = a_token(scene.menu.menu_id, secret, TokenKey.generate())
    report = ImpressionReport.make(scene.menu.menu_id, secret, token, 1, scene.sealing_key())
    assert scene.take(report) == [FORGED]
    scene.assert_nothing_charged()


def test_token_under_another_nonce(scene: Scene) -> None:
    """One token, a second secret: the nonce is part of what was signed."""
    paid, secret = scene.report(), scene.secret()
    again = ImpressionReport.make(scene.menu.menu_id, secret, paid.token, 1, scene.sealing_key())
    assert scene.take(paid, again) == [ACCEPTED, FORGED]
    scene.bill()
    scene.assert_charged(1)


def test_replayed_report(scene: Scene) -> None:
    """The same bytes are taken as often as they come, also after their batch has left, and charged once."""
    report = scene.report(2)
    assert scene.take(report, report) == [ACCEPTED] * 2
    assert scene.take(report) == [ACCEPTED]
    scene.bill()
    assert scene.take(report) == [ACCEPTED]
    scene.bill()
    scene.assert_charged(2)


def test_double_spend_with_another_index(scene: Scene) -> None:
    """The first report of a token stands: while it waits, in the same call, and after it has left."""
    secret = scene.secret()
    first, dearer, again = (scene.report(index, secret=secret) for index in (3, 1, 3))
    assert scene.take(first, dearer) == [ACCEPTED, CONFLICT]
    assert scene.take(dearer, again) == [CONFLICT, CONFLICT]  # sealed anew, these are other bytes
    scene.bill()
    assert scene.take(dearer, again, first) == [CONFLICT, CONFLICT, ACCEPTED]
    scene.bill()
    scene.assert_charged(3)


def test_one_secret_for_two_menus(scene: Scene) -> None:
    """Two real tokens with one nonce are one token: the second is not charged."""
    secret = scene.secret()
    assert scene.take(scene.report(2, secret=secret)) == [ACCEPTED]
    assert scene.take(scene.report(1, secret=secret, menu=scene.other)) == [CONFLICT]
    scene.bill()
    scene.assert_charged(2)


def test_swapped_seals(scene: Scene) -> None:
    """Each seal is bound to its menu and nonce: in the other's report neither opens."""
    one, two = scene.report(1), scene.report(2)
    swapped = replace(one, sealed=two.sealed), replace(two, sealed=one.sealed)
    assert scene.take(*swapped) == [ACCEPTED] * 2  # the proxy cannot tell
    assert scene.redeem(scene.batch(*swapped)) == [BillVerdict.UNOPENABLE] * 2
    scene.assert_nothing_charged()


def test_commitment_for_another_index(scene: Scene) -> None:
    secret = scene.secret()
    report = scene.report(1, secret=secret)
    wrong = replace(report, commitment=choice_commitment(secret, 3))
    assert scene.take(wrong) == [ACCEPTED]
    assert scene.redeem(scene.batch(wrong)) == [BillVerdict.WRONG_OPENING]
    scene.assert_nothing_charged()


def test_secret_of_another_token(scene: Scene) -> None:
    """Sealed for the right nonce, but with a secret that it is not the hash of."""
    secret, report = scene.secret(), scene.report(1)
    sealed = _sealed_as(scene, report, secret + b"\x01")
    wrong = replace(report, sealed=sealed, commitment=choice_commitment(secret, 1))
    assert scene.take(wrong) == [ACCEPTED]
    assert scene.redeem(scene.batch(wrong)) == [BillVerdict.WRONG_OPENING]
    scene.assert_nothing_charged()


@pytest.mark.parametrize("place", [0, 31, 32, 64, 80])
def test_garbled_seal(scene: Scene, place: int) -> None:
    report = scene.report()
    garbled = replace(report, sealed=flipped(report.sealed, place))
    assert scene.take(garbled) == [ACCEPTED]
    assert scene.redeem(scene.batch(garbled)) == [BillVerdict.UNOPENABLE]
    scene.assert_nothing_charged()


def test_sealed_to_a_foreign_key(scene: Scene) -> None:
    """To a stranger's, and to another epoch's own."""
    for key in (FOREIGN.public, scene.sealing_key(scene.foreign), REQUESTS.public):
        secret = scene.secret()
        token = a_token(scene.menu.menu_id, secret, scene.key())
        report = ImpressionReport.make(scene.menu.menu_id, secret, token, 1, key)
        assert scene.take(report) == [ACCEPTED]
        assert scene.redeem(scene.batch(report)) == [BillVerdict.UNOPENABLE]
    scene.assert_nothing_charged()


@pytest.mark.parametrize("index", [4, 250, 255])
def test_index_beyond_the_menu(scene: Scene, index: int) -> None:
    report = scene.report(index)
    assert scene.take(report) == [ACCEPTED]
    assert scene.redeem(scene.batch(report)) == [BillVerdict.NO_SUCH_ENTRY]
    scene.assert_nothing_charged()


def test_wrong_lengths(scene: Scene) -> None:
    data = scene.report().to_bytes()
    wrong = [b"", data[:1], data[:-1], data + b"\0", data * 2, b"\x02" + data[1:], bytes(434)]
    assert set(scene.take(*wrong)) == {BillVerdict.MALFORMED}
    scene.assert_nothing_charged()


def test_unknown_menu(scene: Scene) -> None:
    report = scene.report()
    assert scene.take(replace(report, menu_id=bytes(32))) == [BillVerdict.UNKNOWN_MENU]
    scene.assert_nothing_charged()


def test_expired(scene: Scene) -> None:
    """Taken until the last second, and not at the next."""
    late, last = scene.report(), scene.report(2)
    scene.world.now = EXPIRED - 1
    assert scene.take(last) == [ACCEPTED]
    scene.world.now = EXPIRED
    assert scene.take(late) == [BillVerdict.EXPIRED]
    scene.world.now = EXPIRED + 86_400
    assert scene.take(late) == [BillVerdict.EXPIRED]
    scene.bill()
    scene.assert_charged(2)


def test_before_the_epoch_opens(scene: Scene) -> None:
    report = scene.report(3)
    for now in (TIMES.opens - 86_400, TIMES.opens - 1):
        scene.world.now = now
        assert scene.take(report) == [BillVerdict.STALE_EPOCH]
    scene.assert_nothing_charged()
    scene.world.now = TIMES.opens
    assert scene.take(report) == [ACCEPTED]  # nothing was lost: the same bytes are taken in time
    scene.bill()
    scene.assert_charged(3)


def _request(scene: Scene, *blinded: bytes) -> OfferRequest:
    return OfferRequest(scene.menu.epoch, Lane.PERSONAL, scene.menu.node, blinded, ANSWER_KEY)


def _ask(scene: Scene, request: OfferRequest) -> Offer:
    answer = scene.world.server.offer(request.sealed_to(REQUESTS.public), scene.world.now)
    return Offer.decrypted(answer, ANSWER_KEY)


def test_a_whole_turn_of_a_device(scene: Scene) -> None:
    """What the attacks on requests are held against: ask, check, blind, take off, report."""
    offer = _ask(scene, _request(scene))
    assert offer.listed is not None
    assert offer.signatures == ()
    menu, key = offer.listed.menu, offer.listed.token_key
    check_listed(DirectoryLeaf.of(menu, key), offer.listed.place, offer.listed.path, scene.head)
    secret = scene.secret()
    message = token_message(token_nonce(secret), menu.menu_id)
    blinded = blind(key, message, Entropy())
    asked = replace(_request(scene, blinded.blinded), known=menu.menu_id)
    (signature,), again = _ask(scene, asked).signatures, _ask(scene, asked)
    assert again == Offer((signature,))  # asked again, the same
    token = finalize(key, message, signature, blinded.inverse)
    report = ImpressionReport.make(menu.menu_id, secret, token, 2, scene.head.sealing_key)
    assert scene.take(report) == [ACCEPTED]
    scene.bill()
    scene.assert_charged(2)


def test_blinded_messages_beyond_the_modulus(scene: Scene) -> None:
    modulus = scene.key().public.number
    for number in (modulus, modulus + 1, 2**2048 - 1):
        asked = _request(scene, number.to_bytes(256, "big"))
        assert reason_of(partial(_ask, scene, asked)) is BillVerdict.MALFORMED
    scene.assert_nothing_charged()


@pytest.mark.parametrize("size", [0, 1, 255, 257, 512])
def test_blinded_messages_of_another_size(scene: Scene, size: int) -> None:
    """No request can say them, and no key signs them."""
    with pytest.raises(BadInput, match="a blinded message to be 256 bytes"):
        _request(scene, bytes(size))
    assert reason_of(lambda: scene.key().sign_blinded(bytes(size), Entropy())) is BillVerdict.MALFORMED
    scene.assert_nothing_charged()


@pytest.mark.parametrize("number", [0, 1])
def test_zero_and_one_as_blinded_messages(scene: Scene, number: int) -> None:
    """They are signed as what they are, which is no token of anything."""
    said = number.to_bytes(256, "big")
    assert _ask(scene, _request(scene, said)).signatures == (said,)
    assert scene.take(replace(scene.report(), token=said)) == [FORGED]
    message = token_message(bytes(32), scene.menu.menu_id)
    assert reason_of(lambda: finalize(scene.key().public, message, said, said)) is FORGED
    scene.assert_nothing_charged()


def test_products_of_tokens_are_no_tokens(scene: Scene) -> None:
    """RSA multiplies, encodings do not: nothing new comes of two tokens, of their product or quotient."""
    one, two = (int.from_bytes(scene.report().token, "big") for _ in range(2))
    modulus = scene.key().public.number
    for number in (one * two, one * pow(two, -1, modulus), pow(one, 2, modulus), modulus - one):
        token = (number % modulus).to_bytes(256, "big")
        assert scene.take(replace(scene.report(), token=token)) == [FORGED]
    scene.assert_nothing_charged()


def test_requests_for_what_is_not_offered(scene: Scene) -> None:
    """Each is refused in words that only the device reads."""
    good = _request(scene, bytes(256))
    cases = {
        BillVerdict.UNKNOWN_CONTEXT: (replace(good, node=a_node("Faro")), replace(good, lane=Lane.PUBLIC)),
        BillVerdict.STALE_EPOCH: (replace(good, epoch=0), replace(good, epoch=2**32 - 1)),
    }
    for verdict, asked in cases.items():
        for each in asked:
            assert reason_of(partial(_ask, scene, each)) is verdict
    for now in (TIMES.opens - 61, TIMES.closes + 60):
        scene.world.now = now
        assert reason_of(lambda: _ask(scene, good)) is BillVerdict.STALE_EPOCH
    scene.assert_nothing_charged()


def test_requests_that_the_ad_server_cannot_open(scene: Scene) -> None:
    good = _request(scene, bytes(256)).sealed_to(REQUESTS.public)
    foreign = _request(scene).sealed_to(FOREIGN.public)
    for sealed in (b"", good[:-1], good + b"\0", flipped(good, 40), foreign, scene.report().sealed):
        asked = partial(scene.world.server.offer, sealed, scene.world.now)
        assert reason_of(asked) is BillVerdict.UNOPENABLE
    scene.assert_nothing_charged()


def _sealed_as(scene: Scene, report: ImpressionReport, plain: bytes) -> bytes:
    return seal(plain, scene.sealing_key(), b"tacit/report/1" + report.menu_id + report.nonce)
