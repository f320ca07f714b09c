"""What a proxy or an ad server that does not follow its code tries, on both stores: no wrong charge, and no
menu that a device would take for everybody's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tacit.bill.protocol.batches import Batch, BatchStatement, Receipt
from tacit.bill.protocol.directory import Directory, DirectoryLeaf, EpochHead, check_listed
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import SigningKey
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.offers import ListedMenu
from tacit.bill.protocol.tokens import TokenPublicKey
from tacit.bill.server.party import EpochTimes
from tests.support.billing_refusals import flipped
from tests.support.billing_scenes import Scene, reason_of
from tests.support.billing_worlds import (
    DURING,
    PROXY_KEY,
    SERVER_KEY,
    TIMES,
    a_directory,
    a_menu,
    numbered_key,
)

ACCEPTED, DUPLICATE, UNKNOWN_MENU = BillVerdict.ACCEPTED, BillVerdict.DUPLICATE, BillVerdict.UNKNOWN_MENU
CONFLICT, MALFORMED, FORGED = BillVerdict.CONFLICT, BillVerdict.MALFORMED, BillVerdict.FORGED
UNAUTHENTICATED, NOT_LISTED = BillVerdict.UNAUTHENTICATED, BillVerdict.NOT_LISTED
STALE_EPOCH = BillVerdict.STALE_EPOCH
STRANGER = SigningKey(b"x" * 32)


# What a proxy tries.


def test_batch_replayed(scene: Scene) -> None:
    """The same receipt, for ever, and one charge."""
    batch = scene.batch(scene.report(1), scene.report(2)).to_bytes()
    receipts = {scene.world.server.redeem(batch) for _ in range(3)}
    assert len(receipts) == 1
    scene.assert_charged(1, 2)


def test_batch_replayed_with_other_reports(scene: Scene) -> None:
    """A batch's id is of one content."""
    first = scene.batch(scene.report(1))
    other = scene.report(2).to_bytes()
    statement = first.statement
    again = BatchStatement.sign(PROXY_KEY, statement.batch_id, statement.menu_id, statement.epoch, [other])
    assert scene.redeem(first) == [ACCEPTED]
    assert reason_of(partial(scene.redeem, Batch(again, (other,)))) is CONFLICT
    scene.assert_charged(1)


def test_report_in_two_batches(scene: Scene) -> None:
    report = scene.report(1)
    assert scene.redeem(scene.batch(report)) == [ACCEPTED]
    assert scene.redeem(scene.batch(report, scene.report(3))) == [DUPLICATE, ACCEPTED]
    scene.assert_charged(1, 3)


def test_report_twice_in_one_batch(scene: Scene) -> None:
    report = scene.report(1)
    assert scene.redeem(scene.batch(report, report, report)) == [ACCEPTED, DUPLICATE, DUPLICATE]
    scene.assert_charged(1)


def test_two_reports_of_one_token_in_one_batch(scene: Scene) -> None:
    """The proxy lets a double spend through: the first of the batch is charged, and no other."""
    secret = scene.secret()
    both = scene.report(3, secret=secret), scene.report(1, secret=secret)
    assert scene.redeem(scene.batch(*both)) == [ACCEPTED, DUPLICATE]
    scene.assert_charged(3)


def test_batch_with_an_altered_report(scene: Scene) -> None:
    """In any byte: the statement's digest is of other bytes."""
    good = scene.batch(scene.report(1), scene.report(2)).to_bytes()
    for at in (153, 154, 190, 300, 480, 520, 153 + 434, len(good) - 1):
        assert reason_of(partial(scene.redeem, flipped(good, at))) is MALFORMED
    scene.assert_charged()
    scene.redeem(good)
    scene.assert_charged(1, 2)


