"""/readyz says when requests may come; /healthz means what it says: stale, torn and foreign are not well."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tacit.services.background import STALE_SECONDS, AppPart, Health
from tacit.services.operations.app import Operations, Readiness
from tacit.services.signatures import Party
from tacit.store import billing_ads
from tacit.store.billing_ads import SqlAdStore
from tacit.store.figures import takes_writes
from tacit.store.gather_server import SqlServerStore
from tacit.store.schema_revisions import is_served
from tests.support.operated_parties import called, running, settings_of


def test_it_is_ready_after_the_first_look_and_the_first_epoch_until_it_is_to_end() -> None:
    store, epoch, time = [True], [False], [0.0]
    health, readiness = Health({"store": lambda: store[0]}, timer=lambda: time[0]), Readiness()
    assert readiness.missing() == ("starting", ["look"])
    readiness.watch(health, {"epoch": lambda: epoch[0]})
    assert readiness.missing() == ("starting", ["look"])
    health.look()
    assert readiness.missing() == ("starting", ["epoch"])
    epoch[0] = True
    assert readiness.missing() == ("ready", [])
    epoch[0] = False  # batches and budgets still have to get through
    assert readiness.missing() == ("ready", [])
    store[0] = False
    health.look()
    assert readiness.missing() == ("failing", ["store"])
    store[0] = True
    health.look()
    assert readiness.missing() == ("ready", [])
    time[0] = STALE_SECONDS + 1  # a look that never came to its end
    assert readiness.missing() == ("failing", ["checks"])
    assert health.answer().status_code == 503
    readiness.drain()
    assert readiness.missing() == ("draining", [])


def test_no_answer_leads_to_a_host_that_a_request_made_up() -> None:
    operations, health = Operations(Party.SERVER), Health({})
    with called(operations.make_app([], health, list, AppPart())) as client:
        answer = client.get("/readyz/", headers={"host": "evil.example"}, follow_redirects=False)
        assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_load_balancers_are_told_by_the_status() -> None:
    operations, health = Operations(Party.PROXY), Health({})
    with called(operations.make_app([], health, list, AppPart())) as client:
        while client.get("/readyz").json() == {"status": "starting", "missing": ["look"]}:
            pass
        assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (200, {"status": "ready"})
        operations.readiness.drain()
        assert client.get("/readyz").status_code == 503
        assert client.get("/readyz").json() == {"status": "draining"}
        assert client.get("/healthz").status_code == 200  # it is well, and still answers who is there


@pytest.mark.parametrize("party", [Party.PROXY, Party.SERVER])
def test_a_party_without_an_epoch_is_well_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: Party
) -> None:
    with running(settings_of(tmp_path, party), monkeypatch) as client:
        while (found := client.get("/readyz").json()) == {"status": "starting", "missing": ["look"]}:
            pass
        assert found == {"status": "starting", "missing": ["epoch"]}
        assert client.get("/readyz").status_code == 503
        well = client.get("/healthz").json()
    assert well.items() >= {"billing_store": "ok", "revision": "ok", "store": "ok"}.items()
    assert well["status"] != "failing"  # the other party is not there, which each of them may know by now


def test_a_store_that_is_torn_or_was_upgraded_by_another_release_is_not_well(tmp_path: Path) -> None:
    ads, gathered = SqlAdStore.open(tmp_path / "ads.sqlite"), SqlServerStore.open(tmp_path / "server.sqlite")
    assert takes_writes(ads.database)
    assert takes_writes(gathered.database)
    assert is_served(ads.database, billing_ads.SCHEMA)
    with sqlite3.connect(tmp_path / "ads.sqlite") as connection:
        connection.execute("UPDATE bill_ads_version SET version_num = '999'")
    assert not is_served(ads.database, billing_ads.SCHEMA)
    health = Health({"store": lambda: takes_writes(gathered.database)})
    health.look()
    assert health.is_vital_well()
    gathered.close()  # the next transaction opens the file anew
    for each in tmp_path.glob("server.sqlite*"):
        each.unlink()
    (tmp_path / "server.sqlite").write_bytes(b"no database any more" * 100)
    health.look()
    assert (health.is_vital_well(), health.answer().status_code) == (False, 503)
    ads.close()
