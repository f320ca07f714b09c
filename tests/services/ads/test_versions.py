"""Versions over HTTP: who may look, add and roll out; and the rates that follow from what is in use."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.campaign import BidEvent
from tacit.deliver.campaigns.store import Author
from tacit.deliver.campaigns.versions import NewVersion, VersionKind
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.schema.contexts.hierarchy import Node
from tacit.services.ads.rate_models import model_version, pack_model
from tacit.services.ads.versions import RatesInUse, contexts_of, look_at_versions
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.saving import save
from tests.services.ads.test_rate_models import a_model, an_encoder
from tests.support.ad_campaigns import BEAN, BY
from tests.support.ads_services import AdsWorld

NODE = Node((1, 1), ("North", "Food"))
STATISTICS, MODEL, CONVERSIONS = VersionKind.STATISTICS, VersionKind.MODEL, VersionKind.CONVERSIONS
CONVERTED = VersionKind.CONVERSION_STATISTICS


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdsWorld]:
    made = AdsWorld(tmp_path_factory.mktemp("versions"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for number in range(3):
        saved = a_model(FactorizationMachine(dim=2, start=0.1 + number / 10), statement={"epsilon": 1.0})
        save(place / f"clicks-{number}", saved)
    save(place / "personal", a_model(FactorizationMachine(dim=2), an_encoder(("city", "age"))))
    return place


def asked(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    content = base64.b64encode(pack_model(folder / name)).decode()
    return {"kind": "model", "name": name, "content": content, **more}


def statistics(clicks: int, kind: VersionKind = STATISTICS) -> NewVersion:
    shown = np.array([1_000], np.int64)
    made = ReleasedStatistics(
        (NODE,), shown, np.array([0, 1]), np.array([7]), np.array([clicks]), shown, noise_sd=0.0, reports=10
    )
    return NewVersion(kind, f"round {clicks}", {"closes": clicks}, made.to_bytes())


def test_operators_roll_out_and_back_and_the_trail_has_it(world: AdsWorld, folder: Path) -> None:
    key = world.key(AccessRole.OPERATOR)
    made = world.post("/ads/versions", key, json=asked(folder, "clicks-0", use=True))
    assert made.status_code == 201, made.text
    first = made.json()
    assert (first["in_use"], first["body"]["statement"]) == (True, {"epsilon": 1.0})
    again = world.post("/ads/versions", key, json=asked(folder, "clicks-0"))
    assert (again.status_code, again.json()["number"]) == (200, first["number"])
    second = world.post("/ads/versions", key, json=asked(folder, "clicks-1", use=True)).json()
    back = world.post(f"/ads/versions/{first['number']}/use", key)
    assert back.json()["in_use"]
    listed = world.get("/ads/versions?kind=model", key).json()["versions"]
    assert [(each["number"], each["in_use"]) for each in listed] == [
        (second["number"], False),
        (first["number"], True),
    ]
    trail = world.get("/ads/changes?subject=model%20in%20use", key).json()["changes"]
    assert [each["after"]["number"] for each in trail] == [first["number"], second["number"], first["number"]]
    shown = world.get(f"/ads/versions/{first['number']}", key).json()
    assert shown["body"]["columns"] == ["city", "topic", "campaign"]
    figures = {each.labels["kind"]: each.value for each in look_at_versions(world.running.versions)}
    assert figures["model"] == first["number"]


def test_others_look_or_see_nothing(world: AdsWorld, folder: Path) -> None:
    viewer = world.key(AccessRole.VIEWER)
    assert world.get("/ads/versions", viewer).status_code == 200
    world.running.campaigns.put_advertiser(_advertiser(), BY)
    advertiser = world.key(AccessRole.ADVERTISER, BEAN)
    for key, status in ((None, 401), (advertiser, 403)):
        assert world.get("/ads/versions", key).status_code == status
    for key in (viewer, advertiser):
        assert world.post("/ads/versions", key, json=asked(folder, "clicks-2")).status_code == 403
        assert world.post("/ads/versions/1/use", key).status_code == 403


def _advertiser() -> Any:
    from tacit.deliver.campaigns.store import Advertiser

    return Advertiser(BEAN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "statistics"}, "kind: expected one of model, conversion-model"),
        ({"content": "no base64"}, "content: expected base64"),
        ({"content": base64.b64encode(b"other").decode()}, "expected a packed model"),
        ({"name": ""}, "name: expected 1 to"),
        ({"use": 1}, "use"),
        ({"more": 1}, "more"),
    ],
)
def test_what_is_no_model_is_refused(world: AdsWorld, folder: Path, change: dict[str, Any], words: str) -> None:
    refused = world.post(
        "/ads/versions", world.key(AccessRole.OPERATOR), json={**asked(folder, "clicks-2"), **change}
    )
    assert refused.status_code == 400
    assert words in refused.json()["detail"]


def test_a_model_of_a_person_is_refused_by_its_columns(world: AdsWorld, folder: Path) -> None:
    key = world.key(AccessRole.OPERATOR)
    refused = world.post("/ads/versions", key, json=asked(folder, "personal"))
    assert refused.status_code == 400
    assert "got one that reads age" in refused.json()["detail"]
    assert world.get("/ads/versions/999", key).status_code == 404
    assert world.post("/ads/versions/999/use", key).status_code == 404


def test_rates_follow_what_is_in_use(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = AdsWorld(tmp_path)
    try:
        versions, author = world.running.versions, Author("k", BY.at)
        rates = RatesInUse(versions, world.hierarchy, world.running.campaigns, strength=1_000.0)
        first = rates.book()
        assert first.version.startswith("fixed")

        def at(event: BidEvent = BidEvent.CLICK) -> float:
            return float(rates.book().rates([NODE], [7], event)[0, 0])

        assert at() == 0.01
        old, _ = versions.add(statistics(50), author, use=True)
        assert old is not None
        assert rates.book().version == f"statistics {old.number}"
        assert rates.book() is rates.book()
        assert at() == pytest.approx(0.05)
        versions.add(statistics(80), author, use=True)
        assert at() == pytest.approx(0.08)
        versions.use(old.number, author)  # rolled back
        assert at() == pytest.approx(0.05)

        model = model_version(folder / "clicks-0", world.hierarchy, MODEL)
        versions.add(model, author, use=True)
        alone = RatesInUse(_without(versions, STATISTICS), world.hierarchy, world.running.campaigns)
        expected = float(alone.book().rates([NODE], [7], BidEvent.CLICK)[0, 0])
        assert at() == pytest.approx((50 + 1_000 * expected) / (1_000 + 1_000))
        assert at(BidEvent.CONVERSION) == pytest.approx(0.05 * 0.1)  # by clicks: none is for conversions
        versions.add(model_version(folder / "clicks-1", world.hierarchy, CONVERSIONS), author, use=True)
        assert at(BidEvent.CONVERSION) != pytest.approx(0.05 * 0.1)

        before = rates.book()
        versions.add(NewVersion(STATISTICS, "round torn", {}, b"torn"), author, use=True)
        caplog.clear()
        assert rates.book() is before
        assert rates.book() is before
        assert len([each for each in caplog.records if "rates stay as they were" in each.getMessage()]) == 1
        assert contexts_of(world.running.settings).name == "contexts.toml"
    finally:
        world.end()


def test_counted_conversions_correct_clicks_or_a_model(tmp_path: Path, folder: Path) -> None:
    world = AdsWorld(tmp_path)
    try:
        versions, author = world.running.versions, Author("k", BY.at)
        rates = RatesInUse(versions, world.hierarchy, world.running.campaigns, strength=1_000.0)

        def at(event: BidEvent = BidEvent.CONVERSION) -> float:
            return float(rates.book().rates([NODE], [7], event)[0, 0])

        assert at() == 0.001
        old, _ = versions.add(statistics(20, CONVERTED), author, use=True)
        assert old is not None
        assert rates.book().version == f"conversion-statistics {old.number}, strength 1000"
        alone = at()
        assert 0.001 < alone < 0.02  # from the default towards 20 of 1000
        assert at(BidEvent.CLICK) == 0.01
        versions.add(statistics(50), author, use=True)
        assert at(BidEvent.CLICK) == pytest.approx(0.05)
        assert alone < at() < 0.02  # from a tenth of the clicks towards it
        versions.add(model_version(folder / "clicks-1", world.hierarchy, CONVERSIONS), author, use=True)
        expected = RatesInUse(_without(versions, CONVERTED), world.hierarchy, world.running.campaigns)
        model = float(expected.book().rates([NODE], [7], BidEvent.CONVERSION)[0, 0])
        low, high = sorted((model, 0.02))
        assert low < at() < high
        before = at()
        versions.add(statistics(900, CONVERTED), author, use=True)
        assert at() > before
        versions.use(old.number, author)  # rolled back
        assert at() == before
    finally:
        world.end()


def _without(versions: Any, kind: VersionKind) -> Any:
    class Others:
        def in_use(self, asked: VersionKind) -> Any:
            return None if asked is kind else versions.in_use(asked)

        content = staticmethod(versions.content)

    return Others()
