"""Rounds, their noise and their questions: consistent or refused, and equal exactly if their bytes are."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import msgpack
import numpy as np
import pytest

from tacit.errors import BadInput, Refused
from tacit.gather.protocol.encoding import MessageVerdict, fraction_text, parse_fraction
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.gather.protocol.promises import CountBounds, Promise, promise_from_plain
from tacit.gather.protocol.rounds import MOST_CELLS, Question, Round, report_binding
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.privacy.units import Relation, UnitKind
from tests.support.gather_rounds import PROMISE, PROXY_KEY, QUESTION, a_round

CHANGES: dict[str, Any] = {
    "task": "another", "level": 1, "cells": 14, "question": bytes(32), "group": Group.FIELD64,
    "opens": 1_700_000_001, "closes": 1_700_086_401, "skew": 61, "parties": 1001, "smallest_batch": 101,
    "noise": ServerNoise(Skellam(Fraction(1286))), "bounds": CountBounds(4, 7), "scope": "other",
    "promise": replace(PROMISE, epsilon=Fraction(7)), "check": b"c" * 32,
    "proxy_key": b"p" * 32, "server_key": b"s" * 32,
}  # fmt: skip


def test_rounds_are_equal_exactly_if_their_bytes_are() -> None:
    base = a_round(group=Group.FIELD64, bounds=CountBounds(4, 8))
    assert {field.name for field in fields(Round)} == CHANGES.keys()
    others = [replace(base, **{name: each}) for name, each in CHANGES.items() if name != "group"]
    plain = replace(base, bounds=None, check=bytes(32))
    others += [plain, replace(plain, group=Group.RING64), base]
    assert len({each.digest for each in others}) == len({each.to_bytes() for each in others}) == len(others)
    for one in others:
        for other in others:
            assert (one == other) == (one.to_bytes() == other.to_bytes())
    as_written = a_round(
        level=np.int64(0),
        promise=Promise(np.int64(4), 4, 8, 6, "0.000000001"),  # type: ignore[arg-type]
        noise=ServerNoise(Skellam(Fraction("1285.0"))),
        group="ring64",
    )
    assert as_written == a_round()
    assert as_written.to_bytes() == a_round().to_bytes()


def test_a_fraction_has_one_spelling() -> None:
    for number in (Fraction(0), Fraction(1, 3), Fraction(-7, 2), Fraction(10**300, 10**300 + 1)):
        assert parse_fraction(fraction_text(number)) == number
    for text in (
        "1",
        "01/2",
        "1/02",
        "+1/2",
        " 1/2",
        "1/2\n",
        "1/0",
        "1e3/1",
        "-0/1",
        "1_0/1",
        "٣/1",
        0.5,
        b"1/2",
        "",
    ):
        with pytest.raises(BadInput):
            parse_fraction(text)
    unreduced = msgpack.unpackb(a_round().to_bytes())
    assert unreduced[15] == [4, 4, 8, "6/1", "1/1000000000"]
    unreduced[15][3] = "12/2"
    with pytest.raises(Refused) as refusal:
        Round.from_bytes(msgpack.packb(unreduced))
    assert refusal.value.reason is MessageVerdict.MALFORMED
    with pytest.raises(BadInput, match="at most 1024"):
        fraction_text(Fraction(1, 10**1200))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"closes": 1_700_000_000}, "closes > opens"),
        ({"smallest_batch": 1001}, "smallest_batch <= parties"),
        ({"smallest_batch": 0}, "smallest_batch"),
        ({"cells": 0}, "cells"),
        ({"cells": 2**20 + 1}, "cells"),
        ({"level": -1}, "level"),
        ({"level": True}, "level"),
        ({"opens": "noon"}, "opens"),
        ({"skew": -1}, "skew"),
        ({"level": 8}, "below the 8 levels"),
        ({"parties": 2**53, "promise": replace(PROMISE, events=2**10, each=2**10)}, "room for sums"),
        ({"group": Group.RING32, "parties": 2**29}, "room for sums"),
        ({"group": "ring16"}, "one of"),
        ({"task": ""}, "task"),
        ({"task": "x" * 101}, "task"),
        ({"scope": "a\nb"}, "scope"),
        ({"question": b"short"}, "question to be 32 bytes, got 5"),
        ({"server_key": PROXY_KEY.public}, "two keys"),
        ({"proxy_key": b""}, "proxy_key"),
        ({"promise": None}, "a Promise"),
        ({"check": b"c" * 32}, "check key exactly where"),
        ({"bounds": CountBounds(4, 8), "check": bytes(32), "group": Group.FIELD64}, "check key exactly where"),
        ({"check": b""}, "check to be 32 bytes"),
        ({"noise": Skellam(Fraction(4))}, "ServerNoise or UserNoise"),
        ({"noise": UserNoise(SkellamShares(Fraction(4), 999))}, "shares of 1000 parties"),
        ({"noise": UserNoise(SkellamShares(Fraction(4), 1000))}, "do without any one device"),
        ({"bounds": CountBounds(4, 8)}, "field64"),
        (
            {
                "bounds": CountBounds(4, 8),
                "group": Group.FIELD64,
                "noise": UserNoise(SkellamShares(Fraction(4), 1000, Fraction(1, 1000))),
            },
            "by servers",
        ),
        ({"bounds": CountBounds(3, 8), "group": Group.FIELD64}, "as promised"),
        ({"bounds": CountBounds(5, 8), "group": Group.FIELD64}, "as promised"),
        ({"bounds": CountBounds(4, 9), "group": Group.FIELD64}, "as promised"),
    ],
)
def test_a_round_that_contradicts_itself_cannot_be_made(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        a_round(**changes)


def test_the_group_has_room_for_every_honest_sum_and_its_noise() -> None:
    once = {"group": Group.RING32, "promise": replace(PROMISE, each=1)}
    parties = 2**31 - 1 - 609  # 12 standard deviations of two Skellam(1285) are 608.3
    a_round(**once, parties=parties)
    with pytest.raises(BadInput, match="room"):
        a_round(**once, parties=parties + 1)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (15, [4, 4, 8, "6/1"]), (15, [4, 4, 8, 6, 0]), (15, [4, 5, 8, "6/1", "0/1"]),
        (15, [4, 4, True, "6/1", "0/1"]),
        (15, [4, 4, 8, "0/1", "0/1"]), (15, [4, 4, 8, "6/1", "1/1"]), (15, [4, 4, 0, "6/1", "0/1"]),
        (15, [4, 4, 101, "6/1", "0/1"]), (15, [2**21, 4, 8, "6/1", "0/1"]), (15, [2**20, 1, 8, "6/1", "0/1"]),
        (16, b"short"),
        (13, [4]), (13, [4, 8, 8]), (13, ["4", "8"]),
        (13, [True, 8]), (13, [0, 8]), (12, []), (12, ["servers", "polya", "4/1"]),
        (12, ["users", "skellam", "4/1"]),
        (12, ["servers", "skellam", "-4/1"]), (12, ["users", "skellam", "4/1", True, "0/1"]),
        (12, ["users", "skellam", "4/1", 1000, "1/1"]), (12, ["nobody", "skellam", "4/1"]),
    ],
)  # fmt: skip
def test_a_round_of_odd_parts_is_refused(place: int, value: Any) -> None:
    plain = msgpack.unpackb(a_round(group=Group.FIELD64, bounds=CountBounds(4, 8)).to_bytes())
    assert (plain[12][0], plain[13], plain[15][0], len(plain[16])) == ("servers", [4, 8], 4, 32)
    plain[place] = value
    with pytest.raises(Refused) as refusal:
        Round.from_bytes(msgpack.packb(plain))
    assert refusal.value.reason is MessageVerdict.MALFORMED


def test_a_round_names_its_line_and_its_entry() -> None:
    round = a_round(level=3)
    assert round.key == "gather/clicks of a week/3"
    assert (round.line.scope, round.line.unit.kind, round.line.relation) == (
        "clicks",
        UnitKind.DEVICE,
        Relation.ZERO_OUT,
    )
    assert report_binding(round.digest, b"i" * 16) == round.digest + b"i" * 16
    with pytest.raises(BadInput):
        report_binding(round.digest, b"i" * 15)


def test_who_adds_which_noise() -> None:
    law = DiscreteGaussian(Fraction(100))
    servers = ServerNoise(law)
    assert servers.device_law is None
    assert servers.server_law(0) == servers.server_law(500) == law
    assert servers.published_variance(7) == servers.most_variance == 200.0
    small = ServerNoise(DiscreteGaussian(Fraction(1, 4)))  # where sigma squared is not the variance
    assert small.published_variance(1) == 2 * DiscreteGaussian(Fraction(1, 4)).variance < 0.5
    for shares in (
        SkellamShares(Fraction(90), 100, Fraction(1, 10)),
        PolyaShares(Fraction(9), 100, Fraction(1, 2)),
    ):
        users = UserNoise(shares)
        assert users.device_law == shares.share
        assert users.server_law(100) is None
        assert users.server_law(80) == shares.missing_law(80)
        variances = [users.published_variance(answered) for answered in range(101)]
        assert variances == [shares.total_variance(answered) for answered in range(101)]
        assert users.most_variance == max(variances)


def test_noise_that_cannot_be_drawn_is_refused() -> None:
    for parameter in (Fraction(10**12), Fraction(10**500), Fraction(1, 10**7), Fraction(1, 10**600)):
        for law in (Skellam(parameter), DiscreteGaussian(parameter), DiscreteLaplace(parameter)):
            with pytest.raises(BadInput):
                ServerNoise(law)
        with pytest.raises(BadInput):
            UserNoise(PolyaShares(parameter, 10))
    with pytest.raises(BadInput, match="law"):
        ServerNoise(PolyaShares(Fraction(4), 10).share)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="Shares"):
        UserNoise(Skellam(Fraction(1)))  # type: ignore[arg-type]


def test_a_question_lays_out_its_cells() -> None:
    assert QUESTION.cells == 3 + 2 * 5
    cells = np.arange(QUESTION.cells)
    parts = (cells[QUESTION.totals], cells[QUESTION.clicks], cells[QUESTION.no_clicks])
    assert [len(each) for each in parts] == [3, 5, 5]
    assert np.concatenate(parts).tolist() == cells.tolist()
    assert QUESTION.entry_node.tolist() == [0, 0, 2, 2, 2]
    read = Question.from_bytes(QUESTION.to_bytes())
    assert (read.levels, read.digest) == (QUESTION.levels, QUESTION.digest)
    assert all((getattr(read, name) == getattr(QUESTION, name)).all() for name in ("nodes", "offsets", "ad"))


def test_a_question_of_odd_columns_or_too_many_cells_is_refused() -> None:
    plain = msgpack.unpackb(QUESTION.to_bytes())
    plain[3] = plain[3][:-1]
    with pytest.raises(Refused) as refusal:
        Question.from_bytes(msgpack.packb(plain))
    assert refusal.value.reason is MessageVerdict.MALFORMED
    nodes = MOST_CELLS + 1
    with pytest.raises(BadInput, match="cells"):
        Question((0,), np.arange(nodes), np.zeros(nodes + 1, np.int64), np.zeros(0, np.int64))


def test_a_device_answers_the_question_that_the_round_names() -> None:
    assert Question.of_round(a_round(), QUESTION.to_bytes()).digest == QUESTION.digest
    another = replace(QUESTION, nodes=np.array([2, 5, 8]))
    for round, question in ((a_round(), another), (a_round(cells=12), QUESTION)):
        with pytest.raises(Refused) as refusal:
            Question.of_round(round, question.to_bytes())
        assert refusal.value.reason is MessageVerdict.CONFLICT


def test_a_promise_for_totals_alone_is_spelled_out_and_takes_no_question_about_ads() -> None:
    both, totals = a_round(), replace(QUESTION, offsets=np.zeros(4, np.int64), ad=np.zeros(0, np.int64))
    alone = replace(both.promise, totals_only=True)
    assert promise_from_plain(alone.to_plain()) == alone != both.promise
    assert alone.to_plain()[:5] == both.promise.to_plain()  # others are spelled as ever
    for wrong in ("clicks", 1, ""):
        with pytest.raises(BadInput, match="expected a promise"):
            promise_from_plain((*both.promise.to_plain(), wrong))
    asked = replace(both, promise=alone, cells=totals.cells, question=totals.digest)
    assert Round.from_bytes(asked.to_bytes()) == asked
    assert asked.most_in_all == alone.events == both.most_in_all // 2
    assert Question.of_round(asked, totals.to_bytes()).entries == 0
    with pytest.raises(Refused, match="totals alone") as refusal:
        Question.of_round(replace(both, promise=alone), QUESTION.to_bytes())
    assert refusal.value.reason is MessageVerdict.CONFLICT


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": np.array([2, 2, 9])},
        {"nodes": np.array([-1, 5, 9])},
        {"nodes": np.array([2.0, 5.0, 9.0])},
        {"nodes": np.zeros(0, np.int64), "offsets": np.zeros(1, np.int64), "ad": np.zeros(0, np.int64)},
        {"offsets": np.array([0, 2, 5])},
        {"offsets": np.array([1, 2, 2, 5])},
        {"offsets": np.array([0, 2, 2, 4])},
        {"offsets": np.array([0, 3, 2, 5])},
        {"ad": np.array([7, 1, 0, 1, 4])},
        {"ad": np.array([1, 1, 0, 1, 4])},
        {"ad": np.array([-1, 7, 0, 1, 4])},
        {"ad": None},
        {"levels": (3, -1)},
        {"levels": ()},
        {"levels": (True, 0)},
        {"levels": [3, 0]},
    ],
)
def test_a_question_that_contradicts_itself_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        replace(QUESTION, **changes)
