"""Which encoder and split `tacit data prepare` was asked for, and who pays where one is learned privately."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tacit.commands.output import progress_bar
from tacit.errors import BadInput, ReservationTaken

if TYPE_CHECKING:
    from tacit.data.encoding.encoder import Encoder
    from tacit.data.encoding.learned_encoding import SelectionPayment
    from tacit.data.logs.definition import Log
    from tacit.data.splits import LogSplit
    from tacit.data.value_counts import ValueTally

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
    from tacit.data.encoding.learned_encoding import LearnedEncoding
    from tacit.data.preparation import hashing_encoder
    from tacit.data.reading.reader import LogReader
    from tacit.entropy import Entropy

    learned = args.vocabulary is not None or args.sensitive_vocabulary
    if args.encoder is not None:
        others = (args.public_bins, args.sensitive_bins, args.select_epsilon, args.select_delta, args.ledger)
        if learned or any(other is not None for other in others):
            raise BadInput("expected --encoder alone, got it with options that would make another one")
        yield Encoder.load(args.encoder)
        return
    if not args.sensitive_vocabulary:
        _refuse_payment(args)
    if not learned:
        yield hashing_encoder(log, args.public_bins, args.sensitive_bins)
        return
    if args.vocabulary is not None and args.public_bins is not None:
        raise BadInput("expected --public-bins or --vocabulary, got both")
    if args.sensitive_vocabulary and args.sensitive_bins is not None:
        raise BadInput("expected --sensitive-bins or --sensitive-vocabulary, got both")
    payment = _payment(args, log) if args.sensitive_vocabulary else None
    asked = LearnedEncoding(
        log, args.vocabulary, args.sensitive_vocabulary, payment, args.public_bins, args.sensitive_bins
    )
    tallies: Mapping[str, ValueTally] = {}
    if asked.columns:  # counting stays inside, so it comes first: what it refuses has cost nothing
        reader = LogReader(log, path, bad_rows_limit=args.max_bad_rows)
        with progress_bar("counting values", reader.bytes) as progress:
            tallies = asked.count(reader, progress)
    with _explain_taken(payment), asked.encoder(tallies, Entropy()) as encoder:
        yield encoder


def _refuse_payment(args: argparse.Namespace) -> None:
    for option in ("select_epsilon", "select_delta", "select_key", "ledger", "scope"):
        if getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise BadInput(f"expected --sensitive-vocabulary with --{name}, got no vocabulary to select")


def _payment(args: argparse.Namespace, log: Log) -> SelectionPayment | None:
    """Who pays for the selection; None where all values of sensitive fields are known anyway."""
    from tacit.data.encoding.learned_encoding import SelectionPayment
    from tacit.data.encoding.vocabulary import columns_to_select
    from tacit.privacy.budget import Budget
    from tacit.store.ledger import LedgerStore

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
    ledger = LedgerStore.open_existing(args.ledger, witness=args.witness)
    return SelectionPayment(ledger, args.scope, args.select_key or args.out.name, budget, args.select_threshold)


@contextmanager
def _explain_taken(payment: SelectionPayment | None) -> Iterator[None]:
    """A selection that was begun before is refused with what to do instead; one that was interrupted says how
    the ledger stands."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", ()):
            print(f"tacit data: {note}", file=sys.stderr)
        raise
    except ReservationTaken:
        if payment is None:
            raise
        raise BadInput(
            f"expected a key that the ledger does not know, got {payment.key}: a selection was begun under it, "
            "and drawing it again would be another release. Use --encoder with the columns it made, or name "
            "another --select-key"
        ) from None


def _shares(text: str) -> dict[str, str]:
    shares = text.split(",")
    if len(shares) not in PART_NAMES:
        raise BadInput(f"expected two or three shares, such as 0.8,0.1,0.1, got {text!r}")
    return dict(zip(PART_NAMES[len(shares)], shares, strict=True))
