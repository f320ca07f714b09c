"""Made-up devices: the same next time, counting what goes through them, joining only the rounds they may."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.deliver.campaigns.store import MACHINE, Author
from tacit.deliver.device.packs import barred_campaigns
from tacit.deliver.device.settings import StatisticsConsent
from tacit.deliver.protocol.disclosure import DisclosureLevel
from tacit.deliver.protocol.priced_menus import candidates_of
from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput
from tacit.gather.client.contributions import Contributions, Event
from tacit.services import trial, visits
from tacit.services.market_file import read_market
from tacit.services.visits import CountingChannel, MadeUpTaste, Visitor, campaign_counts, read_place
from tests.support.billing_services import HERE, a_billing_world
from tests.support.listed_market import LISTED_MARKET
from tests.support.openrtb_samples import ADVERTISERS, ExchangeWorld
from tests.support.service_worlds import CELLS, a_world


def test_tastes_are_a_persons_own_and_stay(tmp_path: Path) -> None:
    (tmp_path / "market.toml").write_text(LISTED_MARKET)
    menu = candidates_of(read_market(tmp_path / "market.toml").priced(1)[0])
    context: Any = None
    rates = MadeUpTaste(1)(menu, context)
    np.testing.assert_array_equal(rates, MadeUpTaste(1)(menu, context))
    assert not np.array_equal(rates, MadeUpTaste(2)(menu, context))
    assert ((rates >= 0) & (rates <= 1)).all()


def test_a_visitor_shows_reports_and_is_counted(tmp_path: Path) -> None:
    with a_billing_world(tmp_path) as world:
        world.wait_for_epoch()
        device = world.device(5)
        counting = CountingChannel(world.channel())
        device._channel = device._offers._channel = counting
        visitor = Visitor(5, device, counting, [HERE])
        visitor.visit(3, lambda: world.now)
        assert len(visitor.shown) == counting.calls["report"] == 3
        assert counting.sent_bytes > 3 * 434
        assert {here for here, _ in visitor.shown} == {HERE}
        world.bill(3)
        assert world.charged_micros() == sum(ad.price_micros for _, ad in visitor.shown)
        visitor.device = world.device(6)
        world.stop("proxy.test")
        with pytest.raises(OSError, match="ConnectError"):
            visitor.visit(1, lambda: world.now)


def test_visitors_keep_to_caps_as_devices_do(tmp_path: Path) -> None:
    world = ExchangeWorld(tmp_path)
    try:
        store = world.running.campaigns
        for number in ADVERTISERS:
            once = {"caps": [{"impressions": 1, "seconds": 86_400}]}
            store.amend_campaign(number, once, None, Author(MACHINE, world.now))
        world.now += 2  # by when packs have it
        told = DisclosureLevel(world.hierarchy.levels()[1])
        place: Any = SimpleNamespace(
            keys=world.keys, hierarchy=world.hierarchy, contexts=(HERE,), disclosure=told
        )
        visitor = visits._visitor(place, tmp_path, 0, world.channel(), Entropy())
        visitor.visit(2, lambda: world.now)
        assert visitor.channel.calls["pack"] == 1  # of its one menu, before it chose
        showings = visitor.device.journal.showings(world.now)
        assert [each.campaign for each in showings] == [ad.campaign for _, ad in visitor.shown]
        shown = {each.campaign for each in showings}
        pack = visitor.device._packs
        assert pack is not None
        menu = pack.pack(visitor.shown[0][1].menu_id)
        assert barred_campaigns(menu, showings, (), world.now) == shown
    finally:
        world.end()


def test_some_visitors_buy_what_they_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_billing_world(tmp_path) as world:
        world.wait_for_epoch()
        device, bought = world.device(5), list[tuple[int, int]]()
        monkeypatch.setattr(device, "note_conversion", lambda *given: bought.append(given))
        for one_in, least, most in ((1, 4, 4), (10**6, 0, 0)):
            monkeypatch.setattr("tacit.services.visits.CONVERTED_ONE_IN", one_in)
            bought.clear()
            visitor = Visitor(5, device, CountingChannel(world.channel()), [HERE])
            visitor.visit(4, lambda: world.now)
            assert least <= len(bought) <= most
            if bought:
                assert bought == [(ad.campaign, world.now) for _, ad in visitor.shown]


def test_counts_of_campaigns_keep_to_what_the_round_promises(tmp_path: Path) -> None:
    with a_world(tmp_path) as world:
        round = world.round
        events = [Event(HERE, ad, False) for ad in (1, 1, 2, CELLS + 5)]
        counts = campaign_counts(round, Contributions.choose(events, round.promise.events, Simulation(1)))
        assert counts.tolist() == [0, 2, 1, 0, 0, 0, 0]
        many = [Event(HERE, 1, False)] * 30
        chosen = Contributions.choose(many, round.promise.events, Simulation(1))
        assert campaign_counts(round, chosen).max() == round.promise.each


@pytest.mark.parametrize(("allowed", "joined"), [(True, ["trial"]), (False, [])])
def test_only_who_agreed_takes_part_in_rounds(tmp_path: Path, allowed: bool, joined: list[str]) -> None:
    with a_world(tmp_path) as world:
        world.open()
        consent = StatisticsConsent(allowed=allowed)
        device: Any = SimpleNamespace(settings=SimpleNamespace(statistics=consent))
        visitor = Visitor(1, device, device, [HERE])
        visitor.join_rounds(world.device(1), world.device(1)._reporter._outbox, Entropy())  # type: ignore[arg-type]
        assert visitor.rounds == joined


def test_a_place_needs_contexts_of_trees(tmp_path: Path) -> None:
    trial.write_trial(tmp_path / "a", proxy_port=1, server_port=2, entropy=Entropy(), billing=True)
    assert len(read_place(tmp_path / "a").contexts) == 16
    assert read_place(tmp_path / "a" / "parties.toml").keys == read_place(tmp_path / "a").keys
    (tmp_path / "a" / "contexts.toml").write_text(
        '[[attribute]]\nname = "place"\ndecimals = ["exact", 2, 0]\n[sequence]\nsteps = [[0], [1], [2]]\n'
    )
    with pytest.raises(BadInput, match="attribute place: expected a tree to visit"):
        read_place(tmp_path / "a")
