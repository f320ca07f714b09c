"""`tacit ads`: what an ad server sells, what its rates are made of, and what advertisers are told of it."""

from __future__ import annotations

import argparse
from functools import partial

from tacit.commands.ads_advertisers import add_advertisers
from tacit.commands.ads_campaigns import add_campaigns
from tacit.commands.ads_keys import add_more
from tacit.commands.ads_pacing import add_pacing
from tacit.commands.ads_report import add_report
from tacit.commands.ads_versions import add_versions
from tacit.commands.output import Subparsers, add_action

ABOUT = """\
What an ad server sells, for its operators and its advertisers: campaigns with bids on contexts, schedules,
budgets and caps, their ads, the access keys that people and programs are let in by, reports, and the
models and statistics that rates are made of.

Over HTTP with a key, the ad server decides what it may do: --url and --key-file, or TACIT_ADS_URL and
TACIT_ADS_KEY. On the ad server's own machine --settings works on its store, whether the service runs or not."""

EXAMPLES = """\
examples:
  tacit ads keys make operator --settings server.toml --out operator.key       the first key
  tacit ads advertiser "Bean & Leaf" --contact ads@bean.example
  tacit ads add "Bean & Leaf" "Spring roast" --bid 400000 --bid 650000@1:North/1:Food --budget 50000000
  tacit ads creative add 7 --title "Fresh on Mondays" --address https://bean.example --image roast.png
  tacit ads set 7 --status paused                          budgets, bids, schedules likewise
  tacit ads export --out campaigns.toml                    edit it, and: tacit ads import campaigns.toml
  tacit ads keys rotate 0123456789abcdef --grace-hours 48 --out new.key
  tacit ads changes --subject "campaign 7"                 who changed what, and when
  tacit ads report --by day --out spend.csv                of the key's advertiser; .html: a page
  tacit ads report server.toml --advertiser "Bean & Leaf"
  tacit ads pacing                                         how far over its budget each campaign can go

Where neither --url nor settings stand here, TACIT_ADS_URL and TACIT_ADS_KEY (the key itself) say where and who.
SETTINGS are the ad server's: a server's, with a table [billing]."""


def add_parser(commands: Subparsers) -> None:
    top = commands.add_parser(
        "ads",
        help="campaigns, their ads, access keys, who changed what; reports; models and statistics",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = partial(add_action, actions, EXAMPLES)
    add_campaigns(action)
    add_advertisers(action)
    add_more(action)
    add_report(action)
    add_pacing(action)
    add_versions(actions)
