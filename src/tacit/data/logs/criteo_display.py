"""Criteo Display: a week of display ads, with thirteen counts and twenty-six hashed categories per row.

The file is in the order of time and has no time column, so a chronological split goes by the order of its
rows. What the features mean was never published; as in the study of semi-sensitive features (arXiv
2401.15246), every even-numbered feature, counted from 1 to 39, is taken as sensitive and every odd-numbered
one as public.
"""

from __future__ import annotations

from tacit.data.logs.definition import Log, PublishedFigure
from tacit.data.reading.layout import CellType, FileLayout
from tacit.data.splits import LogSplit
from tacit.schema.columns import Column, Kind, LogSchema, Role

COUNTS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))

CARDINALITIES = dict(
    zip(
        CATEGORIES,
        (
            1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
            27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
        ),
        strict=True,
    )
)  # fmt: skip
MISSING = {
    "I12": 0.774, "I1": 0.448, "I10": 0.448, "I6": 0.251, "I3": 0.204, "I4": 0.198, "I13": 0.198,
    "C22": 0.818, "C19": 0.45, "C20": 0.45, "C25": 0.45, "C26": 0.45, "C6": 0.133,
}  # fmt: skip


def _feature(index: int, name: str) -> Column:
    role = Role.SENSITIVE if index % 2 == 0 else Role.PUBLIC
    kind = Kind.WHOLE if name in COUNTS else Kind.CATEGORY
    return Column(name, {role}, kind, buckets_per_doubling=4)


LOG = Log(
    name="criteo-display",
    title="Criteo Display (train.txt of the Display Advertising Challenge)",
    about="Rows are impressions in the order of time; the label is a click. "
    "Even-numbered features are taken as sensitive, odd-numbered ones as public.",
    schema=LogSchema(
        "criteo-display",
        (
            Column("label", {Role.LABEL}, Kind.FLAG),
            *(_feature(index, name) for index, name in enumerate((*COUNTS, *CATEGORIES), start=1)),
        ),
    ),
    layouts=(
        FileLayout(
            {
                "label": CellType.WHOLE,
                **dict.fromkeys(COUNTS, CellType.WHOLE),
                **dict.fromkeys(CATEGORIES, CellType.TEXT),
            },
            separator="\t",
            header=False,
            quoted=False,
        ),
    ),
    split=LogSplit("chronological", {"train": "0.8", "validation": "0.1", "test": "0.1"}),
    published=(
        PublishedFigure("rows", 45_840_617),
        PublishedFigure("positive rate", 0.2562),
        *(PublishedFigure(f"{name}: values", count) for name, count in CARDINALITIES.items()),
        *(PublishedFigure(f"{name}: missing", share) for name, share in MISSING.items()),
    ),
)
