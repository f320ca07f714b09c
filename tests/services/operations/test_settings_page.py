"""The operators' page lists every key of the settings, of whom, and with the default that it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields

from tacit.deliver.server.pacing import PacingSettings
from tacit.services import billing_settings, settings, statistics_settings
from tacit.services.ads import openrtb_settings
from tacit.services.ads.openrtb_settings import OpenRtbSettings
from tacit.services.operations import settings as operations_settings
from tacit.services.settings import ServicePace
from tacit.services.signatures import Party
from tests.support.repository import ROOT

BOTH = (Party.PROXY, Party.SERVER)
OWN = {"both": BOTH, "proxy": (Party.PROXY,), "server": (Party.SERVER,)}


def listed() -> dict[tuple[str, str, Party], str]:
    """What the page says: table, key and party, with the default."""
    page = (ROOT / "docs" / "operations.md").read_text().partition("## Every key")[2]
    found: dict[tuple[str, str, Party], str] = {}
    for line in page.splitlines():
        if not line.startswith("| `["):
            continue
        table, keys, whose, default, _means = (each.strip() for each in line.strip("|").split("|"))
        for key in re.findall(r"`([a-z_]+)`", keys):
            for party in OWN[whose]:
                name = table.strip("`").strip("[]"), key, party
                assert name not in found, name
                found[name] = default
    return found


def known() -> set[tuple[str, str, Party]]:
    """What the settings read."""
    of_party: dict[str, Mapping[Party, Sequence[str]]]
    of_party = {"store": settings.STORE, "secrets": settings.SECRETS, "billing": billing_settings.KEYS}
    of_both = {
        "listen": settings.LISTEN,
        "other": settings.OTHER,
        "pace": [each.name for each in fields(ServicePace)],
        "metrics": operations_settings.METRICS,
        "log": ("form",),
    }
    of_server = {
        "pacing": [each.name for each in fields(PacingSettings)],
        "openrtb": openrtb_settings.OPENRTB,
        "openrtb.attribute": openrtb_settings.ATTRIBUTE,
        "openrtb.exchange": openrtb_settings.EXCHANGE,
        "statistics": (*statistics_settings.OWN, *statistics_settings.OF_ROUND),
    }
    tables = {*of_party, *of_both, *of_server} - {"openrtb.attribute", "openrtb.exchange"}
    assert tables == set(settings.TOP), "a table that is read is told of"
    found = {(table, key, party) for table, keys in of_party.items() for party in BOTH for key in keys[party]}
    found |= {(table, key, party) for table, keys in of_both.items() for party in BOTH for key in keys}
    return found | {(table, key, Party.SERVER) for table, keys in of_server.items() for key in keys}


def test_every_key_that_is_read_is_listed_and_no_other() -> None:
    assert set(listed()) == known()


def test_defaults_are_those_of_the_settings() -> None:
    told = listed()

    def default(table: str, key: str) -> str:
        return told[table, key, Party.SERVER].replace(",", "")

    for each in fields(ServicePace):
        assert default("pace", each.name) == str(each.default), each.name
    paced = PacingSettings()
    for each in fields(PacingSettings):
        value = getattr(paced, each.name)
        said = str(value).lower() if isinstance(value, bool) else f"{float(value):g}"
        assert default("pacing", each.name) == said, each.name
    for each in fields(OpenRtbSettings):
        if each.name in openrtb_settings.OPENRTB and isinstance(each.default, int | str):
            assert default("openrtb", each.name) == str(each.default), each.name
    for name in ("requests_per_key", "failures_per_address", "menus_per_address"):
        assert default("billing", name) == str(getattr(billing_settings, name.upper()))
    assert default("statistics", "cells_most") == str(statistics_settings.CELLS_MOST)
    assert default("statistics", "strength") == f"{statistics_settings.STRENGTH:g}"
    assert default("statistics", "scope") == statistics_settings.SCOPE
    assert default("store", "keep_days") == str(settings.KEEP_DAYS)
