"""Settings of a party: unknown keys are refused by name, secrets must be their owner's only."""

from __future__ import annotations

import re
import resource
import stat
from pathlib import Path

import pytest

from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services import launch, trial
from tacit.services.settings import ServicePace, load_either_settings, load_settings, settings_path
from tacit.services.signatures import Party
from tests.support.service_certificates import a_certificate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trial.write_trial(tmp_path / "trial", proxy_port=8471, server_port=8472, entropy=Entropy())
    return tmp_path / "trial"


def changed(folder: Path, party: Party, old: str, new: str) -> Path:
    path = folder / f"{party}.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def test_a_trial_set_is_complete_and_private(folder: Path) -> None:
    proxy, server = (load_settings(folder / f"{party}.toml", party) for party in (Party.PROXY, Party.SERVER))
    assert proxy.secrets["pair"] == server.secrets["pair"]
    assert len({*proxy.secrets.values(), *server.secrets.values()}) == 5
    assert (proxy.listen.port, proxy.other.url) == (8471, "http://127.0.0.1:8472")
    assert (server.listen.port, server.other.url) == (8472, "http://127.0.0.1:8471")
    assert proxy.gathered == str(folder.resolve() / "proxy.sqlite")
    assert proxy.questions == folder.resolve() / "questions"
    assert proxy.pace == ServicePace()
    hidden = [path for path in folder.iterdir() if path.suffix in (".secret", ".sealing")]
    assert len(hidden) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in hidden} == {0o600}
    public = (folder / "parties.toml").read_text() + (folder / "proxy.toml").read_text() + repr(proxy)
    assert not [path for path in hidden if path.read_text().strip() in public]
    assert not [secret for secret in proxy.secrets.values() if repr(secret) in repr(proxy)]


def test_keys_are_never_written_over(folder: Path) -> None:
    (folder / "proxy.sealing").unlink()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(BadInput, match=r"expected a folder without server\.sealing, got one"):
        trial.write_trial(folder, proxy_port=1, server_port=2, entropy=Entropy())
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[listen]",
            "[listens]",
            "listens: expected one of listen, store, .*, billing, pacing, openrtb, statistics, metrics, log",
        ),
        ("port =", "prot = 1\nport =", "listen.prot: expected one of .* 'prot': did you mean 'port'"),
        ("[other]", "[pace]\ncommit_wait = 5\n[other]", "pace.commit_wait: .*unknown key 'commit_wait'"),
        ("[other]", "[pace]\ncommit_most = 0\n[other]", "expected pace.commit_most to be a whole number >= 1"),
        (
            "[other]",
            "[pace]\ncommit_wait_ms = 1.5\n[other]",
            "expected pace.commit_wait_ms to be a whole",
        ),
        ("port = 8471", "port = 65536", "listen.port: expected at most 65535, got 65536"),
        ("port = 8471", "port = -1", "expected listen.port to be a whole number >= 0, got -1"),
        ("port = 8471", "", "listen.port: expected a whole number, got no such key"),
        ('host = "127.0.0.1"', "host = 4", "listen.host: expected a text in quotes, got 4"),
        ('gathered = "proxy.sqlite"', "", "store.gathered: expected a text in quotes, got no such key"),
        ('pair = "pair.secret"', 'operator = "pair.secret"', "secrets.operator: .*unknown key 'operator'"),
        ('pair = "pair.secret"', 'pair = "nowhere"', "secrets.pair: expected a file at .*nowhere, got no such"),
        ("http://127.0.0.1:8472", "http://server.example", "other.url: expected https:// for another machine"),
        ("http://127.0.0.1:8472", "ftp://127.0.0.1", "other.url: expected https://HOST:PORT, got another text"),
        ("http://127.0.0.1:8472", "https://me:pw@server", "other.url: expected https://HOST:PORT, got another"),
        (
            "http://127.0.0.1:8472",
            "https://server:x",
            "other.url: expected https://HOST:PORT, got another text",
        ),
        (
            '# certificate = "proxy.crt"',
            'certificate = "proxy.crt"',
            "expected certificate and private_key",
        ),
        ("[listen]", "listen", "expected TOML, got "),
        ("[listen]", "other_ = 1\n[listen]", "other_: expected one of listen"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, old: str, new: str, message: str) -> None:
    path = changed(folder, Party.PROXY, old, new)
    with pytest.raises(BadInput, match=message) as caught:
        load_settings(path, Party.PROXY)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_table_must_be_a_table(folder: Path) -> None:
    path = folder / "server.toml"
    path.write_text("pace = 3\n" + path.read_text())
    with pytest.raises(BadInput, match=re.escape("pace: expected a table [pace], got 3")):
        load_settings(path, Party.SERVER)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_secret_that_others_may_read_is_refused(folder: Path, mode: int) -> None:
    (folder / "pair.secret").chmod(mode)
    with pytest.raises(BadInput, match=rf"secrets.pair: .*only its owner.*chmod 600.*got mode {mode:o}"):
        load_settings(folder / "server.toml", Party.SERVER)


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 31, "00" * 33, "é"])
def test_a_secret_of_another_form_is_refused_and_not_repeated(folder: Path, text: str) -> None:
    (folder / "pair.secret").write_text(text)
    with pytest.raises(BadInput, match=r"secrets\.pair: expected 64 hexadecimal digits") as caught:
        load_settings(folder / "server.toml", Party.SERVER)
    assert len(text) < 4 or text not in str(caught.value)


