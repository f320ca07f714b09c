"""Generates a log of visits to venues in a synthetic city, by people who explore and return.

City. Venues sit in Thomas clusters: cluster i has weight i^-a and a centre N(0, R^2 I), and a venue lies N(0,
r^2 I) around its cluster's centre. A venue's leaf category is Zipf, and so is a leaf's root category. With
the venues ranked in a random order,

    popularity(v) = (rank + shift)^-b * exp(s z_root),        z_root ~ N(0, 1) per root category
    P(v | from o) proportional to popularity(v) / (1 + (distance(o, v) / d)^2)

The coordinates look like those of a large city on the American east coast, but nothing at them is real.

People. A person makes n = min(most, max(fewest, round(m exp(sigma z)))) visits, z ~ N(0, 1), and has a home,
a venue drawn by popularity. With S venues seen so far and P_new = min(1, S^-rho), each visit is

    the same venue again     with probability again * (1 - P_new)
    a venue not seen yet     with probability P_new: from an origin, the last place or home (one half each), by
                             the city's P(v | from origin) among the venues not seen yet; with probability
                             `known_leaf` only among those of the leaf of an earlier visit, drawn uniformly
    a venue seen before      else: with probability `repeat_step`, the end of one of the earlier moves away from
                             here, drawn uniformly; otherwise, or where there was none, any other venue v with
                             weight visits(v) * exp(-distance / return_km)

(an exploration within a leaf that finds nothing new in some tries looks at the whole city). New places at
rate S^-rho and returns by count are exploration and preferential return: Song, Koren, Wang and Barabasi,
Modelling the scaling properties of human mobility, Nature Physics 6 (2010).

Times are independent of the places: n draws over `weeks` from one daily and weekly rhythm, sorted. The city's
clock is a fixed number of hours from UTC. The defaults are calibrated to a public sample of check-ins in a
large city. Rows are in time order within a block of people, not over the log, and a log that ends within a
block has only the earlier visits of that block's people.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count, repeat

import numpy as np
import pyarrow as pa

from tacit import expect
from tacit.arrays import Flags, Floats, Floats32, Integers
from tacit.data.generators.worlds import GeneratedRows, first_rows, seeded_generator
from tacit.errors import BadInput

MIDDLE_LATITUDE, MIDDLE_LONGITUDE = 40.73, -73.98
KM_PER_DEGREE = 111.2
LEAST_RETURN_WEIGHT = 1e-4  # so that nobody is stranded; reached only beyond nine times return_km
# Each root category and what its leaves are called: "Food>Kitchen 3".
ROOTS = (
    ("Food", "Kitchen"), ("Shops", "Shop"), ("Nightlife", "Bar"), ("Work", "Office"), ("Culture", "Stage"),
    ("Travel", "Stop"), ("Outdoors", "Park"), ("Homes", "House"), ("Study", "School"), ("Care", "Practice"),
)  # fmt: skip
_CITY = 11


@dataclass(frozen=True)
class CityPlan:
    """The figures that a city is drawn from; distances in kilometres."""

    clusters: int = 60
    cluster_exponent: float = 0.9
    centre_spread_km: float = 6.0
    cluster_radius_km: float = 0.7
    leaves: int = 290
    leaf_exponent: float = 0.96
    root_exponent: float = 0.5
    popularity_exponent: float = 0.6
    popularity_shift: float = 1.0
    root_popularity_spread: float = 0.4
    explore_km: float = 1.0
    return_km: float = 6.0

    def __post_init__(self) -> None:
        for name in ("clusters", "leaves"):
            expect.whole(name, getattr(self, name), at_least=1)
        for name in ("cluster_exponent", "leaf_exponent", "root_exponent", "popularity_exponent"):
            expect.at_least_zero(name, getattr(self, name))
        for name in ("centre_spread_km", "cluster_radius_km", "popularity_shift", "root_popularity_spread"):
            expect.at_least_zero(name, getattr(self, name))
        expect.positive("explore_km", self.explore_km)
        expect.positive("return_km", self.return_km)


@dataclass(frozen=True)
class City:
    """Venues ordered by leaf, so that a leaf is a range; matrices are (origin, destination)."""

    x_km: Floats
    y_km: Floats
    leaf: Integers
    leaf_start: Integers  # a leaf's venues are leaf_start[leaf] to leaf_start[leaf + 1]
    path: list[str]  # of each venue
    place: list[str]  # a venue's public name: 24 hex digits
    popularity: Floats
    explore_cdf: Floats32
    return_weight: Floats32  # exp(-distance / return_km), but at least LEAST_RETURN_WEIGHT

    @property
    def latitude(self) -> Floats:
        return np.round(MIDDLE_LATITUDE + self.y_km / KM_PER_DEGREE, 6)

    @property
    def longitude(self) -> Floats:
        km_per_degree = KM_PER_DEGREE * np.cos(np.radians(MIDDLE_LATITUDE))
        return np.asarray(np.round(MIDDLE_LONGITUDE + self.x_km / km_per_degree, 6))


def draw_city(plan: CityPlan, venues: int, seed: int) -> City:
    """A city of `venues` venues, drawn from its plan."""
    draws = seeded_generator(seed, _CITY)
    leaf = np.sort(draws.choice(plan.leaves, size=venues, p=_zipf_shares(plan.leaves, plan.leaf_exponent)))
    root_of_leaf = draws.choice(len(ROOTS), size=plan.leaves, p=_zipf_shares(len(ROOTS), plan.root_exponent))
    cluster = draws.choice(plan.clusters, size=venues, p=_zipf_shares(plan.clusters, plan.cluster_exponent))
    centres = plan.centre_spread_km * draws.standard_normal((2, plan.clusters))
    x_km, y_km = centres[:, cluster] + plan.cluster_radius_km * draws.standard_normal((2, venues))
    rank = 1 + draws.permutation(venues)
    root_effect = plan.root_popularity_spread * draws.standard_normal(len(ROOTS))
    popularity = (rank + plan.popularity_shift) ** -plan.popularity_exponent
    popularity *= np.exp(root_effect[root_of_leaf[leaf]])

    # Single precision throughout: two matrices of venues × venues are the city's whole weight.
    x, y = x_km.astype(np.float32), y_km.astype(np.float32)
    squared_km = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2
    explore = popularity.astype(np.float32) / (1 + squared_km / np.float32(plan.explore_km**2))
    explore_cdf = np.cumsum(explore, axis=1, out=explore)
    explore_cdf /= explore_cdf[:, -1:].copy()
    returning = np.exp(np.sqrt(squared_km, out=squared_km) / np.float32(-plan.return_km))
    return City(
        x_km=x_km,
        y_km=y_km,
        leaf=leaf,
        leaf_start=np.searchsorted(leaf, np.arange(plan.leaves + 1)).astype(np.int64),
        path=_paths(root_of_leaf, leaf),
        place=[draws.bytes(12).hex() for _ in range(venues)],
        popularity=popularity / popularity.sum(),
        explore_cdf=explore_cdf,
        return_weight=np.maximum(returning, np.float32(LEAST_RETURN_WEIGHT)),
    )


def _zipf_shares(count: int, exponent: float) -> Floats:
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def _paths(root_of_leaf: Integers, leaf: Integers) -> list[str]:
    leaves_so_far = [0] * len(ROOTS)
    names = []
    for root in root_of_leaf.tolist():
        leaves_so_far[root] += 1
        parent, child = ROOTS[root]
        names.append(f"{parent}>{child} {leaves_so_far[root]}")
    return [names[index] for index in leaf.tolist()]


PEOPLE_PER_BLOCK = 256
FIRST_MONDAY = 1_704_067_200  # 2024-01-01, 0h by the city's clock, as if that were UTC
HOURS_PER_WEEK, SECONDS_PER_HOUR = 168, 3600
MOST_VENUES = 20_000  # a city holds two matrices of venues × venues in memory
TRIES = 64  # rejections before an exploration looks elsewhere
_PEOPLE = 12


@dataclass(frozen=True)
class VisitsWorld:
    """A city and the habits of its people; the module's docstring says what each figure does."""

    seed: int
    venues: int = 3600
    city: CityPlan = field(default_factory=CityPlan)
    median_visits: float = 12.0
    visits_spread: float = 1.5
    fewest_visits: int = 3
    most_visits: int = 5000
    novelty_exponent: float = 0.31
    again: float = 0.12 / 0.56
    known_leaf: float = 0.2
    repeat_step: float = 0.45
    weeks: int = 43
    utc_offset_hours: int = -5

    def __post_init__(self) -> None:
        expect.whole("seed", self.seed, at_least=0)
        if expect.whole("venues", self.venues, at_least=2) > MOST_VENUES:
            raise BadInput(f"expected venues <= {MOST_VENUES}, got {self.venues!r}")
        expect.positive("median_visits", self.median_visits)
        expect.at_least_zero("visits_spread", self.visits_spread)
        expect.whole("fewest_visits", self.fewest_visits, at_least=1)
        expect.whole("most_visits", self.most_visits, at_least=self.fewest_visits)
        expect.at_least_zero("novelty_exponent", self.novelty_exponent)
        for name in ("again", "known_leaf", "repeat_step"):
            expect.probability(name, getattr(self, name), zero=True, one=True)
        expect.whole("weeks", self.weeks, at_least=1)
        expect.integer("utc_offset_hours", self.utc_offset_hours)

    @property
    def name(self) -> str:
        return "visits"

    def side_tables(self) -> Mapping[str, pa.Table]:
        return {}

    def batches(self, rows: int) -> Iterator[GeneratedRows]:
        walks = _Walks(self, draw_city(self.city, self.venues, self.seed))
        return first_rows(rows, map(walks.block, count()))


