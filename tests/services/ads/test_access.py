"""Who is let in: by a key that holds, in one header, looked up anew for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request

from tacit.deliver.campaigns.access import Access, AccessRole, make_key
from tacit.deliver.campaigns.store import Advertiser, CampaignVerdict
from tacit.entropy import Simulation
from tacit.errors import CampaignRefused
from tacit.services.ads import access
from tacit.services.ads.access import AccessGate, AccessLimits, TokenBuckets, expect_changer, expect_reader
from tacit.services.problems import TooManyRequests, problem_from_error
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


def test_an_address_comes_only_so_often_with_what_is_no_key(store: SqlCampaignStore) -> None:
    ticks = [0.0]
    gate = AccessGate(store, lambda: BY.at, AccessLimits(0, 2), ticks=lambda: ticks[0])

    def came(spelled: str, host: str) -> str:
        raw = [(b"authorization", f"Bearer {spelled}".encode())]
        request = Request(
            {"type": "http", "method": "GET", "path": "/", "headers": raw, "client": (host, 4711)}
        )
        try:
            asyncio.run(gate.admit(request))
        except TooManyRequests as refused:
            return f"{refused.kind} {refused.seconds}"
        except CampaignRefused:
            return "no"
        return "yes"

    here, there = "198.51.100.7", "2001:db8::1"
    assert [came(SPELLED, here) for _ in range(5)] == ["yes"] * 5
    assert [came(OTHER, here) for _ in range(3)] == ["no", "no", "too-many-failures 30"]
    assert came(SPELLED, here) == "too-many-failures 30"  # or guesses could go on until one is right
    assert [came(OTHER, there), came(OTHER, "2001:db8::2"), came(SPELLED, "2001:db8::3")] == [
        "no", "no", "too-many-failures 30",
    ]  # fmt: skip
    assert came(SPELLED, "2001:db8:0:1::1") == "yes"
    ticks[0] = 31
    assert [came(SPELLED, here), came(OTHER, here), came(SPELLED, here)] == [
        "yes", "no", "too-many-failures 29",
    ]  # fmt: skip
    assert [came(OTHER, "127.0.0.1") for _ in range(9)] == ["no"] * 9


def test_keys_of_one_advertiser_have_one_limit_together(store: SqlCampaignStore) -> None:
    """They may be as many as it likes."""
    ticks = [0.0]
    gate = AccessGate(store, lambda: BY.at, AccessLimits(3, 0, 2), ticks=lambda: ticks[0])
    spelled = [SPELLED]
    for seed in (8, 9):
        another, key = make_key(AccessRole.ADVERTISER, BEAN, Simulation(seed).bytes, now=BY.at)
        store.add_key(key, BY)
        spelled.append(another)

    def came(one: str) -> bool:
        raw = [(b"authorization", f"Bearer {one}".encode())]
        try:
            asyncio.run(gate.admit(Request({"type": "http", "method": "GET", "path": "/", "headers": raw})))
        except TooManyRequests:
            return False
        return True

    assert [came(each) for each in spelled * 2] == [True] * 3 + [False] * 3
    mine, other = Access("k", AccessRole.ADVERTISER, BEAN), Access("k", AccessRole.ADVERTISER, SHOES)
    gate.count_body(mine, 2**20 * 64)  # a file of all its campaigns
    with pytest.raises(TooManyRequests) as refused:
        gate.count_body(replace(mine, key_id="another"), 10)
    assert refused.value.seconds == 60
    gate.count_body(other, 10)
    for _ in range(3):
        gate.count_body(Access("o", AccessRole.OPERATOR), 2**30)
    ticks[0] = 61
    gate.count_body(mine, 10)


def test_buckets_fill_evenly_and_are_few() -> None:
    ticks = [0.0]
    buckets = TokenBuckets(60, lambda: ticks[0])
    for _ in range(60):
        assert buckets.wait_seconds("a") == 0
        buckets.take("a")
    assert buckets.wait_seconds("a") == 1
    ticks[0] = 0.999
    assert buckets.wait_seconds("a") == 1
    ticks[0] = 1_000.0
    assert buckets.wait_seconds("a") == 0
    for number in range(access.MOST_BUCKETS + 10):
        buckets.take(str(number))
    assert len(buckets._buckets) == access.MOST_BUCKETS
    free = TokenBuckets(0, lambda: 0.0)
    for _ in range(1_000):
        free.take("a")
    assert free.wait_seconds("a") == 0


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
