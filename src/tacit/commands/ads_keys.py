"""The ads of campaigns, access keys and the trail of changes: `tacit ads creative`, `keys`, `changes`."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.ads_campaigns import Action, add_desk, desk_of
from tacit.commands.output import add_action, print_json, print_table
from tacit.commands.serve_rounds import show_utc
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.deliver.campaigns.access import AccessKey

ROLES = ("operator", "viewer", "advertiser", "advertiser-viewer")
MOST_SHOWN = 100
KEY_COLUMNS = ("key", "role", "advertiser", "made", "holds")

CREATIVE = """\
The ads of a campaign: texts, images (PNG, JPEG, GIF, WebP that do not move) and fragments of HTML. Each leads
to one https address. An image is what its bytes are, not what it is called; of HTML only text, headings,
lists and links to that address are kept."""

CREATIVE_ADD = """\
Add an ad to a campaign. With --image or --html its content is that file, without either it is a text. What is
wrong with it is said, and nothing is kept."""

KEYS = """\
Access keys: whoever has one is let in by the ad server. A key is spelled once, when it is made; only a digest
of it is kept. Roles: operator (everything), viewer (looks at everything), advertiser (everything of one
advertiser), advertiser-viewer (looks at it). The first operator's key is made on the ad server's machine,
with --settings."""

MAKE = """\
Make a key. With --out it goes to a new file that only you can read, and not to the terminal."""

ROTATE = """\
Make a new key in the place of one, with the same rights. The old one holds for --grace-hours yet (default:
24), so that programs can change over; 0 ends it now."""

CHANGES = """\
Who changed what and when: every change of an advertiser, a campaign, an ad or a key, by the id of the key
that made it, or "machine" for whoever works on the ad server's machine. In --json with all that was said
before and after."""


def add_more(action: Action) -> None:
    """The actions of `tacit ads` about ads, keys and the trail."""
    top = action("creative", "the ads of a campaign", CREATIVE)
    deeper = partial(add_action, top.add_subparsers(dest="step", metavar="STEP", required=True), None)
    found = deeper("add", "add an ad", CREATIVE_ADD)
    found.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
    found.add_argument("--title", required=True, metavar="TEXT", help="at most 90 characters")
    found.add_argument("--address", required=True, metavar="URL", help="where it leads: https://...")
    found.add_argument("--text", default="", metavar="TEXT", help="at most 300 characters")
    kind = found.add_mutually_exclusive_group()
    kind.add_argument("--image", type=Path, metavar="FILE", help="at most 300,000 bytes")
    kind.add_argument("--html", type=Path, metavar="FILE", help="a fragment, at most 20,000 bytes")
    add_desk(found)
    found.set_defaults(run=run_creative_add)
    found = deeper("list", "the ads of a campaign", "List the ads of a campaign.")
    found.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
    add_desk(found)
    found.set_defaults(run=run_creative_list)
    found = deeper("remove", "remove an ad", "Remove an ad. The trail keeps what was said of it.")
    found.add_argument("creative", type=int, metavar="AD", help="its number")
    add_desk(found)
    found.set_defaults(run=run_creative_remove)

    top = action("keys", "make, list, rotate and revoke access keys", KEYS)
    deeper = partial(add_action, top.add_subparsers(dest="step", metavar="STEP", required=True), None)
    found = deeper("make", "make a key", MAKE)
    found.add_argument("role", choices=ROLES, metavar="ROLE", help=", ".join(ROLES))
    found.add_argument("--advertiser", metavar="NAME", help="whose it is, of the last two roles")
    _add_days(found)
    _add_out(found)
    found.set_defaults(run=run_make)
    found = deeper(
        "list", "the keys that there are", "List keys, with what they are for and whether they hold."
    )
    found.add_argument("--advertiser", metavar="NAME", help="only this one's")
    add_desk(found)
    found.set_defaults(run=run_keys)
    found = deeper("rotate", "a new key in the place of one", ROTATE)
    found.add_argument("key", metavar="KEY", help="the old one's id, not how it is spelled")
    found.add_argument("--grace-hours", type=float, default=24.0, metavar="HOURS", help="default: 24")
    _add_days(found)
    _add_out(found)
    found.set_defaults(run=run_rotate)
    found = deeper("revoke", "let a key open nothing more", "Revoke a key, at once and for good.")
    found.add_argument("key", metavar="KEY", help="its id, not how it is spelled")
    add_desk(found)
    found.set_defaults(run=run_revoke)

    found = action("whoami", "what a key may do", "Say what the key may do that commands come with.")
    add_desk(found)
    found.set_defaults(run=run_whoami)

    found = action("changes", "who changed what, and when", CHANGES)
    found.add_argument("--advertiser", metavar="NAME", help="only what is about this one")
    found.add_argument("--subject", metavar="WHAT", help='as "campaign 7", "creative 12" or "key ID"')
    found.add_argument("--after", type=int, default=0, metavar="N", help="from behind this line on")
    add_desk(found)
    found.set_defaults(run=run_changes)


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", type=float, metavar="DAYS", help="for how long (default: until it is revoked)"
    )


def _ends(args: argparse.Namespace) -> int | None:
    return None if args.days is None else int(time.time()) + _seconds("--days", args.days, 86_400)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the key to a new file of your own")
    add_desk(parser)


def run_creative_add(args: argparse.Namespace) -> int:
    import base64

    record: dict[str, Any] = {"kind": "text", "title": args.title, "address": args.address, "text": args.text}
    if args.image is not None:
        record |= {"kind": "image", "content": base64.b64encode(_content("--image", args.image)).decode()}
    elif args.html is not None:
        try:
            record |= {"kind": "html", "content": _content("--html", args.html).decode()}
        except UnicodeDecodeError:
            raise BadInput(f"--html: {args.html}: expected text in UTF-8, got another") from None
    with desk_of(args) as desk:
        made = desk.add_creative(args.campaign, record)
    if args.json:
        print_json(made.as_json())
    else:
        print(f"ad {made.number} of campaign {made.campaign}: {made.media}, {made.title}")
    return 0


def _content(name: str, path: Path) -> bytes:
    from tacit.deliver.campaigns.creatives import MOST_IMAGE_BYTES

    try:
        with path.open("rb") as file:
            content = file.read(MOST_IMAGE_BYTES + 1)
    except OSError as problem:
        raise BadInput(f"{name}: expected a file at {path}, got {(problem.strerror or '').lower()}") from None
    if len(content) > MOST_IMAGE_BYTES:
        raise BadInput(f"{name}: {path}: expected at most {MOST_IMAGE_BYTES:,} bytes, got more")
    return content


def run_creative_list(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        found = desk.creatives(args.campaign)
    if args.json:
        print_json([each.as_json() for each in found])
        return 0
    rows = [
        (
            str(each.number), each.media, "" if each.width is None else f"{each.width} x {each.height}",
            f"{each.size:,}", each.title, each.address,
        )
        for each in found
    ]  # fmt: skip
    columns = ("ad", "kind", "pixels", "bytes", "title", "leads to")
    print_table(f"Ads of campaign {args.campaign}", columns, rows, numbers=("ad", "bytes"))
    return 0


def run_creative_remove(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        desk.remove_creative(args.creative)
    print_json({"removed": args.creative}) if args.json else print(f"removed ad {args.creative}")
    return 0


def run_make(args: argparse.Namespace) -> int:
    from tacit.deliver.campaigns.access import AccessRole

    ends = _ends(args)
    _check_out(args.out)
    with desk_of(args) as desk:
        spelled, key = desk.make_key(AccessRole(args.role), args.advertiser, ends)
    _tell_key(args, spelled, key)
    return 0


def run_rotate(args: argparse.Namespace) -> int:
    grace, ends = _seconds("--grace-hours", args.grace_hours, 3_600), _ends(args)
    _check_out(args.out)
    with desk_of(args) as desk:
        spelled, key, old = desk.rotate_key(args.key, grace, ends)
    _tell_key(args, spelled, key, old)
    return 0


def _seconds(name: str, given: float, unit: int) -> int:
    if not 0 <= given * unit <= 100 * 366 * 86_400:
        raise BadInput(f"{name}: expected 0 or more, up to a hundred years, got {given:g}")
    return round(given * unit)


def _check_out(file: Path | None) -> None:
    """A key that was made and could not be written would be lost: so this is looked at before."""
    from tacit.commands.bill import check_place

    check_place("--out", file, overwrite=False)


def _tell_key(args: argparse.Namespace, spelled: str, key: AccessKey, old: AccessKey | None = None) -> None:
    if args.out is not None:
        from tacit.files import PRIVATE_MODE, write_atomically

        write_atomically(args.out.resolve(), f"{spelled}\n".encode(), mode=PRIVATE_MODE)
    if args.json:
        told = {"key": key.as_json()} | ({} if old is None else {"old": old.as_json()})
        print_json(told | ({"spelled": spelled} if args.out is None else {"file": str(args.out)}))
        return
    whose = "" if key.advertiser is None else f" of {key.advertiser}"
    print(f"key {key.key_id}: {key.role}{whose}, {_holds(key)}")
    if old is not None:
        print(f"the old key {old.key_id}: {_holds(old)}")
    if args.out is None:
        print(f"{spelled}\nkeep it: it is not shown again")
    else:
        print(f"wrote it to {args.out}, for you alone")


def _holds(key: AccessKey) -> str:
    if key.revoked is not None:
        return f"revoked {show_utc(key.revoked)}"
    return "until it is revoked" if key.ends is None else f"until {show_utc(key.ends)}"


def run_keys(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        found = desk.keys(args.advertiser)
    if args.json:
        print_json([each.as_json() for each in found])
        return 0
    rows = [
        (each.key_id, str(each.role), each.advertiser or "", show_utc(each.made), _holds(each))
        for each in found
    ]
    print_table("Access keys", KEY_COLUMNS, rows)
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        key = desk.revoke_key(args.key)
    if args.json:
        print_json(key.as_json())
    else:
        print(f"key {key.key_id}: {_holds(key)}")
    return 0


def run_whoami(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        access = desk.access()
    if args.json:
        print_json({"key_id": access.key_id, "role": str(access.role), "advertiser": access.advertiser})
    else:
        whose = "" if access.advertiser is None else f" of {access.advertiser}"
        print(f"{access.key_id}: {access.role}{whose}")
    return 0


def run_changes(args: argparse.Namespace) -> int:
    from itertools import islice

    with desk_of(args) as desk:
        trail = desk.changes(advertiser=args.advertiser, subject=args.subject, after=args.after)
        found = list(trail if args.json else islice(trail, MOST_SHOWN + 1))
    if args.json:
        print_json([each.as_json() for each in found])
        return 0
    rows = [
        (
            str(each.number), show_utc(each.at), each.key_id, each.subject, each.advertiser or "",
            _what(each.before, each.after),
        )
        for each in found[:MOST_SHOWN]
    ]  # fmt: skip
    print_table("Changes", ("line", "when", "by", "of what", "advertiser", "what"), rows, numbers=("line",))
    if len(found) > MOST_SHOWN:
        print(f"more: --after {found[MOST_SHOWN - 1].number}")
    return 0


def _what(before: Any, after: Any) -> str:
    """Added, removed, or which keys changed, with their values where those are short."""
    if before is None or after is None:
        return "removed" if after is None else "added"
    told = []
    for name in after:
        if before.get(name) != after[name]:
            was, now = str(before.get(name)), str(after[name])
            told.append(f"{name}: {was} -> {now}" if len(was) + len(now) < 60 else name)
    return ", ".join(told)
