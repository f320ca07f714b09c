"""The client as files of a publisher's site: what is written, what is refused, what a page is told to have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rjsmin

from tacit import cli
from tacit.errors import BadInput
from tacit.services.page import device_files
from tacit.services.page.client_export import (
    check_device_parties,
    example_context,
    export_client,
    parties_from_toml,
    read_device_parties,
)
from tacit.services.signatures import Party
from tests.support.browsers import served_parties
from tests.support.page_worlds import DemonstrationWorld, a_demonstration
from tests.support.repository import ROOT

MODULES = sorted(str(path.relative_to(ROOT / "device")) for path in (ROOT / "device").rglob("*.js"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemonstrationWorld]:
    with a_demonstration(tmp_path_factory.mktemp("export") / "demo") as made, served_parties(made):
        yield made


@pytest.fixture
def parties(world: DemonstrationWorld) -> dict[str, Any]:
    return read_device_parties(f"{world.urls[Party.SERVER]}/device/parties.json")


def test_a_site_gets_the_whole_client_and_the_parties(
    world: DemonstrationWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, out = f"{world.urls[Party.SERVER]}/device/parties.json", tmp_path / "site" / "tacit"
    assert cli.main(["device", "export", "--out", str(out), "--parties", url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert written == said["files"] == sorted([*MODULES, "parties.json"])
    assert "prebid/tacitBidAdapter.js" in written
    for name in MODULES:
        assert (out / name).read_bytes() == rjsmin.jsmin((ROOT / "device" / name).read_bytes())
    assert json.loads((out / "parties.json").read_text()) == world.get("/device/parties.json").json()
    assert world.urls[Party.PROXY] in said["policy"]
    assert world.urls[Party.SERVER] not in said["policy"]


def test_what_is_said_to_people_is_what_a_page_needs(
    world: DemonstrationWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "parties.json"
    copy.write_bytes(world.get("/device/parties.json").content)
    out = tmp_path / "tacit"
    given = ["--parties", str(copy), "--at", "/ads/client/", "--currency", "EUR"]
    assert cli.main(["device", "export", "--out", str(out), *given]) == 0
    said = capsys.readouterr().out
    imported = re.findall(r'from "/ads/client/([\w/]+\.js)"', said)
    assert imported == ["tacit.js", "prebid/bids.js"]
    assert all((out / name).is_file() for name in imported)
    for name, path in (("openTacit", "tacit.js"), ("openBids", "prebid/bids.js")):
        assert f"export async function {name}(" in (out / path).read_text()
    assert 'currency: "EUR", context: ["Northport", "Coffee"]' in said
    snippet = said.split("\n\n")[2]
    assert (snippet.startswith("<div"), len(snippet.splitlines())) == (True, 6)


def test_operators_files_say_the_same_as_the_ad_server(
    world: DemonstrationWorld, parties: dict[str, Any]
) -> None:
    folder = world.folder
    made = parties_from_toml(folder / "parties.toml", folder / "contexts.toml", [1, 1])
    shown = {name: each for name, each in parties.items() if name != "currency"}  # of the demonstration's page
    assert made == {**shown, "demonstration": False}
    assert (
        parties_from_toml(folder / "parties.toml", folder / "contexts.toml", [2, 2], vendor=755)["vendor"]
        == 755
    )
    with pytest.raises(BadInput, match=r"disclosure\.levels: expected levels of the hierarchy"):
        parties_from_toml(folder / "parties.toml", folder / "contexts.toml", [0, 9])
    with pytest.raises(BadInput, match="vendor: expected an id"):
        parties_from_toml(folder / "parties.toml", folder / "contexts.toml", [1, 1], vendor=70_000)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"version": 2}, "of version 1"),
        ({"server": {"signing": "00" * 32}}, "server.sealing"),
        ({"proxy": None}, "proxy.signing"),
        ({"proxy": {"signing": "00" * 32, "url": "http://proxy.example"}}, "expected https"),
        ({"proxy": {"signing": "00" * 32}}, "proxy.url"),
        ({"proxy": {"signing": "0" * 63, "url": "https://proxy.example"}}, "proxy.signing"),
        ({"hierarchy": None}, "no contexts.toml"),
        ({"disclosure": {"levels": [9, 9]}}, "disclosure.levels"),
        ({"limits": {"local": 6}}, "limits.central"),
        ({"limits": {}}, "limits.local"),
    ],
)
def test_parties_that_a_device_would_refuse_are_refused(
    parties: dict[str, Any], change: dict[str, Any], refusal: str, tmp_path: Path
) -> None:
    path = tmp_path / "parties.json"
    path.write_text(json.dumps({**parties, **change}))
    with pytest.raises(BadInput, match=refusal) as refused:
        read_device_parties(str(path))
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(str(path))
    with pytest.raises(BadInput):
        check_device_parties([])


def test_nothing_is_written_over_unless_it_was_exported(parties: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "tacit"
    export_client(out, parties)
    with pytest.raises(BadInput, match="--overwrite"):
        export_client(out, parties)
    (out / "old.js").write_text("no longer a module")
    export_client(out, parties, overwrite=True)
    assert not (out / "old.js").exists()
    (out / "index.html").write_text("somebody's page")
    with pytest.raises(BadInput, match="something else"):
        export_client(out, parties, overwrite=True)
    assert (out / "index.html").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"at": "javascript:alert(1)"},
        {"at": '/"><script>'},
        {"at": "tacit"},
        {"currency": "euro"},
        {"currency": '"x'},
    ],
)
def test_what_would_become_markup_is_refused(
    parties: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="expected a"):
        export_client(tmp_path / "tacit", parties, **options)
    assert not (tmp_path / "tacit").exists()


def test_refusals_are_one_line(
    world: DemonstrationWorld,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export = ["device", "export", "--out", str(tmp_path / "tacit"), "--parties"]
    toml = str(world.folder / "parties.toml")
    server = world.urls[Party.SERVER]
    for given, expected in (
        (["nowhere.json"], "got no file"),
        ([f"{server}/device/nothing.json"], "got status 404"),
        (["http://ads.example/device/parties.json"], "expected https://"),
        ([toml], "--contexts FILE and --levels"),
        (
            [toml, "--contexts", str(world.folder / "contexts.toml"), "--levels", "one"],
            "expected whole numbers",
        ),
        (["nowhere.json", "--vendor", "3"], "with a parties.toml alone"),
    ):
        assert cli.main([*export, *given]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert expected in said
    monkeypatch.setattr(device_files, "device_folder", lambda: tmp_path / "none")
    assert cli.main([*export, f"{server}/device/parties.json"]) == 2
    assert "expected the client's modules" in capsys.readouterr().err
    assert not (tmp_path / "tacit").exists()


def test_a_context_to_begin_with() -> None:
    attributes = [
        {"name": "topic", "kind": "tree", "parents": {"Food": None, "Coffee": "Food"}},
        {"name": "tags", "kind": "set", "parents": {"a": None}},
        {"name": "place", "kind": "decimals"},
    ]
    assert example_context({"attributes": attributes}) == ["Coffee", ["a"], [0, 0]]
