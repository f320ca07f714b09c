"""`tacit ads models` and `tacit ads statistics`: versions of what rates are made of, rolled out and back."""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.ads_campaigns import add_desk, expect_no_key
from tacit.commands.output import Subparsers, add_action, extra_installed, print_json, print_table
from tacit.commands.serve_rounds import show_utc
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.deliver.campaigns.versions import VersionKind
    from tacit.services.ads.version_desk import StoreDesk, VersionDesk
    from tacit.train.config import TrainingConfig

MODELS = """\
Models that rates of menus are made of. A model is the folder that `tacit train` wrote. It may read attributes
of contexts by their names, `campaign` and `advertiser`, and nothing of a person: another one is refused by the
names of its columns. One is in use; another that is put in use counts from the next epoch on, and the old one
stays, a `use` away."""

STATISTICS = """\
Statistics that rates of menus are made of: noisy counts that rounds released, of clicks and, where campaigns
bid on them, of conversions (`list --conversions`). Rounds are opened by schedule (the table [statistics] of the
ad server's settings), and what they release is put in use by itself; `use` goes back to an older one, until the
next result."""

RETRAIN = """\
Train as CONFIG says (see tacit train), measure the model on rows that it was not trained on, beside the one in
use, add it as a version, and put it in use unless it is worse: unless the 95% interval of its log loss minus
that of the one in use lies above 0. For a scheduler of your own, such as a timer of systemd or cron.

Each retraining is a release of its own: --name, by default today's date, goes behind the name of the model's
folder and of the ledger's entry. The same name again goes on where an earlier run ended, and pays nothing
twice.

Exact figures of private labels are a release that nobody has paid for. Say that they are public or agreed for
measuring (--labels-are-public), or have them flipped within a budget (--epsilon, with --secret; the ledger and
scope of CONFIG pay)."""

EXAMPLES = """\
examples:
  tacit ads models add model --use --settings server.toml
  tacit ads models list --settings server.toml
  tacit ads models use 41 --url https://ads.example --key-file operator.key      roll back
  tacit ads models retrain train.toml --settings server.toml --labels-are-public
  tacit ads statistics list --settings server.toml"""

COLUMNS = ("number", "in use", "added", "what", "epsilon", "delta", "of")


def add_versions(actions: Subparsers) -> None:
    """The two actions of `tacit ads`, each with its own."""
    models = add_action(actions, EXAMPLES, "models", "models of clicks and of conversions", MODELS)
    doing = models.add_subparsers(dest="doing", metavar="DO", required=True)
    _add_common(doing, is_model=True)
    add = add_action(doing, None, "add", "add a trained model", MODELS)
    add.add_argument("path", type=Path, metavar="PATH", help="the folder that `tacit train` wrote")
    add.add_argument("--use", action="store_true", help="put it in use at once, from the next epoch on")
    retrain = add_action(doing, None, "retrain", "train anew, compare, and put in use unless worse", RETRAIN)
    retrain.add_argument("config", type=Path, metavar="CONFIG", help="a configuration of tacit train")
    retrain.add_argument("--name", help="of this retraining (default: today's date, UTC)")
    retrain.add_argument("--part", default="test", help="part of the log to measure on (default: %(default)s)")
    retrain.add_argument(
        "--labels-are-public", action="store_true", help="these labels are public, or agreed for measuring"
    )
    retrain.add_argument("--epsilon", help="flip the labels that are measured on once, within this")
    retrain.add_argument("--secret", type=Path, metavar="PATH", help="the file that keys flips; made if absent")
    for each, run in ((add, run_add), (retrain, run_retrain)):
        add_desk(each)
        _add_conversions(each)
        each.set_defaults(run=run)
    statistics = add_action(actions, EXAMPLES, "statistics", "statistics that rounds released", STATISTICS)
    _add_common(statistics.add_subparsers(dest="doing", metavar="DO", required=True), is_model=False)


def _add_common(doing: Any, *, is_model: bool) -> None:
    about = MODELS if is_model else STATISTICS
    for name, does, run in (
        ("list", "what there is, the newest first", run_list),
        ("show", "all that is said of one, its privacy statement too", run_show),
        ("use", "put one in use: to roll out, and to roll back", run_use),
    ):
        parser = add_action(doing, None, name, does, about)
        if name != "list":
            parser.add_argument("number", type=int, metavar="NUMBER", help="of the version")
        else:
            _add_conversions(parser)
        add_desk(parser)
        parser.set_defaults(run=run, is_model=is_model)


