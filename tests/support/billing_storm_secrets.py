"""What nobody may have learnt once a storm over billing is over: marked secrets are searched for everywhere.

Everywhere is: all bytes that crossed between parties, as a listener has them, and the parties' files, with what
SQLite wrote ahead. The harness holds all keys, so it can open what was sealed and look for that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import NullPool, create_engine, inspect, text

from tacit.bill.protocol.keys import OpeningKey
from tacit.bill.protocol.offers import OfferRequest
from tacit.bill.protocol.reports import REPORT_BYTES, ImpressionReport, choice_commitment
from tacit.bill.server.store import AdStore
from tests.support.billing_storm_checks import Evidence, StormDamage
from tests.support.billing_storm_devices import address_of
from tests.support.billing_storm_faults import PROXY, SERVER, Message
from tests.support.billing_storm_processes import ADS, ProcessStorm
from tests.support.billing_storm_town import CAMPAIGNS, PLACES, marked_rate
from tests.support.billing_storms import Storm
from tests.support.billing_worlds import REQUESTS

IN_ORDER_BY_CHANCE = 1e-9


@dataclass(frozen=True)
class Knowledge:
    """What each of the parties, and whoever listens between them, could have learnt."""

    crossed: Sequence[Message]
    proxy: bytes
    server: bytes


def files_of(folder: Path, name: str) -> bytes:
    """All files whose names begin so: a SQLite file and those beside it, or all of a party's."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"{name}*")) if path.is_file())


def private_marks(devices: int) -> dict[str, bytes]:
    """What never leaves a device: its rates and exact places, in every spelling."""
    marks = {f"exact place {place}": place.partition(">")[2].encode() for place in PLACES}
    for device in range(devices):
        for ad in CAMPAIGNS:
            rate = marked_rate(device, ad)
            for order in "<>":
                marks[f"rate {device} {ad} {order}"] = struct.pack(f"{order}d", rate)
            marks[f"rate {device} {ad} in digits"] = repr(rate).encode()
    return marks


def check_secrecy(storm: Storm) -> None:
    """Raises `StormDamage` where a secret lies where it must not, or an order was kept."""
    secrets = {
        f"secret of a token of {name}": record.secret
        for name, commits in storm.commits.items()
        for commit in commits
        for record in commit.records
        if record.secret
    }
    storm.end()  # whoever closes a store empties what it wrote ahead
    known = Knowledge(
        storm.network.captured, files_of(storm.folder, "reports.sqlite"), files_of(storm.folder, "ads.sqlite")
    )
    crossed = b"".join(part for message in known.crossed for part in (message.asked, message.answered))
    damage = [
        *_found(
            private_marks(len(storm.names)), {"transit": crossed, PROXY: known.proxy, SERVER: known.server}
        ),
        *_found(secrets, {"transit": crossed, PROXY: known.proxy}),
        *_requests(known, crossed, REQUESTS),
        *_reports(known),
    ]
    if damage:
        raise StormDamage("\n".join(sorted(set(damage))))


def check_process_secrecy(storm: ProcessStorm, evidence: Evidence) -> None:
    """The same of processes that have ended: what crossed the relays, what stores and logs hold."""
    devices = range(len(evidence.devices))
    secrets = {
        f"secret of token {row.nonce.hex()[:16]}": row.secret
        for batch in evidence.ads.batches()
        for row in evidence.ads.charges_of(batch.batch_id)
    }
    secrets |= {
        f"secret of a token of {name}": record.secret
        for name, device in evidence.devices.items()
        for record in device.records()
        if record.secret
    }
    addresses = {f"address of device {number}": address_of(number).encode() for number in devices}
    transit = {relay.link: bytes(relay.asked + relay.answered) for relay in storm.relays}
    parties = {
        PROXY: files_of(storm.folder, "proxy") + rows_of(storm.stores[PROXY]),
        SERVER: files_of(storm.folder, "server") + files_of(storm.folder, "ads") + rows_of(storm.stores[ADS]),
    }
    assert all(transit.values()), "nobody listened"
    damage = [
        *_found(private_marks(len(devices)), transit | parties),
        *_found(secrets, transit | {PROXY: parties[PROXY]}),
        *_found(addresses, transit | parties),
    ]
    if damage:
        raise StormDamage("\n".join(sorted(set(damage))))