def test_a_private_key_for_tls_is_a_secret_too(folder: Path) -> None:
    a_certificate(folder / "proxy.crt", folder / "proxy.key")
    changed(folder, Party.PROXY, '# certificate = "proxy.crt"', 'certificate = "proxy.crt"')
    path = changed(folder, Party.PROXY, '# private_key = "proxy.key"', 'private_key = "proxy.key"')
    assert load_settings(path, Party.PROXY).listen.certificate == folder.resolve() / "proxy.crt"
    (folder / "proxy.key").chmod(0o644)
    with pytest.raises(BadInput, match=r"listen.private_key: .*chmod 600"):
        load_settings(path, Party.PROXY)


def test_what_is_no_certificate_is_said_by_its_key_and_place(folder: Path) -> None:
    changed(folder, Party.PROXY, '# certificate = "proxy.crt"', 'certificate = "proxy.crt"')
    path = changed(folder, Party.PROXY, '# private_key = "proxy.key"', 'private_key = "proxy.key"')
    (folder / "proxy.key").touch(0o600)
    with pytest.raises(
        BadInput, match=r"listen\.certificate: expected a file at .*proxy\.crt, got no such file"
    ):
        load_settings(path, Party.PROXY)
    (folder / "proxy.crt").write_text("hello")
    with pytest.raises(BadInput, match=r"listen\.certificate: expected a certificate .*proxy\.crt, got others"):
        load_settings(path, Party.PROXY)
    trusting = changed(folder, Party.SERVER, '# trust = "proxy.crt"', 'trust = "proxy.crt"')
    with pytest.raises(BadInput, match=r"other\.trust: expected a certificate .*proxy\.crt, got others"):
        load_settings(trusting, Party.SERVER)
    (folder / "proxy.crt").unlink()
    with pytest.raises(BadInput, match=r"other\.trust: expected a file at .*proxy\.crt, got no such file"):
        load_settings(trusting, Party.SERVER)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "proxy.example"])
def test_only_this_machine_may_listen_without_tls(folder: Path, host: str) -> None:
    path = changed(folder, Party.PROXY, 'host = "127.0.0.1"', f'host = "{host}"')
    with pytest.raises(BadInput, match=r"listen\.host: expected a certificate .*or behind_tls = true"):
        load_settings(path, Party.PROXY)
    changed(folder, Party.PROXY, "# behind_tls = true", "behind_tls = true")
    assert load_settings(path, Party.PROXY).listen.behind_tls
    changed(folder, Party.PROXY, "behind_tls = true", 'behind_tls = "yes"')
    with pytest.raises(BadInput, match=r"listen\.behind_tls: expected true or false, got 'yes'"):
        load_settings(path, Party.PROXY)


def test_behind_a_reverse_proxy_there_is_no_limit_an_address(folder: Path) -> None:
    path = folder / "proxy.toml"
    assert launch._most_per_address(load_settings(path, Party.PROXY)) == 200
    path.write_text(path.read_text() + "\n[pace]\naddress_connections_most = 30\n")
    assert launch._most_per_address(load_settings(path, Party.PROXY)) == 30
    changed(folder, Party.PROXY, "# behind_tls = true", "behind_tls = true")
    with pytest.raises(BadInput, match=r"pace\.address_connections_most: expected no such key with behind_tls"):
        load_settings(path, Party.PROXY)
    changed(folder, Party.PROXY, "address_connections_most = 30\n", "")
    assert launch._most_per_address(load_settings(path, Party.PROXY)) is None


def test_there_are_files_for_all_connections_or_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, asked = [(1024, 4096)], []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: asked.append(given))
    launch._allow_files(ServicePace())
    assert asked == [(1100, 4096)]
    launch._allow_files(ServicePace(connections_most=600))
    assert len(asked) == 1, "there were enough"
    limits[0] = (1024, 1024)
    with pytest.raises(BadInput, match=r"pace\.connections_most: expected a system .* 1100 files .* got 1024"):
        launch._allow_files(ServicePace())


