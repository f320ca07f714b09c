"""Campaigns from a terminal: `tacit ads import`, `export`, `list`, `show`, `add`, `set`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.commands.output import add_json_flag, extra_installed, print_json, print_table
from tacit.errors import BadInput

if TYPE_CHECKING:
    from tacit.deliver.campaigns.store import StoredCampaign
    from tacit.services.ads.campaign_desk import CampaignDesk, HttpDesk

Action = Callable[[str, str, str], argparse.ArgumentParser]

EVENTS, STATUSES = ("impression", "click", "conversion"), ("active", "paused", "ended")
COLUMNS = ("campaign", "advertiser", "title", "status", "bids", "budget", "daily", "charged")
NUMBERS = ("campaign", "budget", "daily", "charged")
NONE = "none"

IMPORT = """\
Add and change the advertisers and campaigns of a file, all of them or none. FILE is .toml, with tables
[[advertiser]] and [[campaign]], or .csv, with a row per campaign and context that it bids on; `tacit ads
export` writes both. A campaign with a number is changed, or added under it; one without is new, and gets a
number. Where a version is said, and somebody changed the campaign since, nothing of the file is done."""

EXPORT = """\
Write campaigns, with their versions, and in TOML their advertisers too, as `tacit ads import` reads them.
Those that have ended are left out, unless --all is said. Without --out it goes to the terminal, as TOML or
--csv."""

ADD = """\
Add a campaign; it gets its number from the server. A bid is MICROS for the event wherever the context allows,
or MICROS@CONTEXT below a context, which is LEVEL:VALUE for each attribute: 650000@1:North/1:Food. Amounts are
in whole micros: 1000000 is one unit of the currency."""

SET = """\
Change what is said of a campaign under some keys, in one step. What the server holds must still be what was
read when the change is made: otherwise nothing happens, and you look again. --bid sets the bid on a context,
or anywhere without one; --no-bid CONTEXT takes one away. A budget of "none" is no limit."""


def add_desk(parser: argparse.ArgumentParser) -> None:
    """Where the ad server is, and who asks."""
    group = parser.add_argument_group("where")
    group.add_argument("--url", metavar="URL", help="the ad server's address (default: TACIT_ADS_URL)")
    group.add_argument("--key-file", type=Path, metavar="FILE", help="an access key (default: TACIT_ADS_KEY)")
    group.add_argument(
        "--trust", type=Path, metavar="FILE", help="the certificate that the ad server must show"
    )
    group.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="on the ad server's machine: its settings, instead of a key",
    )
    add_json_flag(parser)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where to read from: the store of SETTINGS on the ad server's machine, or the ad server with a key."""
    parser.add_argument(
        "place", nargs="?", type=Path, metavar="SETTINGS",
        help="on the ad server's machine: its settings, in TOML; without, it is asked with a key",
    )  # fmt: skip
    add_desk(parser)


@contextmanager
def http_desk_of(args: argparse.Namespace) -> Iterator[HttpDesk | None]:
    """The ad server over HTTP; None where its settings are said, which are then in `args.settings`."""
    with extra_installed():
        from tacit.services.ads.campaign_desk import open_desk
    if args.place is not None and args.settings is not None:
        raise BadInput("--settings: expected none beside SETTINGS, got both")
    args.settings = args.settings if args.place is None else args.place
    if args.settings is None:
        with open_desk(args.url, key_file=args.key_file, trust=args.trust) as desk:
            yield desk
    else:
        expect_no_key(args)
        yield None


