"""Which encoder and split `tacit data prepare` was asked for, and who pays where one is learned privately."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tacit.commands.output import progress_bar
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.selection import Selection
    from tacit.data.encoding.sides import Side
    from tacit.data.log import Log
    from tacit.data.splits import Split

PART_NAMES = {2: ("train", "test"), 3: ("train", "validation", "test")}


def chosen_split(args: argparse.Namespace, log: Log) -> Split:
    from tacit.data.preparing import check_split
    from tacit.data.splits import Split

    if args.split is None and args.shares is None:
        return log.split
    shares = dict(log.split.shares) if args.shares is None else _shares(args.shares)
    split = Split(args.split or log.split.way, shares, args.split_seed)
    check_split(split, log)
    return split


@contextmanager
def chosen_encoder(args: argparse.Namespace, log: Log, path: str) -> Iterator[Encoder]:
    """The encoder. One that is selected privately is paid for before, and settled once it is there."""
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.preparing import hashing_encoder

    learned = args.vocabulary is not None or args.sensitive_vocabulary
    if args.encoder is not None:
        if learned or args.public_bins or args.sensitive_bins:
            raise BadInput("expected --encoder alone, got it with options that would make another one")
        yield Encoder.load(args.encoder)
        return
    if not learned:
        if args.select_epsilon is not None or args.select_delta is not None:
            raise BadInput("expected --sensitive-vocabulary with --select-epsilon, got no vocabulary to select")
        yield hashing_encoder(log, args.public_bins, args.sensitive_bins)
        return
    selection = _selection(args, log)
    if selection is None:
        yield _learned(args, log, path, None)
        return
    with _paid(args, selection):
        yield _learned(args, log, path, selection)


def _learned(args: argparse.Namespace, log: Log, path: str, selection: Selection | None) -> Encoder:
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.vocabularies import counted, public_vocabulary, sensitive_vocabulary, to_select
    from tacit.data.preparing import hashing_encoder
    from tacit.data.reading.stream import LogReader
    from tacit.entropy import Entropy
    from tacit.schema.columns import Role

    hashed = hashing_encoder(log, args.public_bins, args.sensitive_bins)
    columns = [
        *(log.schema.having(Role.PUBLIC) if args.vocabulary is not None else ()),
        *(to_select(log.schema) if selection is not None else ()),
    ]
    tallies = {}
    if columns:
        reader = LogReader(log, path, bad_rows_limit=args.max_bad_rows)
        with progress_bar("counting values", reader.bytes) as progress:
            tallies = counted(reader, columns, progress)
    public: Side = hashed.public
    sensitive: Side = hashed.sensitive
    if args.vocabulary is not None:
        public = public_vocabulary(log.schema, tallies, args.vocabulary)
    if args.sensitive_vocabulary:
        sensitive = sensitive_vocabulary(log.schema, tallies, selection, Entropy())
    return Encoder.of(log.schema, public, sensitive, selection)


def _selection(args: argparse.Namespace, log: Log) -> Selection | None:
    from tacit.data.encoding.selection import Selection
    from tacit.data.encoding.vocabularies import to_select
    from tacit.privacy.budget import Budget

    if not args.sensitive_vocabulary:
        return None
    undecided = to_select(log.schema)
    if not undecided:
        return None
    for option in ("select_epsilon", "select_delta", "ledger", "scope"):
        if getattr(args, option) is None:
            raise BadInput(
                f"column {undecided[0].name}: expected a domain in the schema, or --{option.replace('_', '-')} "
                "for a private selection of its values, got neither"
            )
    budget = Budget.of(args.select_epsilon, args.select_delta)
    return Selection.for_budget(budget, len(undecided), args.select_threshold)


@contextmanager
def _paid(args: argparse.Namespace, selection: Selection) -> Iterator[None]:
    """Reserve, and commit once what was selected is on disk. If that fails it stays reserved."""
    from tacit.privacy.budget import Budget
    from tacit.privacy.ledger.guarantee import Guarantee
    from tacit.privacy.ledger.lines import Line
    from tacit.privacy.relations import Relation
    from tacit.privacy.units import Unit, UnitKind
    from tacit.store.ledger import LedgerStore

    unit = Unit(UnitKind.IMPRESSION)
    line = Line(args.scope, unit, Relation.REPLACE_ONE)
    budget = Budget.of(args.select_epsilon, args.select_delta)
    promise = Guarantee(budget, unit, Relation.REPLACE_ONE, sensitive_features=True)
    ledger = LedgerStore.open_existing(args.ledger, witness=args.witness)
    key = f"{args.scope}/vocabulary/{args.out.name}"
    reservation = ledger.reserve(
        key, line, promise, purpose=f"select {selection.fields} fields' sensitive values"
    )
    if reservation.resumed:
        raise BadInput(
            f"expected a selection that was not made before, got {key}, which is {reservation.state}: drawing "
            "it again would be another release. Use --encoder with the columns it made, or another --out"
        )
    yield
    ledger.commit(key)


def _shares(text: str) -> dict[str, str]:
    shares = text.split(",")
    if len(shares) not in PART_NAMES:
        raise BadInput(f"expected two or three shares, such as 0.8,0.1,0.1, got {text!r}")
    return dict(zip(PART_NAMES[len(shares)], shares, strict=True))
