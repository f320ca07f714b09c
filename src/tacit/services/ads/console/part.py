"""The console as a part of the ad server's app: its files, and the operations that it reads.

GET  /console                            the page, and below it what it is made of
GET  /ads/console/session                what a key is for
GET  /ads/console/overview, /campaigns, /menus, /menus/{menu}, /cohorts, /ledger, /rounds, /versions, ...
GET  /ads/console/verification           the last check of all invoices, and how far one that runs is
POST /ads/console/verification           begin one (by an operator's key)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

import tacit
from tacit.services.ads.access import expect_changer, expect_reader
from tacit.services.ads.api import NUMBER, TEXT, ApiCall, ApiRoute, json_answer
from tacit.services.ads.console.site import load_site, site_routes
from tacit.services.ads.console.views import ConsoleReader
from tacit.services.background import AppPart

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

OBJECT: Mapping[str, Any] = {"type": "object"}
MENU: Mapping[str, Any] = {"type": "string", "minLength": 64, "maxLength": 64, "pattern": "^[0-9a-f]{64}$"}
FIND = {"find": TEXT}


def console_part(running: RunningAds) -> AppPart:
    """The console, which only reads, but for the check of invoices that it may begin."""
    reader = ConsoleReader(running)
    privacy = reader.privacy
    check = running.invoice_check

    def reading(path: str, does: str, read: Callable[[ApiCall], dict[str, Any]], **more: Any) -> ApiRoute:
        def answer(call: ApiCall) -> Response:
            return json_answer(read(call))

        return ApiRoute("GET", f"/ads/console/{path}", does, answer, answers={200: OBJECT}, **more)

    def for_operators(show: Callable[[int], dict[str, Any]]) -> Callable[[ApiCall], dict[str, Any]]:
        def read(call: ApiCall) -> dict[str, Any]:
            expect_reader(call.access, None)
            return show(call.now)

        return read

    def session(call: ApiCall) -> dict[str, Any]:
        key = running.campaigns.key(call.access.key_id)
        return {
            "now": call.now,
            "key_id": call.access.key_id,
            "role": str(call.access.role),
            "advertiser": call.access.advertiser,
            "changes": call.access.role.changes,
            "sees_all": call.access.may_read(None),
            "ends": None if key is None else key.ends,
            "synthetic": running.is_synthetic,
            "version": tacit.__version__,
        }

    def verification(call: ApiCall) -> dict[str, Any]:
        expect_reader(call.access, None)
        return {"now": call.now, **check.state()}

    def begin(call: ApiCall) -> Response:
        expect_changer(call.access, None)
        return json_answer({"now": call.now, **check.start()}, 202)

    operations = [
        reading("session", "What the key is for", session),
        reading(
            "overview", "What is going on",
            lambda call: reader.overview(call.access, call.now, _health(call)),
        ),
        reading(
            "campaigns", "Campaigns with what they spent",
            lambda call: reader.campaigns(call.access, call.now, **call.query), query=FIND,
        ),
        reading(
            "menus", "Menus that are offered now",
            lambda call: reader.menus(call.access, call.now, **call.query), query=FIND,
        ),
        reading(
            "menus/{menu}", "One menu with its entries",
            lambda call: reader.menu(call.access, call.now, call.path["menu"]), parts={"menu": MENU},
        ),
        reading("cohorts", "Sizes of cohorts", for_operators(privacy.show_cohorts)),
        reading("ledger", "Lines of the privacy ledger", for_operators(privacy.show_ledger)),
        reading("rounds", "Rounds of gathering", for_operators(privacy.show_rounds)),
        reading("versions", "Statistics and models", for_operators(privacy.show_versions)),
        reading(
            "invoices", "The latest invoices",
            lambda call: reader.invoices(call.access, call.now, **call.query), query={"before": NUMBER},
        ),
        reading(
            "invoices/{number}", "One invoice, line by line",
            lambda call: reader.invoice(call.access, call.now, call.path["number"]), parts={"number": NUMBER},
        ),
        reading("verification", "The last check of all invoices", verification),
        ApiRoute(
            "POST", "/ads/console/verification", "Check all invoices anew", begin, answers={202: OBJECT},
            refusals=(409,),
        ),
    ]  # fmt: skip
    return AppPart(routes=[*site_routes(load_site()), *running.api.routes(operations)])


def _health(call: ApiCall) -> Mapping[str, bool]:
    """What /healthz of this app last found."""
    operations = getattr(call.request.app.state, "operations", None)
    return {} if operations is None else operations.readiness.health()
