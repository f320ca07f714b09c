"""Menus made of campaigns: for each context the ads that compete there, selected, ranked and priced.

    market = MenuMarket(ListedNodes(hierarchy, nodes), rules, FixedRates())
    market.change(campaigns)
    menus = market.menus(epoch, opens, closes, left_micros={}, without={})

What takes part in a context: the campaign is active, its schedule runs for as long as the menu is offered, one
of its bids holds there, nothing it blocks and nobody's exclusion of its categories has a context in common with
it, and its click rate there is at least the floor. Its score is bid x public rate of what the bid is for. All
that reach the reserve are ranked, and each is priced by the next. Of those with at least 1 - gamma of the best
score, at most k are sent: by greedy choice over the contexts below, where there are statistics of them, as long
as each adds more than alpha micros; without such statistics the best k that are worth more than alpha.

A change of campaigns is computed for these alone, and contexts that it cannot touch keep their menus.

Source: Hardt and Nath, CCS 2012, sections 3.2 and 3.3.2 (k, alpha, floor, bids on contexts); Laro et al. 2023,
algorithm 2 and appendix A.3 (gamma, prices by public scores).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tacit.arrays import Flags, Floats, Integers
from tacit.bill.protocol.menus import PricedMenu
from tacit.deliver.campaigns.campaign import ALWAYS, AdCampaign
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.priced_menus import price_list
from tacit.deliver.server.candidates import price_menu
from tacit.deliver.server.competition import CELLS, Competition, Competitors, MenuRules
from tacit.deliver.server.rate_book import ContextsBelow, RateBook
from tacit.display import brief
from tacit.kernels.greedy import lazy_greedy
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.contexts.listed import ListedNodes

SLACK = 1e-6  # of a gain: far more than sums of doubles and values of 32 bits are off by
ANYWHERE = (-np.inf, np.inf)
KEPT = 2  # menus of a context that differ by who cannot pay


class _MadeMenu(NamedTuple):
    """A menu as long as nothing that mattered to it changes.

    ranked   the campaigns that mattered, rising: those sent, and who is next behind each of them
    spans    (spans, 2) scores from low to high with which another would matter
    steps    what greedy choice gained with each ad; and at the end what another would have had to gain
    best     (steps, contexts below) the best values before each step
    """

    menu: PricedMenu | None
    ranked: Integers
    spans: Floats
    steps: Floats
    best: Floats

    @classmethod
    def empty(cls) -> _MadeMenu:
        """None, until anybody comes."""
        return cls(None, np.empty(0, np.int64), np.array([ANYWHERE]), np.empty(0), np.empty((0, 0)))

    def is_untouched(self, known: Integers, new: Competitors, weight: Floats, floor: float) -> bool:
        """Whether it stays as it is when the campaigns of these numbers go and others come."""
        scores = (new.bids * new.rates)[:, None]
        if (
            len(_places(self.ranked, known))
            or ((self.spans[:, 0] <= scores) & (scores <= self.spans[:, 1])).any()
        ):
            return False
        if not len(self.steps) or not len(new.numbers):
            return True
        values = new.values(floor)  # (campaigns, contexts)
        gains = np.maximum(values[:, None, :] - self.best, 0.0) @ weight  # (campaigns, steps)
        enough = self.steps * (1 - SLACK)
        return bool((gains[:, :-1] < enough[:-1]).all() and (gains[:, -1] <= enough[-1]).all())


class MenuMarket:
    """Campaigns, contexts and rates, and the menus that they make. One thread works with it at a time.

    Guarantee:  the menus are those that a market made of the same campaigns, contexts and rates from nothing
                would have, whatever was changed in between.
    Neighbours: none: campaigns and released rates are public, and so are menus.
    Assumes:    a rate book that says the same of a cell whatever is asked beside it.
    Source:     as above.
    """

    def __init__(self, contexts: ListedNodes, rules: MenuRules, book: RateBook) -> None:
        self._contexts, self.rules = contexts, rules
        self._campaigns: dict[int, AdCampaign] = {}
        self._scheduled: dict[int, AdCampaign] = {}
        self._dearest: dict[int, int] = {}  # the highest bid of each campaign
        self._begin(book)

    def __repr__(self) -> str:
        return brief(self, contexts=len(self._contexts), campaigns=len(self._campaigns))

    def __len__(self) -> int:
        """How many campaigns may take part somewhere."""
        return len(self._campaigns)

    def _begin(self, book: RateBook) -> None:
        self._competition = Competition(self._contexts, self.rules, book)
        self._rows = [Competitors.none(len(each.nodes)) for each in self._competition.below]
        self._made: list[dict[bytes, _MadeMenu]] = [{} for _ in self._rows]

    def use(self, book: RateBook) -> None:
        """Other rates: all menus are made anew, unless the book's version is the same."""
        if book.version != self._competition.book.version:
            self._begin(book)
            self._put(sorted(self._campaigns))

    def change(self, campaigns: Iterable[AdCampaign] = (), gone: Collection[int] = ()) -> int:
        """Add or replace campaigns, and take others away; in how many contexts some of them compete."""
        new = {each.number: each for each in campaigns}
        numbers = sorted(new.keys() | set(gone))
        for number in numbers:
            for table in (self._campaigns, self._scheduled, self._dearest):
                table.pop(number, None)
            each = new.get(number)
            if each is not None and self._competition.takes_part(each):
                self._campaigns[number] = each
                self._dearest[number] = max(bid.micros for bid in each.bids)
                if each.schedule != ALWAYS:
                    self._scheduled[number] = each
        return self._put(numbers)

    # What campaigns are worth in contexts

    def _put(self, numbers: Sequence[int]) -> int:
        """Have these campaigns, and no others of their numbers, compete wherever they take part."""
        touched: set[int] = set()
        size = max(1, CELLS // max(1, len(self._contexts)))
        for first in range(0, len(numbers), size):
            some = numbers[first : first + size]
            campaigns = [self._campaigns[number] for number in some if number in self._campaigns]
            new = self._competition.competing(campaigns) if campaigns else {}
            of_them: Integers = np.array(some, np.int64)
            for place, row in enumerate(self._rows):
                known = _places(row.numbers, of_them)
                more = new.get(place)
                if more is not None or len(known):
                    more = Competitors.none(row.below.shape[1]) if more is None else more
                    self._forget(place, row.numbers[known], more)
                    self._rows[place] = row.replaced(known, more)
                    touched.add(place)
        return len(touched)

    def _forget(self, place: int, known: Integers, new: Competitors) -> None:
        """Let go of menus that a change could touch."""
        weight, floor = self._competition.below[place].chance, self.rules.ctr_floor
        kept = self._made[place]
        for key in [key for key, made in kept.items() if not made.is_untouched(known, new, weight, floor)]:
            del kept[key]

    # Menus

    def menus(
        self,
        epoch: int,
        opens: int,
        closes: int,
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        """The menus of an epoch, for both lanes, as `MenuSource` asks for them."""
        off: Integers = np.array(sorted(self._off(opens, closes)), np.int64)
        suspects = {number: left for number, left in left_micros.items() if left < self._dearest.get(number, 0)}
        poor: Integers = np.array(sorted(suspects), np.int64)
        left: Integers = np.array([suspects[number] for number in poor.tolist()], np.int64)
        found: list[PricedMenu] = []
        for place, node in enumerate(self._contexts.nodes):
            row = self._rows[place]
            if not len(row.numbers):
                continue
            out = np.zeros(len(row.numbers), np.bool_)
            out[_places(row.numbers, off)] = True
            out[_places(row.numbers, np.array(sorted(without.get(node, ())), np.int64))] = True
            out[_cannot_pay(row, poor, left)] = True
            menu = self._menu(place, out)
            if menu is not None:
                personal = replace(menu, epoch=epoch)
                found += [personal, personal.public_lane()]
        return found

    def _off(self, opens: int, closes: int) -> Iterator[int]:
        """Campaigns that do not run for the whole time: an ad may be shown at any moment of it."""
        for number, each in self._scheduled.items():
            if each.schedule.running_seconds(opens, closes) < closes - opens:
                yield number

    def _menu(self, place: int, out: Flags) -> PricedMenu | None:
        row, kept = self._rows[place], self._made[place]
        key = row.numbers[out].tobytes()
        if key not in kept:
            if len(kept) >= KEPT:
                kept.pop(next(iter(kept)))
            kept[key] = self._make(place, row.take(np.flatnonzero(~out)) if key else row)
        return kept[key].menu

    def _make(self, place: int, row: Competitors) -> _MadeMenu:
        if not len(row.numbers):
            return _MadeMenu.empty()
        node, below, rules = self._contexts.nodes[place], self._competition.below[place], self.rules
        scores = row.bids * row.rates
        chosen, steps, best = self._select(row, scores, below)
        if not len(chosen):
            return _MadeMenu.empty()
        # Prices are made by the next in the ranking of all, sent or not: no more of it is needed than that.
        ranked, spans = _with_next(scores, chosen)
        priced = price_menu(node, row.numbers[ranked], row.bids[ranked], row.rates[ranked], rules.auction)
        sent = set(row.numbers[chosen].tolist())
        stay = [rank for rank, ad in enumerate(priced.ads) if ad in sent]
        menu = Menu(
            node, [priced.ads[rank] for rank in stay], priced.bid_micros[stay], priced.rates[stay],
            priced.price_micros[stay], priced.setter[stay], price=priced.price,
            finer=self._finer(row, chosen, below),
        )  # fmt: skip
        listed = price_list(
            menu, epoch=0, epsilon=rules.epsilon, smallest_cohort=rules.smallest_cohort,
            reserve_micros=rules.reserve_micros, method=rules.method,
        )  # fmt: skip
        # Whoever is better than the best, or than those that fill the list, matters too.
        filling = chosen[max(0, len(steps) - 1) :]
        least = ANYWHERE[0] if len(chosen) < rules.candidates else scores[filling].min(initial=scores.max())
        spans = np.vstack([spans, [[least, np.inf]]])
        return _MadeMenu(listed, row.numbers[ranked], spans, steps, best)

    def _select(
        self, row: Competitors, scores: Floats, below: ContextsBelow
    ) -> tuple[Integers, Floats, Floats]:
        """Rows of the ads that are sent, at most k; gains and best values on the way, as `_MadeMenu` has
        them."""
        rules = self.rules
        near = np.flatnonzero(scores >= (1.0 - float(rules.cutoff)) * scores.max())
        if not below.nodes:
            best = _best(scores, near, rules.candidates)
            return best[scores[best] > rules.price_per_ad], np.empty(0), np.empty((0, 0))
        values = row.take(near).values(rules.ctr_floor)
        found = lazy_greedy(values, below.chance, rules.candidates, float(rules.price_per_ad))
        picked = near[found.ads]
        before = np.zeros((len(picked) + 1, len(below.nodes)))
        np.maximum.accumulate(values[found.ads], axis=0, out=before[1:])
        last = float(rules.price_per_ad) if len(picked) < rules.candidates else np.inf
        steps = np.append(found.gains, last)
        if not rules.price_per_ad and len(picked) < rules.candidates:
            others = near[~np.isin(near, picked)]
            picked = np.concatenate([picked, _best(scores, others, rules.candidates - len(picked))])
        return picked, steps, before

    def _finer(self, row: Competitors, chosen: Integers, below: ContextsBelow) -> dict[Node, dict[int, float]]:
        """Rates below that devices would be most off without: chance x bid x difference."""
        if not below.nodes or not self.rules.finer_rates:
            return {}
        own = row.below[chosen].astype(np.float64)  # (ads, contexts)
        worth = below.chance * row.bids[chosen, None] * np.abs(own - row.rates[chosen, None])
        flat = worth.ravel()
        order = np.argsort(-flat, kind="stable")[: self.rules.finer_rates]
        found: dict[Node, dict[int, float]] = {}
        for each in order[flat[order] > 0].tolist():
            ad, context = divmod(each, len(below.nodes))
            found.setdefault(below.nodes[context], {})[int(row.numbers[chosen[ad]])] = float(own[ad, context])
        return found


def _best(scores: Floats, among: Integers, count: int) -> Integers:
    """The rows of the highest scores, the best first; of equals the first."""
    own = scores[among]
    if len(own) > count:
        least = np.partition(own, len(own) - count)[len(own) - count]
        among = among[own >= least]
        own = scores[among]
    return among[np.argsort(-own, kind="stable")[:count]]


def _with_next(scores: Floats, chosen: Integers) -> tuple[Integers, Floats]:
    """Rows of those chosen and of who is next behind each in the ranking, where the first row of equals comes
    first; and the scores from each one's next to its own."""
    place = np.arange(len(scores))
    found, spans = set(chosen.tolist()), []
    for row in chosen.tolist():
        own = scores[row]
        behind = np.where((scores < own) | ((scores == own) & (place > row)), scores, -1.0)
        following = int(behind.argmax())
        if behind[following] < 0:  # nobody: whoever comes may be the next
            spans.append((ANYWHERE[0], own))
        else:
            found.add(following)
            spans.append((behind[following], own))
    return np.array(sorted(found), np.int64), np.array(spans)


def _places(numbers: Integers, wanted: Integers) -> Integers:
    """Where some of the wanted numbers are among others; both rise."""
    if not len(numbers) or not len(wanted):
        return np.empty(0, np.int64)
    where: Integers = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    found: Integers = where[numbers[where] == wanted]
    return found


def _cannot_pay(row: Competitors, poor: Integers, left: Integers) -> Integers:
    """Rows of campaigns that cannot pay for one impression at their own score, the most that it can cost."""
    if not len(poor):
        return poor
    where: Integers = np.minimum(np.searchsorted(row.numbers, poor), len(row.numbers) - 1)
    there = row.numbers[where] == poor
    where, left = where[there], left[there]
    cannot: Flags = left < np.maximum(1, np.ceil(row.bids[where] * row.rates[where]))
    found: Integers = where[cannot]
    return found
