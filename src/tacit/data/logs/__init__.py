"""One module for each log that tacit knows by name."""

from __future__ import annotations

from importlib import import_module

from tacit.data.log import Log
from tacit.errors import BadInput

NAMES = (
    "criteo-attribution",
    "criteo-display",
    "criteo-search",
    "taobao",
    "visits",
    "conversions",
    "display-small",
)


def named(name: str) -> Log:
    if name not in NAMES:
        raise BadInput(f"expected a log named {', '.join(NAMES)}, got {name!r}")
    log: Log = import_module(f"tacit.data.logs.{name.replace('-', '_')}").LOG
    return log
