"""When a proxy's store was put back to an older state, and which epochs are over by that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"
compatible_from = "1"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "bill_proxy_restores",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("lost_batches", sa.BigInteger, nullable=False),
        sa.Column("last_epoch", sa.BigInteger, nullable=False),
    )
