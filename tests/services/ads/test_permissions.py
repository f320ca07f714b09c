"""Who may what: every operation of the API, asked by every role about what is its own and what is another's.

A new operation needs its row here: the statuses that an operator, a viewer, the advertiser whose thing it is,
its viewer, another advertiser and that one's viewer get. Whoever gets 403 or 404 has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tacit.deliver.campaigns.access import AccessRole
from tests.support.ad_campaigns import BEAN, SHOES, campaign_record, image_record, png, text_record
from tests.support.ads_services import AdsWorld

ASKERS = ("operator", "viewer", "owner", "owner's viewer", "other", "other's viewer")


class Market(AdsWorld):
    """Two advertisers, each with a campaign, an ad and keys of both roles."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        operator = self.key(AccessRole.OPERATOR)
        for name in (BEAN, SHOES):
            self.ask("PUT", f"/ads/advertisers/{name}", operator, json={"contact": ""})
        self.keys_by_asker = dict(
            zip(
                ASKERS,
                (
                    operator, self.key(AccessRole.VIEWER),
                    self.key(AccessRole.ADVERTISER, BEAN), self.key(AccessRole.ADVERTISER_VIEWER, BEAN),
                    self.key(AccessRole.ADVERTISER, SHOES), self.key(AccessRole.ADVERTISER_VIEWER, SHOES),
                ),
                strict=True,
            )
        )  # fmt: skip
        self.ask("POST", "/ads/campaigns", operator, json=campaign_record(7))
        self._creative = 0

    def creative(self) -> int:
        """An ad of the first advertiser's campaign; another where the last one was removed."""
        if self.running.campaigns.creative(self._creative) is None:
            where, operator = "/ads/campaigns/7/creatives", self.keys_by_asker["operator"]
            self._creative = int(self.post(where, operator, json=text_record()).json()["number"])
        return self._creative

    def fresh_key(self) -> str:
        """The id of a key of the first advertiser's."""
        body = {"role": "advertiser", "advertiser": BEAN}
        made = self.post("/ads/keys", self.keys_by_asker["operator"], json=body).json()
        return str(made["key"]["key_id"])

    def contacted(self, place: int) -> str:
        """The first advertiser, whom one can write to."""
        contact = {"contact": f"ann{place}@bean.example"}
        self.ask("PUT", f"/ads/advertisers/{BEAN}", self.keys_by_asker["operator"], json=contact)
        return BEAN

    def revision(self) -> int:
        return self.running.campaigns.revision()


Ask = Callable[[Market, int], tuple[str, Any]]
"""A path about the first advertiser's thing, and a body, for the asker at this place."""


@dataclass(frozen=True)
class Row:
    """How to ask, what each of `ASKERS` gets, and how many lines of the trail a success is."""

    statuses: tuple[int, ...]
    ask: Ask
    changes: int = 0


def fixed(path: str, body: Any = None) -> Ask:
    return lambda _market, _place: (path, body)


READ, READ_LIST, OPERATED, NOWHERE = (
    (200, 200, 200, 200, 404, 404),
    (200,) * 6,
    (200, 200, *(403,) * 4),
    (404,) * 6,
)
CHANGE, MAKE, REMOVE = (
    (200, 403, 200, 403, 404, 404),
    (201, 403, 201, 403, 404, 404),
    (204, 403, 204, 403, 404, 404),
)
REPLACED: dict[str, Any] = {
    "status": "active", "schedule": None, "daily_micros": None, "categories": [], "blocked": [], "caps": [],
}  # fmt: skip


def unnumbered(title: str) -> dict[str, Any]:
    return {name: value for name, value in campaign_record(title=title).items() if name != "number"}


