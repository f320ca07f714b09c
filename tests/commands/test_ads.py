"""`tacit ads`: campaigns, ads and keys from a terminal, by a key over HTTP and on the ad server's machine."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.cli import main
from tacit.deliver.campaigns.access import AccessRole
from tacit.entropy import Entropy
from tacit.errors import CampaignRefused
from tacit.services import trial
from tacit.services.ads import access_client
from tacit.services.ads.access_client import AccessClient
from tacit.services.ads.campaign_desk import HttpDesk
from tacit.services.http_clients import LinkFailed
from tacit.store import SqlAdStore
from tests.support.ad_campaigns import BEAN, SHOES, png
from tests.support.ads_services import AdsWorld
from tests.support.service_worlds import SERVER_URL, an_answer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdsWorld]:
    made = AdsWorld(Path(tmp_path_factory.mktemp("ads")))
    yield made
    made.end()


class Terminal:
    """Commands with where they go, and what they said."""

    def __init__(self, where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        self.where, self.capsys = where, capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        assert main(["ads", *map(str, arguments), *self.where]) == code, self.capsys.readouterr()
        told = self.capsys.readouterr()
        if code == 2:
            assert re.fullmatch(r"tacit ads: [^\n]+\n", told.err)
            assert told.out == ""
            return told.err
        assert told.err == ""
        return told.out

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments, "--json"))


def reach(world: AdsWorld, key: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The way to an ad server in this process, where a network would be."""
    monkeypatch.setattr(access_client, "open_client", lambda *_: httpx.Client(transport=world.network))
    monkeypatch.setenv("TACIT_ADS_URL", SERVER_URL)
    monkeypatch.setenv("TACIT_ADS_KEY", key)
    return []


