"""The ad server's first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
compatible_from = "1"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
ENTRY = ["menu", "idx", "price"]
ENTRY_THERE = [f"bill_ads_entries.{name}" for name in ENTRY]


def key(name: str, kind: sa.types.TypeEngine[int], *more: sa.ForeignKey) -> sa.Column[int]:
    return sa.Column(name, kind, *more, primary_key=True, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "bill_ads_epochs",
        key("epoch", NUMBER),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("sealing_key", sa.LargeBinary),
        sa.Column("head", sa.LargeBinary),
        sa.Column("directory", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "bill_ads_menus",
        key("number", NUMBER),
        sa.Column("menu_id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("epoch", NUMBER, sa.ForeignKey("bill_ads_epochs.epoch"), nullable=False, index=True),
        sa.Column("token_key", sa.LargeBinary),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "bill_ads_campaigns",
        key("campaign", NUMBER),
        sa.Column("advertiser", sa.Text, nullable=False),
        sa.Column("budget", sa.BigInteger, sa.CheckConstraint("budget >= 0", name="budget")),
        sa.Column("charged", sa.BigInteger, sa.CheckConstraint("charged >= 0", name="charged"), nullable=False),
    )
    op.create_table(
        "bill_ads_entries",
        key("menu", NUMBER, sa.ForeignKey("bill_ads_menus.number")),
        key("idx", sa.SmallInteger()),
        sa.Column("price", sa.BigInteger, sa.CheckConstraint("price >= 0", name="price"), nullable=False),
        sa.Column("campaign", NUMBER, sa.ForeignKey("bill_ads_campaigns.campaign")),
        sa.UniqueConstraint(*ENTRY),
        sa.CheckConstraint("(idx = 0) = (campaign IS NULL)", name="nobody"),
        sa.CheckConstraint("idx > 0 OR price = 0", name="free"),
    )
    op.create_table(
        "bill_ads_batches",
        key("number", NUMBER),
        sa.Column("batch_id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("menu_id", sa.LargeBinary, nullable=False),
        sa.Column("statement", sa.LargeBinary, nullable=False),
        sa.Column("receipt", sa.LargeBinary, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "bill_ads_invoices",
        key("number", NUMBER),
        sa.Column("advertiser", sa.Text, nullable=False),
        sa.Column("closed_at", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("impressions", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "bill_ads_lines",
        key("invoice", NUMBER, sa.ForeignKey("bill_ads_invoices.number")),
        key("menu", NUMBER),
        key("idx", sa.SmallInteger()),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column(
            "impressions",
            sa.BigInteger,
            sa.CheckConstraint("impressions >= 1", name="impressions"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(ENTRY, ENTRY_THERE),
    )
    batch = sa.ForeignKey("bill_ads_batches.number", deferrable=True, initially="DEFERRED")
    op.create_table(
        "bill_ads_charges",
        sa.Column("nonce", sa.LargeBinary, primary_key=True),
        sa.Column("menu", NUMBER, nullable=False),
        sa.Column("idx", sa.SmallInteger, nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("batch", NUMBER, batch, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("held", sa.Boolean, nullable=False),
        sa.Column("invoice", NUMBER, sa.ForeignKey("bill_ads_invoices.number")),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("batch", "place"),
        sa.ForeignKeyConstraint(ENTRY, ENTRY_THERE),
        sa.CheckConstraint("NOT held OR invoice IS NULL", name="held"),
    )
    unpaid, held = sa.text("invoice IS NULL AND NOT held AND idx > 0"), sa.text("held")
    op.create_index("bill_ads_open", "bill_ads_charges", ENTRY, sqlite_where=unpaid, postgresql_where=unpaid)
    op.create_index(
        "bill_ads_held", "bill_ads_charges", ["batch", "place"], sqlite_where=held, postgresql_where=held
    )
