"""Campaigns, advertisers, creatives and keys as rows: statements of SQL within a campaign store's transactions.

Each change is noted in the trail by whoever makes it, here, so that none can be made without.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, insert, select, update

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.server.store import Campaign
from tacit.deliver.campaigns.access import AccessKey
from tacit.deliver.campaigns.campaign import AdCampaign, CampaignStatus
from tacit.deliver.campaigns.creatives import Creative
from tacit.deliver.campaigns.store import (
    ERASED,
    MOST_CAMPAIGNS,
    MOST_KEYS,
    Advertiser,
    Author,
    CampaignVerdict,
    StoredCampaign,
)
from tacit.errors import BillRefused, CampaignRefused
from tacit.store import billing_accounts as accounts
from tacit.store.billing_tables import CAMPAIGNS
from tacit.store.market_tables import ACCESS_KEYS, ADVERTISERS, CHANGES, CREATIVES, OFFERED

MOST_NUMBER = 2**53  # of those given out here: what every reader of JSON can count to
IN_COLUMNS = ("number", "advertiser", "status", "budget_micros")


def spell(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"))


def note(
    connection: Connection, author: Author, subject: str, advertiser: str | None, before: Any, after: Any
) -> None:
    """Add a line to the trail, within the transaction of what it is about: of something that was there before,
    the keys that changed. The trail is kept for ever, and a campaign may be long."""
    if before is not None and after is not None:
        changed = {key for key in (*before, *after) if before.get(key) != after.get(key)}
        before, after = ({key: said[key] for key in said if key in changed} for said in (before, after))
    connection.execute(
        insert(CHANGES).values(
            number=accounts.next_number(connection, CHANGES),
            at=author.at,
            key_id=author.key_id,
            subject=subject,
            advertiser=advertiser,
            before=None if before is None else spell(before),
            after=None if after is None else spell(after),
        )
    )


def expect_room(count: int, most: int, what: str) -> None:
    if count >= most:
        raise CampaignRefused(CampaignVerdict.TOO_MANY, f"expected at most {most} {what}, got one more")


# Campaigns: what is said of one, without what stands in columns


def stored_campaigns() -> Select[Any]:
    joined = OFFERED.join(CAMPAIGNS, CAMPAIGNS.c.campaign == OFFERED.c.campaign)
    return select(OFFERED, CAMPAIGNS.c.budget, CAMPAIGNS.c.charged).select_from(joined)


def read_campaign(row: Any) -> StoredCampaign:
    columns = (row.campaign, row.advertiser, row.status, row.budget)
    record = {**json.loads(row.body), **dict(zip(IN_COLUMNS, columns, strict=True))}
    return StoredCampaign(AdCampaign.from_json(record), row.version, row.charged)


def _body(campaign: AdCampaign) -> str:
    return spell({key: value for key, value in campaign.as_json().items() if key not in IN_COLUMNS})


def find_campaign(connection: Connection, number: int) -> StoredCampaign | None:
    row = connection.execute(stored_campaigns().where(OFFERED.c.campaign == number)).first()
    return None if row is None else read_campaign(row)


def find_campaign_there(connection: Connection, number: int) -> StoredCampaign:
    found = find_campaign(connection, number)
    if found is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN, f"campaign {number}")
    return found


def free_number(connection: Connection) -> int:
    """Behind all numbers that anybody ever charged or offered."""
    query = select(func.max(CAMPAIGNS.c.campaign)).where(CAMPAIGNS.c.campaign < MOST_NUMBER)
    last = connection.execute(query).scalar()
    number = 1 if last is None else int(last) + 1
    if number >= MOST_NUMBER:
        raise CampaignRefused(CampaignVerdict.TOO_MANY, "expected a campaign's number that is free, got none")
    return number


class Additions:
    """Adds campaigns within one transaction. What an advertiser has is looked up once, however many are added:
    meanwhile nobody else can write anything, charges neither."""

    def __init__(self, connection: Connection, author: Author, *, several: bool = False) -> None:
        self._connection, self._author, self._several = connection, author, several
        self._counts: dict[str, int] = {}  # of those that have not ended, by advertiser
        self._titles: dict[str, dict[str, int]] = {}  # and their numbers by title

    def add(self, campaign: AdCampaign) -> None:
        if campaign.status is CampaignStatus.ENDED:
            raise CampaignRefused(
                CampaignVerdict.ENDED, "expected a campaign that begins, got one that has ended"
            )
        advertiser = campaign.advertiser
        if advertiser not in self._counts:
            expect_advertiser(self._connection, advertiser)
            query = select(func.count()).where(_running_of(advertiser))
            self._counts[advertiser] = self._connection.execute(query).scalar_one()
        expect_room(self._counts[advertiser], MOST_CAMPAIGNS, "campaigns")
        _put_account(self._connection, campaign)
        columns = {"campaign": campaign.number, "advertiser": advertiser, "status": str(campaign.status)}
        self._connection.execute(insert(OFFERED).values(version=1, body=_body(campaign), **columns))
        _note_campaign(self._connection, self._author, None, campaign)
        self._counts[advertiser] += 1
        if advertiser in self._titles:
            self._titles[advertiser].setdefault(campaign.title, campaign.number)

    def add_unnumbered(self, campaign: AdCampaign) -> int:
        """Under the next free number; CONFLICT where one that has not ended is called the same."""
        known = self._called(campaign)
        if known is not None:
            detail = f"title: expected one that no campaign of its advertiser has, got that of {known}"
            raise CampaignRefused(CampaignVerdict.CONFLICT, detail)
        number = free_number(self._connection)
        self.add(replace(campaign, number=number))
        return number

    def _called(self, campaign: AdCampaign) -> int | None:
        """The campaign of the same advertiser that is called so."""
        query = select(OFFERED.c.campaign, OFFERED.c.body).where(_running_of(campaign.advertiser))
        if not self._several:
            # As it stands in a body, where no other key is called so: sooner than reading all of them.
            spelled = spell({"title": campaign.title})[1:-1]
            query = query.where(OFFERED.c.body.contains(spelled, autoescape=True))
            return _by_title(self._connection.execute(query)).get(campaign.title)
        if campaign.advertiser not in self._titles:
            self._titles[campaign.advertiser] = _by_title(self._connection.execute(query))
        return self._titles[campaign.advertiser].get(campaign.title)


def _running_of(advertiser: str) -> ColumnElement[bool]:
    return (OFFERED.c.advertiser == advertiser) & (OFFERED.c.status != CampaignStatus.ENDED)


def _by_title(rows: Iterable[Any]) -> dict[str, int]:
    return {json.loads(row.body)["title"]: row.campaign for row in rows}


def change_campaign(
    connection: Connection, campaign: AdCampaign, version: int | None, author: Author
) -> StoredCampaign:
    stored = find_campaign_there(connection, campaign.number)
    before = stored.campaign
    if campaign == before:  # perhaps asked again, since the first answer was lost
        return stored
    if version is not None and version != stored.version:
        detail = f"campaign {campaign.number}: expected version {stored.version}, got {version}"
        raise CampaignRefused(CampaignVerdict.STALE, detail)
    if campaign.advertiser != before.advertiser:
        detail = f"campaign {campaign.number}: expected another campaign for another advertiser, got this one"
        raise CampaignRefused(CampaignVerdict.CONFLICT, detail)
    # What was shown before the end may still have to be paid for, so that its budget can be raised.
    if (
        before.status is CampaignStatus.ENDED
        and replace(campaign, budget_micros=before.budget_micros) != before
    ):
        raise CampaignRefused(CampaignVerdict.ENDED, f"campaign {campaign.number}")
    if campaign.budget_micros != before.budget_micros:
        if author.pays:
            _expect_payment(connection, campaign, before.budget_micros)
        _put_account(connection, campaign)
    this = update(OFFERED).where(OFFERED.c.campaign == campaign.number)
    values = {"version": stored.version + 1, "status": str(campaign.status), "body": _body(campaign)}
    connection.execute(this.values(**values))
    _note_campaign(connection, author, before, campaign)
    return find_campaign_there(connection, campaign.number)


def _expect_payment(connection: Connection, campaign: AdCampaign, before: int | None) -> None:
    """Refuse a budget that is lowered below what may have to be paid: what is shown then would be held for
    ever, and was offered on the word of the old one."""
    budget = campaign.budget_micros
    if budget is None or (before is not None and budget >= before):
        return
    owed = accounts.sum_owed(connection, campaign.number)
    if budget < owed:
        detail = f"budget_micros: expected at least {owed}, which was charged or is out in menus, got {budget}"
        raise CampaignRefused(CampaignVerdict.CONFLICT, detail)


def _put_account(connection: Connection, campaign: AdCampaign) -> None:
    """What it may be charged, where charges look; what was held and can now be paid is charged."""
    account = Campaign(campaign.number, campaign.advertiser, campaign.budget_micros)
    try:
        accounts.put_campaigns(connection, [account])
    except BillRefused as refused:
        if refused.reason is not BillVerdict.CONFLICT:
            raise
        raise CampaignRefused(CampaignVerdict.CONFLICT, f"campaign {campaign.number}") from None


def _note_campaign(
    connection: Connection, author: Author, before: AdCampaign | None, after: AdCampaign
) -> None:
    was = None if before is None else before.as_json()
    note(connection, author, f"campaign {after.number}", after.advertiser, was, after.as_json())


# Advertisers, creatives, keys


def find_advertiser(connection: Connection, name: str) -> Advertiser | None:
    body = connection.execute(select(ADVERTISERS.c.body).where(ADVERTISERS.c.name == name)).scalar()
    return None if body is None else Advertiser.from_json(json.loads(body))


def expect_advertiser(connection: Connection, name: str) -> None:
    if find_advertiser(connection, name) is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN, f"advertiser: expected one that was added, got {name!r}")


def put_advertiser(connection: Connection, advertiser: Advertiser, author: Author) -> bool:
    before = find_advertiser(connection, advertiser.name)
    if before == advertiser:
        return False
    body = spell(advertiser.as_json())
    if before is None:
        connection.execute(insert(ADVERTISERS).values(name=advertiser.name, body=body))
    else:
        connection.execute(update(ADVERTISERS).where(ADVERTISERS.c.name == advertiser.name).values(body=body))
    was = None if before is None else before.as_json()
    note(connection, author, "advertiser", advertiser.name, was, advertiser.as_json())
    return before is None


def erase_contact(connection: Connection, name: str, author: Author) -> bool:
    """Take a contact away, and what the trail says of it now and earlier: its lines stay, with a word in the
    place of each. Whether there was one. What is deleted in a SQLite file is overwritten on every
    connection (`schema_revisions.WRITING`); its log is the caller's to empty."""
    before = find_advertiser(connection, name)
    if before is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN, f"advertiser {name}")
    of_lines = (CHANGES.c.subject == "advertiser") & (CHANGES.c.advertiser == name)
    query = select(CHANGES.c.number, CHANGES.c.before, CHANGES.c.after).where(of_lines)
    told = {row.number: {"before": row.before, "after": row.after} for row in connection.execute(query)}
    erased = {
        number: {key: _without_contact(body) for key, body in line.items()} for number, line in told.items()
    }
    for number, line in erased.items():
        if line != told[number]:
            connection.execute(update(CHANGES).where(CHANGES.c.number == number).values(**line))
    body = spell(replace(before, contact="").as_json())
    connection.execute(update(ADVERTISERS).where(ADVERTISERS.c.name == name).values(body=body))
    if erased == told and not before.contact:
        return False
    note(connection, author, "advertiser", name, {"contact": ERASED}, {"contact": ""})
    return True


