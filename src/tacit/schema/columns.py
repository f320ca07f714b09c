"""What the columns of a log mean: which are public, which the guarantee protects, which name people and places.

>>> schema = LogSchema("clicks", (
...     Column("site", {Role.PUBLIC}),
...     Column("age", {Role.SENSITIVE}, Kind.WHOLE),
...     Column("visitor", {Role.USER}),
...     Column("bought", {Role.LABEL}, Kind.FLAG),
... ))
>>> print(schema)
clicks
  public     site     category
  sensitive  age      whole, 1 bucket per doubling
  label      bought   flag
  user       visitor  category
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tacit import expect
from tacit.errors import BadInput
from tacit.expect import Choice


class Role(Choice):
    """What a column is for; it may have several: a campaign is a public feature and names an advertiser."""

    PUBLIC = "public"  # a feature that anybody may know
    SENSITIVE = "sensitive"  # a feature that the guarantee protects, as it protects the label
    LABEL = "label"
    AUXILIARY = "auxiliary"  # a further label, for a model that learns several tasks at once
    DELAY = "delay"  # seconds from the row to what its label counts; none or negative: it has not come
    USER = "user"
    PUBLISHER = "publisher"
    ADVERTISER = "advertiser"
    TIME = "time"
    AUCTION = "auction"  # rows with the same one were candidates for the same place
    RECORD = "record"  # the row's own id, under which another organisation knows it
    PRICE = "price"
    PROPENSITY = "propensity"  # the probability with which this row's choice was logged
    LATITUDE = "latitude"
    LONGITUDE = "longitude"
    LEFT_OUT = "left-out"  # in the file, and not used; `why` says why


class Kind(Choice):
    """How a column is read and, where it is a feature, which tokens its values become."""

    CATEGORY = "category"  # each text or whole number is a value of its own
    WHOLE = "whole"  # a whole number; as a feature, its bucket on a log scale
    REAL = "real"  # a number; as a feature, its bucket on a log scale
    FLAG = "flag"  # 0 or 1
    HOUR = "hour"  # of seconds since the epoch: the hour of the day
    WEEKDAY = "weekday"  # of seconds since the epoch: the day of the week, Monday 0
    SEQUENCE = "sequence"  # a list of categories; only Parquet files have it


FEATURES = frozenset({Role.PUBLIC, Role.SENSITIVE})
TARGETS = frozenset({Role.LABEL, Role.AUXILIARY, Role.DELAY})
ALONE = frozenset(  # at most one column of a log is it
    {Role.LABEL, Role.USER, Role.PUBLISHER, Role.ADVERTISER, Role.TIME, Role.AUCTION, Role.RECORD, Role.PRICE}
) | {Role.DELAY, Role.PROPENSITY, Role.LATITUDE, Role.LONGITUDE}
IDS = (Role.USER, Role.PUBLISHER, Role.ADVERTISER, Role.AUCTION, Role.RECORD)
UNIT_KEYS = frozenset({Role.USER, Role.PUBLISHER, Role.ADVERTISER, Role.TIME})
NUMERIC = frozenset({Kind.WHOLE, Kind.REAL})
MOST_BUCKETS_PER_DOUBLING = 64  # about a percent wide; a mistyped number would take hours to compute

# Which kinds a role can do with; a role that is not listed takes any.
KINDS = {
    Role.LABEL: {Kind.FLAG, Kind.WHOLE, Kind.REAL},
    Role.AUXILIARY: {Kind.FLAG, Kind.WHOLE, Kind.REAL},
    Role.DELAY: {Kind.WHOLE},
    Role.TIME: {Kind.WHOLE},
    Role.PRICE: {Kind.WHOLE, Kind.REAL},
    Role.PROPENSITY: {Kind.REAL},
    Role.LATITUDE: {Kind.REAL},
    Role.LONGITUDE: {Kind.REAL},
    Role.USER: {Kind.CATEGORY},
    Role.PUBLISHER: {Kind.CATEGORY},
    Role.ADVERTISER: {Kind.CATEGORY},
    Role.AUCTION: {Kind.CATEGORY},
    Role.RECORD: {Kind.CATEGORY},
}


@dataclass(frozen=True)
class Column:
    """One column. `source` is its name in the file where that differs.

    `buckets_per_doubling` belongs to numbers that are features. `domain` lists the values that anybody would
    expect, so that a vocabulary of them tells nothing. Columns with the same `vocabulary` share their values'
    tokens, as an ad's topic and the topics that a person saw do; by default each has its own. A number outside
    `between` makes a bad row. An `optional` column may be absent from a file.
    """

    name: str
    roles: frozenset[Role]
    kind: Kind = Kind.CATEGORY
    source: str = ""
    buckets_per_doubling: int = 1
    domain: tuple[str, ...] = ()
    between: tuple[float, float] | None = None
    vocabulary: str = ""
    optional: bool = False
    why: str = ""

    def __init__(
        self,
        name: str,
        roles: Iterable[Role | str],
        kind: Kind | str = Kind.CATEGORY,
        *,
        source: str = "",
        buckets_per_doubling: int = 1,
        domain: Iterable[str] = (),
        between: Iterable[float] | None = None,
        vocabulary: str = "",
        optional: bool = False,
        why: str = "",
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f"expected a column's name to be a text that is not empty, got {name!r}")
        for what, text in (("source", source), ("why", why)):
            if not isinstance(text, str):
                raise BadInput(f"column {name}: expected {what} to be a text, got {text!r}")
        if isinstance(roles, str) or not isinstance(roles, Iterable):
            raise BadInput(f"column {name}: expected a set of roles, got {roles!r}")
        values = {
            "name": name,
            "roles": frozenset(_of_column(name, Role, role) for role in roles),
            "kind": _of_column(name, Kind, kind),
            "source": source or name,
            "buckets_per_doubling": expect.whole(
                f"buckets_per_doubling of column {name}", buckets_per_doubling, at_least=1
            ),
            "domain": _texts(name, domain),
            "between": None if between is None else _limits(name, between),
            "vocabulary": vocabulary or name,
            "optional": bool(optional),
            "why": why,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        self._check()

    @property
    def is_feature(self) -> bool:
        return bool(self.roles & FEATURES)

    @property
    def is_target(self) -> bool:
        return bool(self.roles & TARGETS)

    @property
    def is_used(self) -> bool:
        return Role.LEFT_OUT not in self.roles

    @property
    def treatment(self) -> str:
        """The kind in words."""
        words = str(self.kind)
        if self.is_feature and self.kind in NUMERIC:
            plural = "" if self.buckets_per_doubling == 1 else "s"
            words += f", {self.buckets_per_doubling} bucket{plural} per doubling"
        if self.source != self.name:
            words += f" of {self.source}"
        if self.is_feature and self.vocabulary != self.name:
            words += f", values shared with {self.vocabulary}"
        if self.domain:
            words += f", domain of {len(self.domain)}"
        if self.between:
            words += f", {self.between[0]:g} to {self.between[1]:g}"
        if self.optional:
            words += ", optional"
        return words

    def as_json(self) -> dict[str, Any]:
        """What it is and why: all that anybody may know of a log's column."""
        return {
            "name": self.name,
            "roles": sorted(self.roles),
            "kind": str(self.kind),
            "source": self.source,
            "why": self.why,
        }

    def _check(self) -> None:
        if self.buckets_per_doubling > MOST_BUCKETS_PER_DOUBLING:
            raise BadInput(
                f"column {self.name}: expected at most {MOST_BUCKETS_PER_DOUBLING} buckets_per_doubling, got "
                f"{self.buckets_per_doubling}"
            )
        if not self.roles:
            raise BadInput(f"column {self.name}: expected at least one role, got none")
        if not self.is_used and len(self.roles) > 1:
            raise BadInput(f"column {self.name}: expected a column that is left out to have no other role")
        if self.roles >= FEATURES:
            raise BadInput(f"column {self.name}: expected a public or a sensitive feature, got both")
        if self.is_target and self.is_feature:
            raise BadInput(f"column {self.name}: expected a label or a feature, got both, which gives it away")
        if self.is_target and self.optional:
            raise BadInput(f"column {self.name}: expected a label to be in every file, got an optional one")
        for role in sorted(self.roles):
            if self.kind not in KINDS.get(role, set(Kind)):
                allowed = ", ".join(sorted(KINDS[role]))
                raise BadInput(f"column {self.name}: expected kind {allowed} for role {role}, got {self.kind}")