def test_altered_report_that_the_proxy_signs(scene: Scene) -> None:
    """Whatever it alters, nothing is charged for it; and the true report, brought later, still is, once."""
    report = scene.report(2)
    data = report.to_bytes()
    changed = {
        scene.redeem(scene.batch(flipped(data, at)))[0] for at in (0, 1, 33, 65, 200, 321, 352, 353, 400, 433)
    }
    verdicts = {MALFORMED, UNKNOWN_MENU, FORGED, BillVerdict.UNOPENABLE, BillVerdict.WRONG_OPENING}
    assert changed == verdicts
    scene.assert_charged()
    assert scene.redeem(scene.batch(report)) == [ACCEPTED]
    assert scene.redeem(scene.batch(report)) == [DUPLICATE]
    scene.assert_charged(2)


def test_batch_with_reports_of_two_menus(scene: Scene) -> None:
    """A cohort is of one menu: what does not belong to it is not charged with it."""
    mixed = scene.report(2), scene.report(1, menu=scene.other), scene.report(1, menu=scene.foreign)
    assert scene.redeem(scene.batch(*mixed)) == [ACCEPTED, UNKNOWN_MENU, UNKNOWN_MENU]
    scene.assert_charged(2)
    assert scene.redeem(scene.batch(mixed[1], menu=scene.other)) == [ACCEPTED]
    scene.assert_charged(2, more=[1])


def test_batch_under_another_menus_name(scene: Scene) -> None:
    """A cheap menu's reports under the dear menu's name are charged as neither."""
    assert scene.redeem(scene.batch(scene.report(1), menu=scene.other)) == [UNKNOWN_MENU]
    scene.assert_charged()


def test_batch_of_another_epoch_than_its_menu(scene: Scene) -> None:
    report = scene.report(1).to_bytes()
    for epoch, expected in ((scene.foreign.epoch, UNKNOWN_MENU), (5, STALE_EPOCH), (2**32 - 1, STALE_EPOCH)):
        statement = BatchStatement.sign(
            PROXY_KEY, epoch.to_bytes(16, "big"), scene.menu.menu_id, epoch, [report]
        )
        batch = Batch(statement, (report,))
        assert reason_of(partial(scene.redeem, batch)) is expected, "and nothing of it is kept"
    scene.assert_charged()


@pytest.mark.parametrize("key", [STRANGER, SERVER_KEY], ids=["stranger", "ad server"])
def test_batch_signed_by_a_foreign_key(scene: Scene, key: SigningKey) -> None:
    report = scene.report(1).to_bytes()
    statement = BatchStatement.sign(key, bytes(16), scene.menu.menu_id, scene.menu.epoch, [report])
    assert reason_of(partial(scene.redeem, Batch(statement, (report,)))) is UNAUTHENTICATED
    scene.assert_charged()


def test_statement_with_another_count(scene: Scene) -> None:
    """Neither more reports than it says, nor fewer, nor a count that nobody signed."""
    good = scene.batch(scene.report(1), scene.report(2))
    data = good.to_bytes()
    assert reason_of(partial(scene.redeem, data[:-434])) is MALFORMED
    assert reason_of(partial(scene.redeem, data + scene.report(3).to_bytes())) is MALFORMED
    alone = replace(good.statement, reports=1).to_bytes() + good.reports[0]
    assert reason_of(partial(scene.redeem, alone)) is MALFORMED  # the digest is of both
    smaller = Batch(
        replace(
            BatchStatement.sign(STRANGER, *_fields(scene), good.reports[:1]), signature=good.statement.signature
        ),
        good.reports[:1],
    )
    assert reason_of(partial(scene.redeem, smaller)) is UNAUTHENTICATED
    scene.assert_charged()


def test_forged_tokens_that_the_proxy_lets_through(scene: Scene) -> None:
    """Each party believes its own eyes."""
    forged = replace(scene.report(1), token=bytes(256))
    assert scene.redeem(scene.batch(forged, scene.report(2))) == [FORGED, ACCEPTED]
    scene.assert_charged(2)


def test_batch_of_nothing_but_noise(scene: Scene) -> None:
    noise = [bytes([at]) * 434 for at in range(5)]
    assert set(scene.redeem(scene.batch(*noise))) == {MALFORMED, UNKNOWN_MENU}
    scene.assert_charged()


# What an ad server tries.