def _without_contact(body: str | None) -> str | None:
    said = None if body is None else json.loads(body)
    if not said or not said.get("contact"):
        return body
    return spell({**said, "contact": ERASED})


SAID_OF_CREATIVE = (CREATIVES.c.number, CREATIVES.c.campaign, CREATIVES.c.digest, CREATIVES.c.body)


def read_creative(row: Any) -> Creative:
    return Creative(number=row.number, campaign=row.campaign, digest=bytes(row.digest), **json.loads(row.body))


def find_creative(connection: Connection, number: int) -> Creative | None:
    row = connection.execute(select(*SAID_OF_CREATIVE).where(CREATIVES.c.number == number)).first()
    return None if row is None else read_creative(row)


def read_key(row: Any) -> AccessKey:
    return AccessKey(
        row.key_id, row.role, row.advertiser, row.made, row.ends, row.revoked, digest=bytes(row.digest)
    )


def find_key(connection: Connection, key_id: str) -> AccessKey | None:
    row = connection.execute(select(ACCESS_KEYS).where(ACCESS_KEYS.c.key_id == key_id)).first()
    return None if row is None else read_key(row)


def find_key_there(connection: Connection, key_id: str) -> AccessKey:
    found = find_key(connection, key_id)
    if found is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN, f"key {key_id}")
    return found


