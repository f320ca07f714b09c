"""What `tacit serve` does for one party: its keys, its process, and the devices that may report to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.commands.output import print_json
from tacit.errors import BadInput


@contextmanager
def extra_installed() -> Iterator[None]:
    try:
        yield
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn", "httpx"):
            raise
        raise BadInput(f"expected {package} to be installed: pip install 'tacit[serve]'") from None


def parties_beside(settings: Path, given: Path | None) -> Path:
    from tacit.services.parties import NAME

    return settings.parent / NAME if given is None else given


def run_keys(args: argparse.Namespace) -> int:
    from tacit.commands.places import check_folder

    check_folder("--out", args.out)
    for name in ("proxy_port", "server_port"):
        if not 0 < getattr(args, name) < 65_536:
            raise BadInput(f"--{name.replace('_', '-')}: expected 1 to 65535, got {getattr(args, name)}")
    with extra_installed():
        from tacit.entropy import Entropy
        from tacit.services import trial

        made = trial.write(
            args.out, proxy_port=args.proxy_port, server_port=args.server_port, entropy=Entropy()
        )
    if args.json:
        print_json({"files": [str(path) for path in made]})
    else:
        print(f"wrote {', '.join(path.name for path in made)} to {args.out}")
        print(f"next: tacit serve server {args.out / 'server.toml'}")
        print(f"      tacit serve proxy {args.out / 'proxy.toml'}")
        print("      tacit serve open --help")
    return 0


def run_party(args: argparse.Namespace) -> int:
    with extra_installed():
        from tacit.services import running, settings
        from tacit.services.signing import Party

    party = Party(args.party)
    running.serve(settings.load(settings.path_of(party, args.settings), party))
    return 0


def run_enrol(args: argparse.Namespace) -> int:
    from tacit.entropy import Entropy
    from tacit.gather.wire import credentials
    from tacit.services import parties, settings
    from tacit.services.signing import Party

    known = settings.load(args.settings, Party.PROXY)
    device = Entropy().bytes(credentials.DEVICE_BYTES) if args.device is None else _device(args.device)
    both = parties.load(parties_beside(args.settings, None))
    told = {
        "device": device.hex(),
        "key": credentials.issue(known.secrets["enrolment"], device).hex(),
        "proxy_url": both.proxy.url,
        "proxy_key": both.proxy.public_key.hex(),
        "server_key": both.server.public_key.hex(),
    }
    if args.json:
        print_json(told)
    else:
        for name, value in told.items():
            print(f"{name:9}  {value}")
    return 0


def _device(spelled: str) -> bytes:
    from tacit.gather.wire.credentials import DEVICE_BYTES

    try:
        device = bytes.fromhex(spelled)
    except ValueError:
        device = b""
    if len(device) != DEVICE_BYTES:
        raise BadInput(f"DEVICE: expected {2 * DEVICE_BYTES} hexadecimal digits, got {len(spelled)} characters")
    return device
