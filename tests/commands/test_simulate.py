"""`tacit simulate`: a market of one's own, its figures, its charges, and everything that it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tacit.cli import main
from tacit.deliver.auction.blocks import BidEvent
from tacit.deliver.auction.config import load_simulation
from tacit.deliver.auction.logs import AuctionLog

COLUMNS = """
[market]
log = "log.parquet"
[columns]
auction = "id"
campaign = "campaign"
bid = "bid"
click = "public"
private_click = "device"
"""
CHOICES = """
[[choice]]
mechanism = "rr"
epsilon = [1, 5]
"""
GENERATED = """
[market]
generated = "display"
auctions = 300
"""


def log(**changes: Any) -> pa.Table:
    """Three auctions of two, three and one candidates."""
    columns: dict[str, Any] = {
        "id": ["a", "a", "b", "b", "b", "c"],
        "campaign": [1, 2, 1, 2, 3, 3],
        "bid": [1.0, 2.0, 1.0, 1.5, 0.5, 3.0],
        "kind": ["click", "click", "click", "impression", "conversion", "click"],
        "public": [0.05, 0.02, 0.04, 0.03, 0.02, 0.01],
        "device": [0.01, 0.06, 0.02, 0.03, 0.09, 0.02],
        "sale": [0.1] * 6,
        "device_sale": [0.2] * 6,
        "user": [7, 7, 7, 7, 7, 8],
    }
    return pa.table({**columns, **changes})


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(text: str, table: pa.Table | None = None) -> str:
        pq.write_table(log() if table is None else table, tmp_path / "log.parquet")
        place = tmp_path / "market.toml"
        place.write_text(text)
        return str(place)

    return write


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["simulate", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], place: str) -> str:
    assert main(["simulate", place]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_figures_are_those_one_works_out_by_hand(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, config(COLUMNS + CHOICES))
    by_name = {each["name"]: each for each in found["choices"]}
    assert list(by_name) == ["non-personalised", "greedy", "rr at 1", "rr at 5"]
    # Public scores: a .05 > .04, b .045 > .04 > .01, c alone. Private: a .12, b .045 (of .02, .045, .045), c.
    assert by_name["non-personalised"]["ctr"]["value"] == pytest.approx((0.01 + 0.03 + 0.02) / 3)
    assert by_name["greedy"]["ctr"]["value"] == pytest.approx((0.06 + 0.03 + 0.02) / 3)
    truth, lie = np.e / (1 + np.e), 1 / (1 + np.e)
    b = (np.e * 0.03 + 0.02 + 0.09) / (2 + np.e)
    assert by_name["rr at 1"]["ctr"]["value"] == pytest.approx((truth * 0.06 + lie * 0.01 + b + 0.02) / 3)
    assert by_name["rr at 1"]["epsilon"] == pytest.approx(1)
    assert by_name["greedy"]["epsilon"] is None
    assert found["auctions"] == 3
    for each in found["choices"]:
        parts = [each[name]["value"] for name in ("surplus", "revenue", "welfare")]
        assert parts[0] + parts[1] == pytest.approx(parts[2])


def test_the_table_names_both_ends_and_their_lifts(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", config(GENERATED + CHOICES)]) == 0
    page = capsys.readouterr().out
    assert "synthetic" in page
    assert page.count("greedy") == 2
    assert page.count("non-personalised") == 2
    assert "no privacy" in page


def test_bid_kinds_come_from_a_column_in_the_order_of_the_rows(config: Any, monkeypatch: Any) -> None:
    kinds = 'bid_kind = "kind"\nconversion = "sale"\nprivate_conversion = "device_sale"\n'
    market = load_simulation(config(COLUMNS + kinds)).market
    assert isinstance(market, AuctionLog)

    def read(rows: int) -> tuple[int, list[int], list[float]]:
        pieces = [piece.public for piece in market.blocks(rows)]
        codes = np.concatenate([np.asarray(piece.bids_for) for piece in pieces]).tolist()
        return len(pieces), codes, np.concatenate([piece.event_rate for piece in pieces]).tolist()

    _, codes, rates = read(100)
    assert [str(list(BidEvent)[code]) for code in codes] == log()["kind"].to_pylist()
    assert rates == pytest.approx([0.05, 0.02, 0.04, 1.0, 0.002, 0.01])
    monkeypatch.setattr("tacit.deliver.auction.logs.ROWS_PER_BLOCK", 1)
    pieces, again, _ = read(2)
    assert pieces > 2
    assert again == codes


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_charges_add_up_and_hold_nothing_private(
    ending: str, config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = COLUMNS + CHOICES + f'[charges]\nfile = "charges.{ending}"\nchoice = "rr at 5"\nseed = 3\n'
    told = run(capsys, config(text))["charges"]
    place = tmp_path / f"charges.{ending}"
    table = pq.read_table(place) if ending == "parquet" else pa_csv.read_csv(place)
    assert table.column_names == [
        "auction", "campaign", "price_micros", "due_on", "public_rank", "price_set_by", "rule",
    ]  # fmt: skip
    assert table["auction"].to_pylist() == ["a", "b", "c"]
    assert set(table["due_on"].to_pylist()) == {"click"}
    assert table["price_set_by"].to_pylist()[-1] == "reserve", "nobody else was there"
    assert table.num_rows == told["lines"] == 3
    assert sum(table["price_micros"].to_pylist()) == told["total_micros"]
    again = run(capsys, config(text), "--overwrite")["charges"]
    assert again == told, "the same seed draws the same choices"
    assert not list(tmp_path.glob(".charges*"))


def test_the_bill_of_a_generated_market_can_be_judged(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Campaigns come again, and the bill says of the largest what they were shown and owe."""
    charges = '[charges]\nfile = "charges.parquet"\nchoice = "rr at 5"\nseed = 3\n'
    text = GENERATED.replace("300", "2_000") + CHOICES
    told = run(capsys, config(text + charges))
    table = pq.read_table(tmp_path / "charges.parquet")
    grouped = table.group_by("campaign").aggregate([("price_micros", "sum"), ("price_micros", "count")])
    owed = sorted(zip(*grouped.to_pydict().values(), strict=True), key=lambda each: -each[1])
    assert told["charges"]["lines"] == len(table) == 2_000
    assert 100 < told["charges"]["campaigns"] == len(owed) <= 200
    assert len(told["charges"]["largest"]) == 10
    for line, (campaign, total, count) in zip(told["charges"]["largest"], owed, strict=False):
        assert (line["campaign"], line["impressions"], line["total_micros"]) == (campaign, count, total)
        assert line["mean_price_micros"] == pytest.approx(total / count)
    assert max(count for _, _, count in owed) > 50
    # Names alone were laid over the auctions: every figure stays what it was.
    fewer = run(capsys, config(text.replace("auctions", "campaigns = 50\nauctions") + charges), "--overwrite")
    assert fewer["choices"] == told["choices"]
    assert fewer["charges"]["total_micros"] == told["charges"]["total_micros"]
    assert fewer["charges"]["campaigns"] <= 50
    assert main(["simulate", config(text + charges), "--overwrite"]) == 0
    page = capsys.readouterr().out
    assert "200 synthetic campaigns" in page
    for words in ("campaign", "impressions", "mean price", f"{len(owed) - 10} others", "all"):
        assert words in page