def add_key(connection: Connection, key: AccessKey, author: Author) -> None:
    if find_key(connection, key.key_id) is not None:
        raise CampaignRefused(CampaignVerdict.CONFLICT, f"key {key.key_id}")
    if key.advertiser is not None:
        expect_advertiser(connection, key.advertiser)
    mine = ACCESS_KEYS.c.revoked.is_(None) & ACCESS_KEYS.c.advertiser.is_not_distinct_from(key.advertiser)
    holding = mine & (ACCESS_KEYS.c.ends.is_(None) | (ACCESS_KEYS.c.ends > author.at))
    expect_room(connection.execute(select(func.count()).where(holding)).scalar_one(), MOST_KEYS, "keys")
    values = {"role": str(key.role), "advertiser": key.advertiser, "made": key.made, "ends": key.ends}
    connection.execute(
        insert(ACCESS_KEYS).values(key_id=key.key_id, digest=key.digest, revoked=key.revoked, **values)
    )
    note(connection, author, f"key {key.key_id}", key.advertiser, None, key.as_json())


def end_key(connection: Connection, before: AccessKey, ends: int, author: Author) -> AccessKey:
    if before.ends is not None and before.ends <= ends:
        return before
    return change_key(connection, before, replace(before, ends=ends), author)


def change_key(connection: Connection, before: AccessKey, after: AccessKey, author: Author) -> AccessKey:
    this = update(ACCESS_KEYS).where(ACCESS_KEYS.c.key_id == before.key_id)
    connection.execute(this.values(ends=after.ends, revoked=after.revoked))
    note(connection, author, f"key {before.key_id}", before.advertiser, before.as_json(), after.as_json())
    return after
