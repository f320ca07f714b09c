"""The device's client as an ad server hands it out: its modules, and what it must know of the parties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rjsmin

import tacit
from tacit.deliver.device.account import DeviceLimits
from tacit.errors import BadInput
from tacit.services.page import device_files
from tacit.services.page.device_files import (
    device_folder,
    finest_levels,
    limits_as_json,
    load_device,
    market_as_json,
    origin_of,
    read_parties,
)
from tacit.services.settings import load_parties, load_settings
from tacit.services.signatures import Party
from tests.support.listed_market import LISTED_MARKET
from tests.support.operated_parties import running, write_settings
from tests.support.page_worlds import DemonstrationWorld, a_demonstration, replace_in
from tests.support.repository import ROOT

MODULES = sorted(path.name for path in (ROOT / "device").glob("*.js"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemonstrationWorld]:
    with a_demonstration(tmp_path_factory.mktemp("device") / "demo") as made:
        yield made


def test_modules_lie_in_the_repository_or_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_folder() == ROOT / "device"
    assert sorted(load_device()) == MODULES
    monkeypatch.setattr(tacit, "__file__", str(tmp_path / "site-packages" / "tacit" / "__init__.py"))
    monkeypatch.setattr(device_files, "files", lambda _: tmp_path / "site-packages" / "tacit")
    folder = tmp_path / "site-packages" / "tacit" / "device"
    assert device_folder() == folder
    assert load_device() == {}, "an installation without them still serves all else"
    folder.mkdir(parents=True)
    (folder / "bytes.js").write_text("export const one = 1;")
    (folder / "notes.md").write_text("not for browsers")
    assert list(load_device()) == ["bytes.js"]


@pytest.mark.parametrize("name", MODULES)
def test_each_module_is_served(world: DemonstrationWorld, name: str) -> None:
    answer = world.get(f"/device/{name}")
    assert answer.content == rjsmin.jsmin((ROOT / "device" / name).read_bytes())
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    policy = answer.headers["content-security-policy"]
    assert (
        f"connect-src 'self' {world.urls[Party.PROXY]}" in policy
    )  # one of them is a worker, with this policy
    assert "unsafe" not in policy
    again = world.get(f"/device/{name}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_demonstration_has_modules_as_they_are_now(
    world: DemonstrationWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_files, "device_folder", lambda: tmp_path)
    monkeypatch.setattr("tacit.services.sites.FRESH_SECONDS", 0.0)
    for text in ("export const now=1;", "export const now=2;"):
        (tmp_path / "made_up.js").write_text(f"// {text}\n{text}")
        assert world.get("/device/made_up.js").text == text


def test_what_a_device_must_know_of_the_parties(world: DemonstrationWorld) -> None:
    answer = world.get("/device/parties.json", headers={"origin": "https://elsewhere.example"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "*"
    told, known = answer.json(), load_parties(world.folder / "parties.toml")
    assert known.proxy.signing_key is not None
    assert known.server.signing_key is not None
    assert told["proxy"] == {
        "url": known.proxy.url,
        "signing": known.proxy.signing_key.hex(),
        "sealing": known.proxy.public_key.hex(),
    }
    assert told["server"] == {
        "url": known.server.url,
        "signing": known.server.signing_key.hex(),
        "sealing": known.server.public_key.hex(),
    }
    assert (told["version"], told["demonstration"], told["vendor"]) == (1, True, None)
    assert told["currency"] == "USD"  # as the settings of a trial say
    assert told["disclosure"] == {"levels": [1, 1]}
    assert told["limits"] == {
        "local": 6.0, "central": 6.0, "perChoice": 2.0, "delta": 1e-6, "windowSeconds": 86_400
    }  # fmt: skip
    assert told["limits"] == limits_as_json(DeviceLimits())
    assert told["hierarchy"]
    again = world.get("/device/parties.json", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    secrets = [path.read_text().strip() for path in world.folder.glob("*.s[e]*") if path.suffix != ".toml"]
    assert len(secrets) >= 5
    assert not [secret for secret in secrets if secret[:16] in answer.text]


def test_a_market_that_changed_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_files, "LOOK_SECONDS", 0.0)
    with a_demonstration(tmp_path / "demo") as world:
        market = world.folder / "market.toml"
        replace_in(market, "levels = [[1, 1], [2, 2]]", "levels = [[1, 2], [2, 2]]")
        told = world.get("/device/parties.json").json()
        assert told["disclosure"] == {"levels": [1, 2]}
        market.write_text("no longer = [")
        assert world.get("/device/parties.json").json() == told
        assert "devices are not told of the market as it is now" in caplog.text


def test_a_market_that_lists_its_menus(tmp_path: Path) -> None:
    (tmp_path / "market.toml").write_text(LISTED_MARKET)
    told = market_as_json(tmp_path / "market.toml")
    assert told == {"hierarchy": None, "disclosure": {"levels": [1, 1]}}
    write_settings(tmp_path / "trial")
    (tmp_path / "contexts.toml").write_text((tmp_path / "trial" / "contexts.toml").read_text())
    assert market_as_json(tmp_path / "market.toml")["hierarchy"]


def test_without_a_file_of_the_parties_settings_speak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_settings(tmp_path)[Party.SERVER]
    known = load_parties(tmp_path / "parties.toml")
    (tmp_path / "parties.toml").unlink()
    with running(load_settings(path, Party.SERVER), monkeypatch) as client:
        told = client.get("/device/parties.json").json()
    assert known.proxy.signing_key is not None
    assert told["proxy"] == {
        "url": known.proxy.url, "signing": known.proxy.signing_key.hex(), "sealing": None
    }  # fmt: skip
    assert told["server"]["url"] is None
    assert told["server"]["sealing"] == known.server.public_key.hex()


@pytest.mark.parametrize(
    ("party", "key"), [("server", "public_key"), ("server", "signing_key"), ("proxy", "signing_key")]
)
def test_parties_with_other_keys_are_refused(tmp_path: Path, party: str, key: str) -> None:
    """A page that devices are told to trust must not name keys of somebody else."""
    path = write_settings(tmp_path)[Party.SERVER]
    before = getattr(getattr(load_parties(tmp_path / "parties.toml"), party), key)
    replace_in(tmp_path / "parties.toml", before.hex(), bytes(32).hex())
    with pytest.raises(BadInput, match=rf"parties.toml: {party}\.{key}: expected the key that these settings"):
        read_parties(load_settings(path, Party.SERVER))


def test_the_finest_levels_come_first() -> None:
    assert finest_levels([(2, 2), (1, 1), (1, 1)]) == (1, 1)
    assert finest_levels([(2, 2), (2, 0), (0, 2), (1, 2)]) == (2, 0)
    assert finest_levels([(0,)]) == (0,)


def test_origins() -> None:
    assert origin_of("https://proxy.example:8443/some/where") == "https://proxy.example:8443"
    assert origin_of("http://127.0.0.1:8471") == "http://127.0.0.1:8471"
    assert origin_of("http://[::1]:8471") == "http://[::1]:8471"
