"""`tacit bill`: invoices for people, budgets, and an export that an auditor verifies, from the command line."""

from __future__ import annotations

import csv
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tacit.cli import main
from tacit.entropy import Entropy
from tacit.services import trial
from tests.support.billing_audits import COFFEE, AdWorld, edit_charges, edit_rows, play_world, write_parties
from tests.support.page_reader import Seen


def serve_world(folder: Path) -> AdWorld:
    """Settings of a trial, and an ad server's store with charges of every kind where they say."""
    trial.write_trial(folder, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    write_parties(folder / "parties.toml")
    return play_world(folder / "ads.sqlite")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AdWorld:
    monkeypatch.chdir(tmp_path)
    return serve_world(tmp_path)


def run(*arguments: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(["bill", *arguments]) == code
    told = capsys.readouterr()
    if code == 2:
        assert re.fullmatch(r"tacit bill: [^\n]+\n", told.err)
        assert told.out == ""
        return told.err
    assert told.err == ""
    return told.out


def as_json(*arguments: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", capsys=capsys, code=code))


def test_from_charges_to_an_audit(served: AdWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    del served
    told = run("export", "server.toml", "--out", "audit", capsys=capsys)
    assert "wrote 17 reports in 5 batches and 4 invoices to audit: for auditors, never the proxy" in told
    assert "next: tacit bill verify audit --parties parties.toml" in told
    told = run("verify", "audit", "--parties", "parties.toml", capsys=capsys)
    assert told.endswith("everything holds: each invoice follows from what was signed\n")
    assert "looked at 17 reports in 5 batches of 2 epochs, with 4 menus" in told
    assert "proven: 11 impressions for 0.016000; 1 of nothing shown, free" in told
    assert "on no invoice yet: campaign 1, 1 impression for 0.002100" in told
    assert "held: campaign 3, 2 impressions for 0.001000" in told
    assert "rejected: 1, the token was spent before" in told
    assert "what no folder shows:\n- Impressions that nobody saw" in told
    edit_charges(tmp_path / "audit", 1, lambda rows: rows[0].update(price_micros="1499"))
    told = run("verify", "audit", "--parties", "parties.toml", capsys=capsys, code=1)
    assert "! wrong-price: epoch-0000000001.charges.csv, batch " in told
    assert told.endswith("this does not hold: 1 finding\n")
    found = as_json("verify", "audit", "--parties", "parties.toml", capsys=capsys, code=1)
    assert (found["holds"], found["counts"]) == (False, {"wrong-price": 1})
    (finding,) = found["findings"]
    assert (finding["epoch"], finding["place"]) == (1, 0)


def test_names_are_shown_as_they_are(
    served: AdWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Brackets are no markup, and nothing that a folder's writer chose moves the auditor's terminal."""
    del served
    run("export", "server.toml", "--out", "audit", capsys=capsys)
    for name in ("campaigns.csv", "invoices.csv"):
        edit_rows(
            tmp_path / "audit", name, lambda rows: [row.update(advertiser="[/x] :tea:\x1b[2J") for row in rows]
        )
    told = run("verify", "audit", "--parties", "parties.toml", capsys=capsys)
    assert "  [/x] :tea:?[2J  " in told
    assert "\x1b" not in told


def test_the_proxys_statements_are_held_against_it(
    served: AdWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("export", "server.toml", "--out", "audit", capsys=capsys)
    (tmp_path / "statements.bin").write_bytes(b"".join(served.statements))
    asked = ("verify", "audit", "--parties", "parties.toml", "--statements", "statements.bin")
    assert "held against 5 statements of the proxy's own\n" in run(*asked, capsys=capsys)
    (tmp_path / "statements.bin").write_bytes(b"x")
    assert "expected statements that the proxy signed" in run(*asked, capsys=capsys, code=2)


def test_invoices_say_what_was_shown_where_and_why(served: AdWorld, capsys: pytest.CaptureFixture[str]) -> None:
    del served
    told = run("invoices", "server.toml", capsys=capsys)
    assert "Invoice 1: Bean & Leaf, closed 2027-01-15 08:01:40 UTC; 4 impressions, 0.006300 in all" in told
    (line,) = (line for line in told.splitlines() if "Coffee" in line and "0.003000" in line)
    cells = ["1", "Coffee", "1", "1 of 3", "0.001500", "2", "0.003000"]
    why = "second price per impression, public rank 1, price set by campaign 2"
    assert re.fullmatch(" +".join([*cells, why]), line.strip()), line
    assert "second price per impression, public rank 3, price set by the reserve" in told
    one = as_json("invoices", "server.toml", "--invoice", "2", capsys=capsys)
    assert [each["invoice"] for each in one["invoices"]] == [2]
    assert one["invoices"][0]["total_micros"] == 500
    (item,) = one["invoices"][0]["items"]
    assert (item["context"], item["shown"], item["epoch"], item["lane"]) == (
        "Tea",
        "3 of 3",
        1,
        "personal",
    )


def test_closing_puts_what_is_open_on_new_invoices_once(
    served: AdWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    before = as_json("status", "server.toml", capsys=capsys)
    assert before["uninvoiced_micros"] == 2_100
    told = as_json("invoices", "server.toml", "--close", capsys=capsys)
    assert told["closed"] == [5]
    assert len(told["invoices"]) == 5
    assert as_json("status", "server.toml", capsys=capsys)["uninvoiced_micros"] == 0
    again = run("invoices", "server.toml", "--close", capsys=capsys)
    assert again.startswith("no charge was on no invoice: none was closed\n")
    assert len(served.store.invoices()) == 5


def test_closing_beside_a_service_that_charges_loses_nothing(
    served: AdWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command has a store of its own on the same file, as a process of its own would."""
    menu = served.open_epoch(3)[COFFEE]
    batches = [served.reports(menu, 1, 2) for _ in range(12)]

    def charge() -> None:
        for reports in batches:
            served.redeem(menu, reports)

    with ThreadPoolExecutor(1) as pool:
        charging = pool.submit(charge)
        while not charging.done():
            run("invoices", "server.toml", "--close", "--json", capsys=capsys)
        charging.result()
    run("invoices", "server.toml", "--close", "--json", capsys=capsys)
    run("export", "server.toml", "--out", "audit", capsys=capsys)
    found = as_json("verify", "audit", "--parties", "parties.toml", capsys=capsys)
    assert found["holds"]
    assert found["uninvoiced"] == {}
    assert sum(each["proven_micros"] for each in found["invoices"]) == 16_000 + 12 * 2_700


def test_status_adds_up(served: AdWorld, capsys: pytest.CaptureFixture[str]) -> None:
    del served
    told = as_json("status", "server.toml", capsys=capsys)
    assert {name: told[name] for name in ("impressions", "nothing_shown", "invoices")} == {
        "impressions": 11, "nothing_shown": 1, "invoices": 4,
    }  # fmt: skip
    assert (told["charged_micros"], told["held_micros"], told["uninvoiced_micros"]) == (16_000, 1_000, 2_100)
    assert told["campaigns"][2] == {
        "campaign": 3, "advertiser": 'Long "Run", Shoes', "budget_micros": 1_200, "charged_micros": 1_000,
        "held_micros": 1_000, "uninvoiced_micros": 0,
    }  # fmt: skip
    shown = run("status", "server.toml", capsys=capsys)
    assert "Charges so far: 11 impressions, 1 of nothing shown, 4 invoices" in shown
    assert re.search(r"^ *all +0\.016000 +0\.001000 +0\.002100 *$", shown, re.MULTILINE)


def test_a_larger_budget_releases_what_was_held(served: AdWorld, capsys: pytest.CaptureFixture[str]) -> None:
    told = run("budget", "server.toml", "3", "1_500", capsys=capsys)
    assert told == (
        'campaign 3 (Long "Run", Shoes) has a budget of 0.001500\n'
        "charged 0.001500 in all, of which 0.000500 had been held until now; 0.000500 is still held\n"
    )
    told = as_json("budget", "server.toml", "3", "none", capsys=capsys)
    assert (told["budget_micros"], told["charged_micros"]) == (None, 2_000)
    assert (told["held_micros"], told["released_micros"]) == (0, 500)
    assert served.store.held_micros() == {}


def test_lines_go_to_a_file_that_adds_up(
    served: AdWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("invoices", "server.toml", "--csv", "lines.csv", capsys=capsys) == "wrote lines.csv\n"
    place = tmp_path / "lines.csv"
    assert place.stat().st_mode & 0o777 == 0o600
    with place.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["total_micros"]) for row in rows) == sum(
        each.total_micros for each in served.store.invoices()
    )
    assert {row["advertiser"] for row in rows} == {"Bean & Leaf", 'Long "Run", Shoes'}
    assert "which exists; say --overwrite" in run(
        "invoices", "server.toml", "--csv", "lines.csv", capsys=capsys, code=2
    )
    run("invoices", "server.toml", "--csv", "lines.csv", "--overwrite", capsys=capsys)


def test_a_page_has_every_line_and_needs_nothing_else(
    served: AdWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del served
    run("invoices", "server.toml", "--page", "bill.html", capsys=capsys)
    place = tmp_path / "bill.html"
    assert place.stat().st_mode & 0o777 == 0o600
    text = place.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert Seen(text).links == []
    for said in (
        "Invoice 1: Bean &amp; Leaf",
        "Long &quot;Run&quot;, Shoes",
        "0.006300",
        "price set by the reserve",
    ):
        assert said in text
    assert text.count("<tbody>") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "proxy.toml"), "expected a server's settings, got a proxy's"),
        (("status", "nowhere.toml"), "expected settings here, got no such file"),
        (("budget", "server.toml", "9", "1"), "expected a campaign that the ad server knows, got 9"),
        (
            ("budget", "server.toml", "3", "1.5"),
            "MICROS: expected a whole number of micros up to 2^53, or none",
        ),
        (("budget", "server.toml", "3", "-1"), "MICROS: expected a whole number of micros up to 2^53, or none"),
        (("invoices", "server.toml", "--invoice", "9"), "--invoice: expected the number of an invoice, got 9"),
        (("invoices", "server.toml", "--csv", "server.toml/x"), "expected a place below a folder"),
        (("export", "server.toml", "--out", "server.toml"), "expected a new folder for an export of charges"),
        (("verify", ".", "--parties", "parties.toml"), "which has no manifest.json"),
        (("verify", ".", "--parties", "server.toml"), "the unknown key"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], said: str, served: AdWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    before = served.store.campaigns()
    assert said in run(*arguments, capsys=capsys, code=2)
    assert served.store.campaigns() == before


def test_a_server_that_does_not_bill_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial.write_trial(tmp_path, proxy_port=8471, server_port=8472, entropy=Entropy())
    told = run("status", "server.toml", capsys=capsys, code=2)
    assert "server.toml: expected a table [billing], which makes a server an ad server, got none" in told


def test_no_empty_store_is_made_by_looking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial.write_trial(tmp_path, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    assert "got none: the service makes it when it starts" in run(
        "status", "server.toml", capsys=capsys, code=2
    )
    assert not (tmp_path / "ads.sqlite").exists()


def test_parties_without_signing_keys_are_refused(
    served: AdWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del served
    parties = tmp_path / "parties.toml"
    parties.write_text(re.sub(r"signing_key = .*\n", "", parties.read_text()))
    told = run("verify", "audit", "--parties", "parties.toml", capsys=capsys, code=2)
    assert "parties.toml: server.signing_key: expected the key that it signs by, got no such key" in told
