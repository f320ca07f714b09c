"""Durable state behind the Protocols that its users declare: SQLite by default, PostgreSQL by URL.

`ledger`             START HERE: the privacy ledger, `LedgerStore`; `ledger_attempt`: one attempt at a release
`ledger_schema`      its tables and how older ones become current; `ledger_rows` reads and writes them
`database`           where a ledger lives, and the one kind of transaction it is used in
`witness`            two small files beside a database that show whether it was put back or edited
`gather_device`      what a device must not forget
`gather_proxy`, `gather_server`, `room`   the state of each party, made to last
`gather_tables`, `party_database`         what those stores have alike: tables, connections
`calibration_cache`  accounted numbers across runs; losing it costs seconds, nothing else
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.store.calibration_cache import CalibrationCache
    from tacit.store.gather_device import SqlDeviceStore
    from tacit.store.gather_proxy import SqlProxyStore
    from tacit.store.gather_server import SqlServerStore
    from tacit.store.ledger import LedgerStore
    from tacit.store.ledger_attempt import Attempt
    from tacit.store.room import SqlRoomStore
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "calibration_cache": "CalibrationCache",
            "gather_device": "SqlDeviceStore",
            "gather_proxy": "SqlProxyStore",
            "gather_server": "SqlServerStore",
            "ledger": "LedgerStore",
            "ledger_attempt": "Attempt",
            "room": "SqlRoomStore",
        },
    )

__all__ = [
    "Attempt", "CalibrationCache", "LedgerStore", "SqlDeviceStore", "SqlProxyStore",
    "SqlRoomStore", "SqlServerStore",
]  # fmt: skip
