"""The table [openrtb]: what is wrong with it is one line that names the key, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.services.trial import write_trial


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trial(tmp_path, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    return tmp_path


def test_the_trial_has_an_exchange_whose_key_is_not_shown(folder: Path) -> None:
    found = load_settings(folder / "server.toml", Party.SERVER).openrtb
    assert found is not None
    assert (found.url, found.currency, found.vendor, found.charge_on) == (
        "http://127.0.0.1:8472",
        "USD",
        None,
        "burl",
    )
    (exchange,) = found.exchanges
    assert (exchange.name, exchange.reasons) == ("trial", True)
    secret = (folder / "exchange.secret").read_text().strip()
    assert secret not in repr(found)
    assert exchange.digest.hex() not in repr(found)
    assert load_settings(folder / "proxy.toml", Party.PROXY).openrtb is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('currency = "USD"', 'currency = "usd"', "openrtb.currency: expected a code such as USD, got 'usd'"),
        ('currency = "USD"', "vendor = 0", "expected openrtb.vendor to be a whole number >= 1"),
        ('currency = "USD"', 'charge_on = "lurl"', "openrtb.charge_on: expected one of burl, nurl, got 'lurl'"),
        ('currency = "USD"', "floor = 1", "openrtb.floor: expected one of"),
        ('url = "http://127.0.0.1:8472"    #', 'url = "http://ads.example" #', "openrtb.url: expected https"),
        ('name = "city"', 'name = "town"', "openrtb.attribute 1.name: expected one of city, topic, got 'town'"),
        (
            'name = "topic"',
            'name = "city"',
            "openrtb.attribute 2.name: expected an attribute with a tree",
        ),
        ('"site.pagecat"', '"user.id"', "openrtb.attribute 2.from: expected some of device.geo.country"),
        ('IAB8 = "Food"', 'IAB8 = "Fod"', "openrtb.attribute 2.values: expected nodes of topic, got 'Fod'"),
        ('name = "trial"', 'name = "a b"', "openrtb.exchange 1.name: expected letters, digits"),
        ('secret = "exchange.secret"', 'secret = "none"', "openrtb.exchange 1.secret: expected a file at"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, before: str, after: str, said: str) -> None:
    settings = folder / "server.toml"
    text = settings.read_text()
    assert before in text
    settings.write_text(text.replace(before, after))
    with pytest.raises(BadInput) as caught:
        load_settings(settings, Party.SERVER)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_exchanges_have_names_and_secrets_of_their_own_and_need_billing(folder: Path) -> None:
    settings = folder / "server.toml"
    text = settings.read_text()
    twice = '\n[[openrtb.exchange]]\nname = "{}"\nsecret = "exchange.secret"\n'
    for name, said in (("trial", "expected names of their own"), ("other", "expected secrets of their own")):
        settings.write_text(text + twice.format(name))
        with pytest.raises(BadInput, match=said):
            load_settings(settings, Party.SERVER)
    proxy = folder / "proxy.toml"
    proxy.write_text(proxy.read_text() + '\n[openrtb]\nurl = "https://x.example"\n')
    with pytest.raises(BadInput, match="openrtb: expected no such table of a proxy"):
        load_settings(proxy, Party.PROXY)
