"""A ledger as people use it: grant in words, see what is left, pay for one release in a `with` block.

    ledger.grant("ads", (4, 1e-6), unit="user")
    with ledger.spend("clicks/model-7", "ads", (1, 1e-8)):
        ...                                              # make the release
    ledger.remaining("ads")

`tacit.store.LedgerStore` and `tacit.MemoryLedger` are such books; `rules` decide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, overload

from tacit import expect
from tacit.display import html_table
from tacit.errors import BadInput, TacitError, UnknownLine
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line, Series, check_ledger_name
from tacit.privacy.ledger.requests import Decision, Request
from tacit.privacy.ledger.rules import Account, Ledger, Reservation
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind

NOT_NAMED = "made, and not named"

Limit = Budget | tuple[expect.Number, expect.Number] | expect.Number
"""A budget, or epsilon and delta; a number is an epsilon, with delta 0."""

Cost = Guarantee | PrivacyStatement | Limit


class Attempt:
    """One attempt at a release in `LedgerStore.once`; `name_release` says what it made, else the end does."""

    def __init__(self, ledger: LedgerBook, keys: Sequence[str], token: str) -> None:
        self.keys, self._ledger, self._token = keys, ledger, token
        self._made = False

    def __repr__(self) -> str:
        return f"Attempt({', '.join(map(repr, self.keys))}, made={self._made})"

    def claiming(self, key: str) -> Decision:
        return Decision(lambda ledger: ledger.claim(key, self._token), key)

    def name_release(self, release: str) -> None:
        """The digest of the release, before it leaves."""
        self._ledger.make_all(self.keys, self._token, release)
        self._made = True

    def commit(self) -> None:
        if not self._made:
            self.name_release(NOT_NAMED)
        self._ledger.commit_all(self.keys, self._token)


class Remaining(dict[Line, Budget]):
    """What is left on each line of a scope; prints as one line each."""

    def __repr__(self) -> str:
        return "\n".join(f"{line}: {left}" for line, left in self.items()) or "nothing was granted"

    def _repr_html_(self) -> str:
        rows = [[*_words(line), _number(left.epsilon), _number(left.delta)] for line, left in self.items()]
        return html_table("What is left", ["scope", "unit", "relation", "window", "ε", "δ"], rows)


class LedgerBook(ABC):
    """What every ledger offers people. Lines may be said in words: a scope, if need be unit and relation."""

    @abstractmethod
    def overview(self) -> Ledger:
        """All lines with their totals, and what their windows are granted; reservations are left out."""

    @abstractmethod
    def once(self, *requests: Request) -> AbstractContextManager[Attempt]:
        """Make one release, and never again."""

    @abstractmethod
    def make_all(self, keys: Sequence[str], attempt: str, release: str) -> list[Reservation]:
        """Say what was made, for all reservations of one release or none."""

    @abstractmethod
    def commit_all(self, keys: Sequence[str], attempt: str | None = None) -> list[Reservation]:
        """Commit several reservations, all or none."""

    @abstractmethod
    def _grant(self, line: Line, limit: Budget) -> Account: ...

    def grant(
        self,
        line: Line | str,
        limit: Limit,
        *,
        unit: Unit | str | None = None,
        relation: Relation | str | None = None,
        window: int | None = None,
    ) -> Account:
        """Open a line with a limit, or give it another one; never below what it has used.

        By its scope it is the line for an impression under replace-one, unless `unit` and `relation` say so.
        """
        if isinstance(line, str):
            kind = Relation.named("relation", Relation.REPLACE_ONE if relation is None else relation)
            line = Line(line, Unit.of(UnitKind.IMPRESSION if unit is None else unit), kind, window)
        else:
            _expect_line(line, unit, relation, window)
        return self._grant(line, read_budget("limit", limit))

    @overload
    def remaining(self, where: Line) -> Budget: ...

    @overload
    def remaining(self, where: str) -> Remaining: ...

    def remaining(self, where: Line | str) -> Budget | Remaining:
        """What is left on a line; or, for a scope, on each of its lines. Reservations are not left."""
        known = self.overview()
        if isinstance(where, Line):
            account, renewal = known.accounts.get(where), known.renewals.get(where.series)
            if account is None and renewal is None:
                raise UnknownLine(f"no budget was granted on line {where}; grant one first")
            return account.remaining.budget if account else renewal.limit.budget  # type: ignore[union-attr]
        check_ledger_name("scope", where)
        found = {line: each.remaining.budget for line, each in known.accounts.items() if line.scope == where}
        if not found and where not in {series.scope for series in known.renewals}:
            raise _unknown_scope(where, known)
        return Remaining(sorted(found.items(), key=_order))

    def spend(
        self,
        name: str,
        line: Line | str,
        cost: Cost,
        *,
        unit: Unit | str | None = None,
        relation: Relation | str | None = None,
        window: int | None = None,
        purpose: str = "a release",
    ) -> AbstractContextManager[Attempt]:
        """Pay for one release, called `name` for ever, around the block that makes it: `once`, said in words.

        Reserved before the block, spent after it. A block that fails keeps its reservation, because what it
        made may have been seen; a name that was used before is refused, and its block not entered. A
        line by its scope must be the only one there, or be told apart by `unit`, `relation` or the cost. A bare
        (epsilon, delta) must speak of the line's own unit and relation; a statement is taken to have read
        sensitive features, unless its `guarantee(sensitive_features=False)` is given instead.
        """
        if isinstance(cost, PrivacyStatement):
            cost = cost.guarantee(sensitive_features=True)
        if not isinstance(cost, Guarantee):
            cost = read_budget("cost", cost)
        if isinstance(line, str):
            line = self._find_line(line, cost, unit, relation, window)
        else:
            _expect_line(line, unit, relation, window)
        return self.once(Request(name, line, cost, purpose))

    def to_frame(self) -> Any:
        """All lines as a table: a pandas DataFrame where pandas is installed, else a pyarrow Table."""
        names = [
            *("scope", "unit", "relation", "window"),
            *(f"{part}_{what}" for part in ("epsilon", "delta") for what in _TOTALS),
        ]
        rows = [
            (
                *(line.scope, str(line.unit), str(line.relation), line.window),
                *(float(each.epsilon) for each in _totals(account)),
                *(float(each.delta) for each in _totals(account)),
            )
            for line, account in self._sort_accounts()
        ]
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        try:
            import pandas as pd  # here: not everybody has it
        except ModuleNotFoundError:
            import pyarrow as pa

            return pa.table(columns)
        return pd.DataFrame(columns).astype({"window": "Int64"})

    def _repr_html_(self) -> str:
        head = ["scope", "unit", "relation", "window", "ε left", "of", "δ left", "of"]
        try:
            rows = [
                [
                    *_words(line),
                    *(_number(each.epsilon) for each in (account.remaining.budget, account.limit.budget)),
                    *(_number(each.delta) for each in (account.remaining.budget, account.limit.budget)),
                ]
                for line, account in self._sort_accounts()
            ]
        except TacitError as problem:
            return html_table(repr(self), [""], [[str(problem)]])
        return html_table(repr(self), head, rows, note="" if rows else "Nothing was granted yet.")

    def _sort_accounts(self) -> list[tuple[Line, Account]]:
        return sorted(self.overview().accounts.items(), key=_order)

    def _find_line(
        self,
        scope: str,
        cost: Guarantee | Budget,
        unit: Unit | str | None,
        relation: Relation | str | None,
        window: int | None,
    ) -> Line:
        known = self.overview()
        found = {series for series in _series(known) if series.scope == scope}
        if not found:
            raise _unknown_scope(scope, known)
        if unit is not None:
            found = {series for series in found if series.unit == Unit.of(unit)}
        if relation is not None:
            found = {series for series in found if series.relation is Relation.named("relation", relation)}
        if len(found) > 1 and isinstance(cost, Guarantee):
            same = Series(scope, cost.unit, cost.relation)
            found = found & {same} or found
        if len(found) != 1:
            there = ", ".join(
                sorted(map(str, found or {each for each in _series(known) if each.scope == scope}))
            )
            words = "which one by unit and relation" if found else "one of them"
            raise BadInput(f"expected {words}, of the lines {there}, got {len(found) or 'another'}")
        return found.pop().line(window)


def read_budget(name: str, given: Limit) -> Budget:
    """A budget as people write one: itself, a pair (epsilon, delta), or an epsilon."""
    if isinstance(given, Budget):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        expect.not_text("epsilon", given[0])
        expect.not_text("delta", given[1])
        return Budget.of(*given)
    if isinstance(given, tuple | list | str) or not hasattr(given, "__float__"):
        raise BadInput(f"expected {name} to be a Budget or (epsilon, delta), got {given!r}")
    return Budget.of(given)


_TOTALS = ("limit", "spent", "reserved", "left")


def _totals(account: Account) -> list[Budget]:
    return [each.budget for each in (account.limit, account.spent, account.reserved, account.remaining)]


def _order(item: tuple[Line, Any]) -> tuple[str, int]:
    return str(item[0].series), item[0].window or 0


def _series(known: Ledger) -> set[Series]:
    return {line.series for line in known.accounts} | set(known.renewals)


def _unknown_scope(scope: str, known: Ledger) -> UnknownLine:
    scopes: Collection[str] = {series.scope for series in _series(known)}
    return UnknownLine(
        f"no budget was granted in scope {scope!r}; grant one first{expect.nearest(scope, scopes)}"
    )


def _expect_line(line: Line, *words: object) -> None:
    if not isinstance(line, Line):
        raise BadInput(f"expected line to be a Line or the name of a scope, got {line!r}")
    if any(word is not None for word in words):
        raise BadInput("expected unit, relation and window of a Line in it, got them beside it")


def _words(line: Line) -> list[str]:
    return [
        line.scope,
        str(line.unit),
        str(line.relation),
        "all time" if line.window is None else str(line.window),
    ]


def _number(number: Any) -> str:
    return f"{float(number):.6g}"
