"""Fixtures: a world of billing per file of tests, on SQLite and on PostgreSQL, and a new epoch per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tests.support.billing_scenes import Scene
from tests.support.billing_worlds import World
from tests.support.ledger_places import administer

_epochs = itertools.count(1)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    """Where ad server and proxy keep what they know: two files, or two databases."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("billing")
        return folder / "ads.sqlite", folder / "proxy.sqlite"
    url = make_url(request.getfixturevalue("postgres_server"))
    for name in ("attacked_ads", "attacked_proxy"):
        administer(url.render_as_string(), f"DROP DATABASE IF EXISTS {name}")
        administer(url.render_as_string(), f"CREATE DATABASE {name}")
    return tuple(url.set(database=name).render_as_string() for name in ("attacked_ads", "attacked_proxy"))


@pytest.fixture(scope="module")
def world(places: tuple[str | Path, str | Path]) -> Iterator[World]:
    ads, proxied = SqlAdStore.open(places[0]), SqlBillingProxyStore.open(places[1])
    try:
        yield World(ads, proxied)
    finally:
        ads.close()
        proxied.close()


@pytest.fixture
def scene(world: World) -> Iterator[Scene]:
    """A new epoch; after the test charges add up, and an honest impression is still charged, once."""
    opened = Scene.begin(world, next(_epochs))
    yield opened
    opened.assert_still_bills()
