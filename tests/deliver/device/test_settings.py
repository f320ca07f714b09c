"""What a person allows: consent, disclosure, limits, statistics."""

from __future__ import annotations

from itertools import product

import pytest

from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.settings import CutDisclosure, DeviceSettings, StatisticsConsent
from tacit.deliver.protocol.cuts import Cut, CutBlock, context_tree, finest_cut, node_name
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.errors import BadInput
from tacit.schema.contexts.nodes import ContextNodes
from tests.support.device_cases import EXACT, PLACES, QUARTER, ROOT, TOWN, node

TREE = context_tree(ContextNodes.of(TOWN, {"place": list(PLACES)}))


def test_nothing_is_allowed_unless_somebody_said_so() -> None:
    settings = DeviceSettings(TOWN, DisclosureLevel(QUARTER))
    assert settings.consent is False
    assert settings.statistics.allowed is False
    for word in (1, "yes", None):
        with pytest.raises(BadInput, match="expected consent to be a bool"):
            DeviceSettings(TOWN, DisclosureLevel(QUARTER), consent=word)  # type: ignore[arg-type]


def test_statistics_are_joined_by_settings_alone() -> None:
    for allowed, only_charging, only_wifi, charging, wifi in product((False, True), repeat=5):
        consent = StatisticsConsent(allowed, only_charging, only_wifi)
        expected = allowed and not (only_charging and not charging) and not (only_wifi and not wifi)
        assert consent.allows("clicks", charging=charging, wifi=wifi) is expected
        asked = StatisticsConsent(allowed, only_charging, only_wifi, ("visits", "clicks"))
        assert asked.allows("clicks", charging=charging, wifi=wifi) is expected
        assert not asked.allows("purchases", charging=charging, wifi=wifi)
        assert not StatisticsConsent(allowed, questions=()).allows("clicks", charging=charging, wifi=wifi)
    with pytest.raises(BadInput, match="expected questions to be a list, got 'clicks'"):
        StatisticsConsent(questions="clicks")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="expected allowed to be a bool, got 1"):
        StatisticsConsent(allowed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [EXACT, QUARTER, ROOT])
def test_a_context_is_told_at_its_level(levels: tuple[int, ...]) -> None:
    settings = DeviceSettings(TOWN, DisclosureLevel(levels))
    for place in PLACES:
        here = settings.generalise((place,))
        assert here.disclosed == TOWN.at((place,), levels)
        assert here.path == TOWN.path((place,))
        assert place not in repr(here) or levels == EXACT


def test_a_context_is_told_by_its_block_of_a_cut() -> None:
    cut = finest_cut(TREE, lambda name: name in {node_name(TOWN.at((p,), EXACT)) for p in ("Cafe", "Bakery")} or
                     name == node_name(TOWN.at(("Gym",), QUARTER)))  # fmt: skip
    assert cut is not None
    settings = DeviceSettings(TOWN, CutDisclosure(cut))
    told = {place: settings.generalise((place,)).disclosed for place in PLACES}
    assert told == {"Cafe": node("Cafe"), "Bakery": node("Bakery"), "Gym": node("New"), "Pool": node("New")}


def test_the_rest_of_a_node_is_told_as_the_node() -> None:
    cafe, root = node_name(TOWN.at(("Cafe",), EXACT)), TREE.root
    old, new = (node_name(TOWN.at((place,), QUARTER)) for place in ("Cafe", "Gym"))
    cut = Cut(TREE, [CutBlock(old, (cafe,)), CutBlock(cafe), CutBlock(new)])
    told = [DeviceSettings(TOWN, CutDisclosure(cut)).generalise((place,)).disclosed for place in PLACES]
    assert told == [node("Cafe"), node("Old"), node("New"), node("New")]
    assert root not in (old, new)


def test_a_context_outside_of_the_cut_is_refused_without_being_told() -> None:
    tree = context_tree(ContextNodes.of(TOWN, {"place": ["Cafe", "Bakery"]}))
    cut = finest_cut(tree, lambda _: True)
    assert cut is not None
    with pytest.raises(
        BadInput, match="expected a context that is a leaf of the cut's tree, got another"
    ) as refusal:
        DeviceSettings(TOWN, CutDisclosure(cut)).generalise(("Gym",))
    assert "Gym" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prefetch": 0}, "expected prefetch to be a whole number >= 1, got 0"),
        ({"prefetch": 17}, "expected prefetch in 1..16, got 17"),
        ({"smallest_cohort": 0}, "expected smallest_cohort to be a whole number >= 1, got 0"),
        ({"skew_seconds": -1}, "expected skew_seconds to be a whole number >= 0, got -1"),
        ({"limits": 6}, "expected limits to be a DeviceLimits, got 6"),
        ({"disclosure": QUARTER}, "expected disclosure to be a DisclosureLevel or a CutDisclosure"),
        ({"statistics": True}, "expected statistics to be a StatisticsConsent, got True"),
    ],
)
def test_settings_that_are_none_are_refused_by_name(changed: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        DeviceSettings(**{"hierarchy": TOWN, "disclosure": DisclosureLevel(QUARTER), **changed})  # type: ignore[arg-type]


def test_keys_are_of_their_size() -> None:
    with pytest.raises(BadInput, match="expected proxy_signing to be 32 bytes, got 31"):
        PartyKeys(bytes(32), bytes(32), bytes(31))
