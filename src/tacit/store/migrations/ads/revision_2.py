"""What an ad server sells: campaigns, creatives, access keys, changes, limits, notices, versions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"
compatible_from = "1"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def key(name: str, kind: sa.types.TypeEngine[int], *more: sa.ForeignKey) -> sa.Column[int]:
    return sa.Column(name, kind, *more, primary_key=True, autoincrement=False)


def upgrade() -> None:
    _add_campaigns()
    _add_limits()
    _add_notices()
    _add_versions()


def _add_campaigns() -> None:
    op.create_table(
        "ads_advertisers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "ads_campaigns",
        key("campaign", NUMBER, sa.ForeignKey("bill_ads_campaigns.campaign")),
        sa.Column("advertiser", sa.Text, sa.ForeignKey("ads_advertisers.name"), nullable=False, index=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "ads_creatives",
        key("number", NUMBER),
        sa.Column("campaign", NUMBER, sa.ForeignKey("ads_campaigns.campaign"), nullable=False, index=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("campaign", "digest"),
    )
    op.create_table(
        "ads_keys",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("advertiser", sa.Text, sa.ForeignKey("ads_advertisers.name")),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("made", sa.BigInteger, nullable=False),
        sa.Column("ends", sa.BigInteger),
        sa.Column("revoked", sa.BigInteger),
    )
    op.create_table(
        "ads_changes",
        key("number", NUMBER),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("advertiser", sa.Text),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
    )
    op.create_index("ads_changes_of", "ads_changes", ["subject", "number"])
    op.create_index("ads_changes_for", "ads_changes", ["advertiser", "number"])


def _add_limits() -> None:
    op.create_table(
        "ads_token_limits",
        key("menu", NUMBER, sa.ForeignKey("bill_ads_menus.number")),
        sa.Column("most", sa.BigInteger, sa.CheckConstraint("most >= 0", name="most"), nullable=False),
        sa.Column(
            "reserved", sa.BigInteger, sa.CheckConstraint("reserved >= 0", name="reserved"), nullable=False
        ),
    )
    op.create_table(
        "ads_days",
        key("day", sa.Integer()),
        key("campaign", NUMBER, sa.ForeignKey("bill_ads_campaigns.campaign")),
        sa.Column("charged_before", sa.BigInteger, nullable=False),
    )


def _add_notices() -> None:
    op.create_table(
        "ads_notices",
        sa.Column("nonce", sa.LargeBinary, primary_key=True),
        sa.Column("report", sa.LargeBinary, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("delivered", sa.Boolean, nullable=False),
    )
    waiting = sa.text("NOT delivered")
    op.create_index(
        "ads_notices_waiting", "ads_notices", ["expires"], sqlite_where=waiting, postgresql_where=waiting
    )


def _add_versions() -> None:
    op.create_table(
        "ads_versions",
        key("number", NUMBER),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("made", sa.BigInteger, nullable=False),
        sa.Column("in_use", sa.Boolean, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "ads_versions_in_use", "ads_versions", ["kind"], unique=True,
        sqlite_where=sa.text("in_use"), postgresql_where=sa.text("in_use"),
    )  # fmt: skip