def _add_conversions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--conversions", action="store_true", help="of conversions, and not of clicks")


def _desk(args: argparse.Namespace) -> AbstractContextManager[VersionDesk]:
    """Over HTTP where an address is named, and on the store of the settings where none is."""
    with extra_installed():
        from tacit.services.ads.access_client import named_url
        from tacit.services.ads.version_desk import open_http_desk

    url = named_url(args.url) if args.settings is None else None
    return _store_desk(args) if url is None else open_http_desk(url, key_file=args.key_file, trust=args.trust)


def _store_desk(args: argparse.Namespace) -> AbstractContextManager[StoreDesk]:
    with extra_installed():
        from tacit.services.ads.version_desk import open_store_desk
        from tacit.services.launch import clock
        from tacit.services.settings import load_settings, settings_path
        from tacit.services.signatures import Party

    expect_no_key(args)
    return open_store_desk(load_settings(settings_path(Party.SERVER, args.settings), Party.SERVER), clock)


def _kind(args: argparse.Namespace) -> VersionKind:
    from tacit.deliver.campaigns.versions import VersionKind

    of_conversions = getattr(args, "conversions", False)
    if not getattr(args, "is_model", True):
        return VersionKind.CONVERSION_STATISTICS if of_conversions else VersionKind.STATISTICS
    return VersionKind.CONVERSIONS if of_conversions else VersionKind.MODEL


def run_list(args: argparse.Namespace) -> int:
    with _desk(args) as desk:
        found = desk.versions(_kind(args))
    if args.json:
        print_json(found)
        return 0
    noun = {
        "statistics": "Statistics", "conversion-statistics": "Statistics of conversions",
        "model": "Models of clicks", "conversion-model": "Models of conversions",
    }[_kind(args)]  # fmt: skip
    rows = [[_cell(each, name) for name in COLUMNS] for each in found]
    print_table(noun, COLUMNS, rows, numbers=("number", "epsilon", "delta"))
    return 0


def _cell(version: dict[str, Any], name: str) -> str:
    body = version["body"]
    statement = body.get("statement") or {}
    if name in ("epsilon", "delta"):
        return f"{statement[name]:.4g}" if name in statement else "-"
    reports = body.get("reports")
    found = {
        "number": version["number"],
        "in use": "yes" if version["in_use"] else "",
        "added": show_utc(version["made"]),
        "what": body.get("name") or body.get("task") or version["source"],
        "of": f"{reports:,} devices" if reports is not None else body.get("method", "-"),
    }
    return str(found[name])


def run_show(args: argparse.Namespace) -> int:
    with _desk(args) as desk:
        version = desk.version(args.number)
    _expect_kind(args, version)
    if args.json:
        print_json(version)
        return 0
    use = ", in use" if version["in_use"] else ""
    print(f"{version['kind']} {version['number']}{use}: {_cell(version, 'what')}")
    print(f"  added     {show_utc(version['made'])}")
    print(f"  from      {version['source']}")
    print(f"  digest    {version['digest']}, {version['size']:,} bytes")
    for key, value in version["body"].items():
        if key not in ("statement", "name"):
            print(f"  {key:<9} {show_utc(value) if key in ('opens', 'closes') else _plain(value)}")
    print(_statement_words(version["body"].get("statement")))
    return 0


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _statement_words(statement: dict[str, Any] | None) -> str:
    from tacit.privacy.statement import PrivacyStatement
    from tacit.train.promise_words import NO_PROMISE

    if statement is None:
        return f"\n{NO_PROMISE}"
    return f"\n{PrivacyStatement.from_json(statement).as_text('This version')}"


def _expect_kind(args: argparse.Namespace, version: dict[str, Any]) -> None:
    is_model = version["kind"] in ("model", "conversion-model")
    if is_model != args.is_model or version["kind"] == "round":
        wanted = "a model's" if args.is_model else "the number of statistics"
        raise BadInput(f"NUMBER: expected {wanted}, got that of a {version['kind']}")


