"""The table [statistics] of an ad server's settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tacit.deliver.device.shown_log import RoundFamily
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services import trial
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.services.statistics_settings import read_statistics

GOOD = """
[billing]
[statistics]
every_hours = 24
open_hours = 12
devices = 100_000
smallest_batch = 1_000
epsilon = 0.5
events = 10
"""


def read(more: str = "", without: str = "") -> Any:
    lines = [line for line in GOOD.splitlines() if not (without and line.startswith(without))]
    return read_statistics(tomllib.loads("\n".join([*lines, more])), Path("/folder"))


def test_a_table_and_its_defaults() -> None:
    assert read_statistics({}, Path()) is None
    found = read('levels = [1, 1]\nlaw = "skellam"\ndelta = 1e-9\nstrength = 50')
    assert (found.every_seconds, found.open_seconds, found.cells_most) == (86_400, 43_200, 20_000)
    assert (found.levels, found.strength, found.asked["law"]) == ((1, 1), 50.0, "skellam")
    assert (found.asked["parties"], found.asked["scope"], found.asked["hours"]) == (100_000, "menu rates", 12.0)
    assert (found.parties, found.contexts) == (Path("/folder/parties.toml"), Path("/folder/contexts.toml"))


def test_conversions_cost_as_much_as_clicks_unless_said_and_may_be_left_out() -> None:
    same = read("delta = 1e-9")
    assert dict(same.families()) == {RoundFamily.CLICKS: same.asked, RoundFamily.CONVERSIONS: same.asked}
    own = read("conversions_epsilon = 0.25\nconversions_delta = 1e-10")
    assert [each["epsilon"] for each in own.families().values()] == [0.5, 0.25]
    assert own.families()[RoundFamily.CONVERSIONS]["delta"] == 1e-10
    assert own.families()[RoundFamily.CONVERSIONS]["scope"] == "menu rates"  # one line pays for both
    assert list(read("conversions_epsilon = 0").families()) == [RoundFamily.CLICKS]


@pytest.mark.parametrize(
    ("more", "without", "words"),
    [
        ("", "epsilon", "statistics.epsilon: expected a value, got no such key"),
        ("", "[billing]", "statistics: expected a table .billing. beside it"),
        ("every_hour = 1", "", "every_hour"),
        ("open_hours = 25", "open_hours", "statistics.open_hours: expected at most every_hours, got 25"),
        ("every_hours = 0", "every_hours", "expected statistics.every_hours > 0"),
        ("every_hours = 9_000", "every_hours", "statistics.every_hours: expected a second to 8784 hours"),
        ("levels = [1, -1]", "", "statistics.levels: expected a list of small whole numbers"),
        ("cells_most = 0", "", "cells_most"),
        ("strength = -1", "", "strength"),
        ("conversions_epsilon = -1", "", "conversions_epsilon >= 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(more: str, without: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(more, without)


def test_the_table_is_the_servers_alone(tmp_path: Path) -> None:
    trial.write_trial(tmp_path, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    for party in (Party.SERVER, Party.PROXY):
        path = tmp_path / f"{party}.toml"
        path.write_text(path.read_text() + GOOD.replace("[billing]\n", ""))
    assert load_settings(tmp_path / "server.toml", Party.SERVER).statistics is not None
    with pytest.raises(BadInput, match="expected no such table in a proxy's settings"):
        load_settings(tmp_path / "proxy.toml", Party.PROXY)
