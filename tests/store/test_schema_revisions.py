"""Revisions of billing's tables on SQLite and on PostgreSQL: new, older, newer and foreign databases."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.pool import NullPool

from tacit.errors import BadInput, BillError
from tacit.store import (
    SqlAdStore,
    SqlBillingProxyStore,
    SqlProxyStore,
    SqlServerStore,
    billing_ads,
    billing_proxy,
)
from tacit.store.schema_revisions import PartySchema, compatible_revisions, is_served, open_migrated
from tests.support.billing_worlds import EPOCH, a_menu, a_stored_epoch, charged, redeem, redeemed
from tests.support.ledger_places import Place

SCHEMAS = {"ads": billing_ads.SCHEMA, "proxy": billing_proxy.SCHEMA}
LISBON = a_menu()

# Rebuilds the table that others refer to, as SQLite must for any change but a new column, and adds a column.
LATER = '''"""A later revision."""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "later", "HEAD"


def upgrade() -> None:
    with op.batch_alter_table("bill_ads_campaigns") as table:
        table.alter_column("advertiser", new_column_name="payer")
    op.add_column("bill_ads_charges", sa.Column("currency", sa.Text, server_default="EUR", nullable=False))
'''
BROKEN = LATER + '    op.execute("DELETE FROM bill_ads_entries")\n    op.execute("nonsense")\n'
ORPHANS = LATER + '    op.execute("DELETE FROM bill_ads_entries")\n'


# What an old release can go on beside: columns that it does not know of have defaults.
EXPANDING = '''"""A later revision that the release before works with."""
import sqlalchemy as sa
from alembic import op

revision, down_revision, compatible_from = "later", "HEAD", "HEAD"


def upgrade() -> None:
    for table in ("charges", "entries", "menus", "batches", "epochs"):
        op.add_column(f"bill_ads_{table}", sa.Column("currency", sa.Text, server_default="EUR", nullable=False))
    op.create_table("bill_ads_more", sa.Column("number", sa.Integer, primary_key=True))
'''


def with_later(folder: Path, source: str = LATER) -> PartySchema:
    """The ad server's schema as a later release might have it."""
    (folder / "revision_later.py").write_text(source.replace("HEAD", billing_ads.SCHEMA.head))
    return replace(billing_ads.SCHEMA, head="later", folders=(*billing_ads.SCHEMA.folders, folder))


def used(place: Place) -> None:
    """A store of today's revision with rows in it."""
    store = SqlAdStore.open(place.where)
    store.keep_epoch(EPOCH, a_stored_epoch(LISBON))
    redeem(store, redeemed(LISBON, [charged(LISBON, each, each) for each in range(3)]))
    store.close_invoices(5)
    store.close()


def content(place: Place) -> dict[str, list[Any]]:
    tables = [*billing_ads.SCHEMA.metadata.tables, "bill_ads_version"]
    return {name: sorted(place.sql(f"SELECT * FROM {name}"), key=repr) for name in tables}


@pytest.mark.parametrize("party", SCHEMAS)
def test_revisions_lead_to_the_tables_that_are_used(place: Place, party: str) -> None:
    """Column by column in their order, with every constraint and index, as `create_all` would make them."""
    schema = SCHEMAS[party]
    open_migrated(place.where, schema).close()
    migrated = described(place, schema)
    assert [each.split("(")[0] for each in migrated]
    engine = create_engine(place.where, poolclass=NullPool)
    place.sql(f"DROP TABLE {schema.version_table}")
    schema.metadata.drop_all(engine)
    schema.metadata.create_all(engine)
    assert migrated == described(place, schema)


def described(place: Place, schema: PartySchema) -> list[str]:
    """What the database itself says of the tables, in a form that does not depend on names it made up."""
    if place.where.startswith("sqlite"):
        rows = place.sql(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name NOT LIKE :v",
            v=f"{schema.version_table}%",
        )
        return sorted(re.sub(r"\s+", " ", sql) for (sql,) in rows)
    beside = schema.version_table
    found = [f"{name} {table}" for table, name in place.sql(
        "SELECT conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace") if not table.startswith(beside)]  # fmt: skip
    indexes = "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    found += [sql for table, sql in place.sql(indexes) if not table.startswith(beside)]
    engine = create_engine(place.where, poolclass=NullPool)
    for name in schema.metadata.tables:
        columns = inspect(engine).get_columns(name)
        found.append(
            f"{name}: " + ", ".join(f"{each['name']} {each['type']} {each['nullable']}" for each in columns)
        )
    return sorted(found)