def rows_of(where: str) -> bytes:
    """All rows of all tables of a store, one behind the other."""
    engine = create_engine(where if "://" in where else f"sqlite:///{where}", poolclass=NullPool)
    found = bytearray()
    with engine.connect() as connection:
        for name in inspect(connection).get_table_names():
            for row in connection.execute(text(f"SELECT * FROM {name}")):
                for value in row:
                    found += value if isinstance(value, bytes) else str(value).encode()
    return bytes(found)


def _found(needles: Mapping[str, bytes], haystacks: Mapping[str, bytes]) -> list[str]:
    return [
        f"{what} lies open in {where}"
        for where, haystack in haystacks.items()
        for what, needle in needles.items()
        if needle in haystack
    ]


def _requests(known: Knowledge, crossed: bytes, opening: OpeningKey) -> list[str]:
    """What a request had in it is kept nowhere, so that nothing of it can be found again in a report."""
    sealed = [each.asked for each in known.crossed if each.link == f"{PROXY}>{SERVER} offer"]
    lengths: dict[int, set[int]] = {}
    needles: dict[str, bytes] = {}
    for number, data in enumerate(sealed):
        request = OfferRequest.opened_by(opening, data)
        lengths.setdefault(len(request.blinded), set()).add(len(data))
        needles |= {f"request {number}": data[-64:], f"answer key {number}": request.answer_key}
        needles |= {f"blinded message {number} {place}": each for place, each in enumerate(request.blinded)}
    inside = {what: needle for what, needle in needles.items() if not what.startswith("request")}
    damage = _found(needles, {PROXY: known.proxy, SERVER: known.server}) + _found(inside, {"transit": crossed})
    if any(len(each) > 1 for each in lengths.values()):
        damage.append("requests for as many tokens are of different lengths")
    return damage


def _reports(known: Knowledge) -> list[str]:
    """What the proxy has of a report is of one length, tells nothing of the choice, and goes when it leaves."""
    damage = []
    for message in known.crossed:
        if not message.link.endswith(" report"):
            continue
        if len(message.asked) != REPORT_BYTES:
            damage.append(f"a report of {len(message.asked)} bytes")
        report = ImpressionReport.from_bytes(message.asked)
        if message.asked[-64:] in known.proxy:
            damage.append("a report that has left is still in the proxy's file")
        guesses = [report.nonce, report.menu_id, report.commitment, *_pieces(report.token), bytes(32)]
        for index in range(len(CAMPAIGNS) + 1):
            if report.commitment in {choice_commitment(guess, index) for guess in guesses}:
                damage.append("the proxy can find out a choice by trying")
    return damage


def _pieces(data: bytes) -> Iterable[bytes]:
    return (data[at : at + 32] for at in range(0, len(data), 32))


def check_orders(crossed: Sequence[Message], ads: AdStore) -> None:
    """Raises `StormDamage` where all batches were in the order in which their reports came: shuffled, they are
    that with a chance of at most `IN_ORDER_BY_CHANCE`."""
    came: dict[bytes, int] = {}
    for message in crossed:
        if message.link.endswith(" report"):
            came.setdefault(ImpressionReport.from_bytes(message.asked).nonce, len(came))
    chance, in_order = 1.0, True
    for batch in ads.batches():
        reports = [batch.data[at : at + REPORT_BYTES] for at in range(0, len(batch.data), REPORT_BYTES)]
        places = [came[ImpressionReport.from_bytes(each).nonce] for each in reports]
        chance /= math.factorial(len(places))
        in_order = in_order and places == sorted(places)
    assert chance <= IN_ORDER_BY_CHANCE, f"too few reports in large batches to tell: {chance}"
    if in_order:
        raise StormDamage("all batches are in the order in which their reports came")
