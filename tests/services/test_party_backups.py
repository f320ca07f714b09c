"""Stores that are put back to an older state, by whatever means: nothing is charged or released twice."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tacit import files
from tacit.bill.audit.export import export_folder
from tacit.bill.audit.findings import FindingKind
from tacit.bill.audit.verification import verify_folder
from tacit.bill.protocol.batches import Batch, BatchStatement
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.reports import REPORT_BYTES
from tacit.bill.server.store import Campaign
from tacit.cli import main
from tacit.errors import BillError, BillRefused, BillRolledBack, LedgerRolledBack
from tacit.gather.protocol.credentials import SealingKey
from tacit.services.proxy_intake import Intake
from tacit.services.rounds import QuestionFiles, unpack_rounds
from tacit.services.settings import ServicePace
from tacit.services.signatures import Party
from tacit.store.backups import back_up_store, put_back_store
from tacit.store.billing_ads import SCHEMA, SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.billing_restores import AcceptedLoss, accept_older_ads, accept_older_proxy
from tacit.store.billing_witness import BillingWitness
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.schema_revisions import open_migrated
from tests.support.billing_services import PROXY_HOST, SERVER_HOST, BillingWorld
from tests.support.billing_worlds import EPOCH, a_menu, a_stored_epoch, charged, redeem, redeemed
from tests.support.ledger_places import COST, LIMIT, LINE, Place
from tests.support.service_worlds import OPENS, a_round


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BillingWorld]:
    made = BillingWorld(tmp_path)
    yield made
    made.end()


def witness(world: BillingWorld, name: str) -> BillingWitness:
    return BillingWitness(world.folder / f"{name}.witness")


def put_back_ads(world: BillingWorld) -> AcceptedLoss:
    """What is left of a world after its ad server's disk was put back; it is refused until that is accepted."""
    world.stop(SERVER_HOST)
    world.ads.close()
    put_back_store(str(world.folder / "ads.sqlite"), world.folder / "copy.sqlite")
    with pytest.raises(BillRolledBack, match=r"was put back to an older state: its witness .* has seen"):
        world.open_stores()
    with closing(SqlAdStore.open(world.folder / "ads.sqlite")) as opened:
        loss = accept_older_ads(opened.database, witness(world, "ads"), world.now)
        assert loss is not None
        assert accept_older_ads(opened.database, witness(world, "ads"), world.now) is None
    world.reports.close()
    world.open_stores()
    world.start_proxy()
    world.start_server()
    return loss


def batches(store: SqlAdStore) -> list[bytes]:
    """As the proxy sent them."""
    found = []
    for each in store.batches():
        reports = [each.data[at : at + REPORT_BYTES] for at in range(0, len(each.data), REPORT_BYTES)]
        found.append(Batch(BatchStatement.from_bytes(each.statement), tuple(reports)).to_bytes())
    return found


def test_an_ad_server_that_was_put_back_charges_nothing_twice_and_says_what_it_lost(
    world: BillingWorld,
) -> None:
    world.wait_for_epoch()
    early = sum(world.show(4))
    world.bill(4)
    assert back_up_store(str(world.folder / "ads.sqlite"), world.folder / "copy.sqlite")
    later = sum(world.show(5, first=10))
    world.bill(9)
    sent = world.ads.close_invoices(world.now)  # of all nine, after the copy was made
    before, heads = {each.campaign: each for each in world.ads.campaigns()}, world.keeper.heads()
    lost = batches(world.ads)
    world.show(3, first=20)  # in time, but their epoch is closed by the loss
    loss = put_back_ads(world)
    assert (loss.batches, loss.invoices, loss.charged_micros) == (len(lost) - 1, len(sent), later)
    assert (loss.due, len(loss.void) > 0) == ((), True)

    after = {each.campaign: each for each in world.ads.campaigns()}
    assert after == before, "what was charged, and may be charged, is what it was"
    for each in lost[1:]:  # tokens that were spent, if somebody reports them again
        with pytest.raises(BillRefused) as refused:
            world.server.redeem(each)
        assert refused.value.reason in (BillVerdict.EXPIRED, BillVerdict.STALE_EPOCH)
    assert world.server.redeem(lost[0]), "what it knows gets the receipt that it got"

    world.wait_until(lambda: world.keeper.heads() and world.keeper.heads()[-1].epoch > heads[-1].epoch)
    assert {each.epoch for each in world.keeper.heads()}.isdisjoint(each.epoch for each in heads)
    world.wait_for_epoch()
    new = sum(world.show(3, first=30))
    world.bill(7, left=1)  # the three of the closed epoch stay at the proxy
    assert world.charged_micros() == early + new
    assert sum(each.charged_micros for each in world.ads.campaigns()) == early + later + new
    [*due] = world.ads.close_invoices(world.now)
    assert sum(each.total_micros for each in due) == new, "nothing that was on a lost invoice"
    assert min(each.number for each in due) > max(*(each.number for each in sent), *loss.void)

    export_folder(world.ads, world.folder / "audit", now=world.now)
    receipts = world.folder / "receipts"
    given = [each for epoch in (*heads, *world.keeper.heads()) for each in world.proxy.receipts(epoch.epoch)]
    receipts.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in given))
    found = verify_folder(
        world.folder / "audit",
        server_public=world.signing[Party.SERVER].public,
        proxy_public=world.signing[Party.PROXY].public,
        receipts=receipts,
    )
    assert found.counts == {FindingKind.STORE_PUT_BACK: 1, FindingKind.BATCH_LEFT_OUT: len(lost) - 1}


