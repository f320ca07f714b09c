"""`tacit room keys`, `agree` and `trial`: what two parties need before a room can run.

An agreement is said in plain words before and after it is signed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import extra_installed, print_json, print_table
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.cleanroom.protocol.agreement import Agreement
    from tacit.cleanroom.protocol.modes import Signer
    from tacit.cleanroom.protocol.signatures import PrivateKey
    from tacit.privacy.budget import Budget

    Possible = tuple[Budget, Budget]


def run_keys(args: argparse.Namespace) -> int:
    from tacit.entropy import Entropy
    from tacit.files import check_folder
    from tacit.services.room import keys

    check_folder("--out", args.out)
    made = keys.write_keys(
        args.out,
        platform=args.platform,
        room=args.room,
        now=int(time.time()),
        days=args.days,
        entropy=Entropy(),
    )
    if args.json:
        print_json(
            [
                {"file": str(each.path), "holder": each.holder, "private": each.private, "means": each.means}
                for each in made
            ]
        )
        return 0
    rows = [
        (str(each.path.relative_to(args.out)), "private" if each.private else "public", each.means)
        for each in made
    ]
    print_table(f"Keys of {args.platform} and {args.room}, in {args.out}", ("file", "is", "belongs to"), rows)
    print("room/ goes to the room's machine, platform/ to the platform's; nothing private goes anywhere else.")
    print(f"next: terms in TOML, then tacit room agree {args.out}/agreement.json --help")
    return 0


def run_agree(args: argparse.Namespace) -> int:
    from tacit.cleanroom.protocol.agreement import Agreement

    before = Agreement.from_bytes(_read(args.file)) if args.file.exists() else None
    if before is not None:
        before.verify(proposal=True)
    if args.key is None and args.terms is None:
        if before is None:
            raise BadInput(f"expected an agreement at {args.file}, or --terms to propose one, got neither")
        return _show_agreement(before, before, args)
    role, key = _signer(args)
    after = _sign(before, args, role, key)
    if not args.dry_run:
        from tacit.files import write_atomically

        write_atomically(args.file, after.to_bytes(), mode=0o644)
    return _show_agreement(before, after, args)


def _signer(args: argparse.Namespace) -> tuple[Signer, PrivateKey]:
    from tacit.cleanroom.protocol import signatures
    from tacit.cleanroom.protocol.modes import Signer
    from tacit.services.settings import read_secret_file

    if args.key is None or args.role is None:
        raise BadInput("expected --role and --key to sign, got only one of them, or none")
    return Signer(args.role), signatures.private_key(read_secret_file("--key", args.key))


def _sign(before: Agreement | None, args: argparse.Namespace, role: Signer, key: PrivateKey) -> Agreement:
    from tacit.cleanroom.protocol.agreement import Agreement

    if args.terms is None:
        if before is None:
            raise BadInput(f"expected an agreement at {args.file}, or --terms to propose one, got neither")
        if role not in before.waits_for:
            raise BadInput(
                f"expected an agreement that waits for the {role}'s signature, got one that does not"
            )
        return before.sign(role, key)
    terms = _terms(args)
    if before is None:
        return Agreement.propose(terms).sign(role, key)
    if len(before.steps) == 1 and before.waits_for:  # nothing is in force yet: another first proposal
        return Agreement.propose(terms).sign(role, key)
    return before.amend(terms, role, key)


def _terms(args: argparse.Namespace) -> Any:
    from tacit.cleanroom.protocol.terms import terms_from_toml
    from tacit.config import error_prefix, parse_toml

    text = _read(args.terms).decode(errors="replace")
    parties = args.parties if args.parties is not None else args.key.parent / "parties.toml"
    try:
        given = parse_toml(text.encode())
    except BadInput:
        given = {}  # said properly below
    if args.parties is not None or (parties.exists() and "platform_key" not in given):
        text = _read(parties).decode(errors="replace") + text
    with error_prefix(str(args.terms)):
        return terms_from_toml(text)


def _read(path: Path) -> bytes:
    from tacit.services.settings import check_readable

    check_readable("file", path)
    return path.read_bytes()


def _show_agreement(before: Agreement | None, after: Agreement, args: argparse.Namespace) -> int:
    from tacit.cleanroom.protocol.agreement import loosened_fields
    from tacit.cleanroom.protocol.modes import UNDER_THESE
    from tacit.cleanroom.room.payment import possible_budgets

    last, waits = after.steps[-1], after.waits_for
    settled = after.steps[-2].terms if len(after.steps) > 1 else None
    looser = () if settled is None else loosened_fields(settled, last.terms)
    changed = [] if settled is None else [
        key for key, value in last.terms.as_json().items() if settled.as_json()[key] != value
    ]  # fmt: skip
    statement = last.terms.statement()
    total = possible_budgets(after.steps[:-1]), possible_budgets(after.steps)
    record = {
        "file": str(args.file),
        "written": before is not after and not args.dry_run,
        "step": last.serial,
        "in_force": not waits,
        "waits_for": [str(role) for role in waits],
        "changed": changed,
        "looser_in": list(looser),
        "total_before": _amounts(total[0][1]),  # at most: what has left is in the room's ledger, not here
        "total": _amounts(total[1][1]),
        "total_if_nothing_left": _amounts(total[1][0]),
        "terms": last.terms.as_json(),
        "digest": last.terms.digest,
        "statement": statement.as_json(),
    }
    if args.json:
        print_json(record)
        return 0
    rows = [
        (key, show_term(key, value), "allows more" if key in looser else "changed" if key in changed else "")
        for key, value in last.terms.as_json().items()
    ]
    print_table(f"Agreement {last.terms.name}, step {last.serial}", ("term", "value", ""), rows)
    print(f"What leaves the room: {last.terms.mode.words}.\n")
    print(statement.as_text(UNDER_THESE))
    print()
    if looser:
        print(f"Allows more than before in: {', '.join(looser)}. Only both together can do that.")
    elif settled is not None:
        print("Allows no more than before in any field: one signature is enough.")
    print(_of_the_total(*total, is_first=settled is None, waits=bool(waits)))
    state = "is in force" if not waits else f"waits for the signature of the {' and the '.join(waits)}"
    print(f"{args.file}: step {last.serial} {state}" + ("; nothing was written" if args.dry_run else ""))
    return 0


def _of_the_total(before: Possible, after: Possible, *, is_first: bool, waits: bool) -> str:
    """What may be released in all: fresh draws add to what has left, which only the room's ledger knows."""
    what = "All that may ever be released about one record's labels"
    when = "once it is signed" if waits else "with this step"
    if is_first:
        return f"{what}, {when}: {_shown_total(after)}."
    if before == after:
        return f"{what} stays {_shown_total(after)}."
    return f"{what}: {_shown_total(before)} before; {when}, {_shown_total(after)}."


