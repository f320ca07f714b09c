"""`tacit serve status`: a party's rounds, from its store and ledger. The party need not be running."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import print_json, print_table
from tacit.commands.serve_party import extra_installed

if TYPE_CHECKING:
    from tacit.gather.wire.rounds import Round
    from tacit.services.settings import Settings
    from tacit.store.gather_proxy import SqlProxyStore
    from tacit.store.gather_server import SqlServerStore

COLUMNS = ("task", "level", "phase", "closes", "waiting", "accepted", "smallest_batch", "needs", "digest")
NUMBERS = ("level", "waiting", "accepted", "smallest_batch")


def run(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import settings
        from tacit.services.signing import Party

    path: Path = args.settings if args.settings is not None else settings.path_of(Party.PROXY, None)
    found = settings.load_either(path)
    rounds = _rounds(found)
    if args.json:
        print_json(rounds)
        return 0
    rows = [[_shown(name, each[name]) for name in COLUMNS] for each in rounds]
    print_table(f"Rounds at the {found.party}", COLUMNS, rows, numbers=NUMBERS)
    return 0


def _shown(name: str, value: Any) -> str:
    if name == "closes":
        return utc(value)
    return "-" if value is None else str(value)


def utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _rounds(settings: Settings) -> list[dict[str, Any]]:
    from tacit.gather.wire.rounds import Round
    from tacit.services.signing import Party
    from tacit.store.gather_proxy import SqlProxyStore
    from tacit.store.gather_server import SqlServerStore

    kind: type[SqlProxyStore | SqlServerStore] = (
        SqlProxyStore if settings.party is Party.PROXY else SqlServerStore
    )
    store = kind.open(settings.gathered)
    found = []
    for stored in store.rounds():
        round, phase = Round.from_bytes(stored.body), str(stored.phase)
        is_open = phase in ("open", "closed", "agreed")
        found.append(
            {
                "task": round.task,
                "level": round.level,
                "phase": phase,
                "closes": round.closes,
                "waiting": store.waiting(round.digest) if isinstance(store, SqlProxyStore) else None,
                "accepted": store.accepted_count(round.digest),
                "smallest_batch": round.smallest_batch,
                "needs": _needs(settings, round) if is_open else None,
                "digest": round.digest.hex(),
            }
        )
    store.close()
    return found


def _needs(settings: Settings, round: Round) -> str | None:
    """What keeps the round from its release, as far as this party's ledger can tell."""
    from tacit.gather.wire.sealing import Role
    from tacit.services.granting import expect_granted
    from tacit.services.problems import NotGranted
    from tacit.store.ledger import LedgerStore

    ledger = LedgerStore.open(settings.ledger, witness=settings.witness)
    try:
        expect_granted(ledger, round, Role(str(settings.party)))
    except NotGranted as missing:
        return f"a grant of epsilon {missing.epsilon}, delta {missing.delta} on scope {missing.scope}"
    return None
