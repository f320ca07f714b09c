"""Who is let in: by a key that holds, in one header, looked up anew for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from tacit.deliver.campaigns.access import Access, AccessRole, make_key
from tacit.deliver.campaigns.store import Advertiser, CampaignVerdict
from tacit.entropy import Simulation
from tacit.errors import CampaignRefused
from tacit.services.ads.access import AccessGate, expect_changer, expect_reader
from tacit.services.problems import problem_from_error
from tacit.store import SqlAdStore, SqlCampaignStore
from tests.support.ad_campaigns import BEAN, BY, SHOES

SPELLED, KEY = make_key(AccessRole.ADVERTISER, BEAN, Simulation(1).bytes, now=BY.at, ends=BY.at + 100)
OTHER, _ = make_key(AccessRole.OPERATOR, None, Simulation(2).bytes, now=BY.at)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlCampaignStore]:
    ads = SqlAdStore.open(tmp_path / "ads.sqlite")
    made = SqlCampaignStore(ads.database)
    made.put_advertiser(Advertiser(BEAN), BY)
    made.add_key(KEY, BY)
    yield made
    ads.close()


def ask(store: SqlCampaignStore, *headers: str, now: int = BY.at) -> Access:
    raw = [(b"authorization", header.encode()) for header in headers]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": raw})
    return asyncio.run(AccessGate(store, lambda: now).admit(request))


def test_a_key_that_holds_lets_in(store: SqlCampaignStore) -> None:
    assert ask(store, f"Bearer {SPELLED}") == Access(KEY.key_id, AccessRole.ADVERTISER, BEAN)
    assert ask(store, f"bearer {SPELLED}") == KEY.access


@pytest.mark.parametrize(
    "headers",
    [
        (), ("",), ("Bearer",), ("Bearer ",), (f"Basic {SPELLED}",), (SPELLED,), (f"Bearer {OTHER}",),
        (f"Bearer {SPELLED[:-1]}",), (f"Bearer {SPELLED}0",), (f"Bearer {SPELLED.upper()}",),
        (f"Bearer {SPELLED}", f"Bearer {SPELLED}"), ("Bearer " + "x" * 100_000,), ("Bearer \xff\xfe",),
        (f"Bearer {SPELLED.rsplit('_', 1)[0]}_{OTHER.rsplit('_', 1)[1]}",),
    ],
)  # fmt: skip
def test_nothing_else_does(store: SqlCampaignStore, headers: tuple[str, ...]) -> None:
    with pytest.raises(CampaignRefused) as refused:
        ask(store, *headers)
    assert refused.value.reason is CampaignVerdict.UNAUTHENTICATED
    answer = problem_from_error(refused.value)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert b"tacit_" not in bytes(answer.body)


def test_a_key_that_ended_or_was_revoked_opens_nothing_more(store: SqlCampaignStore) -> None:
    with pytest.raises(CampaignRefused):
        ask(store, f"Bearer {SPELLED}", now=BY.at + 100)
    ask(store, f"Bearer {SPELLED}")
    store.revoke_key(KEY.key_id, BY)
    with pytest.raises(CampaignRefused):
        ask(store, f"Bearer {SPELLED}")


def test_what_is_anothers_is_not_there_and_what_is_nobodys_is_forbidden() -> None:
    def reason(check: object, access: Access, advertiser: str | None) -> object:
        try:
            check(access, advertiser)  # type: ignore[operator]
        except CampaignRefused as refused:
            return refused.reason
        return None

    mine, looks = KEY.access, Access("k", AccessRole.ADVERTISER_VIEWER, BEAN)
    assert [reason(expect_changer, mine, each) for each in (BEAN, SHOES, None)] == [
        None, CampaignVerdict.UNKNOWN, CampaignVerdict.FORBIDDEN,
    ]  # fmt: skip
    assert [reason(expect_reader, looks, each) for each in (BEAN, SHOES)] == [None, CampaignVerdict.UNKNOWN]
    assert reason(expect_changer, looks, BEAN) is CampaignVerdict.FORBIDDEN