@pytest.mark.parametrize("party", SCHEMAS)
def test_the_head_is_the_last_of_its_folder(party: str) -> None:
    """It is known without alembic, so that a database that is up to date opens without it."""
    from alembic.script import ScriptDirectory

    schema = SCHEMAS[party]
    scripts = ScriptDirectory(str(schema.folders[0]), version_locations=[str(schema.folders[0])])
    assert scripts.get_heads() == [schema.head]


def test_an_older_database_is_brought_up_to_date_with_its_rows(place: Place, tmp_path: Path) -> None:
    used(place)
    before = content(place)
    database = open_migrated(place.where, with_later(tmp_path))
    database.close()
    after = content(place)
    assert after["bill_ads_version"] == [("later",)]
    assert after["bill_ads_charges"] == [(*row, "EUR") for row in before["bill_ads_charges"]]
    unchanged = set(before) - {"bill_ads_version", "bill_ads_charges"}
    assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert place.sql("SELECT payer FROM bill_ads_campaigns WHERE campaign = 11") == [("campaign 11",)]
    open_migrated(place.where, with_later(tmp_path)).close()
    assert content(place) == after


@pytest.mark.parametrize("party", SCHEMAS)
def test_every_revision_says_which_releases_go_on_beside_it(party: str) -> None:
    from alembic.script import ScriptDirectory

    schema = SCHEMAS[party]
    scripts = ScriptDirectory(str(schema.folders[0]), version_locations=[str(schema.folders[0])])
    chain = list(scripts.iterate_revisions(schema.head, "base"))[::-1]
    said = [(each.revision, each.module.compatible_from) for each in chain]
    assert set(compatible_revisions(said)) <= {name for name, _ in said}


def test_a_release_goes_on_beside_a_newer_one_that_lets_it(place: Place, tmp_path: Path) -> None:
    used(place)
    old = SqlAdStore.open(place.where)  # which serves while the other begins
    new = SqlAdStore(open_migrated(place.where, with_later(tmp_path, EXPANDING)))
    for number, store in enumerate((old, SqlAdStore.open(place.where), new), 1):
        assert is_served(store.database, billing_ads.SCHEMA)
        menu = a_menu(epoch=EPOCH + number)
        store.keep_epoch(EPOCH + number, a_stored_epoch(menu))
        redeem(store, redeemed(menu, [charged(menu, 10 * number, 1)], number))
    assert sum(line.impressions for line in new.totals()) == 3 + 3
    assert len(set(place.sql("SELECT currency FROM bill_ads_charges"))) == 1
    for store in (old, new):
        store.close()


def test_a_revision_that_breaks_releases_waits_until_nobody_else_serves(
    postgres_place: Place, tmp_path: Path
) -> None:
    used(postgres_place)
    before = content(postgres_place)
    url = make_url(postgres_place.where).update_query_dict({"application_name": "tacit ads store host 1"})
    with create_engine(url, poolclass=NullPool).connect() as another:
        another.exec_driver_sql("SELECT 1")
        with pytest.raises(BillError, match=r"expected nobody else .* got 1 other processes: stop them first"):
            open_migrated(postgres_place.where, with_later(tmp_path))
        assert content(postgres_place) == before
        open_migrated(postgres_place.where, billing_ads.SCHEMA).close()
    open_migrated(postgres_place.where, with_later(tmp_path)).close()


def test_this_release_refuses_a_newer_database_as_it_is(place: Place, tmp_path: Path) -> None:
    used(place)
    open_migrated(place.where, with_later(tmp_path)).close()
    before = content(place)
    with pytest.raises(
        BillError,
        match=r"expected revision \d+ or older of the ads store at .*, got later: it was made by another",
    ) as refused:
        SqlAdStore.open(place.where)
    assert "\n" not in str(refused.value)
    assert content(place) == before


