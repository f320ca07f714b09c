"""What the columns of a log mean: which roles and kinds go together, what is refused, and how it prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest

from tacit.data.logs.definition import LOG_NAMES, find_log
from tacit.errors import BadInput
from tacit.schema.columns import ALONE, KINDS, Column, Kind, LogSchema, Role

LABEL = Column("bought", {Role.LABEL}, Kind.FLAG)
NAN = float("nan")


def refused(make: Callable[[], Any]) -> str:
    with pytest.raises(BadInput) as refusal:
        make()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_column_takes_words_as_well_as_roles() -> None:
    spelled = Column("age", ["sensitive"], "whole", between=[0, 120], domain=["1", "2"])
    assert spelled == Column("age", {Role.SENSITIVE}, Kind.WHOLE, between=(0, 120), domain=("1", "2"))
    assert spelled.source == "age"
    assert Column("age", ["public"], source="years").source == "years"
    assert hash(spelled) == hash(Column("age", {"sensitive"}, "whole", between=(0, 120), domain=("1", "2")))
    with pytest.raises(FrozenInstanceError):
        spelled.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("role", "feature", "target", "used"),
    [
        (Role.PUBLIC, True, False, True),
        (Role.SENSITIVE, True, False, True),
        (Role.LABEL, False, True, True),
        (Role.AUXILIARY, False, True, True),
        (Role.PRICE, False, False, True),
        (Role.LEFT_OUT, False, False, False),
    ],
)
def test_what_a_role_makes_of_a_column(role: Role, feature: bool, target: bool, used: bool) -> None:
    column = Column("x", {role}, Kind.REAL)
    assert (column.is_feature, column.is_target, column.is_used) == (feature, target, used)


@pytest.mark.parametrize("role", list(Role))
def test_each_role_takes_its_kinds_and_no_other(role: Role) -> None:
    for kind in Kind:
        if kind in KINDS.get(role, set(Kind)):
            assert Column("odd", {role}, kind).kind is kind
        else:
            allowed = ", ".join(sorted(KINDS[role]))
            message = refused(partial(Column, "odd", {role}, kind))
            assert message == f"column odd: expected kind {allowed} for role {role}, got {kind}"


def test_keys_of_people_are_categories_and_times_are_whole() -> None:
    """A few entries of the table above, spelled out: a table that allows anything would pass there."""
    for role in ("user", "publisher", "advertiser", "auction", "record"):
        refused(partial(Column, "x", {role}, Kind.REAL))
    refused(lambda: Column("x", {Role.TIME}, Kind.REAL))
    refused(lambda: Column("x", {Role.LABEL}, Kind.CATEGORY))
    refused(lambda: Column("x", {Role.PRICE}, Kind.FLAG))
    refused(lambda: Column("x", {Role.PROPENSITY}, Kind.WHOLE))


def test_several_roles_must_all_allow_the_kind() -> None:
    assert Column("campaign", {Role.PUBLIC, Role.ADVERTISER}).is_feature
    assert "for role advertiser, got whole" in refused(
        lambda: Column("campaign", {Role.PUBLIC, Role.ADVERTISER}, Kind.WHOLE)
    )


@pytest.mark.parametrize(
    ("roles", "options", "says"),
    [
        (set(), {}, "at least one role"),
        ("public", {}, "a set of roles"),
        (None, {}, "a set of roles"),
        (["secret"], {}, "Role to be one of public"),
        ([7], {}, "Role to be one of public"),
        (["public"], {"kind": "colour"}, "Kind to be one of category"),
        (["public", "sensitive"], {}, "got both"),
        (["label", "public"], {"kind": "flag"}, "a label or a feature"),
        (["auxiliary", "sensitive"], {"kind": "flag"}, "a label or a feature"),
        (["left-out", "public"], {}, "no other role"),
        (["left-out", "label"], {"kind": "flag"}, "no other role"),
        (["label"], {"kind": "flag", "optional": True}, "in every file"),
        (["auxiliary"], {"kind": "flag", "optional": True}, "in every file"),
        (["public"], {"buckets_per_doubling": 0}, ">= 1, got 0"),
        (["public"], {"buckets_per_doubling": 1.5}, "got 1.5"),
        (["public"], {"buckets_per_doubling": True}, "got True"),
        (["public"], {"between": [2, 1]}, "[low, high], got [2, 1]"),
        (["public"], {"between": [1]}, "[low, high]"),
        (["public"], {"between": [1, 2, 3]}, "[low, high]"),
        (["public"], {"between": 5}, "[low, high], got [5]"),
        (["public"], {"between": ["a", "b"]}, "[low, high]"),
        (["public"], {"between": [NAN, 1]}, "[low, high]"),
        (["public"], {"between": [0, NAN]}, "[low, high]"),
        (["public"], {"between": [0, 2**63]}, "[low, high] of at most 64 bits"),
        (["public"], {"domain": "red"}, "a list of texts, got 'red'"),
        (["public"], {"domain": [1, 2]}, "a list of texts"),
        (["public"], {"domain": 3}, "a list of texts"),
        (["public"], {"source": 5}, "source to be a text, got 5"),
        (["public"], {"why": 5}, "why to be a text, got 5"),
    ],
)
def test_a_refused_column_is_named(roles: Any, options: dict[str, Any], says: str) -> None:
    message = refused(lambda: Column("shoe_size", roles, **options))
    assert "column shoe_size" in message
    assert says in message


@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_a_column_without_a_name_is_refused(name: Any) -> None:
    assert f"got {name!r}" in refused(lambda: Column(name, {Role.PUBLIC}))


def test_equal_limits_and_infinite_ones_are_fine() -> None:
    assert Column("x", {"public"}, "real", between=(1, 1)).between == (1, 1)
    assert Column("x", {"public"}, "real", between=(0, float("inf"))).between == (0, float("inf"))


def test_a_log_has_each_column_once() -> None:
    twice = (LABEL, Column("site", {"public"}), Column("site", {"sensitive"}))
    assert (
        refused(lambda: LogSchema("clicks", twice)) == "log clicks: expected every column once, got site twice"
    )


@pytest.mark.parametrize("role", sorted(ALONE))
def test_a_log_has_at_most_one_column_of(role: Role) -> None:
    kind = min(KINDS[role])
    first, second = (Column(name, {role}, kind) for name in ("one", "two"))
    others = () if role is Role.LABEL else (LABEL,)
    assert LogSchema("clicks", (*others, first)).only_column_with(role) == first
    message = refused(lambda: LogSchema("clicks", (*others, first, second)))
    assert message == f"log clicks: expected one column of role {role}, got one, two"


@pytest.mark.parametrize("role", ["public", "sensitive", "auxiliary", "left-out"])
def test_a_log_may_have_many_columns_of(role: str) -> None:
    several = tuple(Column(name, {role}, "flag") for name in ("one", "two"))
    assert LogSchema("clicks", (LABEL, *several)).columns_with(Role(role)) == several


def test_a_log_needs_a_label() -> None:
    unlabelled = (Column("site", {"public"}), Column("cart", {"auxiliary"}, "flag"))
    assert (
        refused(lambda: LogSchema("clicks", unlabelled))
        == "log clicks: expected a column of role label, got none"
    )


@pytest.mark.parametrize("offset", [-15, 15, 8.0, True, "8"])
def test_days_are_cut_at_a_whole_offset_that_some_place_has(offset: Any) -> None:
    assert "utc_offset_hours" in refused(lambda: LogSchema("clicks", (LABEL,), offset))


def test_columns_are_found_by_name_and_role() -> None:
    user = Column("visitor", {"user"})
    schema = LogSchema("clicks", [LABEL, user])  # type: ignore[arg-type]
    assert schema.columns == (LABEL, user)
    assert schema["visitor"] is user
    assert schema.label is LABEL
    assert schema.only_column_with(Role.USER) is user
    assert schema.only_column_with(Role.TIME) is None
    assert schema.columns_with(Role.TIME) == ()
    assert refused(lambda: schema["guest"]) == "log clicks: expected one of its columns, got 'guest'"


def test_sensitive_keys_are_the_keys_that_are_sensitive_features_too() -> None:
    schema = LogSchema(
        "clicks",
        (
            LABEL,
            Column("visitor", {"user", "sensitive"}),
            Column("site", {"publisher"}),
            Column("brand", {"advertiser", "public"}),
            Column("age", {"sensitive"}),
            Column("when", {"time", "sensitive"}, "whole"),
        ),
    )
    assert schema.sensitive_keys == {Role.USER, Role.TIME}
    hour = Column("hour", {"sensitive"}, "hour", source="when")
    assert LogSchema("clicks", (LABEL, hour, Column("when", {"time"}, "whole"))).sensitive_keys == {Role.TIME}
    assert LogSchema("clicks", (LABEL, Column("visitor", {"user"}))).sensitive_keys == frozenset()


def test_a_key_that_somebody_states_to_be_public_is_a_feature_no_longer() -> None:
    schema = LogSchema(
        "clicks",
        (
            LABEL,
            Column("visitor", {"user", "sensitive"}),
            Column("loyal", {"sensitive"}, source="visitor"),
            Column("age", {"sensitive"}),
            Column("when", {"time", "sensitive"}, "whole"),
        ),
    )
    stated = schema.with_public_keys(["user"])
    assert stated.sensitive_keys == {Role.TIME}
    assert stated["visitor"].roles == {Role.USER}
    assert not stated["loyal"].is_used, "it would tell the key to a model that must not read it"
    assert stated["age"] == schema["age"]
    assert stated.with_public_keys([Role.TIME]).sensitive_keys == frozenset()
    assert schema.with_public_keys([]) == schema
    assert refused(lambda: schema.with_public_keys(["publisher"])) == (
        "log clicks: expected public keys among its sensitive ones (time, user), got publisher"
    )
    for wrong in ("label", "visitor"):
        assert refused(partial(schema.with_public_keys, [wrong])) == (
            f"log clicks: expected public keys among advertiser, publisher, time, user, got {wrong!r}"
        )


def test_it_prints_by_role_with_everything_that_was_chosen() -> None:
    schema = LogSchema(
        "visits",
        (
            Column("price_paid", {"left-out"}, "real", why="an outcome"),
            Column("age", {"sensitive"}, "whole", buckets_per_doubling=2, between=(0, 120)),
            LABEL,
            Column("shop", {"public", "publisher"}, domain=["north", "south"], optional=True),
            Column("hour", {"public"}, "hour", source="when"),
        ),
        utc_offset_hours=-5,
    )
    assert str(schema).splitlines() == [
        "visits (days cut at UTC-5)",
        "  public and publisher  shop        category, domain of 2, optional",
        "  public                hour        hour of when",
        "  sensitive             age         whole, 2 buckets per doubling, 0 to 120",
        "  label                 bought      flag",
        "  left-out              price_paid  real: an outcome",
    ]


@pytest.mark.parametrize("name", LOG_NAMES)
def test_every_log_prints_each_of_its_columns_once(name: str) -> None:
    schema = find_log(name).schema
    first, *lines = str(schema).splitlines()
    assert first.split()[0] == schema.name == name
    printed = [re.split(" {2,}", line.strip())[1] for line in lines]
    assert sorted(printed) == sorted(column.name for column in schema.columns)


def test_an_unknown_log_is_refused_by_naming_the_known_ones() -> None:
    message = refused(lambda: find_log("criteo"))
    assert all(name in message for name in LOG_NAMES)
    assert "got 'criteo'" in message


def test_which_logs_have_sensitive_keys() -> None:
    """Only the search log counts its user among the features: no split of it may go by user."""
    assert {
        name: find_log(name).schema.sensitive_keys for name in LOG_NAMES if find_log(name).schema.sensitive_keys
    } == {"criteo-search": {Role.USER}}


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (Column("tells", {"public"}, source="bought"), "column tells: expected another source than bought"),
        (Column("tells", {"sensitive"}, source="bought"), "column tells: expected another source than bought"),
        (
            Column("when", {"time"}, "whole", source="bought"),
            "column when: expected another source than bought",
        ),
        (Column("home", {"public"}, source="town"), "column home: expected it to be sensitive like town"),
    ],
)
def test_roles_go_by_the_column_of_the_file(other: Column, problem: str) -> None:
    assert problem in refused(lambda: LogSchema("clicks", (LABEL, Column("town", {"sensitive"}), other)))


def test_one_column_of_the_file_may_serve_twice_on_one_side() -> None:
    hour, day = (Column(kind, {"sensitive"}, kind, source="t") for kind in ("hour", "weekday"))
    assert len(LogSchema("clicks", (LABEL, hour, day)).columns) == 3