def test_a_refused_row_leaves_no_charges(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = COLUMNS + '[charges]\nfile = "charges.csv"\nchoice = "non-personalised"\n'
    assert "auction b" in refusal(capsys, config(text, log(bid=[1.0, 2.0, 1.0, -1.5, 0.5, 3.0])))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["log.parquet", "market.toml"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bid": [1.0, 2.0, 1.0, -1.5, 0.5, 3.0]}, "auction b: expected a bid in 0..9,007,199,254 currency"),
        ({"bid": [1.0, 2.0, 1.0, 1e18, 0.5, 3.0]}, "(2^53 micros) in bid, got 1e+18"),
        ({"bid": [1.0, 2.0, 1.0, 1.0, float("nan"), 3.0]}, "in bid, got nan"),
        ({"campaign": [1, 2, -4, 2, 3, 3]}, "auction b: expected campaigns >= 0 in campaign, got -4"),
        ({"user": [7, 7, 7, 9, 7, 8]}, "auction b: expected one user for all its rows in user, got another"),
        ({"public": [0.05, 0.02, 0.04, 1.5, 0.02, 0.01]}, "auction b: expected a public click probability"),
        ({"device": [0.05, 0.02, 0.04, 0.1, 0.02, float("nan")]}, "auction c: expected a private click"),
        ({"device": [0.05, 0.02, 0.04, None, 0.02, 0.1]}, "auction b: expected a value in device, got none"),
        ({"bid": ["1", "2", "3", "4", "5", "6"]}, "expected numbers in column bid, got string"),
        ({"campaign": [1.0] * 6}, "expected whole numbers in column campaign, got double"),
    ],
)
def test_bad_rows_are_refused_by_their_auction(
    changes: Any, words: str, config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal(capsys, config(COLUMNS + 'user = "user"\n', log(**changes)))


def test_bad_kinds_are_refused_by_their_auction(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = COLUMNS + 'bid_kind = "kind"\n'
    assert "auction b: expected a column of public conversion rates" in refusal(capsys, config(kinds))
    wrong = log(kind=["click", "view", *["click"] * 4])
    assert "auction a: expected one of impression, click, conversion in kind" in refusal(
        capsys, config(kinds, wrong)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GENERATED + "[markets]\n", "unknown key 'markets': did you mean 'market'?"),
        (GENERATED + "[auction]\ngama = 1\n", "did you mean 'gamma'?"),
        (GENERATED + "[auction]\ngamma = 1.5\n", "expected gamma in [0, 1]"),
        (GENERATED + '[[choice]]\nmechanism = "rr"\nepsilon = 0\n', "epsilon > 0"),
        (GENERATED + '[[choice]]\nmechanism = "rr"\nepsilon = 1\nspread = 1\n', "keys that rr reads"),
        (GENERATED + '[[choice]]\nmechanism = "trun"\nepsilon = 1\n', "did you mean 'trunc'?"),
        (GENERATED + CHOICES + CHOICES, "got 'rr at 1' again"),
        (GENERATED + '[charges]\nfile = "c.txt"\nchoice = "greedy"\n', "ending in .parquet or .csv"),
        (GENERATED + '[charges]\nfile = "c.csv"\nchoice = "rr at 5"\n', "charges.choice: expected one of"),
        (
            GENERATED + CHOICES + '[charges]\nfile = "c.csv"\nchoice = "greedy"\n',
            "expected a private choice (rr at 1, rr at 5, non-personalised), got 'greedy'",
        ),
        (GENERATED + '[charges]\nfile = "no/c.csv"\nchoice = "non-personalised"\n', "a folder that exists"),
        (GENERATED + '[charges]\nfile = "/proc/c.csv"\nchoice = "non-personalised"\n', "can be written"),
        (GENERATED + '[auction]\ncharged = "conversion"\n', "whatever a bid is for, conversions too"),
        (
            GENERATED + '[[choice]]\nmechanism = "rr"\nepsilon = 1\nkept = 2\ntop = 3\n',
            "at most kept = 2, got 3",
        ),
        (
            GENERATED + '[[choice]]\nmechanism = "trunc"\nepsilon = 1\nspread = 100\n',
            "choice 1.spread: expected",
        ),
        (COLUMNS + 'bids_for = "conversion"\n', "columns.conversion: expected the name of a column"),
        (COLUMNS + 'private = ["publicc"]\n', "expected columns publicc, got only id, campaign"),
        (
            COLUMNS.replace('campaign = "campaign"\n', "")
            + '[charges]\nfile = "c.csv"\nchoice = "non-personalised"\n',
            "columns.campaign: expected the name of a column, for charges",
        ),
        (COLUMNS.replace("log.parquet", "none.parquet"), "expected a Parquet file, got none"),
        (COLUMNS.replace("log.parquet", "market.toml"), "expected a Parquet file, got another kind"),
        (
            GENERATED + '[[choice]]\nmechanism = "gumbel"\nepsilon = 5\n'
            '[charges]\nfile = "c.csv"\nchoice = "gumbel at 5"\n',
            "for measuring only",
        ),
        (COLUMNS.replace('"public"', '"device"'), "expected a public column to price by"),
        (COLUMNS + 'bid_kind = "device"\n', "bid_kind: expected a public column"),
        (COLUMNS.replace('"bid"', '"bids"'), "got only id, campaign, bid, kind"),
        ("[market]\n", "expected either log or generated"),
        (GENERATED + "campaigns = 39\n", "expected market.campaigns to be a whole number >= 40, got 39"),
        (GENERATED + "popularity = -1\n", "market: expected popularity >= 0, got -1"),
        (
            COLUMNS.replace("[columns]", "campaigns = 90\n[columns]"),
            "market.campaigns: expected no such key for a log",
        ),
        ("market = [", "expected TOML"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_one_line(
    text: str, words: str, config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal(capsys, config(text))


BY_RANK = ["impression", "click", "conversion"]


@pytest.mark.parametrize(
    ("charged", "price", "due_on", "prices", "set_by"),
    [
        # Scores: 1 x .5, 1 x 1, .9 x .5 x .5 an impression. Rank: impression 1., click .5, conversion .225.
        (
            "click",
            "second",
            ["impression", "click", "conversion"],
            [0.5, 0.45, 0.0],
            ["campaign 1", "campaign 3"],
        ),
        ("click", "first", ["impression", "click", "conversion"], [1.0, 1.0, 0.9], ["own bid", "own bid"]),
        ("impression", "second", ["impression"] * 3, [0.5, 0.225, 0.0], ["campaign 1", "campaign 3"]),
        ("impression", "first", ["impression"] * 3, [1.0, 0.5, 0.225], ["own bid", "own bid"]),
    ],
)
def test_each_line_says_what_it_is_due_on_and_who_set_its_price(
    charged: str, price: str, due_on: list[str], prices: list[float], set_by: list[str],
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The public best, then the same without it, and so on: what each kind of bid pays under each rule."""
    three: dict[str, list[Any]] = {
        "campaign": [1, 2, 3],
        "bid": [1.0, 1.0, 0.9],
        "kind": ["click", "impression", "conversion"],
    }
    rank = [1, 0, 2]  # the order by public score
    found = []
    for first in range(3):
        here = rank[first:]
        table = pa.table(
            {
                "id": [10] * len(here) + [11],
                **{name: [values[at] for at in [*here, 0]] for name, values in three.items()},
                **dict.fromkeys(("public", "device", "sale", "device_sale"), [0.5] * (len(here) + 1)),
            }
        )
        kinds = 'bid_kind = "kind"\nconversion = "sale"\nprivate_conversion = "device_sale"\n'
        rules = f'[auction]\nprice = "{price}"\ncharged = "{charged}"\n'
        asked = '[charges]\nfile = "charges.parquet"\nchoice = "non-personalised"\n'
        run(capsys, config(COLUMNS + kinds + rules + asked, table), "--overwrite")
        found.append(pq.read_table(tmp_path / "charges.parquet").to_pylist()[0])
    assert [line["due_on"] for line in found] == due_on
    assert [line["rule"] for line in found] == [f"{price} price per {event}" for event in due_on]
    assert [line["price_micros"] for line in found] == [round(1e6 * each) for each in prices]
    assert [line["price_set_by"] for line in found][:2] == set_by
    assert [line["auction"] for line in found] == [10] * 3


def test_charges_never_replace_what_is_there_unasked(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def asking(file: str) -> Any:
        return config(COLUMNS + f'[charges]\nfile = "{file}"\nchoice = "non-personalised"\n')

    place = asking("log.parquet")
    before = (tmp_path / "log.parquet").read_bytes()
    assert "the market's own log" in refusal(capsys, place)
    assert main(["simulate", place, "--overwrite"]) == 2
    assert (tmp_path / "log.parquet").read_bytes() == before
    (tmp_path / "kept.csv").write_text("mine")
    capsys.readouterr()
    assert "which exists; say --overwrite" in refusal(capsys, asking("kept.csv"))
    assert (tmp_path / "kept.csv").read_text() == "mine"
    assert main(["simulate", asking("kept.csv"), "--overwrite"]) == 0
    assert (tmp_path / "kept.csv").read_text() != "mine"


def test_greedy_charges_are_written_where_they_are_meant(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, config(COLUMNS + '[charges]\nfile = "c.csv"\nchoice = "greedy"\nnot_private = true\n'))
    assert (tmp_path / "c.csv").exists()


def test_a_log_whose_auctions_are_torn_is_told(
    config: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = log().take([0, 2, 1, 3, 5, 4])
    whole = AuctionLog.blocks
    for rows in (100, 1):
        monkeypatch.setattr(AuctionLog, "blocks", lambda log, n=rows: whole(log, n))
        assert main(["simulate", config(COLUMNS + CHOICES, torn)]) == 0
        said = capsys.readouterr().err
        assert "3 of 6 auctions have an id that came before" in said
        assert "sort the log by id" in said
    assert main(["simulate", config(COLUMNS + CHOICES)]) == 0
    assert not capsys.readouterr().err
    assert main(["simulate", config(COLUMNS + "[auction]\nreserve_micros = 10000000\n")]) == 0
    said = capsys.readouterr().err
    assert "no public score reached auction.reserve_micros = 10,000,000" in said
    assert "no [[choice]]" in said


def test_a_configuration_that_is_no_text_is_one_line(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    place = Path(config(COLUMNS)).with_name("log.parquet")
    assert "expected TOML, got a file that is no text" in refusal(capsys, str(place))


def test_rounding_is_not_shown_as_an_interval(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    same = log(bid=[1.0] * 6, public=[0.1] * 6, device=[0.1] * 6)
    assert main(["simulate", config(COLUMNS + CHOICES, same)]) == 0
    page = capsys.readouterr().out
    assert "10 ± 0" in page
    assert "e-1" not in page
    assert "-0.00" not in page


def test_users_widen_the_intervals_where_their_auctions_are_alike(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [0.01] * 4 + [0.2] * 4
    columns = {"id": list(range(8)), "campaign": [1] * 8, "bid": [1.0] * 8, "public": [0.1] * 8}
    table = pa.table({**columns, "device": rates, "user": [1] * 4 + [2] * 4})
    widths = []
    for more in ("", 'user = "user"\n'):
        found = run(capsys, config(COLUMNS + more, table))["choices"][0]["ctr"]
        widths.append(found["high"] - found["low"])
    assert widths[1] > 1.5 * widths[0]