class _Walks:
    """The visits of people, drawn one block and one person after the other."""

    def __init__(self, world: VisitsWorld, city: City) -> None:
        self._world = world
        self._names = pa.array(city.place), pa.array(city.path)
        self._coordinates = city.latitude, city.longitude
        self._home_cdf = np.cumsum(city.popularity)
        self._hour_cdf = np.cumsum(hour_of_week_weights())
        # Memoryviews: reading and bisecting a row of them costs a fraction of what the array's own methods do.
        self._explore_cdf = [memoryview(row) for row in city.explore_cdf]
        self._return_weight = [memoryview(row) for row in city.return_weight]
        self._leaf = city.leaf.tolist()
        self._leaf_start = city.leaf_start.tolist()
        seen = np.arange(1, world.venues, dtype=np.float64)
        self._p_new = [1.0, *np.minimum(1, seen**-world.novelty_exponent).tolist(), 0.0]

    def block(self, block: int) -> GeneratedRows:
        world = self._world
        draws = seeded_generator(world.seed, _PEOPLE, block)
        drawn = world.median_visits * np.exp(world.visits_spread * draws.standard_normal(PEOPLE_PER_BLOCK))
        visits = np.clip(np.round(drawn), world.fewest_visits, world.most_visits).astype(np.int64)
        homes = np.searchsorted(self._home_cdf, draws.random(PEOPLE_PER_BLOCK) * self._home_cdf[-1])
        times = self._times(visits, draws)
        venue: list[int] = []
        explored: list[bool] = []
        uniforms = endless_uniforms(draws)
        for home, number in zip(homes.tolist(), visits.tolist(), strict=True):
            self._walk(home, number, uniforms, venue, explored)
        person = np.repeat(np.arange(PEOPLE_PER_BLOCK), visits)
        order = np.argsort(times, kind="stable")
        return self._rows(
            user=block * PEOPLE_PER_BLOCK + 1 + person[order],
            time=times[order],
            venue=np.array(venue, dtype=np.int64)[order],
            explored=np.array(explored)[order],
            home=homes[person[order]],
        )

    def _times(self, visits: Integers, draws: np.random.Generator) -> Integers:
        """Seconds since FIRST_MONDAY by the city's clock, each person's in order."""
        total = int(visits.sum())
        hour = np.searchsorted(self._hour_cdf, draws.random(total) * self._hour_cdf[-1])
        hour += HOURS_PER_WEEK * draws.integers(self._world.weeks, size=total)
        seconds = SECONDS_PER_HOUR * hour + draws.integers(SECONDS_PER_HOUR, size=total)
        return np.asarray(seconds[np.lexsort((seconds, np.repeat(np.arange(len(visits)), visits)))])

    def _walk(
        self, home: int, visits: int, uniforms: Iterator[float], venue: list[int], explored: list[bool]
    ) -> None:
        """Append one person's visits."""
        again, repeat_step, p_news = self._world.again, self._world.repeat_step, self._p_new
        seen: set[int] = set()
        history: list[int] = []
        onward: dict[int, list[int]] = {}  # where the person went on to from each venue, in order
        here = home
        for _ in range(visits):
            p_new = p_news[len(seen)]
            u = next(uniforms)
            new = u < p_new
            if new:
                there = self._explore(here, home, seen, history, uniforms)
                seen.add(there)
            elif u < p_new + again * (1 - p_new):
                there = here
            elif here in onward and next(uniforms) < repeat_step:
                steps = onward[here]
                there = steps[int(next(uniforms) * len(steps))]
            else:
                there = self._go_back(here, history, uniforms)
            if there != here and history:
                onward.setdefault(here, []).append(there)
            history.append(there)
            explored.append(new)
            here = there
        venue.extend(history)

    def _explore(
        self, here: int, home: int, seen: set[int], history: list[int], uniforms: Iterator[float]
    ) -> int:
        cdf = self._explore_cdf[here if next(uniforms) < 0.5 else home]
        first, end = 0, len(cdf)
        low, high = 0.0, 1.0
        if history and next(uniforms) < self._world.known_leaf:
            leaf = self._leaf[history[int(next(uniforms) * len(history))]]
            first, end = self._leaf_start[leaf], self._leaf_start[leaf + 1]
            low, high = (cdf[first - 1] if first else 0.0), cdf[end - 1]
        for attempt in range(2 * TRIES):
            if attempt == TRIES:
                first, end, low, high = 0, len(cdf), 0.0, 1.0
            # Rounding may point past the end of a range that has hardly any weight.
            there = min(bisect_right(cdf, low + (high - low) * next(uniforms), first, end), end - 1)
            if there not in seen:
                return there
        # Hardly ever: a person who has seen all but the obscure.
        unseen = [venue for venue in range(len(cdf)) if venue not in seen]
        return unseen[int(next(uniforms) * len(unseen))]

    def _go_back(self, here: int, history: list[int], uniforms: Iterator[float]) -> int:
        """By rejection: an earlier visit, uniformly, is a venue by its count."""
        weight = self._return_weight[here]
        while True:
            there = history[int(next(uniforms) * len(history))]
            if there != here and next(uniforms) < weight[there]:
                return there

    def _rows(
        self, *, user: Integers, time: Integers, venue: Integers, explored: Flags, home: Integers
    ) -> GeneratedRows:
        places, paths = self._names
        latitude, longitude = self._coordinates
        utc = FIRST_MONDAY + time - SECONDS_PER_HOUR * self._world.utc_offset_hours
        batch = {
            "user": pa.array(user, pa.int64()),
            "time": pa.array(utc, pa.int64()),
            "hour_of_week": pa.array((time // SECONDS_PER_HOUR % HOURS_PER_WEEK).astype(np.int16)),
            "place": places.take(pa.array(venue)),
            "category_path": paths.take(pa.array(venue)),
            "latitude": pa.array(latitude[venue]),
            "longitude": pa.array(longitude[venue]),
        }
        truth = {"explored": pa.array(explored), "home_place": places.take(pa.array(home))}
        return GeneratedRows(pa.RecordBatch.from_pydict(batch), pa.RecordBatch.from_pydict(truth))


def endless_uniforms(draws: np.random.Generator) -> Iterator[float]:
    """Uniforms on [0, 1) as Python's own floats, which a plain loop reads fastest."""
    return chain.from_iterable(draws.random(2**12).tolist() for _ in repeat(None))


def hour_of_week_weights() -> Floats:
    """How likely each hour of the week is, up to a factor: Monday's first hour is the first."""
    hour = np.arange(24) + 0.5

    def bump(at: float, height: float, width: float) -> Floats:
        return np.asarray(height * np.exp(-((hour - at) ** 2) / (2 * width**2)))

    working = 0.2 + bump(9, 1.2, 1.3) + bump(13, 1.2, 1.5) + bump(19.5, 1.7, 2.2)
    resting = 0.3 + bump(1, 0.6, 1.5) + bump(13.5, 1.2, 2.5) + bump(20, 1.4, 3)
    return np.concatenate([working] * 5 + [resting] * 2)
