"""Statistics and models in use: the rates that they make, and the operations by which they are rolled out.

    GET   /ads/versions?kind=          what there is, the newest first, with its privacy statement
    POST  /ads/versions                add a model, as `pack_model` packs it, in base64
    GET   /ads/versions/NUMBER
    POST  /ads/versions/NUMBER/use     put it in use, from the next epoch on: to roll out, and to roll back

Operators' keys change, viewers' keys look. Who did what stands in the trail of changes (GET /ads/changes).
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response

from tacit import expect
from tacit.deliver.campaigns.campaign import MOST_TEXT, expect_keys
from tacit.deliver.campaigns.store import CampaignReader, CampaignVerdict
from tacit.deliver.campaigns.versions import StoredVersion, VersionKind, VersionStore
from tacit.deliver.server.conversion_rates import ConversionRates
from tacit.deliver.server.modelled_rates import ModelledRates
from tacit.deliver.server.rate_book import NOTHING_COUNTED, FixedRates, RateBook
from tacit.deliver.server.released_statistics import ReleasedStatistics
from tacit.display import brief
from tacit.errors import BadInput, CampaignRefused, TacitError
from tacit.schema.contexts.hierarchy import Hierarchy, load_hierarchy
from tacit.services.ads import campaign_schemas as schemas
from tacit.services.ads.access import expect_changer, expect_reader
from tacit.services.ads.api import NUMBER, ApiCall, ApiRoute, Schema, json_answer
from tacit.services.ads.rate_models import RateModel, packed_version
from tacit.services.background import AppPart, Reading
from tacit.services.billing_settings import AdServerSettings
from tacit.services.log import error_line
from tacit.services.problems import TroubleLog
from tacit.services.settings import PartySettings
from tacit.services.statistics_settings import STRENGTH

if TYPE_CHECKING:
    from tacit.services.ads.parts import RunningAds

MOST_SENT = 16 * 2**20
"""Bytes of a model over HTTP; a larger one is added on the ad server's machine."""

KINDS = (
    VersionKind.STATISTICS, VersionKind.CONVERSION_STATISTICS, VersionKind.MODEL, VersionKind.CONVERSIONS,
)  # fmt: skip
LEAST_EXPECTED = 0.1  # of the market's default, where clicks or a model say less: nobody clicked, say
MODELS = (VersionKind.MODEL, VersionKind.CONVERSIONS)


class RatesInUse:
    """The book of rates that the versions in use make, looked up anew whenever it is asked for.

    Without any, rates are `default`. With statistics alone they are drawn along the contexts; with a model its
    rates are corrected by the counts. Conversions that were counted correct what is expected of them: a model's
    rates, or clicks in the proportion of the defaults. A version that cannot be read is one line in the log,
    and the book stays as it was.
    """

    def __init__(
        self,
        versions: VersionStore,
        hierarchy: Hierarchy,
        campaigns: CampaignReader,
        *,
        strength: float = STRENGTH,
        default: FixedRates = NOTHING_COUNTED,
    ) -> None:
        self._versions, self._hierarchy, self._campaigns = versions, hierarchy, campaigns
        self._strength, self._default = strength, default
        self._book: RateBook = default
        self._made_of: tuple[int, ...] | None = None
        self._trouble = TroubleLog()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return brief(self, version=self._book.version)

    def book(self) -> RateBook:
        """The rates of now; the very same object while the same versions are in use."""
        with self._lock:
            used = {kind: self._versions.in_use(kind) for kind in KINDS}
            numbers = tuple(0 if each is None else each.number for each in used.values())
            if numbers != self._made_of:
                try:
                    self._book, self._made_of, trouble = self._make(used), numbers, ""
                except TacitError as wrong:
                    trouble = f"rates stay as they were, by {self._book.version}: {error_line(wrong)}"
                self._trouble.tell(trouble)
            return self._book

    def _make(self, used: dict[VersionKind, StoredVersion | None]) -> RateBook:
        there = [each for each in used.values() if each is not None]
        if not there:
            return self._default
        version = ", ".join(f"{each.kind} {each.number}" for each in there)
        statistics = self._statistics(used[VersionKind.STATISTICS])
        base: RateBook = self._default
        if statistics is not None:
            base = statistics.rate_book(self._hierarchy, version=version, default=self._default)
        models = {kind: self._model(used[kind]) for kind in MODELS}
        conversions = self._statistics(used[VersionKind.CONVERSION_STATISTICS])
        version = f"{version}, strength {self._strength:g}"
        if any(models.values()):
            base = self._modelled(base, models, statistics, version)
        if conversions is None:
            return base
        return ConversionRates(
            base, conversions, self._hierarchy, version=version, strength=self._strength,
            least=LEAST_EXPECTED * self._default.conversion,
        )  # fmt: skip

    def _modelled(
        self,
        base: RateBook,
        models: Mapping[VersionKind, RateModel | None],
        statistics: ReleasedStatistics | None,
        version: str,
    ) -> RateBook:
        return ModelledRates(
            base,
            version=version,
            hierarchy=self._hierarchy,
            clicks=models[VersionKind.MODEL],
            conversions=models[VersionKind.CONVERSIONS],
            statistics=statistics,
            strength=self._strength,
        )

    def _content(self, stored: StoredVersion) -> bytes:
        content = self._versions.content(stored.number)
        if content is None:
            raise BadInput(f"version {stored.number}: expected its content, got none: it was deleted meanwhile")
        return content

    def _statistics(self, stored: StoredVersion | None) -> ReleasedStatistics | None:
        return None if stored is None else ReleasedStatistics.from_bytes(self._content(stored))

    def _model(self, stored: StoredVersion | None) -> RateModel | None:
        if stored is None:
            return None
        paying = {each.number: each.advertiser for each in self._campaigns.ad_campaigns()}
        return RateModel.of(self._content(stored), self._hierarchy, _Advertisers(self._campaigns, paying))


