"""Marked secrets go through a whole turn of billing: no party holds, sends or shows more than it says."""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.bill.protocol.batches import Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane, PricedMenu
from tacit.bill.protocol.offers import Offer, OfferRequest
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport, Opening
from tacit.bill.protocol.tokens import BlindedMessage, blind, finalize, token_message, token_nonce
from tacit.bill.proxy.party import shuffled_order
from tacit.bill.proxy.store import NewReport
from tacit.bill.server.store import Campaign, RedeemedReport, StoredCharge
from tacit.entropy import Simulation
from tacit.errors import TacitError
from tacit.privacy.randomness import Source
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_worlds import CAMPAIGNS, DURING, REQUESTS, World, a_menu, a_report, a_secret

PLACE = "MARKED-QUARTER"


@dataclass
class Turn:
    """One device's turn, with every secret that it has."""

    secret: bytes
    index: int
    answer_key: bytes
    request: OfferRequest
    blinded: BlindedMessage
    signature: bytes
    token: bytes
    report: ImpressionReport

    def kept_from_proxy(self) -> dict[str, bytes]:
        """What only the device knows, or device and ad server."""
        return {
            "secret": self.secret,
            "answer key": self.answer_key,
            "blinded message": self.blinded.blinded,
            "what takes the blinding off": self.blinded.inverse,
            "blind signature": self.signature,
            "context": PLACE.encode(),
            "opening": self.secret + bytes([self.index]),
        }

    def kept_from_stores_of_requests(self) -> dict[str, bytes]:
        """What an ad server sees of a request, and nobody needs afterwards."""
        return {
            "answer key": self.answer_key,
            "blinded message": self.blinded.blinded,
            "blind signature": self.signature,
            "what takes the blinding off": self.blinded.inverse,
        }


@dataclass
class Market:
    """A world on two files, whose messages are overheard."""

    world: World
    files: dict[str, Path]
    menu: PricedMenu = field(default_factory=lambda: a_menu(PLACE))
    sent: dict[str, list[bytes]] = field(default_factory=dict)

    def overhear(self, kind: str, data: bytes) -> bytes:
        self.sent.setdefault(kind, []).append(data)
        return data

    def turn(self, name: object, index: int, source: Source) -> Turn:
        """Ask, blind, take off, report: through the proxy, which passes requests on."""
        key = self.world.server.load_epoch(self.menu.epoch).by_id[self.menu.menu_id].listed.token_key
        secret, answer_key = a_secret((name, "token")), a_secret((name, "answer"))
        message = token_message(token_nonce(secret), self.menu.menu_id)
        blinded = blind(key, message, source)
        request = OfferRequest(
            self.menu.epoch, Lane.PERSONAL, self.menu.node, (blinded.blinded,), answer_key, self.menu.menu_id
        )
        sealed = self.overhear("request", request.sealed_to(REQUESTS.public))
        answer = self.overhear("offer", self.world.server.offer(sealed, self.world.now))
        (signature,) = Offer.decrypted(answer, answer_key).signatures
        token = finalize(key, message, signature, blinded.inverse)
        head = self.world.server.load_epoch(self.menu.epoch).head
        report = ImpressionReport.make(self.menu.menu_id, secret, token, index, head.sealing_key)
        assert self.world.proxy.take([self.overhear("report", report.to_bytes())], self.world.now) == [0]
        return Turn(secret, index, answer_key, request, blinded, signature, token, report)

    def deliver(self, batch: bytes) -> bytes:
        return self.overhear("receipt", self.world.server.redeem(self.overhear("batch", batch)))

    def bill(self) -> None:
        self.world.proxy.form_batches(self.world.now, self.world.source)
        self.world.proxy.deliver_batches(self)

    def bytes_of(self, party: str) -> bytes:
        """All that a party's files hold, what was written ahead included."""
        path = self.files[party]
        return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))

    def rows_of(self, party: str) -> list[str]:
        """All that a party's tables hold."""
        with sqlite3.connect(self.files[party]) as connection:
            return list(connection.iterdump())


@contextmanager
def opened(folder: Path) -> Iterator[Market]:
    """A market in this folder, with one epoch."""
    files = {"ads": folder / "ads.sqlite", "proxy": folder / "proxy.sqlite"}
    ads, proxied = SqlAdStore.open(files["ads"]), SqlBillingProxyStore.open(files["proxy"])
    try:
        found = Market(World(ads, proxied, source=Simulation(5)), files)
        found.world.open_epoch(found.menu)
        yield found
    finally:
        ads.close()
        proxied.close()


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    with opened(tmp_path) as found:
        yield found