def test_a_proxy_that_was_put_back_releases_nothing_twice(world: BillingWorld) -> None:
    world.wait_for_epoch()
    heads = world.keeper.heads()
    world.show(3)
    directory = world.ads.epoch(heads[0].epoch)
    assert directory is not None
    assert back_up_store(str(world.folder / "reports.sqlite"), world.folder / "copy.sqlite")
    world.bill(3)
    world.stop(PROXY_HOST)
    world.reports.close()
    put_back_store(str(world.folder / "reports.sqlite"), world.folder / "copy.sqlite")
    with pytest.raises(BillRolledBack, match="has seen a batch that the store lacks"):
        SqlBillingProxyStore.open(world.folder / "reports.sqlite", witness=world.folder / "reports.witness")
    with closing(SqlBillingProxyStore.open(world.folder / "reports.sqlite")) as opened:
        assert accept_older_proxy(opened.database, witness(world, "reports"), world.now) == AcceptedLoss(
            dropped=3
        )
    world.ads.close()
    world.stop(SERVER_HOST)
    world.open_stores()
    world.start_proxy()
    world.start_server()
    assert world.reports.waiting() == []
    assert world.reports.current_head(world.now) is None, "the epoch is closed, and gets no other directory"
    with pytest.raises(BillRefused, match="is over, and gets no other directory"):
        world.reports.keep_directory(heads[0].epoch - 1, b"other", b"head", [])
    opened_now = world.keeper.rotate()
    assert opened_now.epoch > heads[-1].epoch
    world.show(3, first=10)
    world.bill(6)


def test_stores_on_either_database_are_put_back_and_found_out(place: Place, tmp_path: Path) -> None:
    where, kept = place.where, tmp_path / "ads.witness"
    store, menu = SqlAdStore.open(where, witness=kept), a_menu()
    store.put_campaigns([Campaign(11, "Bean & Leaf", 100_000_000)])
    store.keep_epoch(EPOCH, a_stored_epoch(menu))
    redeem(store, redeemed(menu, [charged(menu, 1)], "first"))
    copy = tmp_path / "copy"
    assert back_up_store(where, copy)
    redeem(store, redeemed(menu, [charged(menu, 2), charged(menu, 3)], "second"))
    store.put_campaigns([Campaign(11, "Bean & Leaf", 50_000_000), Campaign(77, "Tea House", 9)])
    spent = {each.campaign: each for each in store.campaigns()}
    store.close()
    SqlAdStore.open(where, witness=kept).close()  # as it is, it is served again
    put_back_store(where, copy)
    with pytest.raises(BillRolledBack, match="has seen 2 batches, and the store has 1"):
        SqlAdStore.open(where, witness=kept)
    database = open_migrated(where, SCHEMA)
    loss = accept_older_ads(database, BillingWitness(kept), 9)
    assert loss is not None
    assert (loss.batches, loss.invoices) == (1, 0)
    assert (len(loss.due), loss.void) == (1, ()), "what was on no invoice when it was lost is due"
    database.close()
    store = SqlAdStore.open(where, witness=kept)
    assert {each.campaign: each for each in store.campaigns()} == spent
    assert [(each.at, each.batches, each.lost_batches) for each in store.restores()] == [(9, 1, 1)]
    assert store.last_epoch() == EPOCH
    assert store.published_epochs(0) == []
    stored = store.epoch(EPOCH)
    assert stored is not None
    assert (stored.sealing_key, stored.menus[0].token_key) == (b"", b"")
    store.close()


