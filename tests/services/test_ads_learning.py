"""What the ad server learns from charges: each epoch once, when it is over, for the menus of later ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.bill.protocol.menus import Lane, MenuEntry, PricedMenu
from tacit.deliver.device.menu_book import plan_menu
from tacit.deliver.protocol.forecasts import forecast_gains
from tacit.deliver.protocol.priced_menus import candidates_of
from tacit.deliver.protocol.priors import LearntPrior
from tacit.schema.contexts.hierarchy import Node
from tacit.services.ads.learning import LATE_SECONDS, LearntMenus, PriorLearner, ranks_of_charges
from tacit.store.billing_ads import SqlAdStore
from tacit.store.prior_evidence import SqlEvidenceStore
from tests.support.billing_worlds import EPOCH, TIMES, a_menu, a_node, charged, countersigned, redeem, redeemed
from tests.support.billing_worlds import a_stored_epoch as stored_epoch
from tests.support.ledger_places import Place


def near_menu(epoch: int = EPOCH, epsilon_micros: int = 4_000_000) -> PricedMenu:
    """Four candidates that everybody likes nearly as well, so that a private choice is worth it."""
    entries = tuple(MenuEntry(11 + at, 50_000, 1_000_000, 0.1 - 0.002 * at, -2) for at in range(4))
    return PricedMenu(
        epoch=epoch, lane=Lane.PERSONAL, node=a_node("Porto"), entries=entries, smallest_cohort=1,
        rule="second price per impression", mechanism="trunc", epsilon_micros=epsilon_micros,
    )  # fmt: skip


@pytest.fixture
def ads(place: Place) -> Iterator[SqlAdStore]:
    store = SqlAdStore.open(place.where)
    yield store
    store.close()


def keep(ads: SqlAdStore, menu: PricedMenu, counts: dict[int, int]) -> None:
    """An epoch that was open and reported, with charges by index."""
    stored = stored_epoch(menu, a_menu(epoch=menu.epoch))
    ads.keep_epoch(menu.epoch, stored)
    ads.publish_epoch(menu.epoch, countersigned(stored.directory))
    reports = [
        charged(menu, f"{menu.epoch}-{index}-{at}", index)
        for index, many in counts.items()
        for at in range(many)
    ]
    redeem(ads, redeemed(menu, reports, f"batch-{menu.epoch}"))


def a_learner(ads: SqlAdStore, folder: Path, now: int) -> PriorLearner:
    return PriorLearner(ads, SqlEvidenceStore.open(folder / "priors.sqlite"), clock=lambda: now)


def test_an_epoch_is_learnt_once_when_it_is_over(ads: SqlAdStore, tmp_path: Path) -> None:
    menu = near_menu()
    keep(ads, menu, {1: 30, 2: 25, 3: 25, 4: 20})
    assert ads.reported(EPOCH) == {menu.menu_id: {1: 30, 2: 25, 3: 25, 4: 20}}
    early = a_learner(ads, tmp_path, TIMES.expires + LATE_SECONDS - 1)
    assert early.learn_due() == []
    assert early.prior(EPOCH + 1) is None, "nothing was learnt: devices plan by the default"
    due = a_learner(ads, tmp_path, TIMES.expires + LATE_SECONDS)
    (learnt,) = due.learn_due()
    assert (learnt.epoch, learnt.menus, learnt.reports) == (EPOCH, 1, 100)
    assert due.learn_due() == []
    assert a_learner(ads, tmp_path, TIMES.expires + LATE_SECONDS).learn_due() == [], "after a restart too"
    redeem(ads, redeemed(menu, [charged(menu, "late")], "late"))
    assert a_learner(ads, tmp_path, TIMES.expires + LATE_SECONDS).learn_due() == [], "late ones are left"
    found = due.prior(EPOCH + 1)
    assert isinstance(found, LearntPrior)
    assert found.reports == pytest.approx(100)


def test_a_prior_of_an_epoch_never_changes(ads: SqlAdStore, tmp_path: Path) -> None:
    keep(ads, near_menu(), {1: 30, 2: 30})
    now = TIMES.expires + LATE_SECONDS
    learner = a_learner(ads, tmp_path, now)
    learner.learn_due()
    first = learner.prior(EPOCH + 2)
    keep(ads, near_menu(EPOCH + 1), {4: 60})
    learner.learn_due()
    assert learner.prior(EPOCH + 2) == first, "as it was published"
    assert learner.prior(EPOCH + 1) is None, "which was over before anything was published"
    assert learner.prior(EPOCH + 3) != first
    published = learner.published()
    assert published is not None
    assert (published.epoch, published.batches) == (EPOCH + 3, 2)


def test_priors_tell_devices_that_differ_from_those_that_agree(tmp_path: Path) -> None:
    """By choices that the menu's own law draws: of devices whose scores are the public ones, and of such that
    like one candidate each twice as well."""
    menu = near_menu()
    candidates = candidates_of(menu)
    choice = plan_menu(menu, candidates)
    assert choice is not None
    alike = np.asarray(candidates.rates)
    apart = alike * (1 + np.eye(4)[:, :])
    gains = {}
    for name, rates in {"alike": alike[None], "apart": apart}.items():
        pmf = choice.pmf(rates).mean(axis=0)
        counts = np.round(4_000 * pmf).astype(int)
        with_store = SqlAdStore.open(tmp_path / f"{name}.sqlite")
        try:
            keep(with_store, menu, {at + 1: int(many) for at, many in enumerate(counts) if many})
            folder = tmp_path / name
            folder.mkdir()
            learner = a_learner(with_store, folder, TIMES.expires + LATE_SECONDS)
            learner.learn_due()
            prior = learner.prior(EPOCH + 1)
        finally:
            with_store.close()
        assert prior is not None
        gains[name] = float(forecast_gains(candidates.public_scores, prior, (4.0,))[0])
    assert gains["apart"] > 1.5 * gains["alike"]


def test_what_tells_nothing_is_left_out() -> None:
    menu = near_menu()
    assert ranks_of_charges(menu.public_lane(), {1: 5}) is None
    assert ranks_of_charges(replace(menu, nothing_rank=4, nothing_micros=1.0), {1: 5}) is None
    assert ranks_of_charges(menu, {}) is None
    assert ranks_of_charges(a_menu(), {1: 5}) is None, "above its worth: no device chooses from it"
    alone = replace(menu, entries=menu.entries[:1])
    assert ranks_of_charges(alone, {1: 5}) is None


def test_ranks_that_the_law_never_gives_are_left_out() -> None:
    """Who lies about its choice can be charged for, and teaches nothing."""
    few = replace(near_menu(), entries=(*near_menu().entries[:2], *(
        MenuEntry(20 + at, 1, 1_000, 0.01, -2) for at in range(2)
    )))  # fmt: skip
    told = ranks_of_charges(few, {1: 3, 2: 2, 4: 9})
    assert told is not None
    assert told.counts.tolist() == [3, 2, 0, 0]


class Fixed:
    """A source whose menus are always the same."""

    epoch_seconds, report_seconds = 600, 60

    def refresh(self) -> None:
        """Nothing changes."""

    def menus(
        self,
        epoch: int,
        opens: int,
        closes: int,
        left_micros: Mapping[int, int],
        without: Mapping[Node, frozenset[int]],
    ) -> list[PricedMenu]:
        assert (opens, closes, left_micros, without) == (1_200, 1_800, {11: 5}, {})
        return [near_menu(epoch), near_menu(epoch).public_lane()]


def test_the_prior_stands_in_menus_of_the_personal_lane(tmp_path: Path) -> None:
    store = SqlAdStore.open(tmp_path / "ads.sqlite")
    try:
        learner = a_learner(store, tmp_path, TIMES.expires + LATE_SECONDS)
        menus = LearntMenus(Fixed(), learner)
        assert (menus.epoch_seconds, menus.report_seconds) == (600, 60)
        assert menus.menus(EPOCH + 1, 1_200, 1_800, {11: 5}, {})[0] == near_menu(EPOCH + 1)
        keep(store, near_menu(), {1: 30, 2: 30})
        learner.look()
        personal, public = menus.menus(EPOCH + 2, 1_200, 1_800, {11: 5}, {})
        assert candidates_of(personal).prior == learner.prior(EPOCH + 2)
        assert public == near_menu(EPOCH + 2).public_lane()
    finally:
        store.close()
