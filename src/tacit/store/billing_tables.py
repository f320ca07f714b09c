"""Tables of billing's two parties, as the newest revision of `migrations` leaves them.

The ad server's: epochs and menus with their private keys, entries with prices, campaigns, batches, charges,
invoices and their lines. The proxy's: directories and their menus, reports that wait, batches, and the nonces
of reports that have left.

Columns stand in the order in which the database has them, since rows are inserted without naming them: a column
that a revision adds comes last here too.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tacit.store.gather_tables import RowNumber

# What has a name can be changed by a later revision; SQLite makes up none.
NAMES = {
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
}

ADS = MetaData(naming_convention=NAMES)

EPOCHS = Table(
    "bill_ads_epochs",
    ADS,
    Column("epoch", RowNumber, primary_key=True, autoincrement=False),
    Column("expires", BigInteger, nullable=False),
    Column("sealing_key", LargeBinary),  # NULL once it was deleted
    Column("head", LargeBinary),  # NULL until the proxy has countersigned
    Column("directory", LargeBinary, nullable=False),
)

MENUS = Table(
    "bill_ads_menus",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("menu_id", LargeBinary, nullable=False, unique=True),
    Column("epoch", RowNumber, ForeignKey(EPOCHS.c.epoch), nullable=False, index=True),
    Column("token_key", LargeBinary),  # NULL once it was deleted
    Column("body", LargeBinary, nullable=False),
)

CAMPAIGNS = Table(
    "bill_ads_campaigns",
    ADS,
    Column("campaign", RowNumber, primary_key=True, autoincrement=False),
    Column("advertiser", Text, nullable=False),
    Column("budget", BigInteger, CheckConstraint("budget >= 0", name="budget")),  # NULL: without limit
    Column("charged", BigInteger, CheckConstraint("charged >= 0", name="charged"), nullable=False),
)

# Index 0 is showing nothing: free, and nobody's.
ENTRIES = Table(
    "bill_ads_entries",
    ADS,
    Column("menu", RowNumber, ForeignKey(MENUS.c.number), primary_key=True, autoincrement=False),
    Column("idx", SmallInteger, primary_key=True, autoincrement=False),
    Column("price", BigInteger, CheckConstraint("price >= 0", name="price"), nullable=False),
    Column("campaign", RowNumber, ForeignKey(CAMPAIGNS.c.campaign)),
    UniqueConstraint("menu", "idx", "price"),
    CheckConstraint("(idx = 0) = (campaign IS NULL)", name="nobody"),
    CheckConstraint("idx > 0 OR price = 0", name="free"),
)

BATCHES = Table(
    "bill_ads_batches",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("batch_id", LargeBinary, nullable=False, unique=True),
    Column("menu_id", LargeBinary, nullable=False),
    Column("statement", LargeBinary, nullable=False),
    Column("receipt", LargeBinary, nullable=False),
    Column("data", LargeBinary, nullable=False),  # its reports, in its order
)

INVOICES = Table(
    "bill_ads_invoices",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("advertiser", Text, nullable=False),
    Column("closed_at", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("impressions", BigInteger, nullable=False),
)

LINES = Table(
    "bill_ads_lines",
    ADS,
    Column("invoice", RowNumber, ForeignKey(INVOICES.c.number), primary_key=True, autoincrement=False),
    Column("menu", RowNumber, primary_key=True, autoincrement=False),
    Column("idx", SmallInteger, primary_key=True, autoincrement=False),
    Column("price", BigInteger, nullable=False),
    Column("impressions", BigInteger, CheckConstraint("impressions >= 1", name="impressions"), nullable=False),
    ForeignKeyConstraint(
        ["menu", "idx", "price"], ["bill_ads_entries.menu", "bill_ads_entries.idx", "bill_ads_entries.price"]
    ),
)

# A row is a spent token. Its price is its entry's: the database has no other. Its campaign stands there too.
CHARGES = Table(
    "bill_ads_charges",
    ADS,
    Column("nonce", LargeBinary, primary_key=True),
    Column("menu", RowNumber, nullable=False),
    Column("idx", SmallInteger, nullable=False),
    Column("price", BigInteger, nullable=False),
    # Charges come before their batch, whose receipt is signed when they are known.
    Column(
        "batch", RowNumber, ForeignKey(BATCHES.c.number, deferrable=True, initially="DEFERRED"), nullable=False
    ),
    Column("place", Integer, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("invoice", RowNumber, ForeignKey(INVOICES.c.number)),
    Column("secret", LargeBinary, nullable=False),
    UniqueConstraint("batch", "place"),
    ForeignKeyConstraint(
        ["menu", "idx", "price"], ["bill_ads_entries.menu", "bill_ads_entries.idx", "bill_ads_entries.price"]
    ),
    CheckConstraint("NOT held OR invoice IS NULL", name="held"),
)
_OPEN, _HELD = text("invoice IS NULL AND NOT held AND idx > 0"), text("held")
Index("bill_ads_open", CHARGES.c.menu, CHARGES.c.idx, CHARGES.c.price,
      sqlite_where=_OPEN, postgresql_where=_OPEN)  # fmt: skip
Index("bill_ads_held", CHARGES.c.batch, CHARGES.c.place, sqlite_where=_HELD, postgresql_where=_HELD)

# A store that was put back to an older state, and taken so (`billing_restores`): numbers that others have seen
# are never used again, and what was lost is told to auditors.
RESTORES = Table(
    "bill_ads_restores",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),  # that are in the store
    Column("lost_batches", BigInteger, nullable=False),
    Column("last_epoch", BigInteger, nullable=False),  # up to which numbers are used up
    Column("last_invoice", BigInteger, nullable=False),
)

PROXY = MetaData(naming_convention=NAMES)

DIRECTORIES = Table(
    "bill_proxy_directories",
    PROXY,
    Column("epoch", RowNumber, primary_key=True, autoincrement=False),
    Column("opens", BigInteger, nullable=False),
    Column("closes", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("directory", LargeBinary, nullable=False),
)

# An epoch that was forgotten gets no second directory.
FORGOTTEN = Table(
    "bill_proxy_forgotten",
    PROXY,
    Column("epoch", RowNumber, primary_key=True, autoincrement=False),
)

LISTED = Table(
    "bill_proxy_menus",
    PROXY,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("menu_id", LargeBinary, nullable=False, unique=True),
    Column("epoch", RowNumber, ForeignKey(DIRECTORIES.c.epoch), nullable=False, index=True),
    Column("leaf", LargeBinary, nullable=False),
)

# Reports in no batch, in the order in which they came: gone with that order as soon as they are in one.
WAITING = Table(
    "bill_proxy_waiting",
    PROXY,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("menu", RowNumber, ForeignKey(LISTED.c.number), nullable=False),
    Column("arrived", BigInteger, nullable=False),
    Column("nonce", LargeBinary, nullable=False, unique=True),
    Column("data", LargeBinary, nullable=False),
)
Index("bill_proxy_since", WAITING.c.menu, WAITING.c.arrived, WAITING.c.number)

FORMED = Table(
    "bill_proxy_batches",
    PROXY,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("batch_id", LargeBinary, nullable=False, unique=True),
    Column("menu", RowNumber, nullable=False),
    Column("epoch", RowNumber, ForeignKey(DIRECTORIES.c.epoch), nullable=False, index=True),
    Column("statement", LargeBinary, nullable=False),
    Column("receipt", LargeBinary),
)
Index("bill_proxy_undelivered", FORMED.c.number,
      sqlite_where=FORMED.c.receipt.is_(None), postgresql_where=FORMED.c.receipt.is_(None))  # fmt: skip

# The reports of batches without a receipt, shuffled. A table of its own: dropping a row frees whole pages.
CONTENTS = Table(
    "bill_proxy_contents",
    PROXY,
    Column("batch", RowNumber, ForeignKey(FORMED.c.number), primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

# In the order of nonces, which are random. Rows are written when a batch is formed, never when a report comes.
# No foreign key: to forget a batch, every nonce would be looked at.
LEFT = Table(
    "bill_proxy_left",
    PROXY,
    Column("nonce", LargeBinary, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("batch", RowNumber, nullable=False),
    sqlite_with_rowid=False,
)

# As the ad server's: reports of these epochs are no longer taken, nor another directory of any.
PROXY_RESTORES = Table(
    "bill_proxy_restores",
    PROXY,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),
    Column("lost_batches", BigInteger, nullable=False),
    Column("last_epoch", BigInteger, nullable=False),
)
