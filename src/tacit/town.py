"""The made-up town as the stages of its day read it: examples for models, what devices disclose and expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats, Integers
from tacit.cleanroom.model.examples import ConversionExamples
from tacit.data.generators import town as places
from tacit.data.generators.town import ADS, DISCLOSED, Moments, ShownAds, Town, disclosed_moments
from tacit.data.splits import RowSet
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.server.candidates import CandidateServer
from tacit.errors import BadInput
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.impressions import Impressions
from tacit.train.estimator import Estimator
from tacit.train.examples import Examples, Sizes

PURCHASE = "purchase"


def click_examples(shown: ShownAds) -> Examples:
    """For the click models: what is disclosed is public, what stays on the device is sensitive."""
    public, public_rows = shown.public_codes
    sensitive, sensitive_rows = shown.sensitive_codes
    return Examples(
        public,
        sensitive,
        Sizes(public.shape[1], sensitive.shape[1], public_rows, sensitive_rows),
        RowSet(slice(0, len(public))),
        label=shown.happened.astype(np.uint8),
        keys={"row": np.arange(len(public))},
        public_keys=frozenset({"row"}),
        synthetic=True,
    )


def purchase_examples(shown: ShownAds) -> ConversionExamples:
    """For the conversion model: the ad and what was disclosed."""
    moments, rows = shown.moments, len(shown.ad)
    return ConversionExamples(
        fields=np.stack([shown.ad, moments.district, moments.kind], axis=1),
        numbers=np.zeros((rows, 0), np.float32),
        sequences=np.zeros((rows, 1, 0), np.int64),
        lengths=np.zeros(rows, np.int64),
        advertiser=shown.ad // places.ADS_EACH,
        records=np.arange(rows, dtype=np.uint64),
        tasks={PURCHASE: shown.happened.astype(np.uint8)},
        sizes=(ADS, len(places.DISTRICTS), len(places.KINDS)),
        sequence_sizes=(),
    )


def every_ad_everywhere() -> tuple[Moments, ShownAds]:
    """The contexts that can be disclosed, and every ad in each of them: rows (contexts x ads)."""
    everywhere = disclosed_moments()
    rows = Moments(*(np.repeat(column, ADS) for column in everywhere))
    ad = np.tile(np.arange(ADS), len(everywhere.person))
    return everywhere, ShownAds(rows, ad, np.zeros(len(ad), np.bool_))


def in_any_order(moments: Moments, source: Source) -> Moments:
    """The same visits in a random order: people come when they like."""
    order = np.argsort(source.words(len(moments.person)), kind="stable")
    return Moments(*(column[order] for column in moments))


def best_candidates(answering: CandidateServer, node: Node, k: int) -> list[int]:
    """The ads that earn most over the contexts below a node; then those that are worth most on average, which
    a person may still like best."""
    earning = answering.answer(node, k).selection.ads.tolist()
    values = answering.values(node)
    others = values.ads[np.argsort(-values.first_gains, kind="stable")].tolist()
    return list(dict.fromkeys(earning + others))[:k]


def disclosed_menus(town: Town, moments: Moments, menus: Sequence[Menu]) -> Integers:
    """The place of the menu that answers what each device discloses: a district and a kind of activity."""
    setting, answers = DisclosureLevel(DISCLOSED), {menu.node: at for at, menu in enumerate(menus)}
    contexts = moments.contexts()
    nodes = {context: setting.disclose(town.hierarchy, context) for context in set(contexts)}
    missing = sorted(str(node) for node in set(nodes.values()) - answers.keys())
    if missing:
        raise BadInput(f"expected a menu for every context that is disclosed, got none for {missing[0]}")
    return np.array([answers[nodes[context]] for context in contexts], np.int64)


def device_rates(device: Estimator, moments: Moments, menus: Sequence[Menu], menu: Integers) -> Floats:
    """The click rates that each device's own model expects of its menu's ads, in the menu's order.

    (visits, candidates of the longest menu); what is beyond the end of a shorter one is not read.
    """
    most = max(len(each) for each in menus)
    ads = np.zeros((len(menus), most), np.int64)
    for at, each in enumerate(menus):
        ads[at, : len(each)] = np.maximum(each.ads, 0)  # nothing has no rate: any will do
    rows = Moments(*(np.repeat(column, most) for column in moments))
    shown = ShownAds(rows, ads[menu].ravel(), np.zeros(len(rows.person), np.bool_))
    return device.predict(click_examples(shown)).astype(np.float64).reshape(-1, most)


def owed_by_advertisers(shown: Impressions) -> Impressions:
    """The same impressions, owed by advertisers instead of ads; codes below 0 are no campaign."""
    setter = np.where(shown.setter >= 0, shown.setter // places.ADS_EACH, shown.setter)
    return replace(shown, campaign=shown.campaign // places.ADS_EACH, setter=setter)


def draw_events(rates: Floats, source: Source) -> NDArray[np.bool_]:
    """What people did, made up: each of these happens at its rate."""
    return source.words(len(rates)) < (rates * 2.0**64).astype(np.uint64)