@pytest.mark.parametrize("source", [BROKEN, ORPHANS], ids=["fails", "leaves rows without their entries"])
def test_a_revision_that_fails_leaves_everything_as_it_was(place: Place, tmp_path: Path, source: str) -> None:
    used(place)
    before = content(place)
    with pytest.raises(BillError):
        open_migrated(place.where, with_later(tmp_path, source))
    assert content(place) == before
    SqlAdStore.open(place.where).close()


@pytest.mark.parametrize("rows", [[], ["1", "7"]], ids=["none", "two"])
def test_a_database_without_one_revision_is_refused(place: Place, rows: list[str]) -> None:
    used(place)
    place.sql("DELETE FROM bill_ads_version")
    for row in rows:
        place.sql("INSERT INTO bill_ads_version VALUES (:row)", row=row)
    with pytest.raises(BillError, match="expected one revision of the ads store at"):
        SqlAdStore.open(place.where)


def test_stores_that_are_made_at_the_same_moment_are_whole(place: Place, tmp_path: Path) -> None:
    """By threads of one process, of which alembic knows one connection at a time, both parties at once."""
    files = [f"sqlite:///{tmp_path / name}" for name in ("1", "2", "3")]
    places = [("ads", place.where)] * 3 + [("proxy", each) for each in files] * 2
    start = threading.Barrier(len(places))

    def make(which: tuple[str, str]) -> None:
        start.wait(60)
        open_migrated(which[1], SCHEMAS[which[0]]).close()

    with ThreadPoolExecutor(len(places)) as threads:
        list(threads.map(make, places))
    for party, where in places:
        engine = create_engine(where, poolclass=NullPool)
        assert set(SCHEMAS[party].metadata.tables) <= set(inspect(engine).get_table_names())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (SqlAdStore, SqlBillingProxyStore),
        (SqlBillingProxyStore, SqlAdStore),
        (SqlProxyStore, SqlAdStore),
        (SqlServerStore, SqlBillingProxyStore),
    ],
)
def test_what_two_parties_know_never_lies_in_one_place(place: Place, first: Any, second: Any) -> None:
    first.open(place.where).close()
    with pytest.raises(
        BillError, match=r"expected a database without \w+_version at .*: what both parties know"
    ):
        second.open(place.where)


def test_one_partys_stores_may_share_a_postgres_database(postgres_place: Place) -> None:
    SqlProxyStore.open(postgres_place.where).close()
    store = SqlBillingProxyStore.open(postgres_place.where)
    assert store.waiting() == []
    store.close()


def test_files_that_are_not_ours_are_refused_untouched(tmp_path: Path) -> None:
    foreign, words = tmp_path / "foreign.sqlite", tmp_path / "words.txt"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    words.write_text("not a database at all, but long enough to be taken for one\n" * 20)
    for path in (foreign, words):
        path.chmod(0o600)
        before = path.read_bytes()
        for kind in (SqlAdStore, SqlBillingProxyStore):
            with pytest.raises(BillError) as refused:
                kind.open(path)
            assert "\n" not in str(refused.value)
        assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["foreign.sqlite", "words.txt"]


def test_places_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BillError, match="could not be used"):
        SqlAdStore.open(tmp_path / "no folder" / "ads.sqlite")
    with pytest.raises(BadInput, match="got an empty string"):
        SqlAdStore.open("")
    with pytest.raises(BadInput, match="where"):
        SqlAdStore.open(5)  # type: ignore[arg-type]


def test_without_alembic_a_new_database_says_what_to_install(
    sqlite_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqlAdStore.open(sqlite_place.where).close()
    for name in [each for each in sys.modules if each.split(".")[0] == "alembic"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(BadInput, match=r"expected alembic .*, got none: pip install 'tacit\[serve\]'"):
        SqlAdStore.open(tmp_path / "new.sqlite")
    SqlAdStore.open(sqlite_place.where).close()  # one that is up to date needs none


def test_the_stores_are_imported_without_alembic() -> None:
    code = (
        "import sys; sys.modules['alembic'] = None; import tacit.store; "
        "tacit.store.SqlAdStore, tacit.store.SqlBillingProxyStore"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
