"""Report of all attacks on one room: what each reached, and whether that is what it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit.cleanroom.attacks.defended_room import Protection
from tacit.cleanroom.attacks.suite import (
    Attack,
    AttackResult,
    mechanism_advantage,
    run_attack,
    strongest_attack,
)
from tacit.cleanroom.protocol.terms import Terms
from tacit.privacy.randomness import Source


@dataclass(frozen=True, eq=False)
class AttackReport:
    """What every attack reached where nothing protects, and in our room under these terms."""

    results: tuple[AttackResult, ...]
    terms: Terms

    @cached_property
    def checks(self) -> list[dict[str, Any]]:
        """Two of each attack, against the unsafe target and against our room, and last one of their power: each
        with its figure, the bar that it is held to, and whether it holds."""
        return [record for each in self.results for record in _attack_checks(each)] + [self._power_check()]

    @property
    def failed(self) -> list[str]:
        """The names of the checks that do not hold."""
        return [record["name"] for record in self.checks if not record["holds"]]

    def _power_check(self) -> dict[str, Any]:
        """The attacks are as good as attacks can be, as far as can be told: else they would prove little."""
        reached, given = strongest_attack(self.results), mechanism_advantage(self.terms)
        return {
            "name": "the best attack may well get all that the terms give away",
            "value": reached.outcome.at_most(),
            "bar": given,
            "holds": reached.outcome.at_most() >= given,
            "measured": "advantage, at most",
            "advantage": reached.outcome.advantage,
            "attack": reached.attack.name,
        }


def attack_room(
    attacks: Iterable[Attack], protection: Protection, source: Callable[[str], Source]
) -> AttackReport:
    """Run these attacks, each against its unsafe target and against our room with this protection.

    `source(name)` is a stream of its own for each of them.
    """
    terms = protection.example_terms()  # refused here, before anything is run
    return AttackReport(tuple(run_attack(each, protection, source) for each in attacks), terms)


def _attack_checks(each: AttackResult) -> list[dict[str, Any]]:
    attack, outcome = each.attack, each.outcome
    return [
        {
            "name": f"{attack.name}, against {attack.unsafe}",
            "value": each.success,
            "bar": attack.bar,
            "holds": each.works,
            "measured": attack.measured,
        },
        {
            "name": f"{attack.name}, against our room",
            "value": outcome.at_least(),
            "bar": each.allowed,
            "holds": each.withstood,
            "measured": "advantage, at least",
            "advantage": outcome.advantage,
            "right": outcome.right,
            "said": outcome.said,
            "asked": outcome.asked,
        },
    ]
