"""What the console and the demonstration's page look up: by an index, however much there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import event

from tacit.store.billing_ads import SqlAdStore
from tacit.store.console_figures import charges_behind


def test_charges_behind_a_place_are_found_by_an_index(tmp_path: Path) -> None:
    store = SqlAdStore.open(tmp_path / "ads.sqlite")
    asked: list[tuple[str, Any]] = []
    with store.database.reading() as connection:
        event.listen(connection.engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
        assert charges_behind(store.database, 3, 4, 10) == []
        (query, values) = asked[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
    store.close()
    steps = [row[-1] for row in plan]
    assert "(batch,place)>(?,?)" in steps[0]
    assert all(step.startswith("SEARCH") for step in steps), steps  # nothing is scanned, nothing sorted