def test_a_ledger_in_the_same_database_is_left_as_it_is(postgres_place: Place, tmp_path: Path) -> None:
    """As deploy/compose has it: what was spent since the copy stays spent."""
    where, ledger = postgres_place.where, postgres_place.open()
    ads = SqlAdStore.open(where)
    ads.put_campaigns([Campaign(11, "Bean & Leaf", 1)])
    ledger.grant(LINE, LIMIT)
    ledger.reserve("before", LINE, COST, "p")
    ledger.commit("before")
    copy = tmp_path / "copy"
    assert back_up_store(where, copy)
    ledger.reserve("since", LINE, COST, "p")
    ledger.commit("since")
    ads.put_campaigns([Campaign(12, "Bean & Leaf", 1)])
    spent = ledger.account(LINE)
    ads.close()
    assert put_back_store(where, copy) == ("ledger",)
    assert postgres_place.open().account(LINE) == spent
    with closing(SqlAdStore.open(where)) as again:
        assert [each.campaign for each in again.campaigns()] == [11]
    for table in ("ledger_renewals", "ledger_entries", "ledger_reservations", "ledger_lines", "ledger_version"):
        postgres_place.sql(f"DROP TABLE {table}")
    assert put_back_store(where, copy) == (), "where there is none it is put back"
    assert postgres_place.sql("SELECT count(*) FROM ledger_reservations") == [(1,)]
    with pytest.raises(LedgerRolledBack):  # and found out by its witness
        postgres_place.open().account(LINE)


def test_without_its_witness_a_store_is_refused_and_its_campaigns_get_no_credit(tmp_path: Path) -> None:
    where, kept = tmp_path / "ads.sqlite", tmp_path / "ads.witness"
    store, menu = SqlAdStore.open(where, witness=kept), a_menu()
    store.put_campaigns([Campaign(menu.entries[0].campaign, "Bean & Leaf", 10_000_000)])
    store.keep_epoch(EPOCH, a_stored_epoch(menu))
    redeem(store, redeemed(menu, [charged(menu, 1)], "first"))
    store.close()
    kept.write_bytes(b"0" + kept.read_bytes()[1:])
    with pytest.raises(BillError, match="is torn or cannot be read"):
        SqlAdStore.open(where, witness=kept)
    kept.unlink()
    with pytest.raises(BillRolledBack, match="has a witness, and there is none at"):
        SqlAdStore.open(where, witness=kept)
    database = open_migrated(where, SCHEMA)
    assert accept_older_ads(database, BillingWitness(kept), 9) is not None
    database.close()
    with closing(SqlAdStore.open(where, witness=kept)) as opened:
        [campaign] = [each for each in opened.campaigns() if each.budget_micros is not None]
        assert campaign.budget_micros == campaign.charged_micros > 0


