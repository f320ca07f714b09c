"""A made-up city: where its venues lie, what they are, how well known, and how an explorer would pick one.

Venues sit in Thomas clusters: cluster i has weight i^-a and a centre N(0, R² I), and a venue lies N(0, r² I)
around its cluster's centre. A venue's leaf category is Zipf, and so is a leaf's root category. With the venues
ranked in a random order,

    popularity(v) = (rank + shift)^-b · exp(s z_root),        z_root ~ N(0, 1) for each root category
    P(v | from o) ∝ popularity(v) / (1 + (distance(o, v) / d)²)

The coordinates look like those of a large city on the American east coast, but nothing at them is real.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.data.generators.generated import generator

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]

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
    explore_cdf: Singles
    return_weight: Singles  # exp(-distance / return_km), but at least LEAST_RETURN_WEIGHT

    @property
    def latitude(self) -> Floats:
        return np.round(MIDDLE_LATITUDE + self.y_km / KM_PER_DEGREE, 6)

    @property
    def longitude(self) -> Floats:
        km_per_degree = KM_PER_DEGREE * np.cos(np.radians(MIDDLE_LATITUDE))
        return np.asarray(np.round(MIDDLE_LONGITUDE + self.x_km / km_per_degree, 6))


def draw_city(plan: CityPlan, venues: int, seed: int) -> City:
    draws = generator(seed, _CITY)
    leaf = np.sort(draws.choice(plan.leaves, size=venues, p=_zipf(plan.leaves, plan.leaf_exponent)))
    root_of_leaf = draws.choice(len(ROOTS), size=plan.leaves, p=_zipf(len(ROOTS), plan.root_exponent))
    cluster = draws.choice(plan.clusters, size=venues, p=_zipf(plan.clusters, plan.cluster_exponent))
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


def _zipf(count: int, exponent: float) -> Floats:
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
