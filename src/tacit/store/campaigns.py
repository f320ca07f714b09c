"""What an ad server sells, made to last: a `CampaignStore` on SQLite or PostgreSQL, beside charges.

    campaigns = SqlCampaignStore(ad_store.database)

A campaign's budget and who pays for it stand where charges look (`billing_accounts`), and nowhere else: whoever
changes one changes what may be charged, in one transaction. A creative's number is that of the change that made
it, so that no number ever means two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, func, insert, select

from tacit.deliver.campaigns.access import AccessKey
from tacit.deliver.campaigns.campaign import AdCampaign, CampaignStatus
from tacit.deliver.campaigns.creatives import Creative
from tacit.deliver.campaigns.store import (
    MOST_CREATIVES,
    MOST_PER_PAGE,
    Advertiser,
    Author,
    CampaignVerdict,
    Change,
    PutOutcome,
    StoredCampaign,
)
from tacit.display import brief
from tacit.errors import CampaignRefused
from tacit.store import billing_accounts as accounts
from tacit.store import campaign_rows as rows
from tacit.store.database import PartyDatabase
from tacit.store.market_tables import ACCESS_KEYS, ADVERTISERS, CHANGES, CREATIVES, OFFERED


class SqlCampaignStore:
    """A `CampaignStore`. Every method is one transaction, on disk when it returns; any thread may call."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database

    def __repr__(self) -> str:
        return brief(self, at=self._database.name)

    # Campaigns

    def ad_campaigns(self) -> Sequence[AdCampaign]:
        query = (
            rows.stored_campaigns().where(OFFERED.c.status != CampaignStatus.ENDED).order_by(OFFERED.c.campaign)
        )
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        return [rows.read_campaign(row).campaign for row in found]

    def revision(self) -> int:
        with self._database.reading() as connection:
            return accounts.next_number(connection, CHANGES) - 1

    def campaign(self, number: int) -> StoredCampaign | None:
        with self._database.reading() as connection:
            return rows.find_campaign(connection, number)

    def campaigns(
        self, *, advertiser: str | None = None, after: int = -1, most: int = MOST_PER_PAGE
    ) -> Sequence[StoredCampaign]:
        query = (
            rows.stored_campaigns().where(OFFERED.c.campaign > after).order_by(OFFERED.c.campaign).limit(most)
        )
        if advertiser is not None:
            query = query.where(OFFERED.c.advertiser == advertiser)
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        return [rows.read_campaign(row) for row in found]

    def add_campaign(
        self, campaign: AdCampaign, author: Author, *, numbered: bool = True
    ) -> tuple[StoredCampaign, bool]:
        with self._database.writing() as connection:
            adding = rows.Additions(connection, author)
            if not numbered:
                number = adding.add_unnumbered(campaign)
                return rows.find_campaign_there(connection, number), True
            before = rows.find_campaign(connection, campaign.number)
            if before is None:
                adding.add(campaign)
                return rows.find_campaign_there(connection, campaign.number), True
            if before.campaign != campaign:
                raise CampaignRefused(CampaignVerdict.CONFLICT, f"campaign {campaign.number}")
            return before, False

    def change_campaign(self, campaign: AdCampaign, version: int | None, author: Author) -> StoredCampaign:
        with self._database.writing() as connection:
            return rows.change_campaign(connection, campaign, version, author)

    def amend_campaign(
        self, number: int, said: Mapping[str, Any], version: int | None, author: Author
    ) -> StoredCampaign:
        with self._database.writing() as connection:
            before = rows.find_campaign_there(connection, number).campaign
            campaign = AdCampaign.from_json({**before.as_json(), **said})
            return rows.change_campaign(connection, campaign, version, author)

    def set_budget(self, number: int, budget_micros: int | None, author: Author) -> bool:
        with self._database.writing() as connection:
            stored = rows.find_campaign(connection, number)
            if stored is not None:
                campaign = replace(stored.campaign, budget_micros=budget_micros)
                rows.change_campaign(connection, campaign, None, author)
            return stored is not None

    def put_all(
        self,
        advertisers: Sequence[Advertiser],
        campaigns: Sequence[tuple[AdCampaign, int | None]],
        author: Author,
        *,
        unnumbered: Sequence[AdCampaign] = (),
    ) -> PutOutcome:
        added, changed = list[int](), list[int]()
        with self._database.writing() as connection:
            adding = rows.Additions(connection, author, several=len(unnumbered) > 1)
            for advertiser in advertisers:
                rows.put_advertiser(connection, advertiser, author)
            for campaign, version in campaigns:
                before = rows.find_campaign(connection, campaign.number)
                if before is None:
                    if version is not None:
                        raise CampaignRefused(CampaignVerdict.UNKNOWN, f"campaign {campaign.number}")
                    adding.add(campaign)
                    added.append(campaign.number)
                elif rows.change_campaign(connection, campaign, version, author).version > before.version:
                    changed.append(campaign.number)
            added += [adding.add_unnumbered(each) for each in unnumbered]
        return PutOutcome(tuple(added), tuple(changed))

    # Advertisers

    def advertiser(self, name: str) -> Advertiser | None:
        with self._database.reading() as connection:
            return rows.find_advertiser(connection, name)

    def advertisers(self, *, after: str = "", most: int = MOST_PER_PAGE) -> Sequence[Advertiser]:
        query = select(ADVERTISERS.c.body).where(ADVERTISERS.c.name > after).order_by(ADVERTISERS.c.name)
        with self._database.reading() as connection:
            bodies = connection.execute(query.limit(most)).scalars().all()
        return [Advertiser.from_json(json.loads(body)) for body in bodies]

    def put_advertiser(self, advertiser: Advertiser, author: Author) -> bool:
        with self._database.writing() as connection:
            return rows.put_advertiser(connection, advertiser, author)

    def erase_contact(self, name: str, author: Author) -> bool:
        """Whether there was one. SQLite's log is emptied behind it, so that neither file has a copy; where
        somebody reads from it for two seconds just then, it stays in the log until that is next emptied: when
        an epoch's keys are deleted, after some megabytes of commits, or with the last connection."""
        with self._database.writing() as connection:
            was_there = rows.erase_contact(connection, name, author)
        self._database.empty_log()
        return was_there

    # Creatives

    def creatives(self, campaign: int | None = None) -> Sequence[Creative]:
        query = select(*rows.SAID_OF_CREATIVE).order_by(CREATIVES.c.number)
        if campaign is not None:
            query = query.where(CREATIVES.c.campaign == campaign)
        with self._database.reading() as connection:
            return [rows.read_creative(row) for row in connection.execute(query)]

    def creative(self, number: int) -> Creative | None:
        with self._database.reading() as connection:
            return rows.find_creative(connection, number)

    def content(self, creative: int) -> bytes | None:
        query = select(CREATIVES.c.content).where(CREATIVES.c.number == creative)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else bytes(found)

    def add_creative(self, creative: Creative, content: bytes, author: Author) -> tuple[Creative, bool]:
        of_campaign = CREATIVES.c.campaign == creative.campaign
        query = select(*rows.SAID_OF_CREATIVE).where(of_campaign)
        with self._database.writing() as connection:
            campaign = rows.find_campaign_there(connection, creative.campaign).campaign
            known = connection.execute(query.where(CREATIVES.c.digest == creative.digest)).first()
            if known is not None:
                return rows.read_creative(known), False
            if campaign.status is CampaignStatus.ENDED:
                raise CampaignRefused(CampaignVerdict.ENDED, f"campaign {campaign.number}")
            count = connection.execute(select(func.count()).where(of_campaign)).scalar_one()
            rows.expect_room(count, MOST_CREATIVES, "creatives")
            kept = replace(creative, number=accounts.next_number(connection, CHANGES))
            values = {"number": kept.number, "campaign": kept.campaign, "digest": kept.digest}
            connection.execute(
                insert(CREATIVES).values(**values, body=rows.spell(kept.said()), content=content)
            )
            rows.note(connection, author, f"creative {kept.number}", campaign.advertiser, None, kept.as_json())
            return kept, True

    def remove_creative(self, number: int, author: Author) -> None:
        with self._database.writing() as connection:
            creative = rows.find_creative(connection, number)
            if creative is None:
                raise CampaignRefused(CampaignVerdict.UNKNOWN, f"creative {number}")
            campaign = rows.find_campaign_there(connection, creative.campaign).campaign
            connection.execute(delete(CREATIVES).where(CREATIVES.c.number == number))
            rows.note(connection, author, f"creative {number}", campaign.advertiser, creative.as_json(), None)

    # Keys

    def key(self, key_id: str) -> AccessKey | None:
        with self._database.reading() as connection:
            return rows.find_key(connection, key_id)

    def keys(self, advertiser: str | None = None) -> Sequence[AccessKey]:
        query = select(ACCESS_KEYS).order_by(ACCESS_KEYS.c.made, ACCESS_KEYS.c.key_id)
        if advertiser is not None:
            query = query.where(ACCESS_KEYS.c.advertiser == advertiser)
        with self._database.reading() as connection:
            return [rows.read_key(row) for row in connection.execute(query)]

    def add_key(self, key: AccessKey, author: Author) -> None:
        with self._database.writing() as connection:
            rows.add_key(connection, key, author)

    def rotate_key(self, key_id: str, key: AccessKey, ends: int, author: Author) -> AccessKey:
        with self._database.writing() as connection:
            before = rows.find_key_there(connection, key_id)
            if not before.holds_at(author.at):
                raise CampaignRefused(CampaignVerdict.ENDED, f"key {key_id}")
            rows.add_key(connection, key, author)
            return rows.end_key(connection, before, ends, author)

    def revoke_key(self, key_id: str, author: Author) -> AccessKey:
        with self._database.writing() as connection:
            before = rows.find_key_there(connection, key_id)
            if before.revoked is not None:
                return before
            return rows.change_key(connection, before, replace(before, revoked=author.at), author)

    # The trail

    def changes(
        self,
        *,
        advertiser: str | None = None,
        subject: str | None = None,
        after: int = 0,
        most: int = MOST_PER_PAGE,
    ) -> Sequence[Change]:
        query = select(CHANGES).where(CHANGES.c.number > after).order_by(CHANGES.c.number).limit(most)
        if advertiser is not None:
            query = query.where(CHANGES.c.advertiser == advertiser)
        if subject is not None:
            query = query.where(CHANGES.c.subject == subject)
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        return [
            Change(
                row.number, row.at, row.key_id, row.subject, row.advertiser,
                None if row.before is None else json.loads(row.before),
                None if row.after is None else json.loads(row.after),
            )
            for row in found
        ]  # fmt: skip