class Links:
    """An ad server's answers to batches, changed on their way to the proxy."""

    def __init__(self, scene: Scene, change: Callable[[Receipt], Receipt | bytes]) -> None:
        self._scene, self._change = scene, change

    def deliver(self, batch: bytes) -> bytes:
        changed = self._change(Receipt.from_bytes(self._scene.world.server.redeem(batch)))
        return changed if isinstance(changed, bytes) else changed.to_bytes()


def _resigned(key: SigningKey, receipt: Receipt, verdicts: bytes | None = None) -> Receipt:
    return Receipt.sign(key, receipt.batch_id, receipt.verdicts if verdicts is None else verdicts)


FORGERIES: dict[str, tuple[Callable[[Receipt], Receipt | bytes], BillVerdict]] = {
    "by a stranger": (lambda receipt: _resigned(STRANGER, receipt), UNAUTHENTICATED),
    "by the proxy itself": (lambda receipt: _resigned(PROXY_KEY, receipt), UNAUTHENTICATED),
    "unsigned": (lambda receipt: replace(receipt, signature=bytes(64)), UNAUTHENTICATED),
    "with another verdict": (lambda receipt: replace(receipt, verdicts=b"\x08\x08"), UNAUTHENTICATED),
    "of another batch": (lambda receipt: Receipt.sign(SERVER_KEY, bytes(16), receipt.verdicts), CONFLICT),
    "of fewer reports": (lambda receipt: _resigned(SERVER_KEY, receipt, b"\0"), CONFLICT),
    "of more reports": (lambda receipt: _resigned(SERVER_KEY, receipt, b"\0\0\0"), CONFLICT),
    "truncated": (lambda receipt: receipt.to_bytes()[:-1], MALFORMED),
    "empty": (lambda _: b"", MALFORMED),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_receipt_forged(scene: Scene, name: str) -> None:
    """It settles nothing: the batch is brought again until its true receipt comes, and is charged once."""
    change, expected = FORGERIES[name]
    assert scene.take(scene.report(1), scene.report(3)) == [ACCEPTED] * 2
    proxy = scene.world.proxy
    proxy.form_batches(scene.world.now, scene.world.source)
    assert reason_of(partial(proxy.deliver_batches, Links(scene, change))) is expected
    assert len(scene.world.proxied.undelivered()) == 1
    assert proxy.deliver_batches(scene.world) == 1
    assert not scene.world.proxied.undelivered()
    scene.assert_charged(1, 3)


def test_a_refused_batch_keeps_no_other(scene: Scene) -> None:
    assert scene.take(scene.report(1), scene.report(1, menu=scene.other)) == [ACCEPTED] * 2
    formed = scene.world.proxy.form_batches(scene.world.now, scene.world.source)
    first = formed[0].batch_id

    def change(receipt: Receipt) -> Receipt:
        return _resigned(STRANGER, receipt) if receipt.batch_id == first else receipt

    assert reason_of(partial(scene.world.proxy.deliver_batches, Links(scene, change))) is UNAUTHENTICATED
    assert scene.world.proxied.undelivered() == [first]
    scene.bill()
    scene.assert_charged(1, more=[1])


def test_second_root_for_an_epoch(scene: Scene) -> None:
    """Another directory under the same number, however it differs, is not countersigned."""
    proxy, epoch = scene.world.proxy, scene.menu.epoch
    kept = scene.world.proxied.head(epoch)
    others = (
        a_directory([scene.menu], [numbered_key(0)]),
        a_directory([scene.menu, scene.other], [numbered_key(1), numbered_key(2)]),
        a_directory([replace(scene.menu, reserve_micros=1), scene.other], [numbered_key(0), numbered_key(1)]),
        a_directory(
            [scene.menu, scene.other], [numbered_key(0), numbered_key(1)], replace(TIMES, closes=20_001)
        ),
    )
    for other in others:
        assert reason_of(partial(proxy.countersign, other.to_bytes(), DURING)) is CONFLICT
    assert scene.world.proxied.head(epoch) == kept
    assert EpochHead.from_bytes(kept or b"") == scene.head
    changed = replace(scene.menu, smallest_cohort=2), scene.other
    assert reason_of(lambda: scene.world.open_epoch(*changed)) is CONFLICT
    scene.assert_charged()


def test_directory_with_a_context_twice(scene: Scene) -> None:
    """Two menus of one context would tell devices apart: with an index of both it is no directory."""
    keys = numbered_key(0), numbered_key(1)
    epoch = scene.menu.epoch + 2
    twins = a_menu("Lisbon", epoch=epoch), a_menu("Lisbon", epoch=epoch, prices=(1, 2, 3))
    honest = a_directory(twins[:1], keys[:1])
    leaves = [DirectoryLeaf.of(menu, key.public) for menu, key in zip(twins, keys, strict=True)]
    head = replace(honest.head, menus=2).signed_by_server(SERVER_KEY)
    data = _spelled(head, sorted(leaf.to_bytes() for leaf in leaves))
    assert reason_of(partial(scene.world.proxy.countersign, data, DURING)) is MALFORMED
    assert scene.world.proxied.head(epoch) is None


def test_menu_listed_again_in_another_epoch(scene: Scene) -> None:
    """A menu's key never changes, not by way of another epoch's directory either."""
    known = scene.world.proxied.menu(scene.menu.menu_id)
    moved = Directory.make(
        [DirectoryLeaf.of(scene.menu, numbered_key(3).public)], epoch=scene.menu.epoch + 3, opens=TIMES.opens,
        closes=TIMES.closes, expires=TIMES.expires, sealing_key=bytes(31) + b"\x09",
    )  # fmt: skip
    data = moved.with_head(moved.head.signed_by_server(SERVER_KEY)).to_bytes()
    assert reason_of(partial(scene.world.proxy.countersign, data, DURING)) is CONFLICT
    assert scene.world.proxied.menu(scene.menu.menu_id) == known
    assert scene.world.proxied.head(scene.menu.epoch + 3) is None


def test_directory_of_a_stranger(scene: Scene) -> None:
    made = a_directory([a_menu(epoch=scene.menu.epoch + 4)], [numbered_key(0)])
    for key in (STRANGER, PROXY_KEY):
        forged = made.with_head(made.head.signed_by_server(key)).to_bytes()
        assert reason_of(partial(scene.world.proxy.countersign, forged, DURING)) is UNAUTHENTICATED
    unsigned = made.with_head(replace(made.head, by_server=bytes(64))).to_bytes()
    assert reason_of(partial(scene.world.proxy.countersign, unsigned, DURING)) is UNAUTHENTICATED
    assert scene.world.proxied.head(scene.menu.epoch + 4) is None


@pytest.mark.parametrize(
    "times",
    [
        EpochTimes(opens=1_000, closes=DURING, expires=30_000),
        EpochTimes(opens=DURING + 8 * 86_400, closes=DURING + 9 * 86_400, expires=DURING + 10 * 86_400),
        EpochTimes(opens=TIMES.opens, closes=TIMES.closes, expires=TIMES.opens + 93 * 86_400),
        EpochTimes(opens=TIMES.opens, closes=2**61, expires=2**62 - 1),
    ],
    ids=["closed", "far ahead", "expires late", "never closes"],
)
def test_epochs_at_impossible_times(scene: Scene, times: EpochTimes) -> None:
    made = a_directory([a_menu(epoch=scene.menu.epoch + 5)], [numbered_key(0)], times).to_bytes()
    assert reason_of(partial(scene.world.proxy.countersign, made, DURING)) is STALE_EPOCH
    assert scene.world.proxied.head(scene.menu.epoch + 5) is None


def test_what_was_countersigned_is_given_again_after_it_closed(scene: Scene) -> None:
    """An ad server whose answer was lost gets the same head; one that asks first so late gets none."""
    stored = scene.world.ads.epoch(scene.menu.epoch)
    assert stored is not None
    late = scene.world.proxy.countersign(stored.directory, TIMES.closes + 5)
    assert EpochHead.from_bytes(late) == scene.head


def _listed(scene: Scene) -> ListedMenu:
    return scene.world.server.load_epoch(scene.menu.epoch).by_id[scene.menu.menu_id].listed


def _check(listed: ListedMenu, menu: PricedMenu, key: TokenPublicKey, head: EpochHead) -> None:
    """As every device does with what it is sent."""
    check_listed(DirectoryLeaf.of(menu, key), listed.place, listed.path, head)


def test_tagged_menu_for_one_device(scene: Scene) -> None:
    """A menu or key of a device's own stands in no directory that the proxy countersigned."""
    listed, head = _listed(scene), scene.head
    _check(listed, listed.menu, listed.token_key, head)
    entries = listed.menu.entries
    tagged = (
        replace(
            listed.menu, entries=(replace(entries[0], price_micros=entries[0].price_micros - 1), *entries[1:])
        ),
        replace(listed.menu, prior='{"tag": 1}'),
        replace(listed.menu, smallest_cohort=7),
        replace(listed.menu, epsilon_micros=1),
        scene.other,
        scene.foreign,
    )
    for menu in tagged:
        assert reason_of(partial(_check, listed, menu, listed.token_key, head)) is NOT_LISTED
    assert reason_of(partial(_check, listed, listed.menu, scene.key(scene.other).public, head)) is NOT_LISTED
    foreign = scene.world.server.load_epoch(scene.foreign.epoch).head
    assert reason_of(partial(_check, listed, listed.menu, listed.token_key, foreign)) is NOT_LISTED


def test_truncated_proof(scene: Scene) -> None:
    listed, head = _listed(scene), scene.head
    assert len(listed.path) == 1
    for path in ((), (*listed.path, bytes(32)), (bytes(32),), (head.root,)):
        changed = replace(listed, path=path)
        assert reason_of(partial(_check, changed, listed.menu, listed.token_key, head)) is NOT_LISTED
    for place in (-1, 1 - listed.place, 2, 2**31):
        changed = replace(listed, place=place)
        assert reason_of(partial(_check, changed, listed.menu, listed.token_key, head)) is NOT_LISTED


def test_head_with_one_signature(scene: Scene) -> None:
    """A root of the ad server's own making, for one device alone, lacks the proxy's signature."""
    tagged = a_directory([replace(scene.menu, prior='{"tag": 1}')], [numbered_key(0)]).head
    heads = (
        tagged,
        replace(tagged, by_proxy=scene.head.by_proxy),
        replace(tagged, by_server=scene.head.by_server, by_proxy=scene.head.by_proxy),
        replace(scene.head, by_proxy=bytes(64)),
        replace(scene.head, by_server=bytes(64)),
        tagged.countersigned(SERVER_KEY),
        tagged.countersigned(STRANGER),
    )
    for head in heads:
        checked = partial(head.check, SERVER_KEY.public, PROXY_KEY.public)
        assert reason_of(checked) is UNAUTHENTICATED
    scene.head.check(SERVER_KEY.public, PROXY_KEY.public)


def test_a_charge_shifted_to_a_dearer_entry_does_not_open(scene: Scene) -> None:
    """What an auditor holds against an ad server that charged another index than was committed to."""
    secret = scene.secret()
    report = scene.report(3, secret=secret)
    assert scene.redeem(scene.batch(report)) == [ACCEPTED]
    opening = report.open(scene.world.server.load_epoch(scene.menu.epoch).opening)  # type: ignore[arg-type]
    report.check_opening(opening)
    for index in (0, 1, 2, 4):
        assert (
            reason_of(partial(report.check_opening, replace(opening, index=index))) is BillVerdict.WRONG_OPENING
        )
    scene.assert_charged(3)


def _fields(scene: Scene) -> tuple[bytes, bytes, int]:
    return b"q" * 16, scene.menu.menu_id, scene.menu.epoch


def _spelled(head: EpochHead, leaves: list[bytes]) -> bytes:
    return b"\x01" + head.to_bytes() + b"".join(len(leaf).to_bytes(2, "big") + leaf for leaf in leaves)
