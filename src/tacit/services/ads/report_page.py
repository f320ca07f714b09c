"""A report as a page: spend by day, campaigns with their rates of clicks and conversions, contexts, reasons,
invoices, promises.

It is self-contained, in light and dark, and has no script. Charts are plain SVG, as wide as a phone where the
page is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tacit.bill.accounts import show_micros
from tacit.deliver.server.advertiser_report import (
    AdvertiserReport,
    EventFigures,
    Grouping,
    ReportRow,
    show_day,
)
from tacit.deliver.server.rate_intervals import SUPPRESSION
from tacit.pages import Block, Code, Details, Facts, Figure, Prose, Section, Table, page
from tacit.pages.drawings import ACCENT, INK, MUTED, PAPER, RULE

DAY_SECONDS = 86_400
MOST_ROWS = 100
WIDTH, LEFT, RIGHT, TOP, PLOT, FOOT = 520, 56, 8, 24, 150, 30
COLUMNS = ("impressions", "spend", "held", "clicks", "rate, %", "95% interval, %")


def report_page(report: AdvertiserReport) -> str:
    """All of a report, for people."""
    whole, days = report.whole, report.rows(Grouping.DAY)
    lead = (
        f"What was shown for {report.advertiser} from {show_day(report.begin)} until before "
        f"{show_day(report.end)} (UTC), what it cost and why. Amounts are in currency units, to the micro."
    )
    sections = [
        Section("In all", [_facts(whole), Prose(_promise_words(report))]),
        Section("Spend by day", _day_blocks(report, days)),
        Section("Campaigns", _rate_blocks(report.rows(Grouping.CAMPAIGN), "campaign")),
        *_conversions(report),
        Section("Contexts", [_table(report.rows(Grouping.CONTEXT), "context")]),
        Section("Why prices are what they are", [_reasons(whole)]),
        Section("Invoices", _invoices(report)),
        Section("What is promised", _promises(report)),
    ]
    footer = "Figures beside each other are of the same charges: rows of every table add up to the total."
    return page(f"Report for {report.advertiser}", lead, sections, footer=footer)


def _facts(whole: ReportRow) -> Facts:
    facts = [
        (_rounded(whole.spend_micros), "spend", f"{show_micros(whole.spend_micros)}, exact"),
        (f"{whole.impressions:,}", "impressions", "exact: as devices reported them"),
        _rate_fact(whole.clicks, "click rate"),
    ]
    if whole.conversions.promise is not None:
        facts.append(_rate_fact(whole.conversions, "conversion rate"))
    if whole.held_micros:
        said = "shown, and not charged: the budget was spent"
        facts.append((show_micros(whole.held_micros)[:-4], "held", said))
    return Facts(facts)


def _rate_fact(figures: EventFigures, name: str) -> tuple[str, str, str]:
    rate, interval = figures.rate, figures.interval
    note = figures.withheld if interval is None else f"95% interval {_percent(interval)}%"
    return "-" if rate is None else f"{100 * rate:.2f}%", name, note


def _promise_words(report: AdvertiserReport) -> str:
    whole = report.whole
    said = f"Impressions and spend: {whole.promise}."
    for name, figures in (("Clicks", whole.clicks), ("Conversions", whole.conversions)):
        promise = figures.promise
        said += f" {name}: {'no statistics were released yet' if promise is None else promise}."
    return said


def _day_blocks(report: AdvertiserReport, days: Sequence[ReportRow]) -> list[Block]:
    if not days:
        return [Prose("Nothing was charged for an epoch that opened in these days.")]
    budgets = [report.daily_micros.get(each) for each in report.campaigns]
    limits = [each for each in budgets if each is not None]
    limit = sum(limits) if limits and len(limits) == len(budgets) else None
    said = "Spend of the epochs that opened on each day, however late it was reported."
    if limit is not None:
        said += f" The dashed line is what all campaigns together may cost on a day, {show_micros(limit)}."
    spent = {row.day or "": row.spend_micros for row in days}
    chart = draw_days(report.begin, report.end, spent, limit)
    table = _table(days, "day", rates=False)
    return [Figure(chart, f"{said} {report.whole.promise}."), Details("Every day as a table", [table])]


def _rate_blocks(rows: Sequence[ReportRow], name: str) -> list[Block]:
    known = [row for row in rows if row.clicks.interval is not None]
    blocks: list[Block] = []
    if known:
        said = f"Click rate with its 95% interval, noise included. {known[0].clicks.promise}."
        blocks.append(Figure(draw_rates([(row.label, row.clicks) for row in known[:20]]), said))
    return [*blocks, _table(rows, name)]


def _conversions(report: AdvertiserReport) -> list[Section]:
    """Rates of conversions by campaign, where they were counted."""
    if report.conversions is None:
        return []
    rows = report.rows(Grouping.CAMPAIGN)
    promise = report.whole.conversions.promise
    said = "Impressions are counted once the time is over in which a conversion counts as theirs."
    known = [(row.label, row.conversions) for row in rows if row.conversions.interval is not None][:20]
    blocks: list[Block] = [Prose(said)]
    if known:
        drawn = draw_rates(known, "Conversion rates with their intervals")
        blocks.append(Figure(drawn, f"Conversion rate with its 95% interval, noise included. {promise}."))
    columns = ("campaign", "conversions", "rate, %", "95% interval, %")
    cells = [(row.label, *_rate_cells(row.conversions)) for row in rows[:MOST_ROWS]]
    return [
        Section("Conversions", [*blocks, Table(columns, cells, numbers=columns[1:], caption=f"{promise}.")])
    ]


def _table(rows: Sequence[ReportRow], name: str, *, rates: bool = True) -> Table:
    columns = (name, *(COLUMNS if rates else COLUMNS[:3]))
    cells = []
    for row in rows[:MOST_ROWS]:
        exact = f"{row.impressions:,}", show_micros(row.spend_micros), show_micros(row.held_micros)
        label = row.label if row.day is None else row.label.replace("-", "\N{NON-BREAKING HYPHEN}")
        cells.append((label, *exact, *(_rate_cells(row.clicks) if rates else ())))
    promised = next((str(row.clicks.promise) for row in rows if row.clicks.promise is not None), "")
    said = f"Impressions, spend, held: {_largest(rows)}."
    if rates and promised:
        said += f" Clicks: {promised}."
    if len(rows) > MOST_ROWS:
        said += f" The first {MOST_ROWS} of {len(rows):,}: files have all."
    return Table(columns, cells, numbers=columns[1:], caption=said)


def _largest(rows: Sequence[ReportRow]) -> str:
    promises = [row.promise for row in rows]
    return str(max(promises, key=lambda each: each.epsilon)) if promises else "nothing was charged"


def _rate_cells(figures: EventFigures) -> tuple[str, str, str]:
    if figures.cell is None or figures.interval is None:
        return figures.withheld, "", ""
    return f"{round(figures.cell.hits):,}", f"{100 * (figures.rate or 0):.2f}", _percent(figures.interval)


def _percent(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.2f} to {100 * interval[1]:.2f}"


def _reasons(whole: ReportRow) -> Table:
    several = whole.reasons()[:MOST_ROWS]
    rows = [(reason, f"{shown:,}", show_micros(micros)) for reason, shown, micros in several]
    said = f"A price is public: everybody in its context is shown it. {whole.promise}."
    columns = ("reason", "impressions", "spend")
    return Table(columns, rows, numbers=columns[1:], caption=said)


def _invoices(report: AdvertiserReport) -> list[Block]:
    rows = [
        ("on none yet" if number is None else str(number), f"{shown:,}", show_micros(micros))
        for number, shown, micros in report.invoices()
    ]
    whole = report.whole
    rows.append(("all", f"{whole.impressions:,}", show_micros(whole.spend_micros)))
    columns = ("invoice", "impressions", "spend")
    said = (
        "A charge that is reported late belongs to the day of its epoch, and goes on the next invoice that is "
        f"closed. What is held is on none, and not in these sums. {whole.promise}."
    )
    strong = {(len(rows) - 1, at) for at in range(3)}
    return [Prose(said), Table(columns, rows, numbers=columns[1:], strong=strong)]


def _promises(report: AdvertiserReport) -> list[Block]:
    blocks: list[Block] = [
        Prose(
            "*Impressions and spend* are exact. Each is a choice that a device made with differential privacy "
            "of its own, and paid for from its person's budget; to count them tells nothing more. Several "
            "choices of one device add up, within the limits that its person set. Contexts are as general as "
            "devices told them."
        ),
        Prose(
            f"*Clicks, conversions and rates* come from counts that were released with noise; {SUPPRESSION}."
        ),
    ]
    for each in (report.clicks, report.conversions):
        if each is not None:
            made = f"{each.event} counts of {each.source}, released on {show_day(each.made)}"
            blocks += [Prose(f"The statement of the {made}:"), Code(each.statement.as_text())]
    if report.conversions is None:
        blocks.append(Prose("*Conversions* were not counted: no statistics of them were released."))
    return blocks


# Charts.


def draw_days(begin: int, end: int, spent: dict[str, int], limit: int | None) -> str:
    """Bars of spend, one per day of the period, and what a day may cost as a dashed line."""
    days = [show_day(second) for second in range(begin - begin % DAY_SECONDS, end, DAY_SECONDS)]
    ticks = scale_ticks(max([*spent.values(), limit or 0, 1]) / 1e6)
    most = 1e6 * ticks[-1]
    step = (WIDTH - LEFT - RIGHT) / len(days)
    parts = []
    for tick in ticks:
        y = TOP + PLOT * (1 - tick / ticks[-1])
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, RULE, 'stroke-width="1"'))
        parts.append(_text(LEFT - 8, y + 5, f"{tick:g}", "end", MUTED))
    for at, day in enumerate(days):
        height = PLOT * spent.get(day, 0) / most
        if height:
            parts.append(
                f'<rect x="{LEFT + at * step + step * 0.12:.2f}" y="{TOP + PLOT - height:.2f}" '
                f'width="{step * 0.76:.2f}" height="{height:.2f}" fill="{ACCENT}">'
                f"<title>{day}: {show_micros(spent[day])}</title></rect>"
            )
    every = -(-len(days) // 5)
    for at in range(0, len(days), every):
        parts.append(_text(LEFT + (at + 0.5) * step, TOP + PLOT + 20, days[at][5:], "middle", MUTED))
    if limit is not None:
        y = TOP + PLOT - PLOT * limit / most
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, INK, 'stroke-dasharray="5 4" stroke-width="1.5"'))
        behind = f' stroke="{PAPER}" stroke-width="4" paint-order="stroke"'
        parts.append(_text(WIDTH - RIGHT, y - 7, "daily budget", "end", INK, behind))
    return _svg(TOP + PLOT + FOOT, parts, "Spend by day")


def scale_ticks(most: float) -> list[float]:
    """Round numbers from 0 to at least `most`, three to six of them.

    >>> scale_ticks(23.0), scale_ticks(0.0411)
    ([0.0, 5.0, 10.0, 15.0, 20.0, 25.0], [0.0, 0.01, 0.02, 0.03, 0.04, 0.05])
    """
    power = 10.0 ** math.floor(math.log10(most))
    step = next(power * each for each in (0.2, 0.5, 1.0, 2.0) if most <= 5 * power * each)
    return [round(at * step, 12) for at in range(math.ceil(most / step - 1e-9) + 1)]


ROW, NAMES = 32, 150


def draw_rates(rows: Sequence[tuple[str, EventFigures]], what: str = "Click rates with their intervals") -> str:
    """Rates as dots with whiskers from end to end of their intervals, one row each."""
    intervals = [figures.interval or (0.0, 1.0) for _, figures in rows]
    ticks = scale_ticks(100 * max(high for _, high in intervals))
    most, left, plot = ticks[-1] / 100, NAMES, WIDTH - NAMES - 60
    parts, foot = [], TOP + ROW * len(rows)
    for tick in ticks:
        x = left + plot * tick / ticks[-1]
        parts.append(_line(x, TOP - 8, x, foot, RULE, 'stroke-width="1"'))
        parts.append(_text(x, foot + 20, f"{tick:g}%", "middle", MUTED))
    for at, ((label, figures), (low, high)) in enumerate(zip(rows, intervals, strict=True)):
        y = TOP + ROW * at + ROW / 2
        x_low, x, x_high = (left + plot * each / most for each in (low, figures.rate or 0.0, high))
        short = label if len(label) <= 18 else f"{label[:17]}…"
        parts.append(_text(left - 12, y + 5, short, "end", INK))
        parts.append(_line(x_low, y, x_high, y, INK, 'stroke-width="1.5"'))
        parts += [_line(each, y - 5, each, y + 5, INK, 'stroke-width="1.5"') for each in (x_low, x_high)]
        parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4.5" fill="{ACCENT}"/>')
        parts.append(_text(x_high + 8, y + 5, f"{100 * (figures.rate or 0):.2f}%", "start", INK))
    return _svg(foot + FOOT, parts, what)


def _svg(height: float, parts: Sequence[str], what: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="14">'
        f"<title>{escape(what)}</title>{''.join(parts)}</svg>"
    )


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, more: str) -> str:
    return f'<line x1="{x:.2f}" y1="{y:.2f}" x2="{to_x:.2f}" y2="{to_y:.2f}" stroke="{colour}" {more}/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" fill="{colour}"{more}>{escape(words)}</text>'


def _rounded(micros: int) -> str:
    """An amount for reading at a glance: hundredths, and ten-thousandths of what is below one.

    >>> _rounded(288_000), _rounded(1_235_678), _rounded(0)
    ('0.2880', '1.24', '0.00')
    """
    return f"{micros / 1e6:.4f}" if 0 < micros < 1_000_000 else f"{micros / 1e6:,.2f}"
