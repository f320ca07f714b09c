"""Durable state behind the Protocols that its users declare: SQLite by default, PostgreSQL by URL.

`ledger`             START HERE: the privacy ledger, `LedgerStore`
`ledger_tables`      its tables, how older ones become current, and its records as rows of them
`database`           SQLite files and PostgreSQL databases of ledgers and parties, and transactions on them
`tamper_evidence`    two small files beside a database that show whether it was put back or edited
`gather_device`      what a device must not forget of rounds
`device_file`        a device's own SQLite file
`device_journal`     what a device must not forget of impressions
`shown_log`          what a device showed, what was clicked and bought, until rounds counted it
`gather_proxy`, `gather_server`, `room`   the state of each party, made to last
`gather_tables`      what the stores of proxy and server have alike
`billing_ads`, `billing_proxy`   the state of the parties to billing
`billing_witness`    a file outside of a store of billing that shows whether it was put back
`billing_restores`   what is done with such a store: it is refused, or the loss is taken
`backups`            copies of stores while they are used, and putting one back
`billing_accounts`   campaigns, charges and invoices within the ad server's transactions
`campaigns`, `campaign_rows`   what an ad server sells: campaigns, creatives, access keys, who changed what
`pacing`, `token_limits`   tokens that may be signed, campaigns' money and days, for the pacer
`billing_tables`     the tables of both, as their newest revision leaves them
`notices`            impressions that exchanges told of, until the proxy has their reports
`market_tables`      those of what an ad server sells, in the same database
`versions`           statistics and models that rates in menus are made of, one of a kind in use
`report_lines`       an advertiser's charges of a period, as reports read them
`figures`            what operators look up: whether a database can be written to, and what waits in it
`ownership`          which of several processes on one database does what must not be done twice
`console_figures`    what the console shows of an ad server: its latest batches, charges, invoices, limits
`schema_revisions`   databases that are brought to the newest revision when they are opened
`migrations`         those revisions, a folder per party
`gather_simulation`  both parties of a simulated round, in one folder
`prior_evidence`     what reports say about the prior, and which prior was published when
`calibration_cache`  accounted numbers across runs; losing it costs seconds, nothing else
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.store.billing_ads import SqlAdStore
    from tacit.store.billing_proxy import SqlBillingProxyStore
    from tacit.store.calibration_cache import CalibrationCache
    from tacit.store.campaigns import SqlCampaignStore
    from tacit.store.device_journal import SqlDeviceJournal
    from tacit.store.gather_device import SqlDeviceStore
    from tacit.store.gather_proxy import SqlProxyStore
    from tacit.store.gather_server import SqlServerStore
    from tacit.store.ledger import Attempt, LedgerStore
    from tacit.store.pacing import SqlPacingStore
    from tacit.store.prior_evidence import SqlEvidenceStore
    from tacit.store.room import SqlRoomStore
    from tacit.store.shown_log import SqlShownLog
    from tacit.store.versions import SqlVersionStore
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "billing_ads": "SqlAdStore",
            "billing_proxy": "SqlBillingProxyStore",
            "calibration_cache": "CalibrationCache",
            "campaigns": "SqlCampaignStore",
            "device_journal": "SqlDeviceJournal",
            "gather_device": "SqlDeviceStore",
            "gather_proxy": "SqlProxyStore",
            "gather_server": "SqlServerStore",
            "ledger": "Attempt LedgerStore",
            "pacing": "SqlPacingStore",
            "prior_evidence": "SqlEvidenceStore",
            "room": "SqlRoomStore",
            "shown_log": "SqlShownLog",
            "versions": "SqlVersionStore",
        },
    )

__all__ = [
    "Attempt", "CalibrationCache", "LedgerStore", "SqlAdStore", "SqlBillingProxyStore",
    "SqlCampaignStore", "SqlDeviceJournal", "SqlDeviceStore", "SqlEvidenceStore", "SqlPacingStore",
    "SqlProxyStore", "SqlRoomStore", "SqlServerStore", "SqlShownLog", "SqlVersionStore",
]  # fmt: skip
