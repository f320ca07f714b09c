"""Made `ledger_v1.sql`: a version-1 ledger (no renewals) as plain SQL that SQLite and PostgreSQL both read.

    python tests/vectors/make_ledger_v1.py > tests/vectors/ledger_v1.sql

The tables are spelled out here and must never follow the current ones: they are what old ledgers look like.
"""

from __future__ import annotations

from tacit.privacy.budget import Budget
from tacit.privacy.ledger.chain import START, line_text, next_chain_entry
from tacit.privacy.ledger.lines import Amount, Line
from tacit.privacy.ledger.rules import Change, Ledger
from tacit.privacy.units import Relation, Unit, UnitKind, Window

TABLES = """\
CREATE TABLE ledger_version (one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
CREATE TABLE ledger_lines (
    line TEXT NOT NULL PRIMARY KEY,
    limit_epsilon_nanos BIGINT NOT NULL CHECK (limit_epsilon_nanos >= 0),
    limit_delta_attos BIGINT NOT NULL CHECK (limit_delta_attos >= 0),
    spent_epsilon_nanos BIGINT NOT NULL CHECK (spent_epsilon_nanos >= 0),
    spent_delta_attos BIGINT NOT NULL CHECK (spent_delta_attos >= 0),
    reserved_epsilon_nanos BIGINT NOT NULL CHECK (reserved_epsilon_nanos >= 0),
    reserved_delta_attos BIGINT NOT NULL CHECK (reserved_delta_attos >= 0),
    CHECK (spent_epsilon_nanos + reserved_epsilon_nanos <= limit_epsilon_nanos),
    CHECK (spent_delta_attos + reserved_delta_attos <= limit_delta_attos)
);
CREATE TABLE ledger_reservations (
    key TEXT NOT NULL PRIMARY KEY,
    line TEXT NOT NULL REFERENCES ledger_lines (line),
    asked_epsilon_nanos BIGINT NOT NULL CHECK (asked_epsilon_nanos >= 0),
    asked_delta_attos BIGINT NOT NULL CHECK (asked_delta_attos >= 0),
    purpose TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'aborted'))
);
CREATE TABLE ledger_entries (
    sequence BIGINT NOT NULL PRIMARY KEY CHECK (sequence >= 1),
    previous TEXT NOT NULL UNIQUE,
    contents TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE
);
"""

CLICKS = Line("clicks", Unit(UnitKind.USER), Relation.REPLACE_ONE)
WEEK = Line("conversions", Unit(UnitKind.USER_ADVERTISER, Window.days(7)), Relation.REPLACE_LABEL, 12)


def changes() -> list[Change]:
    """Two lines; one release of each fate."""
    made: list[Change] = []
    ledger = Ledger()

    def note(change: Change) -> None:
        nonlocal ledger
        made.append(change)
        ledger = ledger.apply(change)

    cost = Amount.spending(Budget.of("0.5", "1e-8"))
    note(ledger.grant(CLICKS, Amount.limit(Budget.of(4, "1e-6"))))
    note(ledger.grant(WEEK, Amount.limit(Budget.of(2, "1e-6"))))
    note(ledger.reserve("clicks/model-1", CLICKS, cost, "train the click model"))
    note(ledger.commit("clicks/model-1"))
    note(ledger.reserve("clicks/model-2", CLICKS, cost, "train it again"))
    note(ledger.reserve("conversions/labels-12", WEEK, cost, "flip the labels of week 12"))
    note(ledger.abort("conversions/labels-12"))
    return made


def main() -> None:
    print(TABLES, end="")
    print("INSERT INTO ledger_version VALUES (1, 1);")
    ledger, head = Ledger(), START
    rows = []
    for change in changes():
        ledger = ledger.apply(change)
        for event in change.events:
            entry = next_chain_entry(head, event)
            head = entry.head
            rows.append(("entries", (entry.sequence, entry.previous, entry.contents, entry.hash)))
    for account in ledger.accounts.values():
        amounts = (account.limit, account.spent, account.reserved)
        parts = [part for amount in amounts for part in (amount.epsilon_nanos, amount.delta_attos)]
        print_row("lines", (line_text(account.line), *parts))
    for kept in ledger.reservations.values():
        asked = (kept.amount.epsilon_nanos, kept.amount.delta_attos)
        print_row("reservations", (kept.key, line_text(kept.line), *asked, kept.purpose, str(kept.state)))
    for table, row in rows:
        print_row(table, row)


def print_row(table: str, row: tuple[int | str, ...]) -> None:
    values = ", ".join(str(value) if isinstance(value, int) else f"'{value}'" for value in row)
    print(f"INSERT INTO ledger_{table} VALUES ({values});")


if __name__ == "__main__":
    main()
