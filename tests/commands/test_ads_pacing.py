"""`tacit ads pacing`: how far over its budget each campaign can go, from the store."""

from __future__ import annotations

import json
import time

import pytest

from tacit.bill.server.party import EpochTimes
from tacit.bill.server.store import Campaign, EpochLimits
from tacit.cli import main
from tacit.entropy import Entropy
from tacit.services import trial
from tacit.store import SqlAdStore, SqlPacingStore
from tests.support.billing_worlds import (
    CAMPAIGNS,
    EPOCH,
    PRICES,
    a_menu,
    a_stored_epoch,
    charged,
    countersigned,
    redeem,
    redeemed,
)

LISBON = a_menu()
TOKENS = 40


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("trial")
    trial.write_trial(folder, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    now = int(time.time())
    times = EpochTimes(now - 10, now + 10_000, now + 20_000)
    store = SqlAdStore.open(folder / "ads.sqlite")
    store.put_campaigns(
        [Campaign(CAMPAIGNS[0], "Bean & Leaf", 50_000_000), Campaign(CAMPAIGNS[1], "Tea House", 1)]
    )
    stored = a_stored_epoch(LISBON, times=times)
    store.keep_epoch(EPOCH, stored, EpochLimits({LISBON.menu_id: TOKENS}, times.opens, None))
    store.publish_epoch(EPOCH, countersigned(stored.directory))
    SqlPacingStore(store.database).reserve_tokens({LISBON.menu_id: TOKENS})
    redeem(store, redeemed(LISBON, [charged(LISBON, name) for name in range(3)]))
    store.close()
    return str(folder / "server.toml")


def test_what_is_out_and_how_far_over_it_can_go(settings: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ads", "pacing", settings, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["epoch"], told["menus"], told["ran_out"]) == (EPOCH, 1, 1)
    first, second, third = told["campaigns"]
    assert first["charged_micros"] == first["day_spent_micros"] == 3 * PRICES[0]
    assert first["out_micros"] == (TOKENS - 3) * PRICES[0]
    assert first["bound_micros"] == max(0, TOKENS * PRICES[0] - 50_000_000) == 0
    assert (second["bound_micros"], second["within"]) == ((TOKENS - 3) * PRICES[1] - 1, False)
    assert third["bound_micros"] is None


def test_the_table_marks_who_can_be_over_by_more(settings: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ads", "pacing", settings]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Pacing, 2% of a budget at most")
    by_name = {
        name: line for line in lines for name in ("Bean & Leaf", "Tea House", "campaign 13") if name in line
    }
    assert "0.00%" in by_name["Bean & Leaf"]
    assert "!" in by_name["Tea House"]
    assert "no limit" in by_name["campaign 13"]
    assert lines[-1] == f"epoch {EPOCH} is offered: 1 of 1 menus sign no more tokens"
