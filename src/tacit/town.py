"""The made-up town's impressions and clicks, as the models of each stage read them."""

from __future__ import annotations

import numpy as np

from tacit.cleanroom.model.examples import ConversionExamples
from tacit.data.generators import town as places
from tacit.data.generators.town import ADS, ShownAds
from tacit.data.splits import RowSet
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
