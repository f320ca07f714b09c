"""`tacit room keys`, `agree` and `trial`: what two parties need before a room can run.

An agreement is said in plain words before and after it is signed.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from tacit.commands.output import extra_installed, print_json, print_table
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.cleanroom.protocol.agreement import Agreement


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
    from tacit.files import write_atomically
    from tacit.services.settings import check_readable

    before = None
    if args.file.exists():
        check_readable("file", args.file)
        before = Agreement.from_bytes(args.file.read_bytes())
        before.verify(proposal=True)
    if before is None and args.terms is None and (args.key is None or args.role is not None):
        raise BadInput(f"expected an agreement at {args.file}, or --terms to propose one, got neither")
    after = before
    if args.key is not None or args.terms is not None:
        after = _sign(before, args)
        if not args.dry_run:
            write_atomically(args.file, after.to_bytes(), mode=0o644)
    assert after is not None, "one of both"
    _show_agreement(after, args, written=before is not after and not args.dry_run)
    return 0


def _sign(before: Agreement | None, args: argparse.Namespace) -> Agreement:
    from tacit.cleanroom.protocol import signatures
    from tacit.cleanroom.protocol.modes import Signer
    from tacit.services.room.agreement_file import propose_terms, read_terms, sign_waiting
    from tacit.services.settings import PARTIES_FILE, read_secret_file

    if args.key is None or args.role is None:
        raise BadInput("expected --role and --key to sign, got only one of them, or none")
    role, key = Signer(args.role), signatures.private_key(read_secret_file("--key", args.key))
    if args.terms is None:
        assert before is not None, "checked before"
        return sign_waiting(before, role, key)
    parties = args.parties if args.parties is not None else args.key.parent / PARTIES_FILE
    return propose_terms(
        before, read_terms(args.terms, parties, parties_needed=args.parties is not None), role, key
    )


def _show_agreement(agreement: Agreement, args: argparse.Namespace, *, written: bool) -> None:
    from tacit.cleanroom.protocol.modes import UNDER_THESE
    from tacit.services.room.agreement_file import AgreementSummary

    told = AgreementSummary(agreement)
    if args.json:
        print_json({"file": str(args.file), "written": written, **told.as_json()})
        return
    terms, step = told.last.terms, told.last.serial
    marks = {**dict.fromkeys(told.changed, "changed"), **dict.fromkeys(told.looser, "allows more")}
    rows = [(key, show_term(key, value), marks.get(key, "")) for key, value in terms.as_json().items()]
    print_table(f"Agreement {terms.name}, step {step}", ("term", "value", ""), rows)
    print(f"What leaves the room: {terms.mode.words}.\n")
    print(terms.statement().as_text(UNDER_THESE))
    print()
    if told.change_words is not None:
        print(told.change_words)
    print(told.total_words)
    print(f"{args.file}: step {step} {told.state_words}" + ("; nothing was written" if args.dry_run else ""))


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