def add_campaigns(action: Action) -> None:
    """The actions of `tacit ads` about campaigns."""
    found = action("import", "add and change all that a file says", IMPORT)
    found.add_argument("file", type=Path, metavar="FILE", help="NAME.toml or NAME.csv")
    add_desk(found)
    found.set_defaults(run=run_import)

    found = action("export", "write campaigns as a file", EXPORT)
    found.add_argument("--out", type=Path, metavar="FILE", help="NAME.toml or NAME.csv")
    found.add_argument("--csv", action="store_true", help="print CSV where no file is named")
    found.add_argument("--advertiser", metavar="NAME", help="only this one's")
    found.add_argument("--all", action="store_true", help="those that have ended, too")
    found.add_argument("--no-versions", action="store_true", help="leave versions out, for another ad server")
    found.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    add_desk(found)
    found.set_defaults(run=run_export)

    found = action("list", "campaigns, what they may cost and did", "List campaigns by number.")
    found.add_argument("--advertiser", metavar="NAME", help="only this one's")
    found.add_argument("--status", choices=STATUSES, help="only those that are so")
    add_desk(found)
    found.set_defaults(run=run_list)

    found = action("show", "all of one campaign", "Show all that is said of a campaign.")
    found.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
    add_desk(found)
    found.set_defaults(run=run_show)

    found = action("add", "add a campaign", ADD)
    found.add_argument("advertiser", metavar="ADVERTISER", help="who pays, by the name that was added")
    found.add_argument("title", metavar="TITLE", help="what it is called")
    found.add_argument("--event", choices=EVENTS, default="click", help="what bids are for (default: click)")
    found.add_argument(
        "--bid", required=True, action="append", metavar="MICROS[@CONTEXT]", help="may be repeated"
    )
    found.add_argument("--number", type=int, metavar="N", help="its number, for operators")
    _add_keys(found)
    found.set_defaults(run=run_add)

    found = action("set", "change a campaign: budgets, status, bids", SET)
    found.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
    found.add_argument("--title", metavar="TITLE", help="what it is called")
    found.add_argument("--event", choices=EVENTS, help="what bids are for")
    found.add_argument("--bid", action="append", metavar="MICROS[@CONTEXT]", help="may be repeated")
    found.add_argument("--no-bid", action="append", metavar="CONTEXT", help="no longer bid on this context")
    _add_keys(found)
    found.set_defaults(run=run_set)


def _add_keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--status", choices=STATUSES, help="paused ones are in no menu; ended ones never return"
    )
    parser.add_argument("--budget", metavar="MICROS", help=f"what it may cost in all, or {NONE}")
    parser.add_argument("--daily", metavar="MICROS", help=f"what it may cost per day (UTC), or {NONE}")
    parser.add_argument("--starts", metavar="TIME", help=f"2027-03-01T00:00:00Z, seconds since 1970, or {NONE}")
    parser.add_argument("--ends", metavar="TIME", help="the first moment at which it no longer runs")
    parser.add_argument(
        "--hours", metavar="HOURS", help=f'of the week, as "8-17 32-41", Monday first; or {NONE}'
    )
    parser.add_argument("--utc-offset", type=int, metavar="MINUTES", help="of the clock that hours are read by")
    parser.add_argument("--category", action="append", metavar="CODE", help="what it is about; may be repeated")
    parser.add_argument("--block", action="append", metavar="CONTEXT", help="not shown there; may be repeated")
    parser.add_argument(
        "--cap",
        action="append",
        metavar="N/SECONDS",
        help="after N impressions within so long a device shows it as rarely as its private choice allows, not "
        "never: among 4 candidates with a chance of 17.5%% at epsilon 1, 9.6%% at 2, 0.7%% at 5; in the public "
        "lane no cap holds",
    )
    add_desk(parser)


def expect_no_key(args: argparse.Namespace) -> None:
    """Refuse what is about keys where the store itself is worked on."""
    for option in ("url", "key_file", "trust"):
        if getattr(args, option) is not None:
            spelled = option.replace("_", "-")
            raise BadInput(f"--{spelled}: expected none beside --settings, which needs no key, got one")


@contextmanager
def desk_of(args: argparse.Namespace) -> Iterator[CampaignDesk]:
    """The ad server's desk: over HTTP, or on its own machine."""
    with extra_installed():
        from tacit.services.ads.campaign_desk import StoreDesk, open_desk
        from tacit.services.launch import clock
    if args.settings is None:
        with open_desk(args.url, key_file=args.key_file, trust=args.trust) as desk:
            yield desk
        return
    expect_no_key(args)
    from tacit.commands.bill import open_ad_store
    from tacit.entropy import Entropy
    from tacit.store.campaigns import SqlCampaignStore

    store = open_ad_store(args.settings)
    try:
        yield StoreDesk(SqlCampaignStore(store.database), Entropy(), clock)
    finally:
        store.close()