ROWS: dict[str, Row] = {
    "GET /ads/whoami": Row(READ_LIST, fixed("/ads/whoami")),
    "GET /ads/campaigns": Row(READ, fixed(f"/ads/campaigns?advertiser={BEAN.replace('&', '%26')}")),
    "POST /ads/campaigns": Row(MAKE, lambda _, place: ("/ads/campaigns", unnumbered(f"By {place}")), changes=1),
    "GET /ads/campaigns/{number}": Row(READ, fixed("/ads/campaigns/7")),
    "PUT /ads/campaigns/{number}": Row(
        CHANGE, lambda _, place: ("/ads/campaigns/7", campaign_record(7, title=f"By {place}", **REPLACED)), 1
    ),
    "PATCH /ads/campaigns/{number}": Row(
        CHANGE, lambda _, place: ("/ads/campaigns/7", {"daily_micros": 1_000 + place}), 1
    ),
    "POST /ads/import": Row(
        CHANGE,
        lambda _, place: (
            "/ads/import",
            {"campaigns": [{"campaign": campaign_record(7, title=f"In {place}")}]},
        ),
        1,
    ),
    "GET /ads/campaigns/{number}/creatives": Row(READ, fixed("/ads/campaigns/7/creatives")),
    "POST /ads/campaigns/{number}/creatives": Row(
        MAKE,
        lambda _, place: ("/ads/campaigns/7/creatives", image_record(png(20 + place))),
        changes=1,
    ),
    "GET /ads/creatives/{number}": Row(READ, lambda market, _: (f"/ads/creatives/{market.creative()}", None)),
    "GET /ads/creatives/{number}/content": Row(
        (204, 204, 204, 204, 404, 404),
        lambda market, _: (f"/ads/creatives/{market.creative()}/content", None),
    ),
    "DELETE /ads/creatives/{number}": Row(
        REMOVE, lambda market, _: (f"/ads/creatives/{market.creative()}", None), changes=1
    ),
    "GET /ads/keys": Row(READ, fixed(f"/ads/keys?advertiser={BEAN.replace('&', '%26')}")),
    "POST /ads/keys": Row(
        MAKE, fixed("/ads/keys", {"role": "advertiser-viewer", "advertiser": BEAN}), changes=1
    ),
    "POST /ads/keys/{key_id}/rotate": Row(
        MAKE, lambda market, _: (f"/ads/keys/{market.fresh_key()}/rotate", {"grace_seconds": 60}), changes=2
    ),
    "DELETE /ads/keys/{key_id}": Row(
        CHANGE, lambda market, _: (f"/ads/keys/{market.fresh_key()}", None), changes=1
    ),
    "GET /ads/changes": Row(READ, fixed(f"/ads/changes?advertiser={BEAN.replace('&', '%26')}")),
    "GET /ads/advertisers": Row(READ_LIST, fixed("/ads/advertisers")),
    "GET /ads/advertisers/{name}": Row(READ, fixed(f"/ads/advertisers/{BEAN}")),
    "PUT /ads/advertisers/{name}": Row(
        CHANGE, lambda _, place: (f"/ads/advertisers/{BEAN}", {"contact": f"ads{place}@bean.example"}), 1
    ),
    "DELETE /ads/advertisers/{name}/contact": Row(
        REMOVE, lambda market, place: (f"/ads/advertisers/{market.contacted(place)}/contact", None), changes=1
    ),
    "GET /ads/reports": Row(READ, fixed(f"/ads/reports?advertiser={BEAN.replace('&', '%26')}")),
    "GET /ads/versions": Row(OPERATED, fixed("/ads/versions")),
    "GET /ads/versions/{number}": Row((404, 404, *(403,) * 4), fixed("/ads/versions/99999")),
    "POST /ads/versions": Row((400, *(403,) * 5), fixed("/ads/versions", {})),
    "POST /ads/versions/{number}/use": Row((404, *(403,) * 5), fixed("/ads/versions/99999/use")),
    "GET /ads/pacing": Row(READ_LIST, fixed("/ads/pacing")),
    **{
        f"GET /ads/console/{view}": Row(READ_LIST, fixed(f"/ads/console/{view}"))
        for view in ("session", "overview", "campaigns", "menus", "invoices")
    },
    **{
        f"GET /ads/console/{view}": Row(OPERATED, fixed(f"/ads/console/{view}"))
        for view in ("cohorts", "ledger", "rounds", "versions", "verification")
    },
    "GET /ads/console/menus/{menu}": Row(NOWHERE, fixed(f"/ads/console/menus/{'0' * 64}")),
    "GET /ads/console/invoices/{number}": Row(NOWHERE, fixed("/ads/console/invoices/99999")),
    "POST /ads/console/verification": Row((202, *(403,) * 5), fixed("/ads/console/verification")),
}
"""Of what is nowhere, each part's own tests say more."""


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    made = Market(Path(tmp_path_factory.mktemp("permissions")))
    yield made
    made.end()


def test_every_operation_has_its_row(market: Market) -> None:
    known = {f"{each.method} {each.path.replace(':path', '')}" for each in market.running.api.operations}
    assert known == set(ROWS)


