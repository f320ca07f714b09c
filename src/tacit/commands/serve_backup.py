"""`tacit serve backup` and `restore`: copies of a party's stores, and putting them back."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.commands.output import add_json_flag, extra_installed, print_json
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.services.party_backups import Restored

BACKUP = """\
Copy all stores of a party to a new folder, while it goes on: SQLite files by SQLite's own backup, PostgreSQL by
pg_dump. The copies hold private keys of epochs: keep them as you keep keys. Keep the witness (billing.witness)
elsewhere, and never in a backup: it must know what the backup does not."""

RESTORE = """\
Put a party's stores back from a backup, or, with --accept, take that a store was put back in another way (a
copied file, a snapshot, a dump). Nobody may be serving it. The ledger is put back only where there is none.

A store that was put back has forgotten charges and numbers that others have seen. So that no token is charged
twice and no budget spent twice, only the party itself loses:

  ad server  keys of all epochs in the store are deleted, and batches of these epochs refused. What campaigns
             were charged, and may be charged, is what the witness has seen. Charges that were lost are on no
             later invoice; those that may have been on a lost one are put on invoices that are not to be sent.
  proxy      reports that wait are dropped, and no more are taken for epochs that were known; the ad server
             opens new ones (tacit serve rotate)

Without its witness an ad server charges no campaign with a limit any more until its budget is raised."""


def add_actions(action: Callable[[str, str, str], argparse.ArgumentParser]) -> None:
    backup = action("backup", "copy a party's stores while it runs", BACKUP)
    backup.add_argument("settings", type=Path, metavar="FILE", help="the settings of either party, in TOML")
    backup.add_argument("--out", required=True, type=Path, metavar="DIR", help="the new folder to write to")
    add_json_flag(backup)
    backup.set_defaults(run=run_backup)

    restore = action("restore", "put a party's stores back", RESTORE)
    restore.add_argument("settings", type=Path, metavar="FILE", help="the settings of either party, in TOML")
    ways = restore.add_mutually_exclusive_group(required=True)
    ways.add_argument(
        "--from", dest="source", type=Path, metavar="DIR", help="a folder of `tacit serve backup`"
    )
    ways.add_argument(
        "--accept", action="store_true", help="the store is an older state already: take what it has lost"
    )
    add_json_flag(restore)
    restore.set_defaults(run=run_restore)


def run_backup(args: argparse.Namespace) -> int:
    from tacit.files import check_folder

    check_folder("--out", args.out)
    with extra_installed():
        from tacit.services import party_backups, settings

    found = settings.load_either_settings(args.settings)
    made = party_backups.back_up_party(found, args.out, now=int(time.time()))
    if args.json:
        print_json({"folder": str(args.out), "files": made})
    else:
        print(f"wrote {', '.join(made)} of the {found.party} to {args.out}: keep them as you keep keys")
    return 0


def run_restore(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import party_backups, settings

    found, now = settings.load_either_settings(args.settings), int(time.time())
    if args.accept and found.billing is None:
        raise BadInput(f"{args.settings}: expected a table [billing], got none: there is nothing to accept")
    if args.accept:
        done = party_backups.accept_loss(found, now=now)
    else:
        done = party_backups.restore_party(found, args.source, now=now)
    if args.json:
        print_json(done.as_json())
    else:
        for line in _lines(done):
            print(line)
    return 0


def _lines(done: Restored) -> list[str]:
    lines = []
    if done.put_back:
        lines.append(f"put back: {', '.join(done.put_back)}")
    if done.left:
        lines.append(f"left as it is: {', '.join(done.left)}")
    loss = done.loss
    if loss is None:
        return [*lines, "nothing that billing's witness has seen is missing"]
    lines.append(
        f"lost: {loss.batches} batches, {loss.invoices} invoices, {loss.charged_micros} micros of charges, "
        "which count on budgets"
    )
    if loss.dropped:
        lines.append(f"dropped: {loss.dropped} reports that waited")
    if loss.due:
        lines.append(f"send these invoices: {', '.join(map(str, loss.due))}")
    if loss.void:
        lines.append(f"do not send these, whose charges may be on lost ones: {', '.join(map(str, loss.void))}")
    return [*lines, "epochs that were known are closed: new ones follow (tacit serve rotate)"]
