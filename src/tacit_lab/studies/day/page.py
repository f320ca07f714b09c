"""The page of a day: its figures, tables and explanations as one HTML file.

Drawn are what the choice's epsilon buys, who pays what, and how well rates were learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tacit import __version__
from tacit.data.generators.town import ADVERTISERS
from tacit.pages import Code, Facts, Figure, Flow, Prose, Section, Table, page
from tacit.pipeline import CANDIDATES, ServedDay
from tacit_lab.studies.day.comparison import (
    CENTRAL_DELTA,
    COLUMNS,
    EPSILONS,
    SHY,
    DayComparison,
    comparison_table,
    device_total,
    learnt_rates,
    line_words,
    most_spent,
    share_words,
    summary,
)
from tacit_lab.studies.plotting import Bars, Mechanism, Panel, Series, bar_figure, line_figure


def frontier_figure(found: DayComparison) -> str:
    """Click-through over the epsilon of one choice, between both ends: an SVG."""
    rates = [100 * served.click_rate for _, served in found.frontier]
    ends = [
        ("without personalisation", found.impersonal.click_rate, Mechanism.CLIENT),
        ("without privacy", found.exact.served.click_rate, Mechanism.NON_PRIVATE),
    ]
    flat = [Series(name, EPSILONS, [100 * level] * len(EPSILONS), mechanism=each) for name, level, each in ends]
    panel = Panel("Clicks per hundred impressions", [Series("tacit", EPSILONS, rates), *flat])

    def draw(path: Path) -> object:
        return line_figure(
            [panel],
            subtitle=f"Per choice, any two states of one device; {town_words(found)}",
            x_label="epsilon of one choice",
            y_label="click-through rate, %",
            path=path,
            log_x_ticks=EPSILONS,
        )

    return _svg("click-through over epsilon", draw)


def charges_figure(found: DayComparison) -> str:
    """Who pays what, on each of the three days: an SVG."""
    days = {
        "tacit": found.tacit.served,
        "without privacy": found.exact.served,
        "without personalisation": found.impersonal,
    }
    panels = [Bars(name, ADVERTISERS, _by_advertiser(served)) for name, served in days.items()]

    def draw(path: Path) -> object:
        return bar_figure(
            panels,
            subtitle=f"Exact charges; {town_words(found)}",
            x_label="",
            y_label="charged, €",
            path=path,
            share_y=True,
        )

    return _svg("charges by advertiser", draw)


def rates_figure(found: DayComparison) -> str:
    """How far predicted rates are from true ones, ad by ad and context by context: an SVG."""
    true = found.town.mean_click_rates()
    order = np.argsort(true.ravel())
    panels = []
    for name, day in (("tacit", found.tacit), ("without privacy", found.exact)):
        rates = learnt_rates(found.town, day).ravel()[order]
        groups = np.array_split(np.arange(len(order)), 12)
        x = [100 * float(true.ravel()[order][group].mean()) for group in groups]
        middle = [100 * float(rates[group].mean()) for group in groups]
        low, high = (
            [100 * float(np.quantile(rates[group], share)) for group in groups] for share in (0.1, 0.9)
        )
        low, high = np.minimum(low, middle).tolist(), np.maximum(high, middle).tolist()
        shown = Series("counted", x, middle, low, high)
        panels.append(Panel(name, [shown, Series("true", x, x, mechanism=Mechanism.NON_PRIVATE)]))

    def draw(path: Path) -> object:
        return line_figure(
            panels,
            subtitle=f"Per device, zero-out; four fifths of rates are in the band; {town_words(found)}",
            x_label="true click-through rate, %",
            y_label="by the statistics, %",
            path=path,
        )

    return _svg("counted and true rates", draw)


def town_words(found: DayComparison) -> str:
    """The data in words, for subtitles."""
    town = found.town
    return (
        f"synthetic town, {town.people:,} people, {town.people * town.visits_each:,} visits, seed {town.seed}"
    )


def _by_advertiser(served: ServedDay) -> list[float]:
    owed = served.charges.by_campaign
    return [owed.get(advertiser, 0) / 1e6 for advertiser in range(len(ADVERTISERS))]


def _svg(name: str, draw: Callable[[Path], object]) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        draw(path)
        return path.with_suffix(".svg").read_text(encoding="utf-8")


NOT_PROTECTED = """\
The *disclosed context* is disclosed: district and kind of activity go to the server with every request, and
so does that somebody asked. *Clicks* stay on the device, but whoever follows a link tells that they did: no ε
here covers it. *Purchases of advertisers who share them* are read as they are, and bids follow them. A person
behind several devices tells more than one device does. *Measures* of how well things went (AUC, true rates),
both other days, and choices at other ε are those of a study: on real people each would be a release. Proxy
and ad server *together* could tell whose report is whose, and read what devices counted. Training hides
neither public features nor that an impression was logged at all. Platform and room keep ledgers of their own;
this simulation has one for both."""
SPENT = ("who is protected", "spent ε", "δ")


def report(found: DayComparison, command: str) -> str:
    """All of it, with figures; `command` is what anybody would type to get the same."""
    return page(
        "One day of tacit",
        _lead(found),
        [
            Section("What came of it", [_facts(found), Prose(summary(found)), _table(found)]),
            Section("The day", [Prose(_day(found)), _stages(found)]),
            Section(
                "What the choice's ε buys",
                [Figure(frontier_figure(found), _frontier_words(found)), Prose(prior_words(found))],
            ),
            Section("What was learnt", [Figure(rates_figure(found), _learnt_words(found))]),
            Section("Who pays", [Figure(charges_figure(found), _charged_words(found))]),
            Section("What each party saw", [_seen_table(found), _messages_table(found)]),
            Section("What was spent", [_spent_table(found), Prose(_shuffled_words(found))]),
            Section("What is not protected", [Prose(NOT_PROTECTED)]),
            Section("Again", [Code(command), Prose(AGAIN)]),
        ],
        footer=f"tacit {__version__}, `tacit quickstart`; all data synthetic",
    )


AGAIN = "One seed gives one town and one noise; the last digits of a bill hang on the machine and its threads."


def _lead(found: DayComparison) -> str:
    return (
        f"A made-up town of {found.town.people:,} people, {len(ADVERTISERS)} advertisers and "
        f"{len(found.tacit.served.ad):,} visits, from what devices count to what advertisers pay. *All data "
        "here is synthetic*, and one seed is one town: another would give other figures."
    )


def _facts(found: DayComparison) -> Facts:
    served, public = found.tacit.served, found.impersonal
    lines = len(served.charges.impressions)
    return Facts(
        [
            (f"{served.click_rate:.1%}", "click-through rate", f"{public.click_rate:.1%} unpersonalised"),
            (
                "none" if found.clicks_kept is None else share_words(found.clicks_kept),
                "of personalisation's clicks kept",
                f"{share_words(found.worth_kept)} of its worth",
            ),
            (f"€ {served.charges.total_micros / 1e6:,.2f}", "charged, to the micro", f"{lines:,} lines add up"),
            (
                f"ε ≤ {most_spent(found):g}",
                "a device's choices in a day",
                f"{_hidden(found)[1]:.2g} at worst to the ad server alone",
            ),
        ]
    )


def _table(found: DayComparison) -> Table:
    return Table(
        COLUMNS,
        comparison_table(found),
        COLUMNS[1:],
        "Synthetic. True rates are known because the town is made up. Without privacy, menus are exact, too.",
    )


def _stages(found: DayComparison) -> Flow:
    town, privacy = found.town, found.privacy
    impression = f"ε {float(privacy.labels):g} + {float(privacy.hybrid):g} per impression"
    return Flow(
        [
            (
                "Gather",
                f"{town.people:,} devices, a proxy and a server",
                f"ε {float(privacy.counts):g} per device",
            ),
            ("Train", f"two click models, {town.logged:,} impressions", impression),
            ("Clean room", f"an adapter for {SHY}", f"ε {float(privacy.room):g} per purchase"),
            (
                "Deliver",
                f"{CANDIDATES} candidates; the device chooses",
                f"ε {float(privacy.choice):g} per choice",
            ),
            ("Bill", "shuffled reports, blind tokens", "exact, by impression"),
        ]
    )


def _spent_table(found: DayComparison) -> Table:
    own, in_all = most_spent(found), device_total(found)
    return Table(
        SPENT,
        [
            *((line_words(each), f"{each.epsilon:.4g}", f"{each.delta:.2g}") for each in found.spent),
            ("what a device knows, by its choices (any two states; kept on the device)", f"{own:g}", "0"),
            (
                "one device in all: its counted events and its choices",
                f"{in_all:g}",
                f"{found.device_delta:.2g}",
            ),
        ],
        SPENT[1:],
        "One ledger. What is counted on devices and chosen on them is the same people's, and adds up; the log, "
        "and the purchases, are of others.",
    )


def _hidden(found: DayComparison) -> tuple[float, float]:
    """The median and the worst over devices that told anything private, to the ad server alone."""
    told = found.billed.central[found.billed.central > 0]
    return (float(np.median(told)), float(told.max())) if len(told) else (0.0, 0.0)


def _day(found: DayComparison) -> str:
    return (
        "Yesterday's clicks are counted on people's devices, through a proxy and a server that see none of "
        "them. A publisher's log trains two click models: one for the server, from public features and labels "
        "that were flipped once; one for devices, from what only they know too. A shop that shares no "
        f"purchases learns in a clean room. For each of {len(found.tacit.menus)} contexts that can be "
        "disclosed the server picks a few ads, at prices that hold nothing of the visitor; each device fetches "
        "a menu and a blind token, chooses, and reports through the proxy; what was shown is shuffled, charged "
        "once, and invoiced."
    )


def _frontier_words(found: DayComparison) -> str:
    return (
        f"The day used ε = {float(found.privacy.choice):g} per choice. The same models and menus at other ε; "
        "where a request has nothing to win, nothing is spent."
    )


def prior_words(found: DayComparison) -> str:
    """What the day assumed of its people, what its reports say, and what came of planning by that."""
    assumed, learnt = found.tacit.menus[0].prior, found.tacit.tomorrow
    return (
        f"Menus of the day assumed {assumed}: too much where people differ less, and then choices go wrong for "
        f"nothing. For tomorrow the server has {learnt}; it was made of reports that were paid for, and costs "
        f"nothing more. The same visits by that prior keep {share_words(found.clicks_kept_again)} of the "
        f"clicks and {share_words(found.worth_kept_again)} of the worth (in sample: the reports were theirs)."
    )


def _learnt_words(found: DayComparison) -> str:
    points = 100 * (found.learnt.rates_off - found.learnt_exactly.rates_off)
    return (
        "Click-through rates of every ad in every context that can be disclosed, by the gathered statistics, "
        f"in twelve groups by their true rate. Noise costs {points:.1f} points: shrinkage pulls what it hides "
        "towards the mean."
    )


def _charged_words(found: DayComparison) -> str:
    total = sum(found.tacit.served.charges.by_campaign.values())
    return (
        f"Whole micros, one line per impression; the invoices of tacit's day come to {total:,} micros exactly. "
        "Prices are second prices of public scores: none depends on what only a device knows."
    )


def _shuffled_words(found: DayComparison) -> str:
    median, worst = _hidden(found)
    by_size, in_full = found.billed.settled
    return (
        "A report says its menu, and, sealed to the ad server, which of its ads was shown. Reports of one menu "
        "leave the proxy together and in no order, so that the ad server learns how often each was shown. To "
        f"it alone, a device's choices of the day, up to ε = {most_spent(found):g}, tell ε = {median:.2g} "
        f"together (median over devices; {worst:.2g} at worst, δ = {float(CENTRAL_DELTA):g}). Devices know by "
        f"the size that the proxy signed: {by_size:,} reports left among enough others, {in_full:,} did not "
        "and count in full. With the proxy's help, or if everybody else were made up, only the full ε remains."
    )


SEEN = ("", "device", "proxy", "ad server")


def _seen_table(found: DayComparison) -> Table:
    """What each party saw of the day, with the figures of this one."""
    billed, cohorts = found.billed, sorted(each.reports for each in found.billed.statements)
    crowd = f"in batches of {cohorts[0]:,} to {cohorts[-1]:,}, shuffled"
    requests, reports = billed.messages["requests"], billed.messages["reports"]
    return Table(
        SEEN,
        [
            ("where a request comes from", "itself", f"yes, of {requests:,} requests", "no"),
            ("exact context, history, scores", "its own", "no", "no"),
            ("generalised context", "its own", "by the menu's id, once it reports", "yes, without who"),
            ("which ad was shown", "its own", f"no: {reports:,} sealed reports", crowd),
            ("prices and bids", "of its menu", "no", "yes"),
            ("which report belongs to which request", "its own", "by address", "no: tokens are blind"),
            ("clicks", "its own", "no", "no"),
        ],
        (),
        _audit_words(found, len(cohorts)),
    )


def _audit_words(found: DayComparison, batches: int) -> str:
    audited = found.audited
    made = f"{len(found.billed.invoices)} invoices were made of {batches} batches."
    if not audited.holds:
        return f"{made} An auditor finds {audited.found} things that do not hold."
    return (
        f"{made} An auditor without any secret key derived them again from {audited.reports:,} tokens and "
        "commitments: all of it holds."
    )


MESSAGES = ("message", "from", "how many", "bytes each")
SENDERS = {
    "directories": "ad server to proxy",
    "heads": "proxy to everybody",
    "requests": "device, sealed through the proxy",
    "offers": "ad server, to one device's eyes",
    "reports": "device to proxy, the choice sealed to the ad server",
    "batches": "proxy to ad server, shuffled",
    "receipts": "ad server to proxy",
    "statements": "proxy to device: how many left together",
}


def _messages_table(found: DayComparison) -> Table:
    billed = found.billed
    rows = [
        (kind, sender, f"{billed.messages[kind]:,}", f"{billed.sizes[kind] / billed.messages[kind]:,.0f}")
        for kind, sender in SENDERS.items()
        if billed.messages.get(kind)
    ]
    return Table(MESSAGES, rows, MESSAGES[2:], "Counted where they crossed, without HTTP's heads.")
