"""Encoders that list a log's own values: public ones by exact counts, sensitive ones privately, and paid for.

ledger = LedgerStore.open_existing("tacit-ledger.sqlite")
payment = SelectionPayment(ledger, "shop", "march", Budget.of(1, "1e-7"))
asked = LearnedEncoding(log, sensitive=True, payment=payment)
with asked.encoder(asked.count(LogReader(log, path)), Entropy()) as encoder:
    prepare(LogReader(log, path), encoder, "listed")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tacit import expect
from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import (
    Hashing,
    Side,
    VocabularySelection,
    columns_to_select,
    count_column_values,
    public_vocabulary,
    sensitive_vocabulary,
)
from tacit.data.logs.definition import Log
from tacit.data.reading.reader import LogReader
from tacit.data.value_counts import ValueTally
from tacit.errors import BadInput, EntropyMisuse, TacitError
from tacit.privacy.budget import Budget
from tacit.privacy.ledger.guarantee import Guarantee
from tacit.privacy.ledger.lines import Line
from tacit.privacy.ledger.requests import Request
from tacit.privacy.randomness import Source
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.progress import Count, no_count
from tacit.schema.columns import Column, Role


class SelectionAttempt(Protocol):
    """One attempt at a selection, as the ledger knows it."""

    def name_release(self, release: str) -> None:
        """The digest of what was selected, before it leaves."""
        ...


class SelectionLedger(Protocol):
    """A ledger that pays for a selection; `tacit.store.LedgerStore` is one."""

    def once(self, *requests: Request) -> AbstractContextManager[SelectionAttempt]:
        """Reserved before the block, spent once it has ended; a key that was used before is refused."""
        ...


@dataclass(frozen=True, eq=False)
class SelectionPayment:
    """Who pays for a selection of sensitive values: a scope of a ledger, under a name used once, and how much.

    A value is listed only if it came more than `threshold` times, to begin with.
    """

    ledger: SelectionLedger
    scope: str
    name: str
    budget: Budget
    threshold: int = 0

    @property
    def key(self) -> str:
        """The reservation's key in the ledger."""
        return f"{self.scope}/vocabulary/{self.name}"

    def request(self, fields: int) -> Request:
        unit = Unit(UnitKind.IMPRESSION)
        promise = Guarantee(self.budget, unit, Relation.REPLACE_ONE, sensitive_features=True)
        line = Line(self.scope, unit, Relation.REPLACE_ONE)
        return Request(self.key, line, promise, f"select {fields} fields' sensitive values")


@dataclass(frozen=True, eq=False)
class LearnedEncoding:
    """What of a log's encoder is learned from the log: count its values, then make the encoder of the counts.

    `least_public` lists public values that came at least so often; None hashes them to bins. With `sensitive`
    the sensitive fields have a vocabulary too: public domains in full, and of the other fields what a selection
    draws, for which a `payment` is needed.
    """

    log: Log
    least_public: int | None = None
    sensitive: bool = False
    payment: SelectionPayment | None = None
    public_bins: int | None = None
    sensitive_bins: int | None = None

    def __post_init__(self) -> None:
        expect.kind("log", self.log, Log)
        if self.least_public is not None and self.public_bins is not None:
            raise BadInput("expected least_public or public_bins, got both")
        if self.sensitive and self.sensitive_bins is not None:
            raise BadInput("expected a sensitive vocabulary or sensitive_bins, got both")
        if self.payment is not None and not self.sensitive:
            raise BadInput("expected a sensitive vocabulary with a payment, got no vocabulary to select")
        undecided = columns_to_select(self.log.schema) if self.sensitive else ()
        if undecided and self.payment is None:
            raise BadInput(
                f"column {undecided[0].name}: expected a domain in the schema, or a payment for a private "
                "selection of its values, got neither"
            )
        self._hashing_side(Role.PUBLIC)  # these three refuse what cannot be, before anything is counted
        self._hashing_side(Role.SENSITIVE)
        self.selection  # noqa: B018

    @cached_property
    def selection(self) -> VocabularySelection | None:
        """The strongest that the payment buys; None where all that is listed is known anyway."""
        fields = len(columns_to_select(self.log.schema)) if self.sensitive else 0
        if self.payment is None or not fields:
            return None
        return VocabularySelection.for_budget(self.payment.budget, fields, self.payment.threshold)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those whose values must be counted."""
        public = self.log.schema.columns_with(Role.PUBLIC) if self.least_public is not None else ()
        return (*public, *(columns_to_select(self.log.schema) if self.selection is not None else ()))

    def count(self, reader: LogReader, progress: Count = no_count) -> dict[str, ValueTally]:
        """How often each value came, exactly: private, and it costs nothing as long as it stays inside."""
        return count_column_values(reader, self.columns, progress) if self.columns else {}

    @contextmanager
    def encoder(self, tallies: Mapping[str, ValueTally], source: Source) -> Iterator[Encoder]:
        """The encoder, to be written within the block: a selection is spent once the block has ended.

        Guarantee:  (epsilon, delta)-DP for the sensitive values that the encoder lists, as `selection` composes
                    them: reserved before any of them is drawn, and drawn once. Without a selection nothing
                    sensitive is told.
        Neighbours: one example's sensitive features replaced (replace-one, unit impression).
        Assumes:    what `VocabularySelection` assumes; the source is the cryptographic stream. A block that
                    raises leaves the payment reserved, since what was drawn may have been seen.
        Source:     `vocabulary.VocabularySelection`.
        """
        schema, selection, payment = self.log.schema, self.selection, self.payment
        if selection is not None and not source.fit_for_release:
            raise EntropyMisuse("expected the cryptographic stream for a selection, got a simulation")
        public = self._hashing_side(Role.PUBLIC)
        if self.least_public is not None:
            public = public_vocabulary(schema, tallies, self.least_public)
        if not self.sensitive:
            yield Encoder.of(schema, public, self._hashing_side(Role.SENSITIVE))
        elif selection is None or payment is None:
            yield Encoder.of(schema, public, sensitive_vocabulary(schema, {}, None, source))
        else:
            with payment.ledger.once(payment.request(selection.fields)) as attempt, _add_standing(payment.key):
                sensitive = sensitive_vocabulary(schema, tallies, selection, source)
                selected = Encoder.of(schema, public, sensitive, selection)
                attempt.name_release(selected.digest)
                yield selected

    def _hashing_side(self, role: Role) -> Side:
        said, usual = self.public_bins, self.log.public_bins
        if role is Role.SENSITIVE:
            said, usual = self.sensitive_bins, self.log.sensitive_bins
        return Hashing(usual if said is None else said)


@contextmanager
def _add_standing(key: str) -> Iterator[None]:
    """Whatever stops a selection that was begun also says how the ledger stands."""
    stays = f"the selection stays reserved in the ledger as {key}; see tacit ledger settle --help"
    try:
        yield
    except (TacitError, OSError) as problem:
        raise BadInput(f"{problem} ({stays})") from None
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(stays)
        raise
