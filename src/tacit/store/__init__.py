"""Durable state behind the Protocols that its users declare: SQLite by default, PostgreSQL by URL.

`ledger`             START HERE: the privacy ledger, `LedgerStore`
`ledger_tables`      its tables, how older ones become current, and its records as rows of them
`database`           SQLite files and PostgreSQL databases of ledgers and parties, and transactions on them
`tamper_evidence`    two small files beside a database that show whether it was put back or edited
`gather_device`      what a device must not forget
`gather_proxy`, `gather_server`, `room`   the state of each party, made to last
`gather_tables`      what the stores of proxy and server have alike
`gather_simulation`  both parties of a simulated round, in one folder
`prior_evidence`     what reports say about the prior, and which prior was published when
`calibration_cache`  accounted numbers across runs; losing it costs seconds, nothing else
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.store.calibration_cache import CalibrationCache
    from tacit.store.gather_device import SqlDeviceStore
    from tacit.store.gather_proxy import SqlProxyStore
    from tacit.store.gather_server import SqlServerStore
    from tacit.store.ledger import Attempt, LedgerStore
    from tacit.store.prior_evidence import SqlEvidenceStore
    from tacit.store.room import SqlRoomStore
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "calibration_cache": "CalibrationCache",
            "gather_device": "SqlDeviceStore",
            "gather_proxy": "SqlProxyStore",
            "gather_server": "SqlServerStore",
            "ledger": "Attempt LedgerStore",
            "prior_evidence": "SqlEvidenceStore",
            "room": "SqlRoomStore",
        },
    )

__all__ = [
    "Attempt", "CalibrationCache", "LedgerStore", "SqlDeviceStore", "SqlEvidenceStore",
    "SqlProxyStore", "SqlRoomStore", "SqlServerStore",
]  # fmt: skip