@pytest.mark.parametrize("host", ["localhost", "::1", "127.0.0.9"])
def test_this_machine_may(folder: Path, host: str) -> None:
    path = changed(folder, Party.PROXY, 'host = "127.0.0.1"', f'host = "{host}"')
    assert load_settings(path, Party.PROXY).listen.host == host


def test_the_other_partys_settings_are_called_so(folder: Path) -> None:
    with pytest.raises(BadInput, match="expected a proxy's settings, got a server's"):
        load_settings(folder / "server.toml", Party.PROXY)
    with pytest.raises(BadInput, match="expected a server's settings, got a proxy's"):
        load_settings(folder / "proxy.toml", Party.SERVER)
    assert [load_either_settings(folder / f"{party}.toml").party for party in ("proxy", "server")] == [
        "proxy",
        "server",
    ]


def test_days_to_keep_and_the_witness_that_postgresql_needs(folder: Path) -> None:
    assert load_settings(folder / "server.toml", Party.SERVER).keep_days == 30
    path = changed(folder, Party.SERVER, "keep_days = 30", "keep_days = 7")
    assert load_settings(path, Party.SERVER).keep_days == 7
    changed(folder, Party.SERVER, "keep_days = 7", "keep_days = -1")
    with pytest.raises(BadInput, match=r"store\.keep_days to be a whole number >= 0"):
        load_settings(path, Party.SERVER)
    changed(folder, Party.SERVER, "keep_days = -1", "")
    changed(folder, Party.SERVER, 'ledger = "server-ledger.sqlite"', 'ledger = "postgresql+psycopg://a@b/c"')
    with pytest.raises(BadInput, match=r"store\.witness: expected a path"):
        load_settings(path, Party.SERVER)


def test_a_secret_that_is_a_folder_is_said_by_its_key(folder: Path) -> None:
    (folder / "pair.secret").unlink()
    (folder / "pair.secret").mkdir(0o700)
    with pytest.raises(BadInput, match=r"secrets\.pair: expected a file at .*pair\.secret, got is a directory"):
        load_settings(folder / "server.toml", Party.SERVER)


def test_two_parties_have_two_ports(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--server-port: expected another port than the proxy's, got 8000"):
        trial.write_trial(tmp_path / "trial", proxy_port=8000, server_port=8000, entropy=Entropy())
    assert not (tmp_path / "trial").exists()


def test_databases_by_url_are_left_as_they_are(folder: Path) -> None:
    url = "postgresql+psycopg://tacit@db/ads"
    changed(folder, Party.PROXY, 'ledger = "proxy-ledger.sqlite"', f'ledger = "{url}"\nwitness = "here"')
    found = load_settings(folder / "proxy.toml", Party.PROXY)
    assert (found.ledger, found.witness) == (url, str(folder.resolve() / "here"))


def test_the_environment_says_what_the_file_leaves_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed(folder, Party.PROXY, 'gathered = "proxy.sqlite"', 'gathered = "env:PROXY_STORE"')
    changed(folder, Party.PROXY, "port = 8471", 'port = "env:PROXY_PORT"')
    monkeypatch.setenv("PROXY_PORT", "9999")
    monkeypatch.delenv("PROXY_STORE", raising=False)
    with pytest.raises(
        BadInput, match=r"store\.gathered: expected the variable PROXY_STORE to be set, got none"
    ):
        load_settings(path, Party.PROXY)
    monkeypatch.setenv("PROXY_STORE", "postgresql+psycopg://ads:hunter2@db/ads")
    found = load_settings(path, Party.PROXY)
    assert (found.gathered, found.listen.port) == ("postgresql+psycopg://ads:hunter2@db/ads", 9999)
    monkeypatch.setenv("PROXY_PORT", "many")
    with pytest.raises(BadInput, match=r"expected listen\.port to be a whole number >= 0, got 'many'"):
        load_settings(path, Party.PROXY)
    changed(folder, Party.PROXY, "env:PROXY_STORE", "env:../etc")
    with pytest.raises(
        BadInput, match=r"store\.gathered: expected env:NAME of capital letters, got another text"
    ):
        load_settings(path, Party.PROXY)


def test_the_environment_names_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_PROXY_SETTINGS", raising=False)
    with pytest.raises(BadInput, match="expected a settings file, or its path in TACIT_PROXY_SETTINGS"):
        settings_path(Party.PROXY, None)
    monkeypatch.setenv("TACIT_PROXY_SETTINGS", str(folder / "proxy.toml"))
    assert settings_path(Party.PROXY, None) == folder / "proxy.toml"
    assert settings_path(Party.PROXY, Path("given")) == Path("given")
    with pytest.raises(BadInput, match="TACIT_SERVER_SETTINGS"):
        settings_path(Party.SERVER, None)