def run_use(args: argparse.Namespace) -> int:
    with _desk(args) as desk:
        _expect_kind(args, desk.version(args.number))
        version = desk.use(args.number)
    if args.json:
        print_json(version)
    else:
        print(f"{version['kind']} {version['number']} is in use, from the next epoch on")
    return 0


def run_add(args: argparse.Namespace) -> int:
    with _desk(args) as desk:
        version, new = desk.add_model(args.path, _kind(args), use=args.use)
    _tell_added(args, version, new)
    return 0


def _tell_added(args: argparse.Namespace, version: dict[str, Any], new: bool) -> None:
    if args.json:
        print_json({**version, "new": new})
        return
    use = "in use from the next epoch on" if version["in_use"] else "not in use"
    print(f"{version['kind']} {version['number']} {'was added' if new else 'was there already'}, {use}")


def run_retrain(args: argparse.Namespace) -> int:
    """Train, compare, add, and put in use unless worse."""
    if args.url is not None:
        raise BadInput("--url: expected --settings for retraining, which needs the model in use, got --url")
    with _store_desk(args) as desk:
        from tacit.services.ads.rollouts import decide_rollout
        from tacit.train.config_file import load_config

        kind = _kind(args)
        config = _named(load_config(args.config), args.name or time.strftime("%Y-%m-%d", time.gmtime()))
        flips, ledger = _flips(args, config)
        _train(config)
        decided = decide_rollout(
            config.out, desk.content_in_use(kind), config.data, part=args.part,
            labels_are_public=args.labels_are_public, flips=flips, ledger=ledger, now=int(time.time()),
        )  # fmt: skip
        said = {"evaluation": decided.evaluation, "why": decided.why}
        version, new = desk.add_model(config.out, kind, use=decided.use, said=said)
    if args.json:
        print_json({**version, "new": new, "use": decided.use, "why": decided.why})
    else:
        _tell_added(args, version, new)
        print(f"  why       {decided.why}")
    return 0


def _named(config: TrainingConfig, name: str) -> TrainingConfig:
    """The same training as a release of its own."""
    if not name or not all(each.isascii() and (each.isalnum() or each in "-_.") for each in name):
        raise BadInput(f"--name: expected letters, digits, dots and dashes, got {name!r}")
    key = config.ledger.key
    ledger = replace(config.ledger, key=None if key is None else f"{key}/{name}")
    onnx, device = (path and path.with_name(f"{name}-{path.name}") for path in (config.onnx, config.device))
    out = config.out.with_name(f"{config.out.name}-{name}")
    return replace(config, out=out, ledger=ledger, onnx=onnx, device=device)


def _flips(args: argparse.Namespace, config: TrainingConfig) -> tuple[Any, Any]:
    """How labels are measured on: as they are, or flipped, and who pays for that. Asked before anything is
    trained and paid for."""
    from tacit.data.columns import Columns
    from tacit.train.job.model_evaluation import FlipSettings

    synthetic = bool(Columns.open(config.data).manifest.get("synthetic"))
    if args.epsilon is None:
        if args.secret is not None:
            raise BadInput("--secret: expected only with --epsilon, got it without")
        if not synthetic and not args.labels_are_public:
            raise BadInput(
                "expected --labels-are-public, or --epsilon to measure on flipped labels, got neither: exact "
                "figures of private labels are a release that nobody has paid for"
            )
        return None, None
    if args.labels_are_public:
        raise BadInput("--labels-are-public: expected only without --epsilon, got both")
    flips = FlipSettings(args.epsilon, scope=config.ledger.scope, secret=args.secret)
    if config.ledger.path is None:
        return flips, None
    from tacit.store.ledger import LedgerStore

    return flips, LedgerStore.open_existing(config.ledger.path, witness=config.ledger.witness)


def _train(config: TrainingConfig) -> None:
    """As `tacit train` does; a model that is there was made by an earlier run of this name."""
    from tacit.commands.ledger import suggest_grant
    from tacit.commands.train import plan_and_find_payment, train_planned
    from tacit.train.models.saving import MANIFEST

    if (config.out / MANIFEST).exists():
        return
    planned, payment, how_to_grant = plan_and_find_payment(config)
    with suggest_grant(how_to_grant):
        train_planned(planned, payment, resume=True, overwrite=False)
