"""What pacing counts: tokens of a menu that were reported, and what the epochs of a day cost campaigns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
compatible_from = "1"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Nothing was ever kept in either table."""
    op.drop_table("ads_token_limits")
    op.drop_table("ads_days")
    op.create_table(
        "ads_token_limits",
        sa.Column(
            "menu", NUMBER, sa.ForeignKey("bill_ads_menus.number"), primary_key=True, autoincrement=False
        ),
        sa.Column("most", sa.BigInteger, sa.CheckConstraint("most >= 0", name="most"), nullable=False),
        sa.Column(
            "reserved", sa.BigInteger, sa.CheckConstraint("reserved BETWEEN 0 AND most", name="reserved"),
            nullable=False,
        ),
        sa.Column(
            "reported", sa.BigInteger, sa.CheckConstraint("reported >= 0", name="reported"), nullable=False
        ),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("retired", sa.Boolean, nullable=False),
    )  # fmt: skip
    op.create_index(
        "ads_token_limits_out", "ads_token_limits", ["menu"],
        sqlite_where=sa.text("NOT retired"), postgresql_where=sa.text("NOT retired"),
    )  # fmt: skip
    op.create_table(
        "ads_days",
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(
            "campaign", NUMBER, sa.ForeignKey("bill_ads_campaigns.campaign"), primary_key=True,
            autoincrement=False,
        ),
        sa.Column("spent", sa.BigInteger, sa.CheckConstraint("spent >= 0", name="spent"), nullable=False),
        sa.Column(
            "exposed", sa.BigInteger, sa.CheckConstraint("exposed >= 0", name="exposed"), nullable=False
        ),
    )  # fmt: skip
