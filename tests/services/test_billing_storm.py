"""Storms over billing between processes: kill -9 of any, PostgreSQL too, and links that lose and repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.billing_storm_checks import check_audit, check_bill
from tests.support.billing_storm_faults import PROXY, Weather
from tests.support.billing_storm_processes import ADS, process_storm
from tests.support.billing_storm_secrets import check_process_secrecy
from tests.support.ledger_places import administer
from tests.support.local_postgres import LocalPostgres, local_postgres, postgres_programs
from tests.support.service_processes import Launcher

SEED = 22


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"), "tests.support.billing_storm_devices")
    yield made
    made.end()


@pytest.fixture
def postgres() -> Iterator[LocalPostgres]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed here: no initdb under /usr/lib/postgresql or beside pg_config")
    with local_postgres(programs) as server:
        for database in ("ads", "reports"):
            administer(server.url(), f"CREATE DATABASE {database}")
        yield server


def weather_storm(
    launcher: Launcher,
    folder: Path,
    weather: Weather,
    *,
    kills: int,
    faults: int,
    impressions: int,
    **options: Any,
) -> None:
    """A storm that passes, and a bill that is right afterwards."""
    with process_storm(launcher, folder, weather, **options) as storm, ExitStack() as held:
        storm.blow(kills, faults, impressions)
        storm.drain()
        evidence = storm.evidence(held)
        figures = check_bill(evidence)
        check_audit(evidence, folder / "audited")
        check_process_secrecy(storm, evidence)
    print(f"{weather}: {figures}")
    assert figures.charges >= 0.9 * impressions


@pytest.mark.slow
def test_processes_are_killed_and_the_bill_is_exact(launcher: Launcher, tmp_path: Path) -> None:
    weather_storm(launcher, tmp_path, Weather(SEED, lossy=20), kills=5, faults=25, impressions=12)


@pytest.mark.slow
def test_a_thousand_faults_on_sqlite(launcher: Launcher, tmp_path: Path) -> None:
    weather = Weather(SEED + 1, lossy=30)
    weather_storm(launcher, tmp_path, weather, kills=100, faults=1_000, impressions=300, groups=3)


@pytest.mark.slow
def test_a_thousand_faults_on_postgresql_which_is_killed_too(
    launcher: Launcher, tmp_path: Path, postgres: LocalPostgres
) -> None:
    weather = Weather(SEED + 2, lossy=30)
    stores = {ADS: postgres.url("ads"), PROXY: postgres.url("reports")}
    weather_storm(
        launcher, tmp_path, weather, kills=100, faults=1_000, impressions=300, groups=3, postgres=postgres,
        stores=stores,
    )  # fmt: skip
    assert weather.faults["postgresql killed"] >= 10
