"""The table [billing]: optional, read key by key, and refused in one line where something is wrong with it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tacit.bill.protocol.keys import SigningKey
from tacit.bill.proxy.party import HoldRule
from tacit.cli import main
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services import launch, trial
from tacit.services.billing_settings import AdServerSettings, BillingProxySettings
from tacit.services.settings import load_parties, load_settings
from tacit.services.signatures import Party
from tacit.services.visits import read_place
from tacit.store.billing_proxy import SqlBillingProxyStore

PARTIES = (Party.PROXY, Party.SERVER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "trial"
    trial.write_trial(place, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    return place


def changed(folder: Path, party: Party, old: str, new: str) -> Path:
    path = folder / f"{party}.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    return path


def load_ads(path: Path) -> AdServerSettings:
    settings = load_settings(path, Party.SERVER).billing
    assert isinstance(settings, AdServerSettings)
    return settings


def test_a_trial_with_billing_is_complete(folder: Path) -> None:
    proxy, server = (load_settings(folder / f"{party}.toml", party) for party in PARTIES)
    parties, here = load_parties(folder / "parties.toml"), folder.resolve()
    signing = [SigningKey.derive(each.secrets["sealing"]).public for each in (proxy, server)]
    assert [parties.proxy.signing_key, parties.server.signing_key] == signing
    assert server.billing == AdServerSettings(
        str(here / "ads.sqlite"),
        str(here / "priors.sqlite"),
        here / "market.toml",
        proxy_signing_key=signing[0],
        synthetic=True,
        witness=here / "ads.sqlite.witness",
        parties=here / "parties.toml",
    )
    assert proxy.billing == BillingProxySettings(
        str(here / "reports.sqlite"),
        server_signing_key=signing[1],
        hold=HoldRule(2),
        witness=here / "reports.sqlite.witness",
        synthetic=True,
    )
    for name in ("market.toml", "contexts.toml", "campaigns.toml", "creatives.toml", "parties.toml"):
        assert stat.S_IMODE((folder / name).stat().st_mode) & 0o077
    assert not [secret for secret in server.secrets.values() if secret.hex() in repr(server)]


def test_without_the_table_a_party_gathers_statistics_alone(tmp_path: Path) -> None:
    trial.write_trial(tmp_path / "trial", proxy_port=1, server_port=2, entropy=Entropy())
    for party in PARTIES:
        assert load_settings(tmp_path / "trial" / f"{party}.toml", party).billing is None


def test_a_parties_file_from_before_billing_still_loads(folder: Path) -> None:
    path = folder / "parties.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("signing_key")]
    path.write_text("\n".join(lines))
    assert (load_parties(path).proxy.signing_key, load_parties(path).server.signing_key) == (None, None)
    with pytest.raises(BadInput, match=r"proxy\.signing_key: expected a key that devices check by, got no"):
        read_place(folder)


def test_a_demonstration_is_made_up_and_on_this_very_machine(folder: Path, tmp_path: Path) -> None:
    for party in PARTIES:
        path = folder / f"{party}.toml"
        text = path.read_text()
        assert load_settings(path, party).is_demonstration
        for old, new in (
            ("synthetic = true", "synthetic = false"),
            ("[listen]\n", "[listen]\nbehind_tls = true\n"),
        ):
            path.write_text(text.replace(old, new))
            assert not load_settings(path, party).is_demonstration
    trial.write_trial(
        tmp_path / "own", proxy_port=1, server_port=2, entropy=Entropy(), billing=True, empty=True
    )
    for party in PARTIES:
        assert "synthetic" not in (tmp_path / "own" / f"{party}.toml").read_text()
        assert not load_settings(tmp_path / "own" / f"{party}.toml", party).is_demonstration


def test_what_may_be_left_out_has_a_value(folder: Path) -> None:
    path = folder / "server.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("signing_workers")]
    path.write_text("\n".join(kept))
    settings = load_settings(path, Party.SERVER).billing
    assert isinstance(settings, AdServerSettings)
    assert (settings.signing_workers, settings.keep_days) == (2, 7)
    path = folder / "proxy.toml"
    for key in ("hold_seconds", "offers_per_address", "keep_days = 30                     # signed"):
        path.write_text("\n".join(each for each in path.read_text().splitlines() if not each.startswith(key)))
    proxied = load_settings(path, Party.PROXY).billing
    assert isinstance(proxied, BillingProxySettings)
    assert (proxied.hold, proxied.offers_per_address, proxied.keep_days) == (HoldRule(), 0, 30)


@pytest.mark.parametrize(
    ("party", "old", "new", "message"),
    [
        (Party.SERVER, 'store = "ads.sqlite"', "", "billing.store: expected a text in quotes, got no such key"),
        (
            Party.SERVER, '"ads.sqlite"', '"server.sqlite"',
            "billing.store: expected a place of its own, got that of store.gathered",
        ),
        (
            Party.PROXY, '"reports.sqlite"', '"proxy-ledger.sqlite"',
            "billing.store: expected a place of its own, got that of store.ledger",
        ),
        (Party.SERVER, "proxy_signing_key =", "proxy_key =", "billing.proxy_key: .*unknown key 'proxy_key'"),
        (Party.SERVER, 'proxy_signing_key = "', 'proxy_signing_key = "00', "expected 64 hexadecimal digits"),
        (Party.PROXY, 'server_signing_key = "', 'server_signing_key = "x', "billing.server_signing_key"),
        (Party.SERVER, "signing_workers = 2", "signing_workers = 0", "billing.signing_workers"),
        (Party.SERVER, "signing_workers = 2", "signing_workers = 65", "billing.signing_workers: expected"),
        (Party.SERVER, "keep_days = 7", "keep_days = -1", "billing.keep_days"),
        (Party.SERVER, "keep_days = 7", "requests_per_key = -1", "billing.requests_per_key"),
        (Party.SERVER, "keep_days = 7", "failures_per_address = 1000001", "billing.failures_per_address"),
        (Party.SERVER, "keep_days = 7", "hold_seconds = 7", "billing.hold_seconds: .*unknown key"),
        (Party.PROXY, "hold_seconds = 2 ", "hold_seconds = 86401 ", "billing.hold_seconds: expected"),
        (Party.PROXY, "hold_seconds = 2 ", "batch_most = 0\n#", "billing.batch_most"),
        (Party.PROXY, "hold_seconds = 2 ", "batch_most = 100001\n#", "billing.batch_most: expected"),
        (Party.PROXY, "offers_per_address = 0", "offers_per_address = -1", "billing.offers_per_address"),
        (Party.PROXY, "synthetic = true", 'synthetic = "yes"', "billing.synthetic: expected true or false"),
        (Party.PROXY, "[billing] ", "[bill] ", "bill: expected one of listen, store"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(
    folder: Path, party: Party, old: str, new: str, message: str
) -> None:
    path = changed(folder, party, old, new)
    with pytest.raises(BadInput, match=message) as caught:
        load_settings(path, party)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_table_must_be_a_table(folder: Path) -> None:
    path = folder / "server.toml"
    path.write_text("billing = 3\n" + path.read_text().partition("\n[billing]")[0])
    with pytest.raises(BadInput, match=r"billing: expected a table \[billing\], got 3"):
        load_settings(path, Party.SERVER)


def test_behind_a_reverse_proxy_addresses_cannot_be_limited(folder: Path) -> None:
    changed(folder, Party.PROXY, "# behind_tls = true", "behind_tls = true")
    path = changed(folder, Party.PROXY, "offers_per_address = 0", "offers_per_address = 5")
    with pytest.raises(BadInput, match=r"billing\.offers_per_address: expected 0 with behind_tls = true"):
        load_settings(path, Party.PROXY)
    path = changed(folder, Party.SERVER, "# behind_tls = true", "behind_tls = true")
    assert load_ads(path).failures_per_address == 0
    changed(folder, Party.SERVER, "keep_days = 7", "failures_per_address = 5")
    with pytest.raises(BadInput, match=r"billing\.failures_per_address: expected 0 with behind_tls = true"):
        load_settings(path, Party.SERVER)


def test_the_api_has_limits_that_can_be_set(folder: Path) -> None:
    settings = load_ads(folder / "server.toml")
    assert (settings.requests_per_key, settings.failures_per_address) == (6_000, 60)
    path = changed(folder, Party.SERVER, "keep_days = 7", "requests_per_key = 0\nfailures_per_address = 9")
    assert (load_ads(path).requests_per_key, load_ads(path).failures_per_address) == (0, 9)


def test_a_store_of_the_other_party_is_called_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SqlBillingProxyStore.open(folder / "reports.sqlite").close()
    path = changed(folder, Party.SERVER, '"ads.sqlite"', '"reports.sqlite"')
    with pytest.raises(BadInput, match=r"^billing\.store: ") as caught:
        launch.server_app(load_settings(path, Party.SERVER))
    assert "\n" not in str(caught.value)
    assert main(["serve", "ads", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tacit serve: ")
    assert said.count("\n") == 1


def test_a_market_that_cannot_be_read_stops_the_ad_server_before_it_listens(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(folder, Party.SERVER, "port = 8472", "port = 0")
    (folder / "market.toml").unlink()
    assert main(["serve", "ads", str(folder / "server.toml")]) == 2
    said = capsys.readouterr()
    assert "market.toml: expected a market here, got no such file" in said.err
    assert said.out == ""


def test_ads_needs_the_table_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial.write_trial(tmp_path / "trial", proxy_port=1, server_port=2, entropy=Entropy())
    assert main(["serve", "ads", str(tmp_path / "trial" / "server.toml")]) == 2
    assert "expected a table [billing], got none" in capsys.readouterr().err
    assert main(["serve", "ads", str(tmp_path / "trial" / "proxy.toml")]) == 2
    assert "expected a server's settings, got a proxy's" in capsys.readouterr().err
