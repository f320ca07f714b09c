"""Advertisers from a terminal: `tacit ads advertiser`."""

from __future__ import annotations

import argparse

from tacit.commands.ads_campaigns import Action, add_desk, desk_of
from tacit.commands.output import print_json, print_table
from tacit.errors import BadInput

ADVERTISER = """\
Add an advertiser, or change whom to write to; without a name, list them. --erase-contact takes the contact
away for good: from the advertiser, and from what the trail of changes says of it now and earlier. The lines of
the trail stay, with the word "erased" in its place, and one more says who erased it."""


def add_advertisers(action: Action) -> None:
    """The action of `tacit ads` about advertisers."""
    found = action("advertiser", "add an advertiser, erase a contact, or list them", ADVERTISER)
    found.add_argument("name", nargs="?", metavar="NAME", help="as it stands on invoices; it never changes")
    found.add_argument("--contact", metavar="TEXT", help="whom to write to (default: nobody)")
    found.add_argument("--erase-contact", action="store_true", help="forget whom to write to, in the trail too")
    add_desk(found)
    found.set_defaults(run=run_advertiser)


def run_advertiser(args: argparse.Namespace) -> int:
    from tacit.deliver.campaigns.store import Advertiser

    if args.erase_contact and (args.name is None or args.contact is not None):
        raise BadInput("--erase-contact: expected a name and no --contact beside it, got another command")
    contact = args.contact or ""
    with desk_of(args) as desk:
        if args.erase_contact:
            desk.erase_contact(args.name)
        elif args.name is not None:
            desk.put_advertiser(Advertiser(args.name, contact))
        found = desk.advertisers() if args.name is None else [Advertiser(args.name, contact)]
    if args.json:
        print_json([each.as_json() for each in found])
    elif args.erase_contact:
        print(f"advertiser {args.name}: its contact is erased, in the trail of changes too")
    elif args.name is not None:
        print(f"advertiser {args.name}" + (f", {contact}" if contact else ""))
    else:
        print_table("Advertisers", ("advertiser", "contact"), [(each.name, each.contact) for each in found])
    return 0
