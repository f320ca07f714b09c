"""Which encoder and split `tacit data prepare` was asked for, and who pays where one is learned privately."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tacit.commands.output import progress_bar
from tacit.errors import BadInput, ReservationTaken, TacitError

if TYPE_CHECKING:
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.vocabulary import VocabularySelection
    from tacit.data.logs.definition import Log
    from tacit.data.splits import LogSplit
    from tacit.data.value_counts import ValueTally
    from tacit.store.ledger import Attempt

PART_NAMES = {2: ("train", "test"), 3: ("train", "validation", "test")}


def choose_split(args: argparse.Namespace, log: Log) -> LogSplit:
    from tacit.data.preparation import check_split
    from tacit.data.splits import LogSplit

    split = log.split
    if args.split is not None or args.shares is not None:
        shares = dict(log.split.shares) if args.shares is None else _shares(args.shares)
        split = LogSplit(args.split or log.split.way, shares, args.split_seed)
    check_split(split, log)
    return split


@contextmanager
def choose_encoder(args: argparse.Namespace, log: Log, path: str) -> Iterator[Encoder]:
    """The encoder. One that is selected privately is paid for before, and settled once it is there."""
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.vocabulary import public_vocabulary, sensitive_vocabulary
    from tacit.data.preparation import hashing_encoder
    from tacit.entropy import Entropy

    learned = args.vocabulary is not None or args.sensitive_vocabulary
    if args.encoder is not None:
        others = (args.public_bins, args.sensitive_bins, args.select_epsilon, args.select_delta, args.ledger)
        if learned or any(other is not None for other in others):
            raise BadInput("expected --encoder alone, got it with options that would make another one")
        yield Encoder.load(args.encoder)
        return
    if not learned:
        _refuse_payment(args)
        yield hashing_encoder(log, args.public_bins, args.sensitive_bins)
        return
    if args.vocabulary is not None and args.public_bins is not None:
        raise BadInput("expected --public-bins or --vocabulary, got both")
    if args.sensitive_vocabulary and args.sensitive_bins is not None:
        raise BadInput("expected --sensitive-bins or --sensitive-vocabulary, got both")
    if not args.sensitive_vocabulary:
        _refuse_payment(args)
    # Counting stays inside, so it comes first: what it refuses has cost nothing.
    hashed = hashing_encoder(log, args.public_bins, args.sensitive_bins)
    selection = _selection(args, log)
    tallies = _tallies(args, log, path, selection)
    public = hashed.public
    if args.vocabulary is not None:
        public = public_vocabulary(log.schema, tallies, args.vocabulary)
    if not args.sensitive_vocabulary:
        yield Encoder.of(log.schema, public, hashed.sensitive)
    elif selection is None:
        yield Encoder.of(log.schema, public, sensitive_vocabulary(log.schema, {}, None, Entropy()))
    else:
        with _paid(args, selection) as attempt:
            sensitive = sensitive_vocabulary(log.schema, tallies, selection, Entropy())
            selected = Encoder.of(log.schema, public, sensitive, selection)
            attempt.name_release(selected.digest)
            yield selected


def _refuse_payment(args: argparse.Namespace) -> None:
    for option in ("select_epsilon", "select_delta", "select_key", "ledger", "scope"):
        if getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise BadInput(f"expected --sensitive-vocabulary with --{name}, got no vocabulary to select")


def _tallies(
    args: argparse.Namespace, log: Log, path: str, selection: VocabularySelection | None
) -> dict[str, ValueTally]:
    from tacit.data.encoding.vocabulary import columns_to_select, count_column_values
    from tacit.data.reading.reader import LogReader
    from tacit.schema.columns import Role

    columns = [
        *(log.schema.columns_with(Role.PUBLIC) if args.vocabulary is not None else ()),
        *(columns_to_select(log.schema) if selection is not None else ()),
    ]
    if not columns:
        return {}
    reader = LogReader(log, path, bad_rows_limit=args.max_bad_rows)
    with progress_bar("counting values", reader.bytes) as progress:
        return count_column_values(reader, columns, progress)


def _selection(args: argparse.Namespace, log: Log) -> VocabularySelection | None:
    from tacit.data.encoding.vocabulary import VocabularySelection, columns_to_select
    from tacit.privacy.budget import Budget

    if not args.sensitive_vocabulary:
        return None
    undecided = columns_to_select(log.schema)
    if not undecided:
        return None
    for option in ("select_epsilon", "select_delta", "ledger", "scope"):
        if getattr(args, option) is None:
            raise BadInput(
                f"column {undecided[0].name}: expected a domain in the schema, or --{option.replace('_', '-')} "
                "for a private selection of its values, got neither"
            )
    budget = Budget.of(args.select_epsilon, args.select_delta)
    return VocabularySelection.for_budget(budget, len(undecided), args.select_threshold)


@contextmanager
def _paid(args: argparse.Namespace, selection: VocabularySelection) -> Iterator[Attempt]:
    """Reserve, and commit once what was selected is on disk. If that fails it stays reserved."""
    from tacit.privacy.budget import Budget
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.privacy.ledger.lines import Line
    from tacit.privacy.units import Relation, Unit, UnitKind
    from tacit.store.ledger import LedgerStore, Request

    unit = Unit(UnitKind.IMPRESSION)
    line = Line(args.scope, unit, Relation.REPLACE_ONE)
    budget = Budget.of(args.select_epsilon, args.select_delta)
    promise = Guarantee(budget, unit, Relation.REPLACE_ONE, sensitive_features=True)
    ledger = LedgerStore.open_existing(args.ledger, witness=args.witness)
    key = f"{args.scope}/vocabulary/{args.select_key or args.out.name}"
    request = Request(key, line, promise, f"select {selection.fields} fields' sensitive values")
    stays = f"the selection stays reserved in the ledger as {key}; see tacit ledger settle --help"
    with _explain_taken(key), ledger.once(request) as attempt:
        try:
            yield attempt
        except (TacitError, OSError) as problem:
            raise BadInput(f"{problem} ({stays})") from None
        except KeyboardInterrupt:
            print(f"tacit data: {stays}", file=sys.stderr)
            raise


@contextmanager
def _explain_taken(key: str) -> Iterator[None]:
    """A selection that was begun before is refused with what to do instead."""
    try:
        yield
    except ReservationTaken:
        raise BadInput(
            f"expected a key that the ledger does not know, got {key}: a selection was begun under it, and "
            "drawing it again would be another release. Use --encoder with the columns it made, or name "
            "another --select-key"
        ) from None


def _shares(text: str) -> dict[str, str]:
    shares = text.split(",")
    if len(shares) not in PART_NAMES:
        raise BadInput(f"expected two or three shares, such as 0.8,0.1,0.1, got {text!r}")
    return dict(zip(PART_NAMES[len(shares)], shares, strict=True))
