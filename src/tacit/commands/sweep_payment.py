"""Who pays for a sweep on people's data: everything that its runs cost together, set aside before the first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.data.columns import Columns
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.privacy.units import Window
    from tacit.store.ledger import LedgerStore, Request
    from tacit.studies.sweeping.grid import Sweep
    from tacit.train.configuration_values import LedgerPlace

PAID = "paid.json"


@dataclass(frozen=True, eq=False)
class SweepPayment:
    """One request for each line. `folder` holds the runs' records, and remembers that this sweep is its own.

    The records and the payment belong together: with the payment alone, in another folder, every run would be
    made a second time and nobody would have paid for it.
    """

    store: LedgerStore
    requests: tuple[Request, ...]
    name: str
    folder: Path

    def reserve(self) -> str:
        """Set it aside; in words, what that meant."""
        from tacit.studies.sweeping.records import write_whole

        mark = self.folder / PAID
        ours = mark.exists() and json.loads(mark.read_text()).get("name") == self.name
        known = [each.key for each in self.requests if self.store.reservation(each.key) is not None]
        if known and not ours:
            raise BadInput(
                f"sweep.key: expected a sweep that the ledger does not know, got one that was begun in another "
                f"folder than {self.folder.parent}: go on there, or give this one a key of its own"
            )
        # First the mark: whoever dies in between has paid nothing, and may begin again.
        write_whole(mark, json.dumps({"name": self.name, "keys": [each.key for each in self.requests]}) + "\n")
        self.store.reserve_all(self.requests)
        return "paid for when it was begun" if known else "reserved"

    def commit(self) -> None:
        self.store.commit_all([each.key for each in self.requests])


def payment_for(
    sweep: Sweep, columns: Columns, costs: Sequence[Guarantee], name: str, out: Path
) -> SweepPayment:
    """What all runs cost together, on the lines of the configuration's ledger; refused where nobody pays."""
    from tacit.privacy.ledger.lines import Series
    from tacit.store.ledger import LedgerStore, Request

    place = _ledger(sweep)
    assert place.path is not None
    assert place.scope is not None, "checked when the configuration was read"
    requests: list[Request] = []
    purpose = f"sweep over {len(sweep.points)} settings"
    for number, cost in enumerate(costs):
        series = Series(place.scope, cost.unit, place.relation or cost.relation)
        for window in _windows(columns, cost.unit.window):
            key = f"{place.scope}/sweep/{name}/{number}" + ("" if window is None else f"/{window}")
            requests.append(Request(key, series.line(window), cost, purpose))
    store = LedgerStore.open_existing(place.path, witness=place.witness)
    return SweepPayment(store, tuple(requests), name, out / "records")


def refuse_private_labels(sweep: Sweep) -> None:
    """Every figure that is read off private labels is a release that nobody has paid for."""
    if not sweep.held_out_labels_are_public:
        raise BadInput(
            'sweep.held_out_labels: expected "public" on data that is not made up, got private ones: the '
            "figures that runs are compared by would give them away"
        )


def name_of(digests: Sequence[str], key: str) -> str:
    """A name for these very runs: another list of them is another sweep."""
    return hashlib.sha256(json.dumps([key, *sorted(digests)]).encode()).hexdigest()[:16]


def _ledger(sweep: Sweep) -> LedgerPlace:
    for point in sweep.points:
        if point.config.privacy.is_private and point.config.ledger.path is not None:
            return point.config.ledger  # it is not swept: all have the same
    raise BadInput(
        "ledger.path: expected the ledger that pays for all runs on data that is not made up, got no such key"
    )


def _windows(columns: Columns, window: Window | None) -> list[int | None]:
    """The time windows that the log lies in; one that is all time for a unit without."""
    import numpy as np

    if window is None:
        return [None]
    times = np.asarray(columns["time"], np.int64)
    return [int(index) for index in np.unique((times - window.origin) // window.seconds)]
