"""Nonces of operators' commands, for all processes of an ad server; and when a store was put back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"
compatible_from = "1"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "ads_command_nonces",
        sa.Column("nonce", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "bill_ads_restores",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("lost_batches", sa.BigInteger, nullable=False),
        sa.Column("last_epoch", sa.BigInteger, nullable=False),
        sa.Column("last_invoice", sa.BigInteger, nullable=False),
    )
