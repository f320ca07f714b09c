"""`tacit room agree`: what two parties sign, said in plain words before and after."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import print_json, print_table
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.cleanroom.wire.amending import Agreement
    from tacit.cleanroom.wire.modes import Role
    from tacit.cleanroom.wire.signing import PrivateKey
    from tacit.privacy.budget import Budget

    Possible = tuple[Budget, Budget]


def run(args: argparse.Namespace) -> int:
    from tacit.cleanroom.wire.amending import Agreement

    before = Agreement.from_bytes(_read(args.file)) if args.file.exists() else None
    if before is not None:
        before.verify(proposal=True)
    if args.key is None and args.terms is None:
        if before is None:
            raise BadInput(f"expected an agreement at {args.file}, or --terms to propose one, got neither")
        return _show(before, before, args)
    role, key = _signer(args)
    after = _signed(before, args, role, key)
    if not args.dry_run:
        from tacit.data.placing import place_whole

        place_whole(args.file, after.to_bytes(), mode=0o644)
    return _show(before, after, args)


def _signer(args: argparse.Namespace) -> tuple[Role, PrivateKey]:
    from tacit.cleanroom.wire import signing
    from tacit.cleanroom.wire.modes import Role
    from tacit.services.settings import secret_at

    if args.key is None or args.role is None:
        raise BadInput("expected --role and --key to sign, got only one of them, or none")
    return Role(args.role), signing.private_key(secret_at("--key", args.key))


def _signed(before: Agreement | None, args: argparse.Namespace, role: Role, key: PrivateKey) -> Agreement:
    from tacit.cleanroom.wire.amending import Agreement

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
    from tacit.cleanroom.wire.agreement import terms_from_toml
    from tacit.toml import parse_toml

    text = _read(args.terms).decode(errors="replace")
    parties = args.parties if args.parties is not None else args.key.parent / "parties.toml"
    try:
        given = parse_toml(text.encode())
    except BadInput:
        given = {}  # said properly below
    if args.parties is not None or (parties.exists() and "platform_key" not in given):
        text = _read(parties).decode(errors="replace") + text
    try:
        return terms_from_toml(text)
    except BadInput as refusal:
        raise BadInput(f"{args.terms}: {refusal}") from None


def _read(path: Path) -> bytes:
    from tacit.services.settings import readable

    readable("file", path)
    return path.read_bytes()


def _show(before: Agreement | None, after: Agreement, args: argparse.Namespace) -> int:
    from tacit.cleanroom.room.granting import possible_budgets
    from tacit.cleanroom.wire.amending import loosened
    from tacit.cleanroom.wire.statements import UNDER_THESE

    last, waits = after.steps[-1], after.waits_for
    settled = after.steps[-2].terms if len(after.steps) > 1 else None
    looser = () if settled is None else loosened(settled, last.terms)
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
        (key, shown_term(key, value), "allows more" if key in looser else "changed" if key in changed else "")
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


def shown_term(key: str, value: Any) -> str:
    """A term for people: times as dates, and as the seconds that are signed."""
    from tacit.cleanroom.wire.agreement import shown_time

    if key in ("begins", "expires"):
        return f"{shown_time(value)} ({value})"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
