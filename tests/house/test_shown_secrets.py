"""A marked password goes through every command that takes a database: it is shown nowhere."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit import expect
from tacit.cli import main
from tacit.entropy import Entropy
from tacit.errors import TacitError
from tacit.services import trial
from tacit.services.log import configure_logging, error_line
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.store.database import PartyDatabase, ledger_database, party_kind
from tacit.store.ledger import LedgerStore

MARK = "tr0ub4dor"
URLS = [
    f"postgresql+psycopg://tacit:{MARK}@127.0.0.1:1/ads",
    f"postgresql://tacit@127.0.0.1:1/ads?password={MARK}",
    f"postgresql+psycopg://tacit:x@127.0.0.1:1/ads?connect_timeout=1&password={MARK}&sslmode=disable",
    f"postgresql+psycopg://tacit@127.0.0.1:1/ads?sslpassword={MARK}",
    f"postgresql+psycopg://tacit:half@{MARK}@127.0.0.1:1/ads",  # not spelled as it should be
    f"postgresql+psycopg://tacit:half/{MARK}@127.0.0.1:1/ads",
    f"postgresql+psycopg://tacit:{MARK}@127.0.0.1:no-port/ads",
    f"postgresql+psycopg://tacit:{MARK}@127.0.0.1:1/ads?no_such_option=1",
    f"mysql://tacit:{MARK}@127.0.0.1:1/ads",
    f"postgresql:/tacit:{MARK}@127.0.0.1:1/ads",  # a path, as it is spelled
]

Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Said:
    """Everything that a command printed or logged; it must have refused."""

    def run(*words: object) -> str:
        capsys.readouterr()
        try:
            code: object = main([str(word) for word in words])
        except SystemExit as end:  # argparse
            code = end.code
        assert code in (1, 2), words
        printed = capsys.readouterr()
        return printed.out + printed.err + caplog.text

    return run


def expect_unseen(said: str) -> None:
    assert said.strip()
    assert MARK not in said, said
    assert "Traceback" not in said


LINE = ("--scope", "clicks", "--unit", "user", "--relation", "replace-one")


@pytest.mark.parametrize("url", URLS)
def test_commands_on_a_ledger(url: str, said: Said, tmp_path: Path) -> None:
    witness = ("--witness", tmp_path / "witness")
    for words in (
        ("show", "--ledger", url, *witness),
        ("show", "--ledger", url, *witness, "--json"),
        ("grant", "--ledger", url, *witness, *LINE, "--epsilon", "1"),
        ("verify", "--ledger", url, *witness),
        ("settle", "some key", "--left", "--ledger", url, *witness),
        ("accept", "--ledger", url, *witness),
        ("show", url),  # in the wrong place
        ("grant", "--ledger", url, "--epsilon", url),
    ):
        expect_unseen(said("ledger", *words))


@pytest.mark.parametrize("url", [URLS[0], URLS[2], URLS[4]])
@pytest.mark.parametrize("key", ["gathered", "ledger"])
def test_parties(url: str, key: str, said: Said, tmp_path: Path) -> None:
    trial.write_trial(tmp_path, proxy_port=1, server_port=2, entropy=Entropy())
    for party in ("proxy", "server"):
        place = tmp_path / f"{party}.toml"
        spelled = re.sub(rf'{key} = ".*"', f'{key} = "{url}"\nwitness = "witness"', place.read_text(), count=1)
        place.write_text(spelled.replace("port = 1\n", "port = 0\n").replace("port = 2\n", "port = 0\n"))
        expect_unseen(said("serve", party, place))
        if key == "gathered":
            expect_unseen(said("serve", "status", place))
        place.write_text(spelled.replace(f'"{url}"', f'["{url}"]'))  # no text: refused by what it is
        expect_unseen(said("serve", party, place))
        place.write_text(spelled.replace("witness =", f'"{url}" ='))  # a key that nobody reads
        expect_unseen(said("serve", party, place))


@pytest.mark.parametrize("url", URLS)
def test_names_and_errors_of_stores(url: str, tmp_path: Path) -> None:
    kind = party_kind("proxy", 1)
    works: tuple[Callable[[], str], ...] = (
        lambda: ledger_database(url).name,
        lambda: PartyDatabase(url, kind, 4096).name,
        lambda: str(LedgerStore.open(url, witness=tmp_path / "witness")),
        lambda: str(PartyDatabase(url, kind, 4096).table_names()),
    )
    for work in works:
        try:
            expect_unseen(work())
        except TacitError as problem:
            expect_unseen(str(problem))
            expect_unseen(error_line(problem))


def test_lines_of_a_log_hold_none(capsys: pytest.CaptureFixture[str]) -> None:
    before, ours = logging.getLogger().handlers[:], logging.getLogger("tacit.services")
    level = ours.level
    try:
        configure_logging(ours)
        ours.error("cannot reach %s", URLS[0])
        logging.getLogger("some.library").warning("no such place: %s", URLS[2])
    finally:
        logging.basicConfig(handlers=before, force=True)
        ours.setLevel(level)
    expect_unseen(capsys.readouterr().err)


def test_secrets_of_a_party_are_not_in_what_is_shown_of_it(tmp_path: Path) -> None:
    trial.write_trial(tmp_path, proxy_port=1, server_port=2, entropy=Entropy())
    for party in (Party.PROXY, Party.SERVER):
        settings = load_settings(tmp_path / f"{party}.toml", party)
        for secret in settings.secrets.values():
            for shown in (repr(settings), str(settings)):
                assert secret.hex() not in shown
                assert repr(secret) not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://u:p@h/db: refused", "at postgresql://u:***@h/db: refused"),
        ("postgresql://u:p@ss@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p/s?s@h/db", "postgresql://u:***@h/db"),
        ("postgresql://h/db?password=p&sslmode=require", "postgresql://h/db?password=***&sslmode=require"),
        ("postgresql://h/db?a=1&SSLPassword=p", "postgresql://h/db?a=1&SSLPassword=***"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("at postgresql://u:my p@ss w@h/db: refused", "at postgresql://u:***@h/db: refused"),
        ("postgresql+psycopg://u:1 2@h:5432/db?a=1", "postgresql+psycopg://u:***@h:5432/db?a=1"),
        (
            "postgresql://h:5432/db or postgresql://u:p@i/db",
            "postgresql://h:5432/db or postgresql://u:***@i/db",
        ),
        ("postgresql://u:p@h/db, and b@c", "postgresql://u:***@h/db, and b@c"),
        ("postgresql://h/db?password=p w&sslmode=require", "postgresql://h/db?password=***&sslmode=require"),
        ("host=h password=p&q dbname=d: refused", "host=h password=*** dbname=d: refused"),
        ("host=h password = 'it\\'s mine' dbname=d", "host=h password = *** dbname=d"),
        ("sslpassword=my\\ own user=u", "sslpassword=*** user=u"),
        ("expected a password, got none", "expected a password, got none"),
        ("http://127.0.0.1:8471 and b@c", "http://127.0.0.1:8471 and b@c"),
        ("/some/path.sqlite", "/some/path.sqlite"),
        ("", ""),
    ],
)
def test_what_is_left_of_a_place(text: str, shown: str) -> None:
    assert expect.without_passwords(text) == shown
    assert expect.without_passwords(shown) == shown
