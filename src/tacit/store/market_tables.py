"""Tables of what an ad server sells, beside those of what it charges (`billing_tables`), in one database.

Campaigns, creatives, access keys and the trail of changes; how many tokens of a menu may be out, and what
campaigns spent on each day; billing notices of exchanges that are to be reported; versions of
statistics and models.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tacit.store.billing_tables import ADS, CAMPAIGNS, MENUS
from tacit.store.gather_tables import RowNumber

ADVERTISERS = Table(
    "ads_advertisers",
    ADS,
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),  # JSON
)

# What a campaign may be charged stands in `bill_ads_campaigns`, where charges look.
OFFERED = Table(
    "ads_campaigns",
    ADS,
    Column("campaign", RowNumber, ForeignKey(CAMPAIGNS.c.campaign), primary_key=True, autoincrement=False),
    Column("advertiser", Text, ForeignKey(ADVERTISERS.c.name), nullable=False, index=True),
    Column("version", Integer, nullable=False),  # grows with each change
    Column("status", Text, nullable=False),
    Column("body", Text, nullable=False),  # JSON: all that stands in no column here or there
)

CREATIVES = Table(
    "ads_creatives",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),  # of the change that made it
    Column("campaign", RowNumber, ForeignKey(OFFERED.c.campaign), nullable=False, index=True),
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of body and content
    Column("body", Text, nullable=False),  # JSON: title, text, address, media, size
    Column("content", LargeBinary, nullable=False),  # as it is shown, after it was checked; empty for text
    UniqueConstraint("campaign", "digest"),
)

# Of a key only a digest is kept. Without an advertiser it is an operator's.
ACCESS_KEYS = Table(
    "ads_keys",
    ADS,
    Column("key_id", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("advertiser", Text, ForeignKey(ADVERTISERS.c.name)),
    Column("role", Text, nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("ends", BigInteger),  # NULL: until it is revoked
    Column("revoked", BigInteger),
)

# Who changed what, and when; rows are added and never changed. Its last number is the market's revision.
CHANGES = Table(
    "ads_changes",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("subject", Text, nullable=False),  # "campaign 7", "key 3f2a"
    Column("advertiser", Text),  # whom it is about; NULL: nobody, or everybody
    Column("before", Text),  # JSON; NULL where it was made
    Column("after", Text),  # JSON; NULL where it was taken away
)
Index("ads_changes_of", CHANGES.c.subject, CHANGES.c.number)
Index("ads_changes_for", CHANGES.c.advertiser, CHANGES.c.number)

# Tokens of a menu that may be signed, those that were set aside to be signed, in advance, and those that were
# reported. The day (since 1970, UTC) on which its epoch opens. Once closed, nothing more is set aside; once
# retired, nothing more is expected of it.
TOKEN_LIMITS = Table(
    "ads_token_limits",
    ADS,
    Column("menu", RowNumber, ForeignKey(MENUS.c.number), primary_key=True, autoincrement=False),
    Column("most", BigInteger, CheckConstraint("most >= 0", name="most"), nullable=False),
    Column(
        "reserved", BigInteger, CheckConstraint("reserved BETWEEN 0 AND most", name="reserved"), nullable=False
    ),
    Column("reported", BigInteger, CheckConstraint("reported >= 0", name="reported"), nullable=False),
    Column("day", Integer, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("retired", Boolean, nullable=False),
)
Index("ads_token_limits_out", TOKEN_LIMITS.c.menu,
      sqlite_where=text("NOT retired"), postgresql_where=text("NOT retired"))  # fmt: skip

# What the epochs that opened on a day cost a campaign: charged or held; and at worst, once they are retired.
DAYS = Table(
    "ads_days",
    ADS,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("campaign", RowNumber, ForeignKey(CAMPAIGNS.c.campaign), primary_key=True, autoincrement=False),
    Column("spent", BigInteger, CheckConstraint("spent >= 0", name="spent"), nullable=False),
    Column("exposed", BigInteger, CheckConstraint("exposed >= 0", name="exposed"), nullable=False),
)

# Impressions that an exchange told of, as reports for the proxy; a notice that comes again changes nothing.
NOTICES = Table(
    "ads_notices",
    ADS,
    Column("nonce", LargeBinary, primary_key=True),
    Column("report", LargeBinary, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("delivered", Boolean, nullable=False),
)
Index("ads_notices_waiting", NOTICES.c.expires,
      sqlite_where=text("NOT delivered"), postgresql_where=text("NOT delivered"))  # fmt: skip

# Released statistics, models and priors that menus are made of: one of a kind is in use, older ones stay.
VERSIONS = Table(
    "ads_versions",
    ADS,
    Column("number", RowNumber, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),  # statistics, model, prior
    Column("made", BigInteger, nullable=False),
    Column("in_use", Boolean, nullable=False),
    Column("body", Text, nullable=False),  # JSON: where it comes from, its privacy statement
    Column("content", LargeBinary, nullable=False),
)
Index("ads_versions_in_use", VERSIONS.c.kind, unique=True,
      sqlite_where=text("in_use"), postgresql_where=text("in_use"))  # fmt: skip

# Of operators' signed commands, as long as one could come again, at whichever process.
COMMAND_NONCES = Table(
    "ads_command_nonces",
    ADS,
    Column("nonce", Text, primary_key=True),
    Column("until", BigInteger, nullable=False),
)

AD_SERVER = ADS
"""All tables of an ad server's database: importing this is importing both files."""
