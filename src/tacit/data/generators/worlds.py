"""The made-up worlds by the name of their log."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

from tacit.data.generators.generated import World
from tacit.errors import BadInput

MAKERS = {  # module and maker; imported when asked for
    "criteo-attribution": ("criteo_attribution", "AttributionWorld"),
    "criteo-display": ("criteo_display", "DisplayWorld"),
    "criteo-search": ("criteo_search", "SearchWorld"),
    "taobao": ("taobao", "TaobaoWorld"),
    "visits": ("visits", "VisitsWorld"),
    "conversions": ("conversions", "ConversionsWorld"),
    "display-small": ("criteo_display", "DisplayWorld.small"),
}
PEOPLE_A_ROW = (
    1.14 * 1_141_729 / 26_557_961
)  # published Taobao users a row; one in eight is never shown an ad here
FEWEST_PEOPLE = 1_000
WITH_RARE_SIGNAL = frozenset({"criteo-attribution", "criteo-display", "criteo-search", "display-small"})


def world(name: str, seed: int, *, rows: int | None = None, rare_signal: float | None = None) -> World:
    """The world of a log.

    `rare_signal` says how much of the signal lives in rare values, where a world has that dial. `rows` tells
    how many will be drawn, for two logs whose figures hang on it: attribution fills its 30.9 days with them,
    and Taobao has as many people as make the published 23 rows each. Without it both run on as they are.
    """
    if name not in MAKERS:
        raise BadInput(f"expected a log named {', '.join(MAKERS)}, got {name!r}")
    if rare_signal is not None and name not in WITH_RARE_SIGNAL:
        raise BadInput(
            f"expected rare_signal for {', '.join(sorted(WITH_RARE_SIGNAL))} only, got it for {name}"
        )
    module, maker = MAKERS[name]
    dials: dict[str, float] = {} if rare_signal is None else {"rare_signal": rare_signal}
    if rows is not None and name == "criteo-attribution":
        dials["span_rows"] = rows
    if rows is not None and name == "taobao":
        dials["people"] = max(FEWEST_PEOPLE, round(rows * PEOPLE_A_ROW))
    made: World = attrgetter(maker)(import_module(f"tacit.data.generators.{module}"))(seed, **dials)
    return made
