"""Campaigns, creatives, keys and the trail of changes on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from tacit.bill.server.store import Campaign
from tacit.deliver.campaigns.access import AccessKey, AccessRole, make_key
from tacit.deliver.campaigns.campaign import CampaignStatus
from tacit.deliver.campaigns.store import Advertiser, Author, CampaignVerdict, PutOutcome, StoredCampaign
from tacit.entropy import Simulation
from tacit.errors import CampaignRefused
from tacit.store import SqlAdStore, SqlCampaignStore, campaign_rows
from tests.support.ad_campaigns import BEAN, BY, SHOES, a_campaign, a_creative
from tests.support.billing_worlds import EPOCH, a_menu, a_stored_epoch, charged, redeem, redeemed
from tests.support.ledger_places import Place

PAUSED, ENDED = CampaignStatus.PAUSED, CampaignStatus.ENDED
LATER = Author("k2", BY.at + 60)


@pytest.fixture
def ads(place: Place) -> Iterator[SqlAdStore]:
    opened = SqlAdStore.open(place.where)
    yield opened
    opened.close()


@pytest.fixture
def store(ads: SqlAdStore) -> SqlCampaignStore:
    """A store with two advertisers, of whom the first has campaign 7."""
    made = SqlCampaignStore(ads.database)
    for name in (BEAN, SHOES):
        assert made.put_advertiser(Advertiser(name), BY)
    made.add_campaign(a_campaign(), BY)
    return made


def reason(work: Callable[[], object]) -> CampaignVerdict:
    with pytest.raises(CampaignRefused) as caught:
        work()
    return CampaignVerdict(caught.value.reason)


def add(store: SqlCampaignStore, title: str, advertiser: str = BEAN) -> StoredCampaign:
    """One that gets its number there."""
    return store.add_campaign(a_campaign(0, advertiser, title=title), BY, numbered=False)[0]


def set_budget(store: SqlCampaignStore, micros: int | None) -> StoredCampaign:
    return store.amend_campaign(7, {"budget_micros": micros}, None, BY)


def a_key(advertiser: str | None = BEAN, seed: int = 1, ends: int | None = None) -> AccessKey:
    role = AccessRole.OPERATOR if advertiser is None else AccessRole.ADVERTISER
    return make_key(role, advertiser, Simulation(seed).bytes, now=BY.at, ends=ends)[1]


def test_a_campaign_comes_back_as_it_was_added(store: SqlCampaignStore, ads: SqlAdStore) -> None:
    kept = store.campaign(7)
    assert kept is not None
    assert (kept.campaign, kept.version, kept.charged_micros) == (a_campaign(), 1, 0)
    assert store.ad_campaigns() == [a_campaign()]
    assert ads.campaigns() == [Campaign(7, BEAN, 50_000_000)]
    revision = store.revision()
    assert store.add_campaign(a_campaign(), LATER) == (kept, False)
    assert store.revision() == revision
    assert reason(lambda: store.add_campaign(a_campaign(title="Other"), BY)) is CampaignVerdict.CONFLICT
    assert reason(lambda: store.add_campaign(a_campaign(8, "Nobody"), BY)) is CampaignVerdict.UNKNOWN
    assert reason(lambda: store.add_campaign(a_campaign(8, status="ended"), BY)) is CampaignVerdict.ENDED
    assert store.campaign(8) is None
    assert store.revision() == revision


def test_a_number_is_given_out_behind_all_that_were_ever_used(
    store: SqlCampaignStore, ads: SqlAdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ads.put_campaigns([Campaign(11, "Other")])
    given, new = store.add_campaign(a_campaign(0, title="First"), BY, numbered=False)
    assert (given.campaign.number, new) == (12, True)
    assert add(store, "Second").campaign.number == 13
    store.add_campaign(a_campaign(2**62), BY)  # an operator's own; it stops nobody
    assert add(store, "Third").campaign.number == 14
    monkeypatch.setattr(campaign_rows, "MOST_NUMBER", 15)
    assert reason(lambda: add(store, "Fourth")) is CampaignVerdict.TOO_MANY


def test_who_asks_again_for_a_number_is_told_that_it_is_there(store: SqlCampaignStore) -> None:
    made = add(store, 'Half % "price"_\\')
    assert reason(lambda: add(store, made.campaign.title)) is CampaignVerdict.CONFLICT
    assert reason(lambda: store.put_all([], [], BY, unnumbered=[made.campaign])) is CampaignVerdict.CONFLICT
    for other in ('half % "PRICE"_\\', "Half", "%", 'Half % "price"__'):
        add(store, other)
    add(store, made.campaign.title, SHOES)
    store.amend_campaign(made.campaign.number, {"status": "ended"}, None, BY)
    assert add(store, made.campaign.title).campaign.number > made.campaign.number


def test_whoever_has_seen_an_older_version_changes_nothing(store: SqlCampaignStore) -> None:
    changed = store.change_campaign(a_campaign(title="Autumn"), 1, BY)
    assert (changed.version, changed.campaign.title) == (2, "Autumn")
    assert reason(lambda: store.amend_campaign(7, {"status": PAUSED}, 1, LATER)) is CampaignVerdict.STALE
    assert store.amend_campaign(7, {"status": PAUSED}, 2, LATER).version == 3
    assert (
        store.amend_campaign(7, {"status": PAUSED}, 2, LATER).version == 3
    )  # asked again: it is as they want it
    assert set_budget(store, None).version == 4
    assert reason(lambda: store.change_campaign(a_campaign(9), None, BY)) is CampaignVerdict.UNKNOWN
    other = a_campaign(advertiser=SHOES)
    assert reason(lambda: store.change_campaign(other, None, BY)) is CampaignVerdict.CONFLICT


def test_what_has_ended_stays_so_and_can_still_be_paid_for(store: SqlCampaignStore) -> None:
    store.amend_campaign(7, {"status": ENDED}, None, BY)
    assert store.ad_campaigns() == []
    assert [each.campaign.number for each in store.campaigns()] == [7]
    for work in (
        lambda: store.amend_campaign(7, {"status": CampaignStatus.ACTIVE}, None, BY),
        lambda: store.change_campaign(a_campaign(title="Other"), None, BY),
        lambda: store.add_creative(*a_creative(), BY),
    ):
        assert reason(work) is CampaignVerdict.ENDED
    assert set_budget(store, 60_000_000).campaign.budget_micros == 60_000_000


def test_a_budget_is_one_where_it_is_said_and_where_charges_look(
    store: SqlCampaignStore, ads: SqlAdStore
) -> None:
    menu = a_menu(prices=(30, 30), campaigns=(7, 12))
    ads.keep_epoch(EPOCH, a_stored_epoch(menu))
    set_budget(store, 50)
    redeem(ads, redeemed(menu, [charged(menu, 1, 1), charged(menu, 2, 1)]))
    assert ads.held_micros() == {7: 30}
    assert store.campaigns()[0].charged_micros == 30
    raised = set_budget(store, 60)
    assert (raised.charged_micros, ads.held_micros()) == (60, {})
    ads.put_campaigns([Campaign(7, BEAN, 75)])  # as the bill's own commands do
    kept = store.campaign(7)
    assert kept is not None
    assert kept.campaign.budget_micros == 75


def test_a_campaign_that_others_pay_for_is_not_taken_over(store: SqlCampaignStore, ads: SqlAdStore) -> None:
    ads.put_campaigns([Campaign(20, "Other"), Campaign(21, BEAN, 5)])
    assert reason(lambda: store.add_campaign(a_campaign(20), BY)) is CampaignVerdict.CONFLICT
    store.add_campaign(a_campaign(21), BY)
    assert [each.budget_micros for each in ads.campaigns()] == [50_000_000, None, 50_000_000]


def test_every_change_is_one_with_its_line_in_the_trail(store: SqlCampaignStore) -> None:
    began = store.revision()
    store.amend_campaign(7, {"status": PAUSED}, None, LATER)
    creative, _ = store.add_creative(*a_creative(), LATER)
    store.remove_creative(creative.number, LATER)
    store.add_key(a_key(None), LATER)
    reason(lambda: store.amend_campaign(99, {"status": PAUSED}, None, LATER))
    lines = store.changes(after=began)
    assert [(each.number, each.subject, each.advertiser) for each in lines] == [
        (began + 1, "campaign 7", BEAN), (began + 2, f"creative {creative.number}", BEAN),
        (began + 3, f"creative {creative.number}", BEAN), (began + 4, f"key {a_key(None).key_id}", None),
    ]  # fmt: skip
    assert (lines[0].before, lines[0].after) == ({"status": "active"}, {"status": "paused"}), "what changed"
    assert (lines[1].before, lines[2].after) == (None, None)
    assert {(each.key_id, each.at) for each in lines} == {("k2", LATER.at)}
    assert store.revision() == began + 4
    assert [each.number for each in store.changes(advertiser=BEAN, after=began, most=2)] == [
        began + 1,
        began + 2,
    ]
    assert [each.at for each in store.changes(subject="campaign 7")] == [BY.at, LATER.at]


def test_all_of_them_are_put_or_none(store: SqlCampaignStore) -> None:
    new, changed = a_campaign(8, "Third"), a_campaign(title="Autumn")
    revision = store.revision()
    for bad, why in (
        ((a_campaign(9, "Nobody"), None), CampaignVerdict.UNKNOWN),
        ((a_campaign(9), 3), CampaignVerdict.UNKNOWN),
        ((a_campaign(title="Winter"), 7), CampaignVerdict.STALE),
    ):
        given = [(new, None), (changed, 1), bad]
        assert reason(partial(store.put_all, [Advertiser("Third")], given, BY)) is why
        assert (store.advertiser("Third"), store.revision()) == (None, revision)
    third, everything = [Advertiser("Third")], [(new, None), (changed, 1)]
    assert store.put_all(third, everything, BY) == PutOutcome((8,), (7,))
    assert store.put_all(third, everything, BY) == PutOutcome((), ())
    assert store.ad_campaigns() == [changed, new]
    two = [a_campaign(0, "Third", title=title) for title in ("One", "Two")]
    assert store.put_all([], [], BY, unnumbered=two) == PutOutcome((9, 10), ())


def test_what_an_advertiser_has_is_read_once_however_many_are_put(store: SqlCampaignStore) -> None:
    """Nobody else can write meanwhile, charges neither: a file of thousands must not take minutes."""
    asked: list[str] = []

    def listen(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    some = [a_campaign(0, SHOES, title=f"sale {place}") for place in range(40)]
    numbered = [(a_campaign(100 + place, SHOES, title=f"{place}"), None) for place in range(40)]
    event.listen(Engine, "before_cursor_execute", listen)
    try:
        outcome = store.put_all([], numbered, BY, unnumbered=some)
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    assert outcome.added == tuple(range(100, 180))
    of_many = [each for each in asked if "ads_campaigns.advertiser = " in each]
    assert len(of_many) == 2, "how many there are, and what they are called"
    twice = [a_campaign(0, SHOES, title=title) for title in ("new", "sale 3")]
    assert reason(lambda: store.put_all([], [], BY, unnumbered=twice)) is CampaignVerdict.CONFLICT
    twice = [a_campaign(0, SHOES, title="new")] * 2
    assert reason(lambda: store.put_all([], [], BY, unnumbered=twice)) is CampaignVerdict.CONFLICT
    assert store.campaign(180) is None


def test_pages_follow_one_another(store: SqlCampaignStore) -> None:
    for number in (3, 5, 9):
        store.add_campaign(a_campaign(number, SHOES if number == 5 else BEAN), BY)
    assert [each.campaign.number for each in store.campaigns(after=3, most=2)] == [5, 7]
    assert [each.campaign.number for each in store.campaigns(advertiser=BEAN)] == [3, 7, 9]
    assert [each.name for each in store.advertisers(most=1)] == [BEAN]
    assert [each.name for each in store.advertisers(after=BEAN)] == [SHOES]
    assert not store.put_advertiser(Advertiser(BEAN, "post@bean.example"), BY)
    assert store.advertiser(BEAN) == Advertiser(BEAN, "post@bean.example")


def test_a_creative_is_found_by_its_digest_and_its_number_is_never_used_again(
    store: SqlCampaignStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    creative, content = a_creative()
    image, bytes_of_image = replace(creative, text="image").with_digest(b"12"), b"12"
    kept, new = store.add_creative(creative, content, BY)
    assert new
    assert store.add_creative(creative, content, LATER) == (kept, False)
    other, _ = store.add_creative(image, bytes_of_image, BY)
    assert list(store.creatives()) == list(store.creatives(7)) == [kept, other]
    assert (store.content(other.number), store.content(kept.number), store.content(0)) == (b"12", b"", None)
    assert store.creatives(8) == []
    store.remove_creative(other.number, BY)
    assert (store.creative(other.number), store.creative(kept.number)) == (None, kept)
    assert store.add_creative(image, bytes_of_image, BY)[0].number > other.number
    assert reason(lambda: store.remove_creative(other.number, BY)) is CampaignVerdict.UNKNOWN
    assert reason(lambda: store.add_creative(*a_creative(99), BY)) is CampaignVerdict.UNKNOWN
    monkeypatch.setattr("tacit.store.campaigns.MOST_CREATIVES", 2)
    assert reason(lambda: store.add_creative(*a_creative(text="third"), BY)) is CampaignVerdict.TOO_MANY


def test_keys_end_are_rotated_and_revoked(store: SqlCampaignStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, mine = a_key(seed=1), a_key(seed=2), a_key(None, seed=3)
    store.add_key(old, BY)
    store.add_key(mine, BY)
    assert store.key(old.key_id) == old
    assert reason(lambda: store.add_key(old, BY)) is CampaignVerdict.CONFLICT
    assert reason(lambda: store.add_key(a_key("Nobody", seed=9), BY)) is CampaignVerdict.UNKNOWN
    ended = store.rotate_key(old.key_id, new, BY.at + 100, BY)
    assert ended == replace(old, ends=BY.at + 100)
    another = a_key(seed=6)
    assert store.rotate_key(old.key_id, another, BY.at + 200, BY) == ended  # never later than it was
    assert [each.key_id for each in store.keys(BEAN)] == sorted([old.key_id, new.key_id, another.key_id])
    revoked = store.revoke_key(new.key_id, LATER)
    assert revoked == replace(new, revoked=LATER.at)
    assert store.revoke_key(new.key_id, BY) == revoked
    store.revoke_key(another.key_id, LATER)
    gone = Author("k", BY.at + 100)
    for key in (old, new):
        work = partial(store.rotate_key, key.key_id, a_key(seed=4), gone.at, gone)
        assert reason(work) is CampaignVerdict.ENDED
    assert store.key(a_key(seed=4).key_id) is None
    assert reason(lambda: store.revoke_key("00", BY)) is CampaignVerdict.UNKNOWN
    assert len(store.keys()) == 4
    monkeypatch.setattr(campaign_rows, "MOST_KEYS", 1)
    assert reason(lambda: store.add_key(a_key(seed=5), BY)) is CampaignVerdict.TOO_MANY
    store.add_key(a_key(seed=5), gone)  # what has ended takes no room


def test_of_many_who_change_at_once_each_version_has_one(store: SqlCampaignStore) -> None:
    def rename(number: int) -> str:
        try:
            store.change_campaign(a_campaign(title=f"Title {number}"), 1, BY)
        except CampaignRefused as refused:
            return str(refused.reason)
        return "changed"

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(rename, range(8))) == ["changed", *["stale"] * 7]
    assert [each.number for each in store.changes()] == [1, 2, 3, 4]


def test_a_contact_is_erased_and_so_is_what_the_trail_said_of_it(store: SqlCampaignStore) -> None:
    for contact in ("ann@bean.example", "bob@bean.example"):
        store.put_advertiser(Advertiser(BEAN, contact), BY)
    store.put_advertiser(Advertiser(SHOES, "eve@shoes.example"), BY)
    before = store.changes()
    assert store.erase_contact(BEAN, LATER)
    assert store.advertiser(BEAN) == Advertiser(BEAN)
    after = store.changes()
    assert "bean.example" not in str([each.as_json() for each in after])
    assert store.advertiser(SHOES) == Advertiser(SHOES, "eve@shoes.example")
    lines = [each for each in after if (each.subject, each.advertiser) == ("advertiser", BEAN)]
    assert [(each.before, each.after) for each in lines] == [
        (None, {"name": BEAN, "contact": ""}),
        ({"contact": ""}, {"contact": "erased"}),
        ({"contact": "erased"}, {"contact": "erased"}),
        ({"contact": "erased"}, {"contact": ""}),  # who erased it
    ]
    assert (lines[-1].key_id, lines[-1].at) == (LATER.key_id, LATER.at)
    # Every other line is as it was, and none has left.
    assert [each.number for each in after[:-1]] == [each.number for each in before]
    others = [each for each in before if each.advertiser != BEAN or each.subject != "advertiser"]
    assert [each for each in after if each in others] == others
    assert not store.erase_contact(BEAN, LATER)  # again: nothing changes
    assert store.changes() == after
    store.put_advertiser(Advertiser(BEAN, "new@bean.example"), BY)
    assert store.erase_contact(BEAN, LATER)
    assert reason(lambda: store.erase_contact("Nobody", BY)) is CampaignVerdict.UNKNOWN


def test_an_erased_contact_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    """Neither of the database nor of what it has written ahead, while it is open; the second time, too."""
    path = tmp_path / "ads.sqlite"
    ads = SqlAdStore.open(path)
    store = SqlCampaignStore(ads.database)
    long = " of 12 Long Street, with more words than a short contact has" * 2
    for turn in range(3):
        for number in range(40):  # so that pages of the trail are split
            store.put_advertiser(Advertiser(f"Firm {turn} {number}", f"firm{number}@firms.example"), BY)
            store.put_advertiser(Advertiser(BEAN, f"ann.unlikely{turn}{number}@bean.example{long}"), BY)
        store.put_advertiser(Advertiser(BEAN, "bob.unlikely"), BY)
        before = {each.name: each.read_bytes().count(b".unlikely") for each in tmp_path.iterdir()}
        assert sum(before.values()) > 40
        assert store.erase_contact(BEAN, LATER)
        left = {each.name: each.read_bytes().count(b".unlikely") for each in tmp_path.iterdir()}
        assert set(left.values()) == {0}, left
        with ads.database.writing() as connection:
            assert connection.exec_driver_sql("PRAGMA secure_delete").scalar() == 1
    ads.close()
