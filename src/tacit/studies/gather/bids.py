"""Which places bid on a context, by public facts: those of the kind that its query asks for, near enough."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tacit.schema.contexts.hierarchy import Levels
from tacit.studies.contexts.trace import Floats, Integers
from tacit.studies.contexts.trial import LOCATION, QUERY, Trial

REACH_KM = 5.0  # how far from a place people may be who are shown its ad
KM_PER_DEGREE = 111.2
DECIMALS = 5  # a location at level i keeps 5 - i decimals; all are kept at 0, none of it from level 6 on


class PublicBids:
    """Callable as `gather.estimate.top_down.Bids`: levels and a node, back come its ads.

    A node is somewhere within a cell of the map, so a place bids on it from within its reach and the cell's
    diagonal of some context in it.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        queries, query = np.unique(np.asarray(trial.trace.context["query"]), return_inverse=True)
        self._queries = queries.tolist()
        self._row = query
        # A place's query is its kind, whoever asks: any visit to it tells.
        self._place = np.zeros(trial.trace.places, np.int64)
        self._place[trial.trace.place] = query
        self._here = np.asarray(trial.trace.context["location"], np.float64)
        self._at = cache(self._made)

    def __call__(self, levels: Levels, node: int) -> Integers:
        kind, here, ads = self._at(levels)
        of_kind = ads[int(kind[node])]
        reach = _reach_km(levels)
        if math.isinf(reach):
            return of_kind
        apart = self._trial.trace.point[of_kind] - here[node]
        apart[:, 1] *= math.cos(math.radians(here[node, 0]))
        near: Integers = of_kind[np.hypot(*apart.T) * KM_PER_DEGREE <= reach]
        return near

    def _made(self, levels: Levels) -> tuple[Integers, Floats, list[Integers]]:
        """(nodes,) each node's kind by its query, and where a context of it is; by kind the places."""
        attribute = self._trial.trace.attributes[QUERY]
        told = [attribute.generalise(query, levels[QUERY]) for query in self._queries]
        kinds, kind_of_query = np.unique(told, return_inverse=True)
        nodes, node = self._trial.nodes.count(levels), self._trial.nodes.of_row(levels)
        kind, here = np.zeros(nodes, np.int64), np.zeros((nodes, 2))
        kind[node], here[node] = kind_of_query[self._row], self._here
        of_place = kind_of_query[self._place]
        return kind, here, [np.flatnonzero(of_place == each) for each in range(len(kinds))]


def _reach_km(levels: Levels) -> float:
    decimals = DECIMALS - levels[LOCATION]
    if decimals < 0:
        return math.inf
    return REACH_KM + math.sqrt(2) * KM_PER_DEGREE * float(10) ** -decimals
