"""The proxy's first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
compatible_from = "1"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def key(name: str, *more: sa.ForeignKey) -> sa.Column[int]:
    return sa.Column(name, NUMBER, *more, primary_key=True, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "bill_proxy_directories",
        key("epoch"),
        sa.Column("opens", sa.BigInteger, nullable=False),
        sa.Column("closes", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Column("directory", sa.LargeBinary, nullable=False),
    )
    op.create_table("bill_proxy_forgotten", key("epoch"))
    op.create_table(
        "bill_proxy_menus",
        key("number"),
        sa.Column("menu_id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("epoch", NUMBER, sa.ForeignKey("bill_proxy_directories.epoch"), nullable=False, index=True),
        sa.Column("leaf", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "bill_proxy_waiting",
        key("number"),
        sa.Column("menu", NUMBER, sa.ForeignKey("bill_proxy_menus.number"), nullable=False),
        sa.Column("arrived", sa.BigInteger, nullable=False),
        sa.Column("nonce", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("bill_proxy_since", "bill_proxy_waiting", ["menu", "arrived", "number"])
    op.create_table(
        "bill_proxy_batches",
        key("number"),
        sa.Column("batch_id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("menu", NUMBER, nullable=False),
        sa.Column("epoch", NUMBER, sa.ForeignKey("bill_proxy_directories.epoch"), nullable=False, index=True),
        sa.Column("statement", sa.LargeBinary, nullable=False),
        sa.Column("receipt", sa.LargeBinary),
    )
    unsettled = sa.text("receipt IS NULL")
    op.create_index(
        "bill_proxy_undelivered", "bill_proxy_batches", ["number"],
        sqlite_where=unsettled, postgresql_where=unsettled,
    )  # fmt: skip
    op.create_table(
        "bill_proxy_contents",
        key("batch", sa.ForeignKey("bill_proxy_batches.number")),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "bill_proxy_left",
        sa.Column("nonce", sa.LargeBinary, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("batch", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
