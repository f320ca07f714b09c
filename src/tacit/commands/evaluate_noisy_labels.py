"""Noisy labels for `tacit evaluate`: from options to flips, and the ledger that pays for them."""

from __future__ import annotations

import argparse
import time

from tacit import expect
from tacit.commands.evaluate import sensitive_columns_read
from tacit.commands.missing_line_help import Asker, grant_command, open_paying_ledger, suggest_grant
from tacit.config import error_prefix
from tacit.data.columns import Columns
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.files import check_writable
from tacit.privacy.mechanisms.memoisation import SECRET_BYTES
from tacit.privacy.units import Cap, Relation, Unit, UnitKind
from tacit.train.config import LedgerSettings, PrivacySettings
from tacit.train.config_file import check_epsilon
from tacit.train.examples import Examples
from tacit.train.job.label_flips import LabelFlipRelease, read_secret
from tacit.train.job.noisy_evaluation import RESPONSE, LabelFlips, MeasuredFlips, plan_flips
from tacit.train.job.plan import flip_key
from tacit.train.models.saving import SavedModel


def check_flips(
    args: argparse.Namespace, models: list[SavedModel], examples: Examples
) -> tuple[LabelFlips, LedgerSettings]:
    """Which labels would be flipped, how and for whom; and who pays. What can be refused is refused here."""
    if args.epsilon is None:
        raise BadInput("expected --epsilon for noisy labels, got none")
    ledger = _ledger(args, examples)
    with error_prefix("--unit"):
        unit = Unit(UnitKind(args.unit or "impression"))
    if unit.kind is UnitKind.IMPRESSION and args.cap is not None:
        raise BadInput("--cap: expected only with a unit of several rows, got unit impression")
    with error_prefix("--cap"):
        cap = Cap(1 if args.cap is None else args.cap)
    version = expect.whole("--version", args.version or 0, at_least=0)
    privacy = PrivacySettings("label-dp", unit, cap, check_epsilon("--epsilon", args.epsilon))
    columns = Columns.open(args.data)
    scope = ledger.scope or str(columns.manifest.get("log"))
    flips = flip_key(scope, columns, args.part, version=version)
    kept = None
    if ledger.secret is not None:
        check_writable("--secret", ledger.secret)
        kept = read_secret(ledger.secret)
    secret = kept or Entropy().bytes(SECRET_BYTES)
    noisy = LabelFlipRelease(privacy, RESPONSE, flips, secret, scope, ledger.secret)
    places = [args.model, *([] if args.baseline is None else [args.baseline])]
    reads = {str(place): sensitive_columns_read(model) for place, model in zip(places, models, strict=True)}
    return plan_flips(examples, noisy, reads, now=int(time.time()), relation=ledger.relation), ledger


def measure_flips(flips: LabelFlips, ledger: LedgerSettings) -> MeasuredFlips:
    """Paid for by this ledger; on made-up data, by none."""
    if ledger.path is None:
        return flips.measured(None)
    cost = flips.cost
    store = open_paying_ledger(ledger, cost, Asker("--ledger"))
    with suggest_grant(grant_command(ledger, cost)):
        return flips.measured(store)


def _ledger(args: argparse.Namespace, examples: Examples) -> LedgerSettings:
    """All of it, or on made-up data nothing."""
    given = {name: getattr(args, name) for name in ("ledger", "scope", "secret")}
    if examples.synthetic and all(value is None for value in (*given.values(), args.relation)):
        return LedgerSettings()
    for name, value in given.items():
        if value is None:
            raise BadInput(f"expected --{name} to pay for noisy labels, got none")
    relation = None if args.relation is None else Relation(args.relation)
    return LedgerSettings(args.ledger, args.witness, args.scope, relation, None, args.secret)
