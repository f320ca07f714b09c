"""The twenty fields that a sale depends on in the Criteo Sponsored Search log: laws, ties and missing values.

Published: about 313 partners. Measured on a public sample, 2,822 rows of one partner: the law of
`nb_clicks_1week`, the shares of devices, the daily wave, and where values are missing. One partner cannot
show how large the whole file's vocabularies are: those are assumptions. So are the rates at which the 5th to
7th category are missing: the sample has hardly a 5th and no deeper one, which cannot hold for every partner.
"""

from __future__ import annotations

from math import cos, tau

from tacit.data.generators.counts import Counts
from tacit.data.generators.fields import Absence, Field, Law
from tacit.data.generators.histogram import Histogram
from tacit.data.generators.zipf import Zipf

CLICKS = Counts(3.11, 2.50, 1.60)
HOURS = Histogram(tuple(1 + 0.7 * cos(tau * (hour - 6) / 24) for hour in range(24)))
WEEKDAYS = Histogram((1.0,) * 7)
DEVICES = Histogram((0.692, 0.273, 0.033, 0.002))

SENSITIVE = ("device_type", "audience_id", "user_id")

# Group of each field, its number of values in a real-looking log, and in the small one (10 to 16,000).
PUBLIC: dict[str, tuple[int, int, int]] = {
    "product_age_group": (1, 10, 10),
    "product_gender": (1, 6, 18),
    "product_brand": (2, 50_000, 9_000),
    "product_category1": (2, 25, 31),
    "product_category2": (2, 200, 55),
    "product_category3": (3, 1_200, 170),
    "product_category4": (3, 2_500, 530),
    "product_category5": (3, 2_000, 930),
    "product_category6": (3, 500, 1_640),
    "product_category7": (3, 50, 2_890),
    "product_country": (0, 20, 97),
    "product_id": (2, 2_000_000, 16_000),
    "product_title": (2, 1_000_000, 5_090),
    "partner_id": (0, 313, 313),
}

NAMES = ("nb_clicks_1week", "hour", "weekday", *PUBLIC, *SENSITIVE)
POSITION = {name: index for index, name in enumerate(NAMES)}

# What matters in combination only: a model without the sensitive fields cannot see it.
CROSSED = tuple((POSITION["partner_id"], POSITION[name]) for name in ("device_type", "audience_id"))

USER_LAW = (0.7, 50.0)  # exponent and shift: nobody clicks much more than others do


def fields(*, audiences: int, users: int, small: bool) -> tuple[Field, ...]:
    """Groups are our own choice; every sensitive field shares one with public fields."""
    laws: dict[str, tuple[Law, int]] = {
        "nb_clicks_1week": (CLICKS, 0),
        "hour": (HOURS, 4),
        "weekday": (WEEKDAYS, 4),
        **{name: (Zipf(less if small else real), group) for name, (group, real, less) in PUBLIC.items()},
        "device_type": (DEVICES, 4),
        "audience_id": (Zipf(audiences), 1),
        "user_id": (Zipf(users) if small else Zipf(users, *USER_LAW), 0),
    }
    return tuple(Field(name, *laws[name]) for name in NAMES)


def _absence(lean: float, **rates: float) -> Absence:
    return Absence(tuple((POSITION[name], rate) for name, rate in rates.items()), lean)


# A quarter of the clicks say nothing about a product, and those mostly do know the audience. A field that two
# absences name is missing where either says so: .434 of age groups, .700 and .741 of 3rd and 4th categories
# in all.
ABSENCES = (
    _absence(
        0.85,
        product_id=0.246, product_country=0.246, nb_clicks_1week=0.255, product_gender=0.255,
        product_brand=0.255, product_title=0.255, product_age_group=0.255,
        **{f"product_category{depth}": 0.255 for depth in range(1, 8)},
    ),
    _absence(-0.85, audience_id=0.683),
    _absence(0.0, product_age_group=0.240),
    _absence(
        0.0, product_category3=0.597, product_category4=0.652, product_category5=0.90, product_category6=0.97,
        product_category7=0.99,
    ),
)  # fmt: skip