@pytest.mark.parametrize("operation", ROWS)
def test_each_role_gets_what_it_may(market: Market, operation: str) -> None:
    row, method = ROWS[operation], operation.partition(" ")[0]
    got = []
    for place, asker in enumerate(ASKERS):
        path, body = row.ask(market, place)
        before = market.revision()
        more = {} if body is None else {"json": body}
        answer = market.ask(method, path, market.keys_by_asker[asker], **more)
        got.append(answer.status_code)
        assert market.revision() - before == (row.changes if answer.status_code < 300 else 0), asker
    assert dict(zip(ASKERS, got, strict=True)) == dict(zip(ASKERS, row.statuses, strict=True))


@pytest.mark.parametrize(
    "operation", [name for name, row in ROWS.items() if "{" in name and row.statuses[0] < 400]
)
def test_what_is_anothers_and_what_is_nowhere_are_told_alike(market: Market, operation: str) -> None:
    method, _, template = operation.partition(" ")
    path, body = ROWS[operation].ask(market, 4)
    nowhere = template.format(number=99_999, key_id="0" * 16, name="Nobody")
    told = []
    for asked, number in ((path, 7), (nowhere, 99_999)):
        sent = {**body, "number": number} if body and "number" in body else body
        more = {} if sent is None else {"json": sent}
        answer = market.ask(method, asked, market.keys_by_asker["other"], **more)
        told.append((answer.status_code, answer.json()))
    assert told[0] == told[1]
    assert told[0][0] == 404


def test_lists_of_an_advertisers_key_hold_its_own_alone(market: Market) -> None:
    other, operator = market.keys_by_asker["other"], market.keys_by_asker["operator"]
    assert market.get("/ads/campaigns", other).json() == {"campaigns": [], "next": None}
    assert {each["name"] for each in market.get("/ads/advertisers", operator).json()["advertisers"]} >= {
        BEAN,
        SHOES,
    }
    assert [each["name"] for each in market.get("/ads/advertisers", other).json()["advertisers"]] == [SHOES]
    for path, name in (("/ads/keys", "keys"), ("/ads/changes", "changes")):
        assert {each["advertiser"] for each in market.get(path, other).json()[name]} == {SHOES}
        assert {each["advertiser"] for each in market.get(path, operator).json()[name]} == {BEAN, SHOES, None}


def test_an_advertisers_key_makes_no_key_of_more_than_its_own(market: Market) -> None:
    owner, viewer = market.keys_by_asker["owner"], market.keys_by_asker["viewer"]
    for key, body, status in (
        (owner, {"role": "operator"}, 403),
        (owner, {"role": "viewer"}, 403),
        (owner, {"role": "advertiser", "advertiser": SHOES}, 404),
        (owner, {"role": "operator", "advertiser": BEAN}, 400),
        (owner, {"role": "advertiser"}, 400),
        (viewer, {"role": "viewer"}, 403),
    ):
        assert market.post("/ads/keys", key, json=body).status_code == status, body
    operator_id = market.keys_by_asker["operator"].split("_")[1]
    assert market.ask("DELETE", f"/ads/keys/{operator_id}", owner).status_code == 404
    numbered = market.post("/ads/campaigns", owner, json=campaign_record(7_000))
    assert (numbered.status_code, market.running.campaigns.campaign(7_000)) == (403, None)
    both = {"campaigns": [{"campaign": unnumbered("Fine")}, {"campaign": campaign_record(7_000)}]}
    assert market.post("/ads/import", owner, json=both).status_code == 404
    assert "Fine" not in str(market.get("/ads/campaigns", owner).json())


def test_a_key_that_ends_makes_none_that_holds_longer(market: Market) -> None:
    ending = market.key(AccessRole.ADVERTISER, BEAN, ends=market.now + 100)
    asked = {"role": "advertiser", "advertiser": BEAN}
    later = market.post("/ads/keys", ending, json={**asked, "ends": market.now + 101})
    assert (later.status_code, later.json()["type"]) == (403, "tacit:campaign-forbidden")
    assert market.post("/ads/keys", ending, json=asked).json()["key"]["ends"] == market.now + 100
    sooner = market.post("/ads/keys", ending, json={**asked, "ends": market.now + 50})
    assert sooner.json()["key"]["ends"] == market.now + 50
    rotated = market.post(f"/ads/keys/{ending.split('_')[1]}/rotate", ending, json={"grace_seconds": 0})
    assert rotated.json()["key"]["ends"] == market.now + 100
    assert market.get("/ads/whoami", ending).status_code == 401
    assert market.get("/ads/whoami", rotated.json()["spelled"]).json()["role"] == "advertiser"