def _shown_total(total: Possible) -> str:
    least, most = total
    if least == most:
        return str(most)
    return f"{least} if nothing has left under earlier terms, else at most {most}"


def _amounts(budget: Budget) -> dict[str, str]:
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}


def show_term(key: str, value: Any) -> str:
    """A term for people: times as dates, and as the seconds that are signed."""
    from tacit.cleanroom.protocol.terms import format_time

    if key in ("begins", "expires"):
        return f"{format_time(value)} ({value})"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def run_trial(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.cleanroom.protocol.modes import Join, Mode
    from tacit.entropy import Entropy
    from tacit.files import check_folder

    check_folder("--out", args.out)
    if not 0 < args.port < 65_536:
        raise BadInput(f"--port: expected 1 to 65535, got {args.port}")
    expect.whole("--seed", args.seed, at_least=0)
    with extra_installed():
        from tacit.services.room import trial

        made = trial.make_trial(
            args.out,
            rows=args.rows,
            mode=Mode.named("--mode", args.mode),
            epsilon=expect.positive("--epsilon", args.epsilon),
            join=Join.named("--join", args.join),
            port=args.port,
            seed=args.seed,
            now=int(time.time()),
            entropy=Entropy(),
            said=lambda line: print(line, file=sys.stderr, flush=True),
        )
    if args.json:
        print_json(
            {
                "room": str(made.room),
                "platform": str(made.platform),
                "rows": made.rows,
                "sensitive_rows": made.sensitive_rows,
                "rows_for_auc": made.rows_for_auc,
                "synthetic": True,
                "terms": made.terms.as_json(),
            }
        )
        return 0
    print(
        f"{made.folder}: a trial on {made.rows:,} made-up clicks, {made.sensitive_rows:,} of them of an "
        f"advertiser whose labels only room/ has; mode {made.terms.mode}, epsilon {made.terms.epsilon}, signed "
        "by both"
    )
    if made.rows_for_auc is not None and made.rows < made.rows_for_auc:
        print(
            f"on so few rows AUC cannot be told from the room's noise, and train says so: "
            f"it takes about --rows {float(f'{made.rows_for_auc:.1e}'):,.0f}"
        )
    print(f"next: tacit room serve {made.room}            in one terminal")
    print(f"      tacit room train {made.platform}    in another")
    print(f"      tacit room status {made.platform}")
    return 0
