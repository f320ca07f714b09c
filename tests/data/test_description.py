"""Descriptions: every figure against a plain count over the same few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.data.description import LogDescription, describe, with_delay_columns
from tacit.data.logs.definition import KeepRule, Log, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.reading.reader import LogReader
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

NAMES = ("user", "shop", "site", "seen", "auction", "y", "wait", "kept")
LOG = Log(
    "small",
    "a small log",
    "",
    LogSchema(
        "small",
        (
            Column("user", {Role.USER}),
            Column("shop", {Role.PUBLIC, Role.ADVERTISER}),
            Column("site", {Role.PUBLISHER}),
            Column("seen", {Role.SENSITIVE}, Kind.WHOLE),
            Column("auction", {Role.AUCTION}),
            Column("y", {Role.LABEL}, Kind.FLAG),
        ),
    ),
    (
        FileLayout(
            {
                name: CellType.TEXT if name in ("user", "shop", "site", "auction") else CellType.WHOLE
                for name in NAMES
            }
        ),
    ),
    LogSplit("random", {"train": 1}),
    keep=KeepRule("kept", 1, "kept rows"),
    shares={"kept, share of rows": ("kept", 1)},
    delay=lambda rows: rows.column("wait"),
    delay_from=("wait",),
    published=(
        PublishedFigure("rows", 7),
        PublishedFigure("shop: gini", 0.5),
        PublishedFigure("shop: values", 3),
    ),
)
ROWS = """\
u1,s1,p1,1,a1,1,3600,1
u1,s1,p2,,a1,0,,1
u1,s2,p1,3,a1,0,,1
u2,s1,p1,3,a2,1,7200,1
u3,,p1,2,a3,0,,1
u4,s9,p9,9,a9,1,36000,0
u1,s9,p9,9,a9,1,36000,0
"""


def test_a_pair_of_keys_is_no_other_pair(tmp_path: Path) -> None:
    """The same id as user and as advertiser, and the two swapped, are three different units."""
    rows = ["a,a,p,1,x,0,,1", "b,b,p,1,x,0,,1", "a,b,p,1,x,0,,1", "b,a,p,1,x,0,,1"]
    (tmp_path / "small.csv").write_text("\n".join([",".join(NAMES), *rows, ""]))
    found = describe(LogReader(with_delay_columns(LOG), tmp_path / "small.csv"))
    assert found.figures["user x advertiser"] == 4


@pytest.fixture
def description(tmp_path: Path) -> LogDescription:
    (tmp_path / "small.csv").write_text(",".join(NAMES) + "\n" + ROWS)
    return describe(LogReader(with_delay_columns(LOG), tmp_path / "small.csv"))


def test_figures(description: LogDescription) -> None:
    assert description.figures == pytest.approx(
        {
            "rows": 5,
            "rows read": 7,
            "positive rate": 2 / 5,
            "users": 3,
            "examples a user, mean": 5 / 3,
            "examples a user, median": 1,
            "examples a user, 99%": np.quantile([3, 1, 1], 0.99),
            "user: share with exactly one": 2 / 3,
            "user x advertiser": 4,
            "examples a user x advertiser, mean": 5 / 4,
            "examples a user x advertiser, median": 1,
            "examples a user x advertiser, 99%": np.quantile([2, 1, 1, 1], 0.99),
            "user x advertiser: share with exactly one": 3 / 4,
            "user x publisher": 4,
            "examples a user x publisher, mean": 5 / 4,
            "examples a user x publisher, median": 1,
            "examples a user x publisher, 99%": np.quantile([2, 1, 1, 1], 0.99),
            "user x publisher: share with exactly one": 3 / 4,
            "auctions": 3,
            "candidates per auction, mean": 5 / 3,
            "auctions of ten or more candidates, share": 0,
            "delay in hours, 50%": 1.5,
            "delay in hours, 75%": 1.75,
            "delay in hours, 90%": 1.9,
            "users of all rows": 4,
            "rows per user, mean": 7 / 4,
            "rows per user, median": 1,
            "users with exactly one row, share": 3 / 4,
            "kept, share of rows": 5 / 7,
            "shop: gini": 0.25,  # of counts 3 and 1
        }
    )


def test_fields(description: LogDescription) -> None:
    shop, seen = description.fields
    assert (shop.name, shop.role, shop.values, shop.top_share, shop.missing) == ("shop", "public", 2, 0.75, 0.2)
    # 2 and 3 share a bucket.
    assert (seen.name, seen.role, seen.values, seen.top_share, seen.missing) == (
        "seen",
        "sensitive",
        2,
        0.75,
        0.2,
    )


def test_published_figures_stand_beside(description: LogDescription) -> None:
    record = description.as_json()
    assert record["figures"][0] == {"name": "rows", "value": 5, "published": 7}
    assert record["fields"][0]["published_values"] == 3
    assert record["synthetic"] is False