def test_the_proxy_neither_holds_nor_passes_on_a_secret_in_the_clear(market: Market) -> None:
    turns = [market.turn(name, index, market.world.source) for name, index in enumerate((1, 3, 0, 2))]
    waiting = market.bytes_of("proxy")
    market.bill()
    seen = {kind: b"".join(sent) for kind, sent in market.sent.items()}
    held = {"store before the batch": waiting, "store after it": market.bytes_of("proxy"), **seen}
    for turn in turns:
        for name, secret in turn.kept_from_proxy().items():
            for where, data in held.items():
                if name == "context" and where.startswith("store"):
                    continue  # a directory lists all contexts, for everybody
                assert secret not in data, (name, where)
    assert turns[0].report.nonce in waiting  # the search finds what is there
    assert turns[0].secret in market.bytes_of("ads")


def test_requests_leave_nothing_in_the_ad_servers_store(market: Market) -> None:
    """Not a row changes; and once all is charged, nothing of a request is there."""
    before = market.rows_of("ads")
    turns = [market.turn(name, 2, market.world.source) for name in range(3)]
    assert market.rows_of("ads") == before
    market.bill()
    assert market.rows_of("ads") != before
    for turn in turns:
        for name, secret in turn.kept_from_stores_of_requests().items():
            assert secret not in market.bytes_of("ads"), name
            assert secret not in b"".join(market.sent["batch"]), name


def test_what_the_proxy_reads_of_a_report_is_the_same_for_every_choice(market: Market) -> None:
    """Version, menu, nonce and token are; the commitment is a hash with the secret; the rest is sealed."""
    turn = market.turn("one", 0, market.world.source)
    head = market.world.server.load_epoch(market.menu.epoch).head
    reports = [
        ImpressionReport.make(market.menu.menu_id, turn.secret, turn.token, index, head.sealing_key).to_bytes()
        for index in range(256)
    ]
    assert len({report[:321] for report in reports}) == 1
    assert {len(report) for report in reports} == {REPORT_BYTES}
    assert len({report[321:353] for report in reports}) == 256


def _receipts(folder: Path, chosen: Sequence[int], broke: bool = False) -> list[bytes]:
    folder.mkdir()
    with opened(folder) as market:
        if broke:
            market.world.ads.put_campaigns([Campaign(each, f"campaign {each}", 0) for each in CAMPAIGNS])
        for name, index in enumerate(chosen):
            market.turn(name, index, Simulation(name))
        market.bill()
        lines = market.world.ads.totals()
        assert sum(line.impressions for line in lines) == (chosen.count(0) if broke else len(chosen))
        return [Receipt.from_bytes(each).verdicts for each in market.sent["receipt"]]


def test_receipts_are_the_same_whatever_was_chosen_and_whoever_can_pay(tmp_path: Path) -> None:
    """A proxy that knows every address learns from receipts how many reports were good, and no more."""
    cases = [((1, 1, 1), False), ((3, 0, 2), False), ((0, 0, 0), False), ((1, 2, 3), True), ((1, 0, 3), True)]
    said = [_receipts(tmp_path / str(at), *case) for at, case in enumerate(cases)]
    assert said == [[bytes(3)]] * len(cases)