class _Advertisers:
    """Who pays for a campaign, looked up again for one that is new."""

    def __init__(self, campaigns: CampaignReader, known: dict[int, str]) -> None:
        self._campaigns, self._known = campaigns, known

    def __call__(self, campaign: int) -> str | None:
        if campaign not in self._known:
            self._known |= {each.number: each.advertiser for each in self._campaigns.ad_campaigns()}
            self._known.setdefault(campaign, "")
        return self._known[campaign]


def contexts_of(settings: PartySettings) -> Path:
    """The hierarchy that an ad server's contexts are of: where [statistics] says, or beside its market."""
    if settings.statistics is not None:
        return settings.statistics.contexts
    assert isinstance(settings.billing, AdServerSettings), "an ad server has them"
    return settings.billing.market.with_name("contexts.toml")


# Operations

VERSION: Schema = schemas.record(
    {
        "number": NUMBER,
        "kind": schemas.word(VersionKind),
        "made": NUMBER,
        "in_use": {"type": "boolean"},
        "source": schemas.NAME,
        "digest": schemas.text(64, 64),
        "size": NUMBER,
        "body": {"type": "object"},
    }
)
ADDED: Schema = schemas.record(
    {
        "kind": {"type": "string", "enum": [str(each) for each in MODELS]},
        "name": schemas.NAME,
        "content": schemas.text(4 * MOST_SENT // 3 + 4),
        "use": {"type": "boolean"},
    },
    ("kind", "name", "content"),
)
ONE = {"number": NUMBER}


def version_part(running: RunningAds) -> AppPart:
    """What rates are made of, for operators and viewers."""
    return AppPart(
        routes=running.api.routes(version_operations(running.versions, contexts_of(running.settings))),
        looks=[partial(look_at_versions, running.versions)],
    )


def version_operations(store: VersionStore, contexts: Path) -> list[ApiRoute]:
    return [
        ApiRoute(
            "GET", "/ads/versions", "Statistics and models, the newest first", partial(list_versions, store),
            query={"kind": schemas.word(VersionKind)}, answers={200: schemas.list_of("versions", VERSION)},
        ),
        ApiRoute(
            "POST", "/ads/versions", "Add a model", partial(add_model, store, contexts), body=ADDED,
            answers={200: VERSION, 201: VERSION}, refusals=(409,), most_bytes=4 * MOST_SENT // 3 + 2**12,
        ),
        ApiRoute(
            "GET", "/ads/versions/{number}", "One version, without its content", partial(show_version, store),
            parts=ONE, answers={200: VERSION},
        ),
        ApiRoute(
            "POST", "/ads/versions/{number}/use", "Put a version in use, from the next epoch on",
            partial(use_version, store), parts=ONE, answers={200: VERSION}, refusals=(409,),
        ),
    ]  # fmt: skip


def list_versions(store: VersionStore, call: ApiCall) -> Response:
    expect_reader(call.access, None)
    kinds = [VersionKind(call.query["kind"])] if "kind" in call.query else list(VersionKind)
    found = [each.as_json() for kind in kinds for each in store.versions(kind)]
    return json_answer({"versions": found})


def show_version(store: VersionStore, call: ApiCall) -> Response:
    expect_reader(call.access, None)
    found = store.version(call.path["number"])
    if found is None:
        raise CampaignRefused(CampaignVerdict.UNKNOWN, f"version {call.path['number']}")
    return json_answer(found.as_json())


def use_version(store: VersionStore, call: ApiCall) -> Response:
    expect_changer(call.access, None)
    return json_answer(store.use(call.path["number"], call.author).as_json())


def add_model(store: VersionStore, contexts: Path, call: ApiCall) -> Response:
    expect_changer(call.access, None)
    said = expect_keys("version", call.body, ("kind", "name", "content"), ("kind", "name", "content", "use"))
    if said["kind"] not in [str(each) for each in MODELS]:
        raise BadInput(f"kind: expected one of {', '.join(MODELS)}, got another")
    for key in ("name", "content"):
        expect.kind(key, said[key], str)
    if not 1 <= len(said["name"]) <= MOST_TEXT:
        raise BadInput(f"name: expected 1 to {MOST_TEXT} characters, got others")
    use = said.get("use", False)
    expect.kind("use", use, bool)
    try:
        content = base64.b64decode(said["content"], validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("content: expected base64, got another text") from None
    version = packed_version(content, said["name"], load_hierarchy(contexts), VersionKind(said["kind"]))
    kept, new = store.add(version, call.author, use=use)
    assert kept is not None, "a model can be added again"
    if use and not new:
        kept = store.use(kept.number, call.author)
    return json_answer(kept.as_json(), 201 if new else 200)


def look_at_versions(store: VersionStore) -> list[Reading]:
    words = "The number of the version in use; 0 where there is none."
    used = {kind: store.in_use(kind) for kind in KINDS}
    return [
        Reading("tacit_version_in_use", words, 0 if each is None else each.number, {"kind": str(kind)})
        for kind, each in used.items()
    ]
