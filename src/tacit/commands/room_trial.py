"""`tacit room trial`: everything for a trial on one machine."""

from __future__ import annotations

import argparse
import sys
import time

from tacit.commands.output import print_json
from tacit.commands.room_keys import extra_installed
from tacit.errors import BadInput


def run(args: argparse.Namespace) -> int:
    from tacit import expect
    from tacit.cleanroom.wire.modes import Join, Mode
    from tacit.commands.places import check_folder
    from tacit.entropy import Entropy

    check_folder("--out", args.out)
    if not 0 < args.port < 65_536:
        raise BadInput(f"--port: expected 1 to 65535, got {args.port}")
    expect.whole("--seed", args.seed, at_least=0)
    with extra_installed():
        from tacit.services.room import trial

        made = trial.make(
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
