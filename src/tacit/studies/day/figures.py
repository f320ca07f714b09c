"""What is drawn of a day: what the choice's epsilon buys, who pays what, and how well things were learnt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tacit.data.generators.town import ADVERTISERS
from tacit.pipeline import Served
from tacit.studies.day.comparing import EPSILONS, Compared, learnt_rates
from tacit.studies.plotting import Bars, Mechanism, Panel, Series, bar_figure, line_figure


def frontier(found: Compared) -> str:
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
            subtitle=f"Per choice, any two states of one device; {about(found)}",
            x_label="epsilon of one choice",
            y_label="click-through rate, %",
            path=path,
            log_x_ticks=EPSILONS,
        )

    return _svg("click-through over epsilon", draw)


def charged(found: Compared) -> str:
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
            subtitle=f"Exact charges; {about(found)}",
            x_label="",
            y_label="charged, €",
            path=path,
            share_y=True,
        )

    return _svg("charges by advertiser", draw)


def learnt(found: Compared) -> str:
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
            subtitle=f"Per device, zero-out; four fifths of rates are in the band; {about(found)}",
            x_label="true click-through rate, %",
            y_label="by the statistics, %",
            path=path,
        )

    return _svg("counted and true rates", draw)


def about(found: Compared) -> str:
    """The data in words, for subtitles."""
    town = found.town
    return (
        f"synthetic town, {town.people:,} people, {town.people * town.visits_each:,} visits, seed {town.seed}"
    )


def _by_advertiser(served: Served) -> list[float]:
    owed = served.charges.by_campaign
    return [owed.get(advertiser, 0) / 1e6 for advertiser in range(len(ADVERTISERS))]


def _svg(name: str, draw: Callable[[Path], object]) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        draw(path)
        return path.with_suffix(".svg").read_text(encoding="utf-8")