@dataclass(frozen=True)
class LogSchema:
    """All columns of one log. `utc_offset_hours` is where its days are cut."""

    name: str
    columns: tuple[Column, ...]
    utc_offset_hours: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", expect.several("columns", self.columns, Column))
        object.__setattr__(self, "columns", tuple(self.columns))
        offset = expect.integer("utc_offset_hours", self.utc_offset_hours)
        if not -14 <= offset <= 14:
            raise BadInput(f"expected utc_offset_hours within -14..14, got {offset}")
        twice = [name for name, count in Counter(column.name for column in self.columns).items() if count > 1]
        if twice:
            raise BadInput(f"log {self.name}: expected every column once, got {twice[0]} twice")
        for role in sorted(ALONE):
            names = [column.name for column in self.columns if role in column.roles]
            if len(names) > 1:
                raise BadInput(f"log {self.name}: expected one column of role {role}, got {', '.join(names)}")
        self._refuse_giving_away()
        if not any(Role.LABEL in column.roles for column in self.columns):
            raise BadInput(f"log {self.name}: expected a column of role label, got none")

    def _refuse_giving_away(self) -> None:
        """Roles go by the file's column: under another name it would still tell the same."""
        used = [column for column in self.columns if column.is_used]
        alike: dict[str, list[Column]] = {}
        for column in used:
            alike.setdefault(column.source, []).append(column)
        for column in used:
            for other in alike[column.source]:
                if other is column:
                    continue
                if column.is_target:
                    raise BadInput(
                        f"column {other.name}: expected another source than {column.source}, which is the "
                        f"label or task {column.name} and would be given away"
                    )
                if Role.SENSITIVE in column.roles and Role.PUBLIC in other.roles:
                    raise BadInput(
                        f"column {other.name}: expected it to be sensitive like {column.name}, which is read "
                        f"from the same {column.source}, got public"
                    )

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise BadInput(f"log {self.name}: expected one of its columns, got {name!r}")

    @property
    def label(self) -> Column:
        return next(column for column in self.columns if Role.LABEL in column.roles)

    def columns_with(self, role: Role) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if role in column.roles)

    def only_column_with(self, role: Role) -> Column | None:
        """The column of a role that at most one column has."""
        found = self.columns_with(role)
        return found[0] if found else None

    @property
    def sensitive_keys(self) -> frozenset[Role]:
        """Keys whose values the guarantee protects: nothing public may be decided by them.

        By the file's column: where a person's hour is sensitive, so is the time that it is the hour of.
        """
        protected = {column.source for column in self.columns_with(Role.SENSITIVE)}
        return frozenset(
            role for column in self.columns for role in column.roles & UNIT_KEYS if column.source in protected
        )

    def with_public_keys(self, roles: Iterable[Role | str]) -> LogSchema:
        """The schema of somebody who states that these keys are public: which rows are of one user, say.

        Their columns are keys then and features no longer, so that no model reads them. Nothing here can check
        that anybody may know them; every promise by such a key leaves it unprotected.
        """
        keys = {_of_key(self.name, role) for role in roles}
        lacking = [str(key) for key in sorted(keys) if key not in self.sensitive_keys]
        if lacking:
            raise BadInput(
                f"log {self.name}: expected public keys among its sensitive ones "
                f"({', '.join(sorted(self.sensitive_keys)) or 'none'}), got {lacking[0]}"
            )
        stated = {column.source for column in self.columns if column.roles & keys}
        return replace(
            self,
            columns=tuple(_as_key(column) if column.source in stated else column for column in self.columns),
        )

    def __str__(self) -> str:
        order = list(Role)
        lines = sorted(self.columns, key=lambda column: min(order.index(role) for role in column.roles))
        roles = [" and ".join(role for role in order if role in column.roles) for column in lines]
        wide, long = max(map(len, roles)), max(len(column.name) for column in lines)
        rows = [
            f"  {role:<{wide}}  {column.name:<{long}}  {column.treatment}{_reason(column)}"
            for role, column in zip(roles, lines, strict=True)
        ]
        cut = f" (days cut at UTC{self.utc_offset_hours:+d})" if self.utc_offset_hours else ""
        return "\n".join([f"{self.name}{cut}", *rows])


