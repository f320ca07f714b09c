"""The privacy ledger, read in SQL: what each line may spend, has spent and has left, and what for.
A ledger is a SQLite file; amounts are whole numbers, epsilon in billionths, and a line is spelled in JSON."""

import sqlite3

from tacit.privacy import Budget, Line, Relation, Request, Unit, UnitKind
from tacit.store import LedgerStore

clicks = Line("clicks", Unit(UnitKind.USER), Relation.REPLACE_ONE)
ledger = LedgerStore.open("ledger.sqlite")
ledger.grant(clicks, Budget.of(4, "1e-6"))
for name, epsilon in (("model-7", 1), ("model-8", "1.5")):
    with ledger.once(Request(f"clicks/{name}", clicks, Budget.of(epsilon, "1e-7"), "train the click model")):
        pass  # the release is made here

reader = sqlite3.connect("file:ledger.sqlite?mode=ro", uri=True)  # reading only: edits are noticed, and refused
LEFT = """
    SELECT json_extract(line, '$.scope'), limit_epsilon_nanos / 1e9, spent_epsilon_nanos / 1e9,
           (limit_epsilon_nanos - spent_epsilon_nanos - reserved_epsilon_nanos) / 1e9
    FROM ledger_lines"""
for scope, limit, spent, left in reader.execute(LEFT):
    print(f"{scope}: epsilon {spent:g} of {limit:g} is spent, {left:g} is left")
SPENT = "SELECT key, asked_epsilon_nanos / 1e9, state, purpose FROM ledger_reservations ORDER BY first_entry"
for key, epsilon, state, purpose in reader.execute(SPENT):
    print(f"{key}: epsilon {epsilon:g}, {state}, to {purpose}")
reader.close()
