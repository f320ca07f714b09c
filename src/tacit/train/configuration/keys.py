"""Which keys a configuration may have, and which methods read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.errors import BadInput

METHODS = ("plain", "label-dp", "dp-sgd", "hybrid", "statistic")
DP_SGD = frozenset({"dp-sgd", "hybrid"})
FLIPPING = frozenset({"label-dp", "hybrid"})
DESCENDING = frozenset({"plain", "dp-sgd", "hybrid"})
STATISTIC = frozenset({"statistic"})
RELEASING = DP_SGD | FLIPPING | STATISTIC
ALL = frozenset(METHODS)
STEPPING = ALL - STATISTIC

OPTIMIZERS = ("momentum", "beta1", "beta2", "optimizer_epsilon")
LEARNING = ("epochs", "batch", "rate", "decay", "penalty", "optimizer", *OPTIMIZERS)

KEYS: dict[str, dict[str, frozenset[str]]] = {
    "privacy": {
        "method": ALL,
        "epsilon": RELEASING,
        "delta": DP_SGD | STATISTIC,
        "unit": RELEASING,
        "window_days": RELEASING,
        "window_origin": RELEASING,
        "ad_tech": RELEASING,
        "cap": FLIPPING,
        "cap_choice": FLIPPING,
        "split": FLIPPING,
        "k": frozenset({"hybrid"}),
        "public_tower": frozenset({"hybrid"}),
    },
    "labels": dict.fromkeys(("mechanism", "correction", "prior_rate", "version", *LEARNING), FLIPPING),
    "descent": {
        **dict.fromkeys(LEARNING, DESCENDING),
        **dict.fromkeys(("clip_norm", "start_rate", "recalibrate"), DP_SGD),
    },
    "speed": {"microbatch": STEPPING, "noise": DP_SGD},
    "statistic": dict.fromkeys(("rank", "clip_norm", "most_pairs", "rate"), STATISTIC),
    "run": {"simulated": ALL, "tensorboard": STEPPING, "mlflow": STEPPING},
    "ledger": {
        **dict.fromkeys(("path", "witness", "scope", "relation"), RELEASING),
        "key": DP_SGD | STATISTIC,
        "secret": FLIPPING,
    },
    "checkpoint": dict.fromkeys(("every_steps", "every_minutes"), STEPPING),
    "export": {"onnx": STEPPING},
}


def keys_for(table: str) -> tuple[str, ...]:
    return tuple(KEYS[table])


def refuse_ignored(table: str, record: Mapping[str, Any], method: str) -> None:
    """A key that the method does not read would promise or tune nothing, so it is refused."""
    for key in record:
        readers = KEYS[table].get(key)
        if readers is not None and method not in readers:
            words = ", ".join(name for name in METHODS if name in readers)
            raise BadInput(f"{table}.{key}: expected only with method {words}, got it with {method}")
