"""Whole files of every kind that people hand in, each family made once, by the commands that write them."""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tacit_lab
from tests.support.billing_audits import play_world, write_parties
from tests.support.handed_in_reading import run
from tests.support.training_logs import prepared, written

MARKET = """\
[market]
log = "market.parquet"
[columns]
auction = "id"
campaign = "campaign"
bid = "bid"
click = "public"
private_click = "device"
[auction]
price = "second"
gamma = 0.9
[[choice]]
mechanism = "rr"
epsilon = [1, 5]
"""
CONTEXTS = """\
[[attribute]]
name = "place"
decimals = ["exact", 2, 1]
[[attribute]]
name = "activity"
tree = "tree.csv"
depths = [2, 1]
[lattice]
finest = [0, 0]
"""
TREE = "node,parent\nSport,*\nYoga,Sport\nRunning,Sport\nEating,*\nLunch,Eating\n"
ROUND = """\
task = "clicks-by-city"
scope = "clicks"
level = 0
cells = 12
hours = 24
parties = 1000
smallest_batch = 100
epsilon = 1
delta = 1e-6
events = 10
levels = 3
"""
TERMS = """\
name = "spring"
epsilon = 3
tasks = ["conversion"]
smallest_batch = 256
begins = 2026-01-01
expires = 2026-12-01T00:00:00Z
"""
TYPED = """\
name = "typed"
[file]
separator = ";"
missing = ["", "NULL"]
encoding = "latin-1"
[columns.site]
role = "public"
[columns.seen]
roles = ["public"]
kind = "hour"
[columns.at]
role = "time"
kind = "whole"
source = "seen"
[columns.price]
role = "price"
kind = "real"
between = [0, 100]
[columns.bought]
role = "label"
kind = "flag"
[split]
way = "random"
shares = { train = 0.8, test = 0.2 }
"""


class Whole:
    """Whole files, in one folder; a family is made when one of its kinds is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def log(self) -> Path:
        """A folder with a log of one's own as text and Parquet, its schema, and prepared with a vocabulary."""
        place = self.folder / "shop"
        _quietly(prepared, place)
        lines = (place / "shop.csv").read_text().splitlines()[:60]
        text = "\n".join(lines) + "\n"
        (place / "shop.csv").write_text(text)
        (place / "shop.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        names, *rows = (line.split(",") for line in lines)
        table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
        for at, name in enumerate(names):
            if name in ("age", "second", "bought"):
                table = table.set_column(at, name, table.column(name).cast(pa.int64()))
        pq.write_table(table, place / "shop.parquet")
        (place / "typed.toml").write_text(TYPED)
        (place / "typed.csv").write_bytes(
            "site;seen;price;bought\nsüd;2024-01-01T10:00:00Z;1.5;true\nb;2024-01-02 11:30:00;2;0.0\n".encode(
                "latin-1"
            )
        )
        arguments = ["--schema", place / "shop.toml", "--vocabulary", 1, "--out", place / "listed"]
        run("data", "prepare", place / "shop.csv", *arguments)
        return place

    @cached_property
    def market(self) -> Path:
        place = self.folder / "market"
        place.mkdir()
        columns = {
            "id": ["a", "a", "b", "b", "b", "c"], "campaign": [1, 2, 1, 2, 3, 3],
            "bid": [1.0, 2.0, 1.0, 1.5, 0.5, 3.0],
            "public": [0.05, 0.02, 0.04, 0.03, 0.02, 0.01], "device": [0.01, 0.06, 0.02, 0.03, 0.09, 0.02],
        }  # fmt: skip
        pq.write_table(pa.table(columns), place / "market.parquet")
        (place / "market.toml").write_text(MARKET)
        (place / "contexts.toml").write_text(CONTEXTS)
        (place / "tree.csv").write_text(TREE)
        return place

    @cached_property
    def model(self) -> Path:
        """A folder with a log, a ledger, and a model that label DP trained and the ledger paid for."""
        place = self.folder / "trained"
        _quietly(prepared, place)
        run("ledger", "grant", "--ledger", place / "ledger.sqlite", "--scope", "shop", "--unit", "impression",
            "--relation", "replace-label", "--epsilon", 8)  # fmt: skip
        said = {
            "data": "log", "out": "model", "model": {"name": "logistic"},
            "privacy": {"method": "label-dp", "epsilon": 2}, "labels": {"epochs": 1, "batch": 64, "rate": 0.05},
            "ledger": {"path": "ledger.sqlite", "scope": "shop", "secret": "flips.secret"},
        }  # fmt: skip
        written(place / "train.toml", said)
        run("train", place / "train.toml")
        assert (place / "model" / "model.json").exists()
        sweep = {key: value for key, value in said.items() if key not in ("ledger", "out")}
        written(place / "sweep.toml", sweep)
        with (place / "sweep.toml").open("a") as file:
            file.write("[sweep]\nepsilon = [1, 4]\nseeds = 2\nlabels.rate = [0.01, 0.1]\n")
        return place

    @cached_property
    def served(self) -> Path:
        """The settings and secrets of gathering's two parties, and a round to open."""
        place = self.folder / "serve"
        run("serve", "keys", "--out", place)
        (place / "round.toml").write_text(ROUND)
        return place

    @cached_property
    def room(self) -> Path:
        """The keys and settings of a clean room and its platform, an agreement of both, labels, weights."""
        from tacit.cleanroom.model.network import write_weights
        from tacit.services.room import trial

        place = self.folder / "room"
        run("room", "keys", "--out", place)
        room, platform = place / "room", place / "platform"
        (room / "terms.toml").write_text(TERMS)
        agreed = room / "agreement.json"
        run(
            "room",
            "agree",
            agreed,
            "--role",
            "room",
            "--key",
            room / "room.signing",
            "--terms",
            room / "terms.toml",
        )
        run("room", "agree", agreed, "--role", "platform", "--key", platform / "platform.signing")
        shutil.copy(agreed, platform / "agreement.json")
        (room / "room.toml").write_text(trial.ROOM.format(port=8481))
        (platform / "platform.toml").write_text(
            trial.PLATFORM.format(port=8481, advertiser=3, rank=8, batch=256)
        )
        labels = {
            "click_id": [f"c{number}" for number in range(50)],
            "conversion": [number % 2 for number in range(50)],
        }
        pq.write_table(pa.table(labels), room / "labels.parquet")
        (room / "labels.csv").write_text(
            "click_id,conversion\n" + "".join(f"c{number},{number % 2}\n" for number in range(50))
        )
        arrays = {"a": np.ones((3, 4), np.float32), "b": np.zeros(5, np.float32)}
        write_weights(platform / "weights.safetensors", "a thing", {"size": [3, 4]}, arrays)
        return place

    @cached_property
    def audit(self) -> Path:
        """A folder with an ad server's export, the parties' keys, and the proxy's statements."""
        place = self.folder / "audit"
        place.mkdir()
        world = play_world(place / "ads.sqlite")
        world.export(place / "export")
        write_parties(place / "parties.toml")
        (place / "statements.bin").write_bytes(b"".join(world.statements))
        return place

    @cached_property
    def results(self) -> Path:
        """One study's table and settings, as they come with tacit."""
        place = self.folder / "results"
        place.mkdir()
        source = Path(tacit_lab.__file__).parent / "studies" / "recorded"
        for ending in ("csv", "json"):
            shutil.copy(source / f"label-dp-users.{ending}", place)
        return place


def _quietly(work: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        work(*arguments)