@pytest.fixture(params=["http", "settings"])
def terminal(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Terminal:
    """An operator's: over HTTP, or on the machine itself."""
    monkeypatch.chdir(tmp_path)
    if request.param == "settings":
        trial.write_trial(Path("demo"), proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
        SqlAdStore.open(Path("demo/ads.sqlite")).close()
        return Terminal(["--settings", "demo/server.toml"], capsys)
    world: AdsWorld = request.getfixturevalue("world")
    return Terminal(reach(world, world.key(AccessRole.OPERATOR), monkeypatch), capsys)


def test_a_contact_is_erased_in_the_trail_too(terminal: Terminal) -> None:
    for contact in ("ann@bean.example", "bob@bean.example"):
        terminal("advertiser", BEAN, "--contact", contact)
    assert "ann@bean.example" in str(terminal.json("changes"))
    told = terminal("advertiser", BEAN, "--erase-contact")
    assert told == f"advertiser {BEAN}: its contact is erased, in the trail of changes too\n"
    assert {"name": BEAN, "contact": ""} in terminal.json("advertiser")
    trail = str(terminal.json("changes"))
    assert "bean.example" not in trail
    assert "erased" in trail
    for wrong in (("advertiser", "--erase-contact"), ("advertiser", BEAN, "--contact", "x", "--erase-contact")):
        assert "--erase-contact: expected a name" in terminal(*wrong, code=2)


def test_a_campaign_from_its_first_bid_to_its_ads(terminal: Terminal, tmp_path: Path) -> None:
    assert (
        terminal("advertiser", BEAN, "--contact", "ads@bean.example")
        == f"advertiser {BEAN}, ads@bean.example\n"
    )
    assert {"name": BEAN, "contact": "ads@bean.example"} in terminal.json("advertiser")
    assert BEAN in terminal("advertiser")
    told = terminal(
        "add", BEAN, "Spring roast", "--bid", 400_000, "--bid", "650000@1:North/1:Food", "--budget",
        50_000_000, "--starts", "2027-03-01T00:00:00Z", "--category", "IAB8-5", "--cap", "3/86400", "--block",
        "1:South/1:Food",
    )  # fmt: skip
    number = int(re.fullmatch(rf"campaign (\d+): Spring roast, of {BEAN}\n", told)[1])  # type: ignore[index]
    shown = terminal("show", number)
    assert "schedule = { starts = 2027-03-01T00:00:00Z }" in shown
    assert "# charged 0.000000" in shown
    (row,) = [line for line in terminal("list").splitlines() if "Spring roast" in line]
    assert "0.650000 per click at most, 2 contexts" in row
    terminal("set", number, "--status", "paused", "--daily", 7_000_000, "--ends", "2027-04-01T00:00:00+02:00")
    timed = terminal.json("set", number, "--hours", "8-9 32", "--utc-offset", 120)["campaign"]["schedule"]
    assert (timed["hours"], timed["utc_offset_minutes"], timed["ends"]) == ([8, 9, 32], 120, 1_806_530_400)
    assert terminal.json("set", number, "--hours", "none")["campaign"]["schedule"]["hours"] == []
    stored = terminal.json(
        "set",
        number,
        "--bid",
        "500000",
        "--bid",
        "90@1:South/1:Food",
        "--no-bid",
        "1:North/1:Food",
        "--budget",
        "none",
    )
    campaign = stored["campaign"]
    assert [(bid["micros"], bid["context"] and bid["context"]["values"]) for bid in campaign["bids"]] == [
        (500_000, None), (90, ["South", "Food"]),
    ]  # fmt: skip
    assert (campaign["budget_micros"], campaign["daily_micros"], campaign["status"]) == (
        None,
        7_000_000,
        "paused",
    )
    assert (campaign["schedule"]["starts"], campaign["schedule"]["ends"]) == (1_803_859_200, 1_806_530_400)
    assert (campaign["caps"], campaign["categories"]) == ([{"impressions": 3, "seconds": 86_400}], ["IAB8-5"])
    assert stored["version"] == 5
    assert terminal.json("show", number) == stored
    assert [each["campaign"]["number"] for each in terminal.json("list", "--status", "paused")] == [number]

    (tmp_path / "roast.png").write_bytes(png())
    (tmp_path / "roast.html").write_text("<h2>Roast</h2><script>x</script>")
    ad = ("creative", "add", number, "--title", "Fresh", "--address", "https://bean.example/")
    image = terminal.json(*ad, "--image", "roast.png")
    assert (image["media"], image["width"]) == ("image/png", 32)
    assert terminal(*ad, "--html", "roast.html").endswith("text/html, Fresh\n")
    terminal(*ad, "--text", "On Mondays")
    listed = terminal("creative", "list", number)
    assert "32 x 32" in listed
    assert len(terminal.json("creative", "list", number)) == 3
    assert terminal("creative", "remove", image["number"]) == f"removed ad {image['number']}\n"
    assert len(terminal.json("creative", "list", number)) == 2
    trail = terminal("changes", "--subject", f"campaign {number}")
    assert "status: active -> paused" in trail
    assert [each["before"] is None for each in terminal.json("changes", "--subject", f"campaign {number}")] == [
        True, False, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("terminal", ["settings"], indirect=True)
def test_a_budget_of_tacit_bill_stands_in_the_trail(terminal: Terminal) -> None:
    terminal("advertiser", BEAN)
    number = terminal.json("add", BEAN, "Billed", "--bid", 5)["campaign"]["number"]
    assert main(["bill", "budget", "demo/server.toml", str(number), "900"]) == 0
    assert "has a budget of 0.000900" in terminal.capsys.readouterr().out
    last = terminal.json("changes", "--subject", f"campaign {number}")[-1]
    was, now = last["before"]["budget_micros"], last["after"]["budget_micros"]
    assert (last["key_id"], was, now) == ("machine", None, 900)


def test_files_go_out_and_come_back(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(
        f'[[advertiser]]\nname = "{SHOES}"\n\n'
        + "".join(
            f'[[campaign]]\nadvertiser = "{SHOES}"\ntitle = "{title}"\nevent = "click"\n'
            "bids = [{ micros = 9 }]\n"
            for title in ("Trail", "Road")
        )
    )
    done = terminal.json("import", "new.toml")
    assert (len(done["added"]), done["changed"]) == (2, [])
    again = terminal("import", "new.toml", code=2)
    assert "it is there already, and says something else: title: expected one that no campaign" in again
    for name in ("out.csv", "out.toml"):
        told = terminal("export", "--out", name, "--advertiser", SHOES)
        assert told == f"wrote 2 campaigns to {name}\n"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        changed = (tmp_path / name).read_text().replace("Road", f"Road by {name}")
        (tmp_path / name).write_text(changed)
        last = done["added"][1]
        assert terminal("import", name) == f"{name}: no campaign added, campaign {last} changed\n"
        assert terminal("import", name) == f"{name}: no campaign added, no campaign changed\n"
    (tmp_path / "out.csv").write_text((tmp_path / "out.csv").read_text().replace("Trail", "Hill"))
    stale = terminal("import", "out.csv", code=2)
    assert re.search(r"it was changed meanwhile: read it again: campaign \d+: expected version 3, got 1", stale)
    assert "Hill" not in terminal("list")
    assert terminal("export", "--csv", "--advertiser", SHOES).startswith("number,version,advertiser,title")
    assert "version" not in terminal("export", "--no-versions", "--advertiser", SHOES)
    terminal("set", done["added"][0], "--status", "ended")
    assert "Trail" not in terminal("export", "--advertiser", SHOES)
    assert "Trail" in terminal("export", "--advertiser", SHOES, "--all")
    assert "which exists; say --overwrite" in terminal("export", "--out", "out.csv", code=2)


def test_keys_are_made_rotated_and_revoked(terminal: Terminal, tmp_path: Path) -> None:
    terminal("advertiser", BEAN)
    made = terminal("keys", "make", "advertiser", "--advertiser", BEAN, "--days", "900")
    assert re.search(r"^tacit_[0-9a-f]{16}_[0-9a-f]{64}\nkeep it: it is not shown again$", made, re.MULTILINE)
    key_id = re.match(r"key ([0-9a-f]{16}): advertiser of Bean & Leaf, until 20", made)[1]  # type: ignore[index]
    rotated = terminal("keys", "rotate", key_id, "--out", "bean.key", "--days", "950")
    assert f"the old key {key_id}: until 20" in rotated
    assert "tacit_" not in rotated
    file = tmp_path / "bean.key"
    assert re.fullmatch(r"tacit_[0-9a-f]{16}_[0-9a-f]{64}\n", file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "which exists" in terminal("keys", "rotate", key_id, "--out", "bean.key", code=2)
    new_id = file.read_text().split("_")[1]
    assert "revoked 20" in terminal("keys", "revoke", new_id)
    listed = {each["key_id"]: each for each in terminal.json("keys", "list", "--advertiser", BEAN)}
    assert listed[new_id]["revoked"] is not None
    assert listed[key_id]["ends"] is not None
    assert "until it is revoked" in terminal("keys", "make", "viewer", "--out", "viewer.key")
    assert new_id in terminal("keys", "list")
    assert terminal.json("whoami")["role"] == "operator"
    assert terminal("keys", "rotate", new_id, code=2).startswith("tacit ads: what has ended never comes back")


@pytest.mark.parametrize("terminal", ["http"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", 99_999), "there is no such thing here"),
        (("set", 99_999, "--status", "paused"), "there is no such thing here"),
        (("set", 1,), "expected something to change, as --budget MICROS, got nothing"),
        (("add", "Nobody", "x", "--bid", "1"), "advertiser: expected one that was added, got 'Nobody'"),
        (("add", BEAN, "x", "--bid", "1@North"), "--bid: expected LEVEL:VALUE/LEVEL:VALUE..., got 'North'"),
        (("add", BEAN, "x", "--bid", "1.5"), "--bid: expected a whole number of micros, got '1.5'"),
        (("add", BEAN, "x", "--bid", "1", "--budget", "much"), "--budget: expected a whole number of micros"),
        (("add", BEAN, "x", "--bid", "1", "--starts", "soon"), "--starts: expected seconds since 1970 or"),
        (("add", BEAN, "x", "--bid", "1", "--cap", "3"), "--cap: expected IMPRESSIONS/SECONDS, got '3'"),
        (("import", "none.toml"), "none.toml: expected a file of campaigns here, got no such file"),
        (("export", "--out", "x.json"), "--out: expected NAME.toml or NAME.csv, got x.json"),
        (
            ("creative", "add", 1, "--title", "x", "--address", "y", "--image", "no.png"),
            "--image: expected a file at",
        ),
        (("creative", "remove", 99_999), "there is no such thing here"),
        (("keys", "make", "advertiser"), "advertiser: expected the advertiser that the key is for, got none"),
        (("keys", "make", "operator", "--days", "-1"), "--days: expected 0 or more"),
        (("keys", "revoke", "0" * 16), "there is no such thing here"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(terminal: Terminal, arguments: tuple[object, ...], message: str) -> None:
    assert message in terminal(*arguments, code=2)


def test_the_ad_server_decides_what_a_key_may_do(
    world: AdsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    operator = Terminal(reach(world, world.key(AccessRole.OPERATOR), monkeypatch), capsys)
    for name in (BEAN, SHOES):
        operator("advertiser", name)
    number = operator.json("add", BEAN, "Mine", "--bid", 5)["campaign"]["number"]
    other = Terminal(reach(world, world.key(AccessRole.ADVERTISER, SHOES), monkeypatch), capsys)
    assert "there is no such thing here" in other("set", number, "--status", "ended", code=2)
    assert all(each["campaign"]["advertiser"] == SHOES for each in other.json("list"))
    assert "this key may not do that" in other("keys", "make", "operator", code=2)
    assert other("whoami").endswith(f": advertiser of {SHOES}\n")
    looks = Terminal(reach(world, world.key(AccessRole.VIEWER), monkeypatch), capsys)
    assert "this key may not do that" in looks("set", number, "--status", "ended", code=2)
    assert looks.json("show", number)["campaign"]["status"] == "active"


def test_a_key_comes_from_a_file_of_its_owner_and_is_never_repeated(
    world: AdsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    key = world.key(AccessRole.VIEWER)
    reach(world, key, monkeypatch)
    monkeypatch.delenv("TACIT_ADS_KEY")
    terminal = Terminal([], capsys)
    assert "expected --key-file FILE, or an access key in TACIT_ADS_KEY, got neither" in terminal(
        "list", code=2
    )
    file = tmp_path / "a.key"
    file.write_text(key + "\n")
    file.chmod(0o644)
    assert "expected a file that only its owner may read (chmod 600), got mode 644" in terminal(
        "list", "--key-file", "a.key", code=2
    )
    file.chmod(0o600)
    assert isinstance(terminal.json("list", "--key-file", "a.key"), list)
    file.write_text(key[:-1] + "g")
    told = terminal("list", "--key-file", "a.key", code=2)
    assert "expected an access key, tacit_ID_SECRET, got another text" in told
    assert key[:40] not in told
    file.write_text(key[:-64] + "0" * 64)
    assert "expected an access key that holds" in terminal("list", "--key-file", "a.key", code=2)
    beside = terminal("list", "--key-file", "a.key", "--settings", "server.toml", code=2)
    assert "--key-file: expected none beside --settings" in beside
    monkeypatch.delenv("TACIT_ADS_URL")
    assert "expected --url URL, or an address in TACIT_ADS_URL, or --settings FILE" in terminal("list", code=2)
    monkeypatch.setenv("TACIT_ADS_KEY", key)
    assert "expected https:// for another machine" in terminal("list", "--url", "http://ads.example", code=2)
    assert "expected an answer from https://away.test, got none" in terminal(
        "list", "--url", "https://away.test", code=2
    )


def test_reports_and_pacing_are_the_same_by_settings_and_by_key(terminal: Terminal) -> None:
    terminal("advertiser", BEAN)
    number = terminal.json("add", BEAN, "A report's", "--bid", 400_000, "--budget", 50_000_000)["campaign"][
        "number"
    ]
    report = terminal("report", "--advertiser", BEAN, "--by", "day")
    assert report.startswith(f"{BEAN}, ")
    assert "impressions, spend, held: (0, 0)-DP per choice on a device" in report
    told = terminal.json("report", "--advertiser", BEAN, "--from", "2027-01-01", "--until", "2027-02-01")
    assert number in [row["campaign"] for row in told["rows"]]
    for name, begins in (("r.csv", "row,campaign,"), ("r.html", "<!DOCTYPE html>"), ("r.json", "{")):
        assert terminal("report", "--advertiser", BEAN, "--out", name) == f"wrote {name}\n"
        assert Path(name).read_text().startswith(begins)
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    (row,) = [line for line in terminal("pacing").splitlines() if line.split()[:1] == [str(number)]]
    assert "50.000000" in row
    assert "expected a day such as 2027-01-31" in terminal(
        "report", "--advertiser", BEAN, "--from", "1.2.", code=2
    )
    terminal("report", "--advertiser", "Nobody", code=2)


def test_an_advertisers_key_reports_of_itself(
    world: AdsWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Terminal(reach(world, world.key(AccessRole.OPERATOR), monkeypatch), capsys)
    for name in (BEAN, SHOES):
        operator("advertiser", name)
        operator("add", name, "Of its own", "--bid", 400_000)
    assert "advertiser: expected whose report (--advertiser NAME), got none" in operator("report", code=2)
    own = Terminal(reach(world, world.key(AccessRole.ADVERTISER, BEAN), monkeypatch), capsys)
    assert own.json("report")["advertiser"] == BEAN
    assert {each["advertiser"] for each in own.json("pacing")["campaigns"]} == {BEAN}
    assert "there is no such thing here" in own("report", "--advertiser", SHOES, code=2)
    both = own("pacing", "server.toml", "--settings", "server.toml", code=2)
    assert "--settings: expected none beside SETTINGS, got both" in both
    assert "--url: expected none beside" in own("report", "server.toml", "--url", SERVER_URL, code=2)


def test_an_answer_of_another_kind_is_told_from_one_of_an_ad_server() -> None:
    slow, wrong = {"type": "tacit:too-many-requests", "title": "later"}, "x\x1b[2J\ny"
    answers = iter(
        [
            an_answer(200, b"<html>hello</html>"),
            an_answer(200, b'{"campaigns": [{}], "next": null}'),
            an_answer(502, b"\x1b[2J bad gateway"),
            an_answer(429, json.dumps(slow).encode(), httpx.Headers({"retry-after": "9"})),
            an_answer(
                400, json.dumps({"type": "tacit:campaign-malformed", "title": "no", "detail": wrong}).encode()
            ),
        ]
    )
    client = httpx.Client(transport=httpx.MockTransport(lambda _: next(answers)))
    desk = HttpDesk(AccessClient(client, SERVER_URL, "k"))
    for _ in range(2):
        with pytest.raises(
            LinkFailed, match=r"expected an ad server at https://server\.test, got another answer"
        ):
            desk.campaigns()
    with pytest.raises(LinkFailed, match=r"refused: status 502$"):
        desk.campaigns()
    with pytest.raises(LinkFailed, match=r"refused: later, in 9 s$"):
        desk.campaigns()
    with pytest.raises(CampaignRefused) as refused:
        desk.campaigns()
    assert refused.value.detail == "x [2J y"
