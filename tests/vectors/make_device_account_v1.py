"""Makes device_account_v1.json: what choices of a device spend, on both counts, as every device must count it.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_device_account_v1.py

The local count is exact, for all languages alike. The central count is a bound: a device in another language
may say more than `central_micros`, never less, and never more than the local count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from tacit.deliver.device.account import MICRO, DeviceAccount, DeviceLimits, PaidChoice, Settlement
from tacit.errors import BadInput, BudgetExceeded
from tacit.privacy.units import Window

DAY = 86_400
LIMITS = {"local": 6.0, "central": 6.0, "perChoice": 2.0, "delta": 1e-6, "windowSeconds": DAY}
"""Centrally as much as locally, so that the local count alone decides."""

BATCHES = [bytes([number]) * 16 for number in range(6)]
Step = dict[str, Any]


def limits_of(said: dict[str, Any]) -> DeviceLimits:
    epsilons = {name: Fraction(str(said[name])) for name in ("local", "central", "perChoice")}
    return DeviceLimits(
        epsilons["local"], epsilons["central"], epsilons["perChoice"], Fraction(str(said["delta"])),
        Window(said["windowSeconds"]),
    )  # fmt: skip


def reserve(micros: int, now: int) -> Step:
    return {"do": "reserve", "micros": micros, "now": now}


def settle(*found: tuple[int, int, int, int]) -> Step:
    """Of (micros, window, cohort, number of a batch)."""
    names = ("micros", "window", "cohort")
    return {
        "do": "settle",
        "found": [
            {**dict(zip(names, each[:3], strict=True)), "batch": BATCHES[each[3]].hex()} for each in found
        ],
    }


def under(**changed: Any) -> Step:
    return {"do": "under", "limits": {**LIMITS, **changed}}


TWO = 2 * MICRO
LIVES: dict[str, Sequence[Step]] = {
    "to_the_millionth": [reserve(TWO, 5), reserve(TWO, 6), reserve(1_999_999, 7), reserve(2, 8), reserve(1, 9),
                         reserve(1, 10)],
    "one_choice_has_a_limit": [reserve(TWO + 1, 5), reserve(TWO, 5)],
    "a_window_begins_anew": [reserve(TWO, DAY - 1), reserve(TWO, DAY - 1), reserve(TWO, DAY - 1),
                             reserve(1, DAY - 1), reserve(TWO, DAY)],
    "a_clock_set_back": [reserve(TWO, 3 * DAY), reserve(1, 3 * DAY - 1), reserve(1, 0),
                         reserve(MICRO, 3 * DAY)],
    "settled_once": [reserve(TWO, 5), reserve(TWO, 6), settle((TWO, 0, 5_000, 1)), settle((TWO, 0, 400, 1)),
                     settle((TWO, 0, 400, 1))],
    "settled_in_another_window": [reserve(TWO, DAY - 1), reserve(TWO, DAY), settle((TWO, 0, 5_000, 1))],
    "nothing_to_settle": [reserve(TWO, 5), settle((MICRO, 0, 100, 1)), settle((0, 0, 100, 1)),
                          settle((TWO, 0, 0, 1)), settle()],
    "lower_limits": [reserve(TWO, 5), reserve(TWO, 5), under(local=3.0, central=3.0), reserve(1, 5),
                     reserve(TWO, DAY), reserve(MICRO + 1, DAY), reserve(MICRO, DAY)],
    "another_window_is_refused": [reserve(TWO, 5), under(windowSeconds=7 * DAY), reserve(TWO, 5)],
}  # fmt: skip


def random_life(seed: int) -> list[Step]:
    """Choices at seconds that mostly go on, and sizes of some of them."""
    draw, now, steps = Random(seed), 0, list[Step]()
    for _ in range(40):
        now = max(0, now + draw.choice([1, 100, 9_000, 40_000, -50_000]))
        micros = draw.choice([1, 300_000, 500_000, 1_000_000, 1_500_000])
        steps.append(reserve(micros, now))
        if draw.random() < 0.3:
            steps.append(settle((micros, now // DAY, draw.randint(1, 9_000), draw.randrange(4))))
    return steps


def lived(steps: Sequence[Step]) -> list[Step]:
    """Each step with whether it is taken, and the account after it."""
    account, found = DeviceAccount(limits_of(LIMITS)), []
    for step in steps:
        more: dict[str, Any] = {}
        if step["do"] == "reserve":
            more["affords"] = account.affords(step["micros"], step["now"])
        try:
            account, more["taken"] = taken(account, step), True
        except (BudgetExceeded, BadInput):
            more["taken"] = False
        after = {"turn": account.turn, "window": account.in_window, "local_micros": account.local_micros}
        found.append({**step, **more, **after, "central_micros": account.central_micros})
    return found


def taken(account: DeviceAccount, step: Step) -> DeviceAccount:
    if step["do"] == "reserve":
        return account.reserve(step["micros"], step["now"])
    if step["do"] == "under":
        return account.under(limits_of(step["limits"]))
    return account.settle(
        Settlement(each["micros"], each["window"], each["cohort"], bytes.fromhex(each["batch"]))
        for each in step["found"]
    )


def central_cases() -> list[dict[str, Any]]:
    """Choices with their cohorts and batches (None: counted in full), and what they tell the ad server."""
    cases: list[tuple[float, list[tuple[int, int | None, int]]]] = [(1e-6, [])]
    for micros in (1, 10_000, 250_000, MICRO, TWO, 4 * MICRO):
        for cohort in (150, 1_000, 20_000, 2**31):
            cases.append((1e-6, [(micros, cohort, 0)]))
            cases.append((1e-6, [(micros, cohort, each) for each in range(5)]))
            cases.append((1e-9, [(micros, cohort, 0)] * 3))
    draw = Random(24)
    for _ in range(25):
        amounts = draw.sample([3_000, 20_000, 100_000, 500_000, MICRO, TWO], 2)
        sizes = [draw.choice([None, 2, 300, 1_000, 5_000, 40_000, 2**20, 2**22]) for _ in range(3)]
        count, delta = draw.randint(1, 12), draw.choice([1e-3, 1e-5, 1e-6, 1e-8, 1e-10])
        cases.append(
            (delta, [(draw.choice(amounts), draw.choice(sizes), draw.randrange(6)) for _ in range(count)])
        )
    return [central_case(delta, choices) for delta, choices in cases]


def central_case(delta: float, said: Sequence[tuple[int, int | None, int]]) -> dict[str, Any]:
    limits = DeviceLimits(local=10**6, per_choice=10, delta=Fraction(str(delta)))  # type: ignore[arg-type]
    choices = tuple(
        PaidChoice(micros) if cohort is None else PaidChoice(micros, cohort, BATCHES[batch])
        for micros, cohort, batch in said
    )
    local = sum(each.epsilon_micros for each in choices)
    account = DeviceAccount(limits, 0 if choices else None, local, choices)
    return {
        "delta": delta,
        "choices": [
            {"micros": each.epsilon_micros, "cohort": each.cohort, "batch": each.batch.hex()}
            for each in choices
        ],
        "local_micros": local,
        "central_micros": account.central_micros,
    }  # fmt: skip


BAD_LIMITS: dict[str, dict[str, Any]] = {
    "bad_per_choice_above_local": {"local": 1.0, "central": 1.0},
    "bad_part_of_a_millionth": {"local": 2.0000001},
    "bad_central": {"central": 0.0},
    "bad_local": {"local": -6.0},
    "bad_per_choice": {"perChoice": 0.0},
    "bad_delta": {"delta": 1.0},
    "bad_no_delta": {"delta": 0.0},
    "bad_window": {"windowSeconds": 0},
}


def records() -> dict[str, Any]:
    for each in BAD_LIMITS.values():
        try:
            limits_of({**LIMITS, **each})
        except BadInput:
            continue
        raise AssertionError(f"{each} are limits")
    lives = {name: lived(steps) for name, steps in LIVES.items()}
    return {
        "version": 1,
        "limits": LIMITS,
        "lives": lives | {f"random_{seed}": lived(random_life(seed)) for seed in range(4)},
        "centrals": central_cases(),
        "bad_limits": {name: {**LIMITS, **each} for name, each in BAD_LIMITS.items()},
    }


def main() -> None:
    spelled = json.dumps(records(), separators=(",", ":"))
    Path(__file__).with_name("device_account_v1.json").write_text(spelled + "\n")


if __name__ == "__main__":
    main()