def run_import(args: argparse.Namespace) -> int:
    from tacit.deliver.campaigns.files import read_campaign_file

    filed = read_campaign_file(args.file)
    with desk_of(args) as desk:
        done = desk.put_file(filed)
    if args.json:
        print_json(done.as_json())
        return 0
    print(f"{args.file}: {_told(done.added)} added, {_told(done.changed)} changed")
    return 0


def _told(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no campaign"
    shown = ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")
    return f"campaign {shown}" if len(numbers) == 1 else f"{len(numbers):,} campaigns ({shown})"


def run_export(args: argparse.Namespace) -> int:
    from tacit.commands.bill import check_place
    from tacit.deliver.campaigns.files import CampaignFile, FiledCampaign, campaigns_as_csv, campaigns_as_toml
    from tacit.files import PRIVATE_MODE, write_atomically

    ending = ".csv" if args.csv else ".toml"
    if args.out is not None:
        ending = args.out.suffix.lower()
        if ending not in (".toml", ".csv") or (args.csv and ending != ".csv"):
            raise BadInput(f"--out: expected NAME.toml or NAME.csv, got {args.out}")
        check_place("--out", args.out, overwrite=args.overwrite)
    with desk_of(args) as desk:
        kept = [each for each in desk.campaigns(args.advertiser) if args.all or each.campaign.status != "ended"]
        buyers = [each for each in desk.advertisers() if args.advertiser in (None, each.name)]
    filed = CampaignFile(
        tuple(buyers),
        tuple(FiledCampaign(each.campaign, True, None if args.no_versions else each.version) for each in kept),
    )
    text = campaigns_as_csv(filed) if ending == ".csv" else campaigns_as_toml(filed)
    if args.out is None:
        print(text, end="")
        return 0
    write_atomically(args.out.resolve(), text.encode(), mode=PRIVATE_MODE)
    if args.json:
        print_json({"file": str(args.out), "campaigns": len(kept)})
    else:
        print(f"wrote {len(kept):,} campaigns to {args.out}")
    return 0


def run_list(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        kept = [each for each in desk.campaigns(args.advertiser) if args.status in (None, each.campaign.status)]
    if args.json:
        print_json([each.as_json() for each in kept])
        return 0
    print_table("Campaigns", COLUMNS, map(_row, kept), numbers=NUMBERS)
    return 0


def _row(stored: StoredCampaign) -> tuple[str, ...]:
    from tacit.bill.accounts import show_micros

    campaign = stored.campaign
    most = max(bid.micros for bid in campaign.bids)
    bids = f"{show_micros(most)} per {campaign.event}"
    if len(campaign.bids) > 1:
        bids += f" at most, {len(campaign.bids)} contexts"
    amounts = [
        "no limit" if each is None else show_micros(each)
        for each in (campaign.budget_micros, campaign.daily_micros)
    ]
    return (
        str(campaign.number), campaign.advertiser, campaign.title, str(campaign.status), bids, *amounts,
        show_micros(stored.charged_micros),
    )  # fmt: skip


def run_show(args: argparse.Namespace) -> int:
    with desk_of(args) as desk:
        stored = desk.campaign(args.campaign)
    _show(stored, as_json=args.json)
    return 0


def _show(stored: StoredCampaign, *, as_json: bool) -> None:
    from tacit.bill.accounts import show_micros
    from tacit.deliver.campaigns.files import CampaignFile, FiledCampaign, campaigns_as_toml

    if as_json:
        print_json(stored.as_json())
        return
    print(campaigns_as_toml(CampaignFile((), (FiledCampaign(stored.campaign, True, stored.version),))), end="")
    print(f"# charged {show_micros(stored.charged_micros)}")


def run_add(args: argparse.Namespace) -> int:
    said = {"advertiser": args.advertiser, "title": args.title, "event": args.event, **_said(args)}
    said["bids"] = [_bid(each) for each in args.bid]
    if args.number is not None:
        said["number"] = args.number
    with desk_of(args) as desk:
        stored = desk.add_campaign(said)
    if args.json:
        print_json(stored.as_json())
    else:
        print(f"campaign {stored.campaign.number}: {stored.campaign.title}, of {stored.campaign.advertiser}")
    return 0


def run_set(args: argparse.Namespace) -> int:
    said = _said(args)
    said |= {name: value for name in ("title", "event") if (value := getattr(args, name)) is not None}
    if not said and not args.bid and not args.no_bid:
        raise BadInput("expected something to change, as --budget MICROS, got nothing")
    with desk_of(args) as desk:
        before = desk.campaign(args.campaign)
        if args.bid or args.no_bid:
            said["bids"] = _changed_bids(before.campaign.as_json()["bids"], args.bid or (), args.no_bid or ())
        if "schedule" in said:
            said["schedule"] = {**before.campaign.as_json()["schedule"], **said["schedule"]}
        stored = desk.amend_campaign(args.campaign, said, before.version)
    _show(stored, as_json=args.json)
    return 0


def _said(args: argparse.Namespace) -> dict[str, Any]:
    """What the options that a campaign has keys for say."""
    from tacit.deliver.campaigns.campaign import context_as_json
    from tacit.deliver.campaigns.files import parse_cap, parse_context, parse_hours, parse_second

    said: dict[str, Any] = {} if args.status is None else {"status": args.status}
    for option in ("budget", "daily"):
        if (spelled := getattr(args, option)) is not None:
            said[f"{option}_micros"] = None if spelled == NONE else _micros(f"--{option}", spelled)
    when: dict[str, Any] = {
        option: None if spelled == NONE else parse_second(f"--{option}", spelled)
        for option in ("starts", "ends")
        if (spelled := getattr(args, option)) is not None
    }
    if args.hours is not None:
        when["hours"] = [] if args.hours == NONE else parse_hours("--hours", args.hours)
    if args.utc_offset is not None:
        when["utc_offset_minutes"] = args.utc_offset
    if when:
        said["schedule"] = when
    if args.category is not None:
        said["categories"] = args.category
    if args.block is not None:
        said["blocked"] = [context_as_json(parse_context("--block", each)) for each in args.block]
    if args.cap is not None:
        said["caps"] = [parse_cap("--cap", each) for each in args.cap]
    return said


def _bid(spelled: str) -> dict[str, Any]:
    from tacit.deliver.campaigns.campaign import context_as_json
    from tacit.deliver.campaigns.files import parse_context

    micros, _, context = spelled.partition("@")
    return {"micros": _micros("--bid", micros), "context": context_as_json(parse_context("--bid", context))}


def _changed_bids(
    bids: Sequence[Mapping[str, Any]], more: Sequence[str], gone: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Bids with those of `more` in the place of what was bid there, and without those on contexts `gone`."""
    from tacit.deliver.campaigns.campaign import context_as_json
    from tacit.deliver.campaigns.files import parse_context

    removed = [context_as_json(parse_context("--no-bid", each)) for each in gone]
    for spelled, context in zip(gone, removed, strict=True):
        if all(bid["context"] != context for bid in bids):
            raise BadInput(f"--no-bid: expected a context that it bids on, got {spelled[:60]!r}")
    added = [_bid(each) for each in more]
    left = [bid for bid in bids if bid["context"] not in removed]
    for bid in added:
        same = [place for place, each in enumerate(left) if each["context"] == bid["context"]]
        if same:
            left[same[0]] = bid
        else:
            left.append(bid)
    return left


def _micros(name: str, spelled: str) -> int:
    if not (spelled.isascii() and spelled.isdecimal() and len(spelled) <= 16):
        raise BadInput(f"{name}: expected a whole number of micros, got {spelled[:40]!r}")
    return int(spelled)