def test_nothing_secret_is_shown_or_logged(market: Market, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    turn = market.turn("shown", 3, market.world.source)
    market.bill()
    charge = StoredCharge(0, turn.report.nonce, 3, 3, 13, turn.secret, False, None)
    redeemed = RedeemedReport(BillVerdict.ACCEPTED, turn.report.nonce, 3, 3, 13, turn.secret)
    world = market.world
    epoch = world.ads.epoch(market.menu.epoch)
    shown = [
        turn.request, turn.blinded, turn.report, Opening(turn.secret, 3), charge, redeemed,
        world.server, world.proxy, epoch, world.server.load_epoch(market.menu.epoch).opening,
        world.server.load_epoch(market.menu.epoch).by_id[market.menu.menu_id].key,
        Offer((turn.signature,)), world.ads, world.proxied,
    ]  # fmt: skip
    said = [f"{each!r} {each}" for each in shown] + _refusals(market, turn)
    secrets = [turn.secret, turn.answer_key, turn.blinded.inverse]
    assert epoch is not None
    secrets += [epoch.sealing_key, epoch.menus[0].token_key]
    for text in said:
        for secret in secrets:
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text
            assert str(int.from_bytes(secret, "big")) not in text
    assert not any("index=3" in text for text in (repr(Opening(turn.secret, 3)), repr(turn.report)))
    assert PLACE not in repr(turn.request)
    assert caplog.records == []


def _refusals(market: Market, turn: Turn) -> list[str]:
    """What parties say of messages that hold secrets and are not good."""
    world, report = market.world, turn.report
    sealed = turn.request.sealed_to(REQUESTS.public)
    attempts: list[Callable[[], object]] = [
        lambda: world.server.offer(sealed[:-1], DURING),
        lambda: world.server.offer(turn.secret, DURING),
        lambda: world.server.redeem(turn.secret + report.to_bytes()),
        lambda: ImpressionReport.from_bytes(turn.secret),
        lambda: ImpressionReport.make(report.menu_id, turn.secret + b"x", turn.token, 3, bytes(32)),
        lambda: ImpressionReport.make(report.menu_id, turn.secret, turn.token, 300, bytes(32)),
        lambda: report.check_opening(Opening(turn.secret, 2)),
        lambda: Offer.decrypted(turn.secret, turn.answer_key),
        lambda: finalize(
            world.server.load_epoch(7).by_id[report.menu_id].listed.token_key, b"", turn.secret, b""
        ),
        lambda: token_nonce(turn.secret * 2),
        lambda: world.proxy.statement_for(turn.secret),
    ]
    said = []
    for attempt in attempts:
        with pytest.raises(TacitError) as refusal:
            attempt()
        said.append(f"{refusal.value} {refusal.value!r}")
        assert PLACE not in said[-1]
    return said


class Words:
    """A source whose next words are given; its bytes are always the same."""

    def __init__(self, *draws: Sequence[int]) -> None:
        self._draws = list(draws)

    def words(self, count: int) -> NDArray[np.uint64]:
        drawn = np.array(self._draws.pop(0), np.uint64)
        assert len(drawn) == count
        return drawn

    def bytes(self, n: int) -> bytes:
        return b"b" * n

    def exhausted(self) -> bool:
        return not self._draws


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_order_of_a_batch_is_exactly_as_likely(count: int) -> None:
    """All words of a small source: each order comes of as many of them, ties are drawn again."""
    orders: Counter[tuple[int, ...]] = Counter()
    redrawn = 0
    for words in itertools.product(range(count + 2), repeat=count):
        if len(set(words)) == count:
            orders[tuple(shuffled_order(count, Words(words)))] += 1  # type: ignore[arg-type]
        else:
            source = Words(words, range(count))
            assert shuffled_order(count, source) == list(range(count))  # type: ignore[arg-type]
            assert source.exhausted()
            redrawn += 1
    assert set(orders) == set(itertools.permutations(range(count)))
    assert len(set(orders.values())) == 1
    assert redrawn == (count + 2) ** count - sum(orders.values())


def _batches_of(folder: Path, arrival: Sequence[int]) -> tuple[Counter[tuple[bytes, ...]], list[list[str]]]:
    """For reports that come in this order, one a second: the batches by each of six draws, and what the proxy's
    tables hold then."""
    made: Counter[tuple[bytes, ...]] = Counter()
    rows = []
    for number, words in enumerate(itertools.permutations(range(3))):
        at = folder / "-".join(map(str, arrival)) / str(number)
        at.mkdir(parents=True)
        with opened(at) as market:
            proxy = market.world.proxy
            for second, place in enumerate(arrival):
                market.world.proxied.add_reports([_new(market.menu, place, DURING + second)])
            proxy.form_batches(DURING + 9, Words(words))  # type: ignore[arg-type]
            (batch_id,) = market.world.proxied.undelivered()
            stored = market.world.proxied.batch(batch_id)
            assert stored is not None
            made[stored.reports] += 1
            rows.append([row for row in market.rows_of("proxy") if "bill_proxy_directories" not in row])
    return made, rows


def _new(menu: PricedMenu, place: int, arrived: int) -> NewReport:
    """A report of the same bytes in every world: real ones hold keys that are drawn anew for each."""
    nonce = a_secret(place)
    return NewReport(nonce, menu.menu_id, b"\x01" + menu.menu_id + nonce + bytes(REPORT_BYTES - 65), arrived)


def test_batches_and_what_the_proxy_keeps_of_them_do_not_depend_on_who_came_first(tmp_path: Path) -> None:
    first, rows = _batches_of(tmp_path, (0, 1, 2))
    other, other_rows = _batches_of(tmp_path, (2, 0, 1))
    assert len(first) == 6
    assert first == other
    kept, also = ({_without_leaf(each) for each in some} for some in (rows, other_rows))
    assert len(kept) == 6
    assert kept == also


def _without_leaf(rows: list[str]) -> tuple[str, ...]:
    """A proxy's rows but for its directories, whose keys are drawn anew for each world."""
    return tuple(row for row in rows if "bill_proxy_menus" not in row)


def test_the_order_of_a_batch_is_drawn_after_its_reports_came(market: Market) -> None:
    """By the real source: whoever hands in reports cannot know their order, which no report decides."""
    key = market.world.server.load_epoch(market.menu.epoch).by_id[market.menu.menu_id].key
    assert key is not None
    head = market.world.server.load_epoch(market.menu.epoch).head
    reports = [a_report(market.menu, name, 1, key, sealing_key=head.sealing_key) for name in range(8)]
    market.world.proxy.take(reports, DURING)
    (statement,) = market.world.proxy.form_batches(DURING, Simulation("one"))
    stored = market.world.proxied.batch(statement.batch_id)
    assert stored is not None
    order = shuffled_order(8, Simulation("one"))
    assert stored.reports == tuple(reports[place] for place in order)
    assert order != list(range(8))
