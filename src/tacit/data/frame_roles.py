"""Which columns of a frame are public, which the guarantee protects, and which names people.

Kinds of sensitive columns follow from their types and names alone: no value is looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit import expect
from tacit.data.frames import BYTES, TEXTS, count_values, list_names
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role

PEOPLE = "user|visitor|person|people|customer|member|viewer|household|device|cookie"
NAMES_PEOPLE = re.compile(rf"(^|_)({PEOPLE})s?(_?id)?$")
NAMES_THINGS = re.compile(r"(^id$|_id$|[a-z]Id$|_code$|^zip$|postcode)")
FEW_VALUES = 256


@dataclass(frozen=True)
class FrameRoles:
    """Which columns of a frame are public, which are protected, and which one names the privacy unit.

    None stands for what was not said. Columns that are not named are sensitive, which is the safe guess; where
    only sensitive ones are named the others are public, and where both are named the others are left out.
    `guess` says in words what was guessed. `categories` are columns of numbers whose values have no order.
    """

    public: tuple[str, ...] | None = None
    sensitive: tuple[str, ...] | None = None
    unit: str | None = None
    categories: tuple[str, ...] = ()

    def schema(self, table: pa.Table, label: str) -> LogSchema:
        """The schema of the frame's columns; `label` is the name of the label, in the frame or beside it."""
        self._check(table.column_names, label)
        columns = [Column(label, {Role.LABEL}, Kind.REAL)]
        for name in table.column_names:
            if name == label:
                continue
            role = self._role(name)
            roles = {role} if role is not None else set()
            if name == self.unit:
                columns.append(Column(name, roles | {Role.USER}, Kind.CATEGORY))
            elif role is None:
                columns.append(Column(name, {Role.LEFT_OUT}, why="named neither public nor sensitive"))
            else:
                columns += self._features(name, role, table.column(name))
        return LogSchema("frame", tuple(columns))

    def guess(self, names: Iterable[str], label: str, *, unit_said: bool = False) -> str:
        """What was guessed, as a line that says how to confirm or change it; empty where nothing was."""
        rest = [name for name in names if name not in (label, self.unit)]
        unnamed = [name for name in rest if name not in (*(self.public or ()), *(self.sensitive or ()))]
        guesses = []
        if self.public is None and self.sensitive is None:
            said = "taken as sensitive, for no roles were given: say sensitive=[...] and public=[...]"
            guesses.append(f"{list_names(rest)}: {said}")
        elif self.public is None and unnamed:
            said = "taken as public, for only sensitive columns were named: say public=[...]"
            guesses.append(f"{list_names(unnamed)}: {said}")
        people = [name for name in rest if NAMES_PEOPLE.search(name.lower())]
        if self.unit is None and people and not unit_said:
            said = f"it looks like names of people: unit={people[0]!r} would promise per person, not per row"
            guesses.append(f"{people[0]}: {said}")
        return ". ".join(guesses)

    def _role(self, name: str) -> Role | None:
        if self.public is not None and name in self.public:
            return Role.PUBLIC
        if self.sensitive is not None and name in self.sensitive:
            return Role.SENSITIVE
        if name == self.unit or (self.public is not None and self.sensitive is not None):
            return None
        return Role.PUBLIC if self.sensitive is not None else Role.SENSITIVE

    def _features(self, name: str, role: Role, values: pa.ChunkedArray) -> list[Column]:
        kind = values.type
        if pa.types.is_temporal(kind) and not pa.types.is_time(kind) and not pa.types.is_duration(kind):
            return [
                Column(f"{name} hour", {role}, Kind.HOUR, source=name),
                Column(f"{name} weekday", {role}, Kind.WEEKDAY, source=name),
            ]
        if role is Role.SENSITIVE and pa.types.is_null(kind):
            raise BadInput(f"column {name}: expected values of some type, got missing ones alone: leave it out")
        chosen = self._kind(name, kind)
        if chosen is Kind.REAL and role is Role.PUBLIC and _few_and_whole(values):
            chosen = Kind.CATEGORY  # an hour, a slot: anybody may look at public values
        return [Column(name, {role}, chosen)]

    def _kind(self, name: str, kind: pa.DataType) -> Kind:
        if pa.types.is_dictionary(kind) or name in self.categories or pa.types.is_null(kind):
            return Kind.CATEGORY
        if any(is_text(kind) for is_text in (*TEXTS, *BYTES)):
            return Kind.CATEGORY
        if pa.types.is_boolean(kind):
            return Kind.FLAG
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            # Whole numbers too: a single missing value, or a fraction, makes fractions of all of them.
            return Kind.CATEGORY if NAMES_THINGS.search(name) else Kind.REAL
        raise BadInput(f"column {name}: expected texts, numbers, flags or times, got {kind}")

    def _check(self, names: Sequence[str], label: str) -> None:
        said = {"public": self.public or (), "sensitive": self.sensitive or (), "categories": self.categories}
        known = {*names}
        for role, listed in said.items():
            twice = [name for name, count in Counter(listed).items() if count > 1]
            if twice:
                raise BadInput(f"{role}: expected each column once, got {twice[0]!r} twice")
            for name in listed:
                if name not in known:
                    near = expect.nearest(name, names)
                    raise BadInput(f"{role}: expected columns of the frame, got {name!r}{near}")
                if name == label:
                    raise BadInput(f"{role}: expected features, got {name!r}, which is the label")
        protected = {*said["sensitive"]}
        both = [name for name in said["public"] if name in protected]
        if both:
            raise BadInput(f"column {both[0]}: expected one role, got public and sensitive")
        if self.unit is not None and self.unit not in names:
            raise BadInput(
                f"unit: expected a column of the frame, got {self.unit!r}{expect.nearest(self.unit, [*names])}"
            )
        if self.unit is not None and self.unit in (label, *said["sensitive"]):
            raise BadInput(
                f"unit: expected a column that names people, got {self.unit!r}, which is the label or sensitive"
            )


def name_columns(key: str, given: Any, names: Sequence[str]) -> tuple[str, ...] | None:
    """Columns by name, or by place where they have none; one alone may stand without a list."""
    if given is None:
        return None
    each = [given] if isinstance(given, str | int) and not isinstance(given, bool) else given
    if not isinstance(each, Iterable) or isinstance(each, Mapping):
        raise BadInput(f"{key}: expected a list of column names, got {given!r}")
    return tuple(_name_of(key, one, names) for one in each)


def _name_of(key: str, given: Any, names: Sequence[str]) -> str:
    if isinstance(given, int | np.integer) and not isinstance(given, bool) and f"{given}" not in names:
        if not 0 <= int(given) < len(names):
            raise BadInput(f"{key}: expected columns of the frame, got {given} of {len(names)}")
        return names[int(given)]
    if not isinstance(given, str | int | np.integer):
        raise BadInput(f"{key}: expected a list of column names, got {given!r} in it")
    return str(given)


def _few_and_whole(values: pa.ChunkedArray) -> bool:
    if not pa.types.is_integer(values.type):
        numbers = values.cast(pa.float64(), safe=False)
        if pc.all(pc.equal(pc.floor(numbers), numbers)).as_py() is False:
            return False
    return count_values(values) <= FEW_VALUES
