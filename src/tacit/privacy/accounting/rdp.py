"""Epsilon by Rényi differential privacy: looser than `pld`, shown beside it because others state it."""

from __future__ import annotations

import numpy as np

from tacit import expect
from tacit.errors import UnknownRelease
from tacit.privacy.accounting.renyi import ORDERS
from tacit.privacy.accounting.rules import RULES, readable
from tacit.privacy.relations import Relation
from tacit.privacy.releases import Release


def rdp_epsilon(release: Release, *, delta: expect.Number, relation: Relation) -> float:
    """An upper bound on epsilon through Rényi divergences.

    Guarantee:  the release is (epsilon, delta)-DP; usually 2-15% above `pld.epsilon`.
    Neighbours: `relation`, for the unit that the release speaks of.
    Assumes:    what each release says of itself.
    Source:     Mironov 2017 (arXiv 1702.07476); conversion: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010).
    """
    relation = Relation(relation)
    leaves = readable(release, relation)
    chance = float(expect.probability("delta", delta))
    total = np.zeros(len(ORDERS))
    for leaf in leaves:
        divergences = RULES[type(leaf.release)].renyi
        if divergences is None:
            kind = type(leaf.release).__name__
            raise UnknownRelease(f"expected a release with a Rényi bound, got {kind}: use PLD")
        total = total + leaf.count * divergences(leaf.release, relation, leaf.group)
    from dp_accounting.rdp import rdp_privacy_accountant as library  # here: heavy, few need it

    found, _ = library.compute_epsilon(ORDERS, total, chance)
    return float(found)