def test_a_store_of_an_earlier_release_gets_its_witness(tmp_path: Path) -> None:
    where, kept = tmp_path / "ads.sqlite", tmp_path / "ads.witness"
    store, menu = SqlAdStore.open(where), a_menu()
    store.keep_epoch(EPOCH, a_stored_epoch(menu))
    redeem(store, redeemed(menu, [charged(menu, 1)]))
    store.close()
    SqlAdStore.open(where, witness=kept).close()
    found = BillingWitness(kept).read()
    assert found is not None
    assert (found.batches, found.epoch) == (1, EPOCH)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main([str(each) for each in ("serve", *words)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_commands_copy_put_back_and_accept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial, copy = tmp_path / "trial", tmp_path / "copy"
    assert run(capsys, "keys", "--out", trial)[0] == 0
    settings, where, kept = trial / "server.toml", trial / "ads.sqlite", trial / "ads.sqlite.witness"
    store, menu = SqlAdStore.open(where, witness=kept), a_menu()
    store.keep_epoch(EPOCH, a_stored_epoch(menu))
    code, said = run(capsys, "backup", settings, "--out", copy)
    assert (code, "wrote billing.sqlite of the server" in said) == (0, True)
    assert oct((copy / "billing.sqlite").stat().st_mode)[-3:] == "600"
    assert run(capsys, "backup", settings, "--out", copy)[0] == 2, "no copy is written over"
    redeem(store, redeemed(menu, [charged(menu, 1)]))
    store.close()
    (trial / "server-ledger.sqlite").write_bytes(b"as it is")
    ledger = json.loads((copy / "backup.json").read_text())
    assert run(capsys, "restore", trial / "proxy.toml", "--from", copy)[0] == 2, "another party's"
    code, said = run(capsys, "restore", settings, "--from", copy)
    assert code == 0, said
    assert "put back: billing" in said
    assert "lost: 1 batches, 0 invoices" in said
    assert (trial / "server-ledger.sqlite").read_bytes() == b"as it is"
    assert ledger["party"] == "server"
    SqlAdStore.open(where, witness=kept).close()
    # By other means: a copied file.
    with closing(SqlAdStore.open(where, witness=kept)) as opened:
        opened.keep_epoch(EPOCH + 1, a_stored_epoch(a_menu(epoch=EPOCH + 1)))
    shutil.copy(copy / "billing.sqlite", where)
    for suffix in ("-wal", "-shm"):
        where.with_name(where.name + suffix).unlink(missing_ok=True)
    with pytest.raises(BillRolledBack):
        SqlAdStore.open(where, witness=kept)
    code, said = run(capsys, "restore", settings, "--accept")
    assert (code, "epochs that were known are closed" in said) == (0, True)
    SqlAdStore.open(where, witness=kept).close()
    assert (
        "nothing that billing's witness has seen is missing" in run(capsys, "restore", settings, "--accept")[1]
    )
    (copy / "billing.sqlite").write_bytes(b"torn")
    assert run(capsys, "restore", settings, "--from", copy)[0] == 2


def test_a_proxys_questions_are_copied_and_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without them open rounds could not be told to devices any more."""
    trial, copy = tmp_path / "trial", tmp_path / "copy"
    assert run(capsys, "keys", "--out", trial)[0] == 0
    settings, where = trial / "proxy.toml", trial / "questions"
    SqlProxyStore.open(trial / "proxy.sqlite").close()
    kept, question = QuestionFiles(where), b"how many clicks?" * 1_000
    digest = hashlib.sha256(question).digest()
    kept.keep(digest, question)
    (where / "notes.txt").write_text("not ours")
    code, said = run(capsys, "backup", settings, "--out", copy)
    assert (code, "questions.zip" in said) == (0, True)
    assert oct((copy / "questions.zip").stat().st_mode)[-3:] == "600"
    shutil.rmtree(where)
    code, said = run(capsys, "restore", settings, "--from", copy)
    assert (code, "put back: gathered, questions" in said) == (0, True), said
    assert QuestionFiles(where).find(digest) == question
    assert sorted(each.name for each in where.iterdir()) == [digest.hex()]
    with zipfile.ZipFile(copy / "questions.zip", "w") as packed:
        packed.writestr("../../elsewhere", b"x")
    manifest = json.loads((copy / "backup.json").read_text())
    manifest["stores"]["questions"]["sha256"] = files.file_digest(copy / "questions.zip")
    (copy / "backup.json").write_text(json.dumps(manifest))
    code, said = run(capsys, "restore", settings, "--from", copy)
    assert (code, "expected questions by their digests" in said) == (2, True)
    assert not (tmp_path / "elsewhere").exists()


def test_a_round_whose_question_is_gone_keeps_no_other_from_devices(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = SealingKey.generate(), SealingKey.generate()
    whole, lacking = a_round(*keys), a_round(*keys, task="lost", question=b"q" * 32)
    nothing: Any = None
    live: Any = SimpleNamespace(all=lambda: [whole, lacking])
    intake = Intake(
        nothing, nothing, live, QuestionFiles(tmp_path), enrolment_secret=b"e" * 32, clock=lambda: OPENS,
        pace=ServicePace(),
    )  # fmt: skip
    for _ in range(2):
        intake._listed = None
        assert [each.round for each in unpack_rounds(intake.open_rounds())] == [whole]
    assert caplog.text.count("questions of open rounds are gone") == 1
