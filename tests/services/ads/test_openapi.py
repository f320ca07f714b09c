"""The app does what /openapi.json says, whatever is thrown at it: every operation of every part.

Schemathesis asks, with an operator's key, so that nothing is refused for lack of rights, and there is something
under the numbers that are asked for most. No answer is a 5xx; each has a status, a media type and a body as
described; what breaks the description is refused. Nothing is answered without a key, but for what says that it
needs none: public menus and packs, and notices. Bids are asked for by an exchange's own key.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig

from tacit.deliver.campaigns.access import AccessRole
from tests.support.ad_campaigns import BEAN, campaign_record, image_record, png, text_record
from tests.support.ads_services import AdsWorld
from tests.support.ledger_places import Place
from tests.support.service_worlds import SERVER_URL

load_all_checks()
HELD_TO = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "missing_required_header",
)  # fmt: skip
REFUSED = [400, 403, 404, 405, 406, 409, 412, 413, 415, 422]
CONFIG = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSED}}})
CHECKED: list[Any] = [check for name, check in CHECKS._items.items() if name in HELD_TO]


class Described(AdsWorld):
    """An ad server with something of every kind, its description, and an operator's key."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.operator_key = self.key(AccessRole.OPERATOR)
        self.must("PUT", f"/ads/advertisers/{BEAN}", json={"contact": ""})
        for number in (0, 1):
            self.must("POST", "/ads/campaigns", json=campaign_record(number))
            self.must("POST", f"/ads/campaigns/{number}/creatives", json=image_record(png()))
            self.must("POST", f"/ads/campaigns/{number}/creatives", json=text_record())
        said = self.get("/openapi.json").json()
        assert said.pop("security") == [{"key": []}]  # the key is ours to bring, and not to be varied
        self._needed = {
            operation["operationId"]: operation.pop("security", [{"key": []}])
            for path in said["paths"].values()
            for operation in path.values()
        }
        schema = schemathesis.openapi.from_dict(said, config=CONFIG)
        self.operations: list[Any] = [cast(Any, found).ok() for found in schema.get_all_operations()]

    def must(self, method: str, path: str, **more: Any) -> None:
        assert self.ask(method, path, self.operator_key, **more).status_code == 201

    def key_for(self, operation: Any) -> str | None:
        """The key that an operation says it needs."""
        needed = self._needed[operation.definition.raw["operationId"]]
        if not needed:
            return None
        secret = self.folder / "trial" / "exchange.secret"
        return secret.read_text().strip() if "exchange" in needed[0] else self.operator_key

    def send(self, case: Case[Any], key: str | None) -> httpx.Response:
        """The case as a client sends it, but with this key."""
        made = case.as_transport_kwargs(base_url=SERVER_URL)
        headers = [(name, str(text)) for name, text in made["headers"].items()]
        raw = [(name.encode("latin-1"), text.encode("latin-1", "replace")) for name, text in headers]
        if key is not None:
            raw.append((b"authorization", f"Bearer {key}".encode()))
        known = {name: made[name] for name in ("params", "json", "cookies") if made.get(name)}
        content = made.get("data")
        if isinstance(content, Mapping):
            known["data"] = content
        elif content is not None:
            known["content"] = content
        return self.client.request(made["method"], made["url"], headers=raw, **known)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    made = Described(Path(tmp_path_factory.mktemp("openapi")))
    yield made
    made.end()


def try_all(world: Described, mode: GenerationMode, examples: int) -> dict[int, int]:
    """Every operation, with so many requests that are as described, or are not; answers by status."""
    statuses: dict[int, int] = {}
    for operation in world.operations:
        if mode is GenerationMode.POSITIVE or operation.body or any(operation.iter_parameters()):
            try_one(world, operation, mode, examples, statuses)  # else nothing of it can be wrong
    return statuses


def try_one(
    world: Described, operation: Any, mode: GenerationMode, examples: int, statuses: dict[int, int]
) -> None:
    key = world.key_for(operation)

    @seed(20_261_118)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        answer = world.send(case, key)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        case.validate_response(answer, checks=CHECKED)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the generators, about schemas
        check()


def test_every_operation_is_described(world: Described) -> None:
    labels = [operation.label for operation in world.operations]
    public = {"GET /menus", "GET /packs/{menu_id}", "POST /openrtb/bid"}
    public |= {f"{method} /openrtb/notice/{{token}}" for method in ("GET", "POST")}
    assert len(labels) == len(set(labels)) == len(world.running.api.operations) + len(public)
    by_key = {each.label for each in world.operations if world.key_for(each) == world.operator_key}
    assert set(labels) - by_key == public
    ids = [operation.definition.raw["operationId"] for operation in world.operations]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_answers_are_as_described(world: Described, mode: GenerationMode) -> None:
    statuses = try_all(world, mode, 4 if mode is GenerationMode.POSITIVE else 2)  # to make wrong ones is slow
    assert max(statuses) < 500
    assert (200 in statuses) or mode is GenerationMode.NEGATIVE


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_many_answers_are_as_described(world: Described, mode: GenerationMode) -> None:
    try_all(world, mode, 200)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_answers_are_as_described_on_postgresql(
    postgres_place: Place, tmp_path: Path, mode: GenerationMode
) -> None:
    made = Described(tmp_path, ads_store=postgres_place.where)
    try:
        try_all(made, mode, 40)
    finally:
        made.end()


def test_nothing_is_answered_without_a_key(world: Described) -> None:
    for operation in world.operations:
        if world.key_for(operation) is None:
            continue
        path = operation.path.replace("{", "").replace("}", "")
        for key in (None, world.operator_key[:-1] + ("0" if world.operator_key[-1] != "0" else "1")):
            answer = world.ask(operation.method.upper(), path, key)
            assert answer.status_code == 401, operation.label
