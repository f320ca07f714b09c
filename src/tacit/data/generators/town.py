"""A synthetic town for one simulated day: people, places, ads, and the true click and purchase rates.

With effects drawn from normals of the given spreads, for a person of some taste, in a quarter of a district,
doing an activity of some kind,

    logit click    = base + ad + (ad, kind) + (ad, district) + (ad, taste)
    logit purchase = base + ad + s (ad, kind)            after a click; s is -1 for one advertiser, 1 for others

Kind and district are what a person discloses; quarter, activity and taste stay on the device. The advertiser
whose customers differ is the one that shares no purchases: a model learnt from the others misleads there. It
also sells more than they do (its base is higher), so whether it is shown depends on what the clean room
learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from tacit import expect
from tacit.arrays import Floats, Integers
from tacit.data.generators.worlds import seeded_generator
from tacit.kernels.fingerprints import whole_fingerprints
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Sequence
from tacit.schema.contexts.tree import Tree

DISTRICTS = ("Harbour", "Old town", "Hill", "Station")
QUARTERS_EACH = 4
KINDS = {
    "Moving": ("Running", "Cycling", "Walking", "Commuting"),
    "Eating": ("Breakfast", "Lunch", "Coffee", "Dinner"),
    "Leisure": ("Reading", "Music", "Games", "Shopping"),
}
ACTIVITIES_EACH = 4
ADVERTISERS = ("Shoes", "Books", "Bikes", "Coffee", "Games", "Travel")
ADS_EACH = 4
ADS = len(ADVERTISERS) * ADS_EACH
TASTES = 8
SECRETIVE = 0  # the advertiser that shares no purchases

CLICK_RATE, BUY_RATE = 0.06, 0.08
AD_SPREAD, KIND_SPREAD, DISTRICT_SPREAD, TASTE_SPREAD = 0.3, 0.5, 0.3, 1.0
BUY_SPREAD, BUY_KIND_SPREAD = 0.3, 1.0
SELLS_MORE = 0.7  # of the advertiser that shares no purchases, on log-odds
NEAR_HOME = 0.6
_EFFECTS, _YESTERDAY, _LOG, _PURCHASES, _TODAY, _FRESH = range(41, 47)

EXACT, DISCLOSED, ANYWHERE = (0, 0), (1, 1), (2, 2)
"""Levels of a context: quarter and activity, district and kind, nothing."""


class Moments(NamedTuple):
    """Somebody, somewhere, doing something: one row each."""

    person: Integers
    quarter: Integers
    activity: Integers
    taste: Integers

    @property
    def district(self) -> Integers:
        return self.quarter // QUARTERS_EACH

    @property
    def kind(self) -> Integers:
        return self.activity // ACTIVITIES_EACH

    @property
    def disclosed(self) -> Integers:
        """Which of the contexts that can be disclosed each is in, in the order of `disclosed_moments`."""
        return self.district * len(KINDS) + self.kind

    def contexts(self) -> list[tuple[str, str]]:
        """The exact contexts by name."""
        names = [(place, doing) for place in QUARTERS for doing in ACTIVITIES]
        return [names[at] for at in (self.quarter * len(ACTIVITIES) + self.activity).tolist()]


class ShownAds(NamedTuple):
    """Ads that were shown (or clicked), and what came of each: clicked, or bought."""

    moments: Moments
    ad: Integers
    happened: NDArray[np.bool_]

    @property
    def public_codes(self) -> tuple[NDArray[np.int32], int]:
        """What anybody may know of each, as rows of one table, and how many rows it has."""
        return _encode_fields(
            (self.ad, ADS),
            _cross_with_ad(self.ad, self.moments.district, len(DISTRICTS)),
            _cross_with_ad(self.ad, self.moments.kind, len(KINDS)),
        )

    @property
    def sensitive_codes(self) -> tuple[NDArray[np.int32], int]:
        """The same of what only the device knows."""
        return _encode_fields(
            _cross_with_ad(self.ad, self.moments.taste, TASTES),
            (self.moments.quarter, len(QUARTERS)),
            (self.moments.activity, len(ACTIVITIES)),
        )

    def by_person(self, people: int) -> list[list[tuple[tuple[str, str], int, bool]]]:
        """Exact context, ad, and what came of it, for each of the first `people`."""
        own: list[list[tuple[tuple[str, str], int, bool]]] = [[] for _ in range(people)]
        rows = zip(self.moments.contexts(), self.ad.tolist(), self.happened.tolist(), strict=True)
        for person, row in zip(self.moments.person.tolist(), rows, strict=True):
            own[person].append(row)
        return own


QUARTERS = tuple(f"{district} {n}" for district in DISTRICTS for n in range(1, QUARTERS_EACH + 1))
ACTIVITIES = tuple(activity for activities in KINDS.values() for activity in activities)


@dataclass(frozen=True)
class Town:
    """One town for each seed. The same seed gives the same people, logs and day."""

    people: int = 5_000
    logged: int = 100_000
    clicks: int = 40_000
    visits_each: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("people", "logged", "clicks", "visits_each"):
            expect.whole(name, getattr(self, name), at_least=1)

    @cached_property
    def hierarchy(self) -> Sequence:
        """Public: the map and the list of activities."""
        places = {"town": None, **dict.fromkeys(DISTRICTS, "town")}
        places |= {quarter: DISTRICTS[at // QUARTERS_EACH] for at, quarter in enumerate(QUARTERS)}
        doing = {"anything": None, **dict.fromkeys(KINDS, "anything")}
        doing |= {activity: kind for kind, activities in KINDS.items() for activity in activities}
        attributes = (Steps("place", Tree.of(places)), Steps("doing", Tree.of(doing)))
        return Sequence(attributes, (EXACT, DISCLOSED, ANYWHERE))

    def click_rates(self, moments: Moments, ads: Integers) -> Floats:
        """The true click probabilities; `ads` has one ad per row, or (rows, several)."""
        across = (slice(None), *(None,) * (ads.ndim - 1))
        effects = self._effects
        return np.asarray(
            expit(
                logit(CLICK_RATE) - 0.5
                + effects.ad[ads]
                + effects.kind[ads, moments.kind[across]]
                + effects.district[ads, moments.district[across]]
                + effects.taste[ads, moments.taste[across]]
            )
        )  # fmt: skip

    def mean_click_rates(self) -> Floats:
        """(districts x kinds, ads): the true rates of what can be disclosed, over all tastes."""
        district, kind, taste = (
            at.ravel() for at in np.indices((len(DISTRICTS), len(KINDS), TASTES), dtype=np.int64)
        )
        moments = Moments(taste, district * QUARTERS_EACH, kind * ACTIVITIES_EACH, taste)
        rates = self.click_rates(moments, np.tile(np.arange(ADS), (len(taste), 1)))
        return np.asarray(rates.reshape(-1, TASTES, ADS).mean(axis=1))

    def buy_rates(self, moments: Moments, ads: Integers) -> Floats:
        """The true probabilities of a purchase after a click."""
        effects = self._effects
        secretive = ads // ADS_EACH == SECRETIVE
        base = logit(BUY_RATE) - 0.4 + SELLS_MORE * secretive
        by_kind = np.where(secretive, -1.0, 1.0) * effects.buy_kind[ads, moments.kind]
        return np.asarray(expit(base + effects.buy_ad[ads] + by_kind))

    def yesterday(self) -> ShownAds:
        """Impressions that people's devices remember, a few each; ads were shown at random."""
        draw = self._draw(_YESTERDAY)
        person = np.repeat(np.arange(self.people), draw.integers(2, 5, self.people))
        return self._show_ads(self._moments(draw, person), draw)

    def log(self) -> ShownAds:
        """Impressions of a publisher's log; of other people."""
        draw = self._draw(_LOG)
        return self._show_ads(self._moments(draw, self.people + np.arange(self.logged)), draw)

    def fresh(self, impressions: int) -> ShownAds:
        """Impressions of yet other people, to measure by."""
        draw = self._draw(_FRESH)
        first = self.people + self.logged + self.clicks
        return self._show_ads(self._moments(draw, first + np.arange(impressions)), draw)

    def purchases(self) -> ShownAds:
        """Clicks of the last month, and whether a purchase followed."""
        draw = self._draw(_PURCHASES)
        moments = self._moments(draw, self.people + self.logged + np.arange(self.clicks))
        ad = draw.integers(0, ADS, self.clicks)
        return ShownAds(moments, ad, draw.random(self.clicks) < self.buy_rates(moments, ad))

    def today(self) -> Moments:
        """Visits, in the order of people; shuffling them hides that."""
        person = np.repeat(np.arange(self.people), self.visits_each)
        return self._moments(self._draw(_TODAY), person)

    def _show_ads(self, moments: Moments, draw: np.random.Generator) -> ShownAds:
        ad = draw.integers(0, ADS, len(moments.person))
        return ShownAds(moments, ad, draw.random(len(ad)) < self.click_rates(moments, ad))

    def _moments(self, draw: np.random.Generator, person: Integers) -> Moments:
        """Mostly near home; taste and home are the person's own."""
        own = whole_fingerprints(np.ascontiguousarray(person), self.seed)
        taste, home = own % TASTES, own // TASTES % len(QUARTERS)
        elsewhere = draw.integers(0, len(QUARTERS), len(person))
        quarter = np.where(draw.random(len(person)) < NEAR_HOME, home.astype(np.int64), elsewhere)
        return Moments(person, quarter, draw.integers(0, len(ACTIVITIES), len(person)), taste.astype(np.int64))

    @cached_property
    def _effects(self) -> _Effects:
        draw = self._draw(_EFFECTS)

        def normals(spread: float, *columns: int) -> Floats:
            return spread * draw.standard_normal((ADS, *columns))

        return _Effects(
            normals(AD_SPREAD),
            normals(KIND_SPREAD, len(KINDS)),
            normals(DISTRICT_SPREAD, len(DISTRICTS)),
            normals(TASTE_SPREAD, TASTES),
            normals(BUY_SPREAD),
            normals(BUY_KIND_SPREAD, len(KINDS)),
        )

    def _draw(self, part: int) -> np.random.Generator:
        return seeded_generator(self.seed, part)


def disclosed_moments() -> Moments:
    """One moment for every context that can be disclosed; what is finer in it stands for nobody."""
    district, kind = np.divmod(np.arange(len(DISTRICTS) * len(KINDS)), len(KINDS))
    nobody = np.zeros(len(district), np.int64)
    return Moments(nobody, district * QUARTERS_EACH, kind * ACTIVITIES_EACH, nobody)


def _cross_with_ad(ad: Integers, values: Integers, size: int) -> tuple[Integers, int]:
    """Each ad with each value of a field, as values of their own."""
    return ad * size + values, ADS * size


def _encode_fields(*fields: tuple[Integers, int]) -> tuple[NDArray[np.int32], int]:
    sizes = [size for _, size in fields]
    first = np.cumsum([0, *sizes[:-1]])
    columns = [values + start for (values, _), start in zip(fields, first, strict=True)]
    return np.stack(columns, axis=1).astype(np.int32), sum(sizes)


class _Effects(NamedTuple):
    """On log-odds; of a click, then of a purchase: (ads,) or (ads, values)."""

    ad: Floats
    kind: Floats
    district: Floats
    taste: Floats
    buy_ad: Floats
    buy_kind: Floats
