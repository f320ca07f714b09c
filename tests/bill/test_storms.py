"""Storms over billing in one process: whoever dies, whatever is lost, repeated or late, the bill is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tacit.bill.proxy.party import BillingProxy
from tacit.errors import TacitError
from tests.support.billing_storm_bugs import BUGS, Bug, ShufflesNothing
from tests.support.billing_storm_checks import BillFigures, StormDamage, check_audit, check_bill
from tests.support.billing_storm_faults import CrashPoint, Weather
from tests.support.billing_storm_secrets import check_orders, check_secrecy
from tests.support.billing_storms import PartyKinds, Storm

SOME = 11  # runs over which the crash points of the played run are spread
SEEDS, STEPS = (1, 2), 150
MANY_SEEDS = range(100, 125)
TRIES = 12  # storms in which a bug has to be found at the latest


def weathered(folder: Path, weather: Weather, steps: int = STEPS) -> tuple[Storm, BillFigures]:
    """A storm that is over, and whose bill was found right."""
    folder.mkdir()
    storm = Storm(folder, weather, devices=5)
    storm.blow(steps)
    storm.drain()
    return storm, check_bill(storm.evidence())


def played(folder: Path, *crash_at: CrashPoint) -> Storm:
    """The played run, in which parties die at these points and at no others."""
    folder.mkdir()
    storm = Storm(folder, Weather(0, crash_at=frozenset(crash_at)), devices=2)
    storm.play()
    storm.drain()
    check_bill(storm.evidence())
    storm.end()
    assert storm.weather.faults.total() == len(crash_at), "somebody was to die, and did not"
    return storm


def test_random_storms_leave_the_bill_exact_and_nobody_the_wiser(tmp_path: Path) -> None:
    faults: Counter[str] = Counter()
    for seed in SEEDS:
        storm, figures = weathered(tmp_path / f"{seed}", Weather(seed, lossy=20, deadly=25, downtime=2))
        check_audit(storm.evidence(), tmp_path / f"audit {seed}")
        check_secrecy(storm)
        print(f"{storm.weather}: {figures}")
        faults += storm.weather.faults
        assert figures.charges >= 10
    assert faults.total() >= 100
    assert len(faults) >= 16, "few kinds of faults"


def test_every_crash_point_of_a_run(tmp_path: Path) -> None:
    points = sorted(played(tmp_path / "calm").weather.met)
    assert len(points) >= 120
    assert {point.party for point in points} == {"server", "proxy", "device-0", "device-1"}
    for number in range(SOME):
        played(tmp_path / f"{number}", *points[number::SOME])
    print(f"{len(points)} crash points, all survived")


def test_the_same_seed_brings_the_same_faults(tmp_path: Path) -> None:
    def storm(name: str, seed: int) -> tuple[Counter[str], list[tuple[str, int, int]], int]:
        storm, figures = weathered(tmp_path / name, Weather(seed, lossy=20, deadly=25, downtime=2), steps=40)
        storm.end()
        sights = [(sight.device, sight.index, sight.price_micros) for sight in storm.sights]
        return storm.weather.faults, sights, figures.micros

    assert storm("once", 5) == storm("again", 5)


@pytest.mark.parametrize("name", BUGS)
def test_a_storm_finds(tmp_path: Path, name: str) -> None:
    assert any(BUGS[name].damage in _damage(tmp_path / f"{seed}", BUGS[name], seed) for seed in range(TRIES))


def _damage(folder: Path, bug: Bug, seed: int) -> str:
    """What a storm over parties with a bug has damaged; "" where nothing."""
    folder.mkdir()
    weather = Weather(seed, lossy=10, deadly=250, victims=(bug.victim,))
    storm = Storm(folder, weather, devices=3, kinds=bug.kinds)
    try:
        for _ in range(4):
            storm.blow(20)
            storm.close_invoices()
        storm.drain()
        check_bill(storm.evidence())
    except (StormDamage, TacitError) as damage:
        return str(damage)
    finally:
        storm.end()
    return ""


@pytest.mark.parametrize("kind", [BillingProxy, ShufflesNothing])
def test_only_a_proxy_that_shuffles_leaves_no_order(tmp_path: Path, kind: type[BillingProxy]) -> None:
    storm = Storm(tmp_path, Weather(3), devices=5, kinds=PartyKinds(proxy=kind))
    storm.blow(100)
    storm.drain()
    check_bill(storm.evidence())
    if kind is BillingProxy:
        check_orders(storm.network.captured, storm.evidence().ads)
    else:
        with pytest.raises(StormDamage, match="in the order in which their reports came"):
            check_orders(storm.network.captured, storm.evidence().ads)
    storm.end()


@pytest.mark.slow
def test_every_crash_point_alone_and_with_the_next_one(tmp_path: Path) -> None:
    points = sorted(played(tmp_path / "calm").weather.met)
    again = [(point, point._replace(write=point.write + 1)) for point in points]
    for number, (point, next_write) in enumerate(again):
        played(tmp_path / f"one {number}", point)
        if next_write in points:
            played(tmp_path / f"two {number}", point, next_write)
    print(f"{len(points)} crash points, alone and with the next write: all survived")


@pytest.mark.slow
def test_a_thousand_random_faults(tmp_path: Path) -> None:
    faults, total = Counter[str](), Counter[str]()
    for seed in MANY_SEEDS:
        weather = Weather(seed, lossy=seed % 40, deadly=5 * (seed % 12), downtime=seed % 4)
        storm, figures = weathered(tmp_path / f"{seed}", weather, steps=300)
        check_audit(storm.evidence(), tmp_path / f"audit {seed}")
        check_secrecy(storm)
        faults += storm.weather.faults
        for name in ("seen", "taken", "charges", "micros"):
            total[name] += getattr(figures, name)
    print(f"{Weather('100 to 124', faults=faults)}: {dict(total)}")
    assert faults.total() >= 1_000
    assert total["taken"] == total["charges"] >= 1_000