def _of_key(log: str, role: Role | str) -> Role:
    """A role that can be a privacy unit's key."""
    words = ", ".join(sorted(UNIT_KEYS))
    try:
        found = Role(role)
    except BadInput:
        found = Role.LEFT_OUT
    if found not in UNIT_KEYS:
        raise BadInput(f"log {log}: expected public keys among {words}, got {str(role)!r}")
    return found


def _as_key(column: Column) -> Column:
    """The column without its part as a feature; left out where nothing else is left of it."""
    roles = column.roles - FEATURES
    if not roles:
        return Column(
            column.name, {Role.LEFT_OUT}, column.kind, source=column.source, why="read as a public key"
        )
    return Column(
        column.name, roles, column.kind, source=column.source, optional=column.optional, why=column.why
    )


def _reason(column: Column) -> str:
    return f": {column.why}" if column.why else ""


def _limits(name: str, between: Iterable[float]) -> tuple[float, float]:
    limits = tuple(between) if isinstance(between, Iterable) else (between,)
    # Written so that NaN is refused.
    if (
        len(limits) != 2
        or not all(isinstance(limit, int | float) for limit in limits)
        or not limits[0] <= limits[1]
    ):
        raise BadInput(f"column {name}: expected between = [low, high], got {list(limits)}")
    if any(isinstance(limit, int) and not -(2**63) <= limit < 2**63 for limit in limits):
        raise BadInput(f"column {name}: expected between = [low, high] of at most 64 bits, got a longer number")
    return limits[0], limits[1]


def _texts(name: str, domain: Iterable[str]) -> tuple[str, ...]:
    values = tuple(domain) if isinstance(domain, Iterable) and not isinstance(domain, str) else (None,)
    if not all(isinstance(value, str) for value in values):
        raise BadInput(f"column {name}: expected domain to be a list of texts, got {domain!r}")
    return tuple(str(value) for value in values)


def _of_column(name: str, choice: type[Choice], word: str) -> Choice:
    try:
        return choice(word)
    except BadInput as refusal:
        raise BadInput(f"column {name}: {refusal}") from None
