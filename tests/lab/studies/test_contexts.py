"""The studies of contexts: visits become requests as the paper says, and intervals are over people."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tacit.data.logs.visits import with_contexts
from tacit.deliver.server.shrinkage import BackOff, Shrinkage
from tacit.errors import BadInput
from tacit.privacy.choice.top_choice import TopChoice, best_top_plan
from tacit_lab.studies import results
from tacit_lab.studies.contexts.bootstrap import (
    PeopleTally,
    at_threshold,
    compare,
    coverage_at,
    measure,
    precision_at,
)
from tacit_lab.studies.contexts.contest import NOTHING, ServingArm, serve_tests
from tacit_lab.studies.contexts.disclosure import USERS, disclose_with_users
from tacit_lab.studies.contexts.own_history import KEPT, RememberedVisits, remember_visits
from tacit_lab.studies.contexts.private_choice import click_chances, group_requests
from tacit_lab.studies.contexts.setting import trial_sources
from tacit_lab.studies.contexts.trial import EXACT, LAST, QUERY_ALONE, VisitsTrial, block_levels, read_trace
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.study import StudyRequest, StudyScale
from tests.support.toy_studies import toy_studies

CAFE, PARK, SHOP = (
    ("c", "Food>Cafe", 40.751, -73.991),
    ("p", "Parks", 40.702, -73.901),
    ("s", "Shops>Shoes", 40.6, -73.8),
)


def visits(*rows: tuple[int, tuple[str, str, float, float]]) -> pa.RecordBatch:
    """In time order: who went where."""
    return with_contexts(
        pa.RecordBatch.from_pydict(
            {
                "user": pa.array([user for user, _ in rows]),
                "time": pa.array(range(len(rows))),
                "place": [place[0] for _, place in rows],
                "category_path": [place[1] for _, place in rows],
                "latitude": [place[2] for _, place in rows],
                "longitude": [place[3] for _, place in rows],
            }
        )
    )


@pytest.fixture(scope="module")
def trial() -> VisitsTrial:
    return trial_sources(StudyRequest(Path("unused"), StudyScale.TOY, seeds=1))[0].trial()


def test_a_request_knows_only_what_came_before_it() -> None:
    trace = read_trace([visits((1, CAFE), (2, SHOP), (1, PARK), (1, CAFE), (2, PARK), (1, SHOP), (2, SHOP))])
    of_one = trace.user == trace.user[0]
    assert of_one.tolist() == [True, True, False, True, False]  # everybody's first visit is left out
    location, interest, query = (trace.context[name] for name in ("location", "interest", "query"))
    assert location[0] == CAFE[2:]  # where they were before, not where they went
    assert location[3] == CAFE[2:]
    assert interest[0] == ("Food>Cafe",)
    assert interest[3] == ("Food>Cafe", "Parks")  # the third visit's own kind is not among them
    assert query == ["“Parks”", "“Food>Cafe”", "“Parks”", "“Shops>Shoes”", "“Shops>Shoes”"]
    assert trace.again.tolist() == [False, True, False, False, True]


def test_visits_are_put_in_time_order_and_rare_people_left_out() -> None:
    rows = visits((1, CAFE), (1, PARK), (2, SHOP), (1, SHOP), (2, CAFE))
    shuffled = rows.take(pa.array([3, 0, 4, 1, 2]))
    trace = read_trace([shuffled])
    assert set(trace.user.tolist()) == {trace.user[0]}
    assert trace.context["query"] == ["“Parks”", "“Shops>Shoes”"]


def test_nobody_with_three_visits_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 3 visits, got none"):
        read_trace([visits((1, CAFE), (2, PARK), (3, SHOP))])


def test_interests_are_the_three_most_frequent() -> None:
    trail = [CAFE, CAFE, PARK, PARK, SHOP, ("b", "Food>Bar", 40.5, -73.5), SHOP, CAFE]
    trace = read_trace([visits(*((1, place) for place in trail))])
    assert trace.context["interest"][-1] == ("Food>Cafe", "Parks", "Shops>Shoes")


def test_counts_are_of_the_first_part_only(trial: VisitsTrial) -> None:
    assert trial.counts.at(EXACT).total.sum() == trial.learnt.sum() == int(0.9 * trial.trace.rows)
    assert not trial.learnt[trial.tests].any()


@pytest.mark.parametrize("levels", [LAST, (1, 1, 1), EXACT])
def test_what_is_disclosed_agrees_with_the_sequence(trial: VisitsTrial, levels: tuple[int, ...]) -> None:
    ours, theirs = trial.disclosed(levels), trial.nodes.parent(EXACT, levels)
    assert len(np.unique(np.stack([ours, theirs]), axis=1).T) == trial.nodes.count(levels) == ours.max() + 1


@pytest.mark.parametrize("levels", [LAST, QUERY_ALONE])
def test_blocks_hold_whole_disclosed_nodes_and_the_estimator_s_rates(
    trial: VisitsTrial, levels: tuple[int, ...]
) -> None:
    blocks = trial.blocks(block_levels(levels), BackOff(2))
    disclosed = trial.disclosed(levels)
    homes = [set(disclosed[block.context].tolist()) for block in blocks]
    assert sum(map(len, homes)) == len(set.union(*homes))  # no node in two of them
    exact = trial.nodes.of_row(EXACT)
    for block in blocks:
        assert (block.context[block.at] == exact[trial.tests[block.tests]]).all()
    block = max(blocks, key=lambda each: each.rate.size)
    again = BackOff(2).rates(trial.counts, EXACT, block.context[:3], block.ad).rate
    assert np.array_equal(block.rate[:3], again)


def test_nothing_below_the_threshold_is_shown(trial: VisitsTrial) -> None:
    thresholds = (0.0, 0.3, 0.6, 1.1)
    given = serve_tests(trial, ServingArm(LAST), thresholds)
    assert not given.shown[:, -1].any()
    assert given.shown[:, 0].mean() > given.shown[:, 1].mean() > given.shown[:, 2].mean() > 0
    assert not given.clicked[~given.shown].any()


def test_with_everything_sent_the_client_has_the_best_ad_of_its_own_context(trial: VisitsTrial) -> None:
    """Then nothing is lost by disclosing little: the same ads' rates decide, whoever was asked."""
    thresholds = (0.2,)
    most = trial.trace.places
    coarse, exact = (serve_tests(trial, ServingArm(levels, most), thresholds) for levels in (LAST, EXACT))
    assert np.array_equal(coarse.shown, exact.shown)
    assert coarse.clicked.sum() == pytest.approx(exact.clicked.sum(), abs=3)  # ties may fall either way


def test_more_ads_cover_more(trial: VisitsTrial) -> None:
    shown = [serve_tests(trial, ServingArm(LAST, ads), (0.3,)).shown.mean() for ads in (1, 5, 50)]
    assert shown == sorted(shown)
    assert shown[0] < shown[-1]


def test_nothing_disclosed_is_nothing_shown(trial: VisitsTrial) -> None:
    def silent(given: VisitsTrial, levels: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.full(len(given.disclosed(levels)), NOTHING)

    assert not serve_tests(trial, ServingArm(LAST, disclose=silent), (0.0,)).shown.any()


def test_shrinkage_is_no_longer_sure_after_two_visits(trial: VisitsTrial) -> None:
    sure = [
        serve_tests(trial, ServingArm(LAST, estimator=each), (0.9,)).shown.sum()
        for each in (BackOff(2), Shrinkage(4.0))
    ]
    assert sure[1] < sure[0]


def test_a_history_holds_only_earlier_visits(trial: VisitsTrial) -> None:
    known = remember_visits(trial)
    assert set(known) == set(range(len(trial.tests)))
    trace = trial.trace
    for test in (0, len(trial.tests) // 2, len(trial.tests) - 1):
        row = int(trial.tests[test])
        earlier = np.flatnonzero(trace.user[:row] == trace.user[row])
        history, _, visited = known[test]
        assert len(history) == len(earlier)
        assert set(visited) == set(trace.place[earlier].tolist())
    assert len(KEPT[0]) == len(EXACT)


def test_own_visits_lift_a_place_and_cached_ones_join() -> None:
    rows = [(1, CAFE), (1, PARK)] * 12 + [(1, SHOP)]
    trial = VisitsTrial.of(read_trace([visits(*rows)]), 100, seed=1)
    known = remember_visits(trial)
    test = len(trial.tests) - 1
    cafe, park = (int(trial.trace.place[row]) for row in (1, 0))
    ads, rates = RememberedVisits(known, cached=False)(test - 1, np.array([cafe, park]), np.array([0.1, 0.1]))
    assert ads.tolist() == [cafe, park]
    asked = trial.trace.place[trial.tests[test - 1]]
    assert rates[ads.tolist().index(asked)] > 0.5  # the kind of place that was asked for
    more, _ = RememberedVisits(known, cached=True)(test - 1, np.array([cafe]), np.array([0.1]))
    assert set(more.tolist()) == {cafe, park}


def test_small_nodes_are_disclosed_together(trial: VisitsTrial) -> None:
    levels = (4, 2, 1)
    disclosed = disclose_with_users(trial, levels, USERS)
    node = trial.rows_of(disclosed)
    user = trial.trace.user[trial.learnt]
    for each in np.unique(node[node != NOTHING]):
        assert len(np.unique(user[node == each])) >= USERS
    assert trial.bits(disclosed) < trial.bits(trial.disclosed(levels))


def test_bits_of_four_equal_nodes_are_two() -> None:
    places = [(f"p{at}", f"Food>Kind {at}", 40.75, -73.99) for at in range(4)]
    trial = VisitsTrial.of(
        read_trace([visits(*((1, place) for place in [places[0], *places * 10]))]), 10, seed=1
    )
    assert trial.bits(trial.disclosed((6, 2, 1))) == pytest.approx(2, abs=0.01)


def test_a_choice_at_a_huge_epsilon_is_the_best_and_a_planned_one_not_below_the_server_s(
    trial: VisitsTrial,
) -> None:
    every = list(group_requests(trial))
    tests = sorted(test for request in every for test in request.tests)
    assert tests == sorted(set(tests))
    assert len(tests) > 0.8 * len(trial.tests)
    for request in every:
        size = request.private.shape[1]
        sure = click_chances(request, TopChoice.for_epsilon(40, size, size, 1))
        assert sure == pytest.approx(click_chances(request, None), abs=1e-9)
        planned = best_top_plan(request.likely, 2)
        assert planned.value >= request.likely[:, 0].mean() - 1e-12  # the publicly best is one of the plans


def tally(*people: tuple[int, list[int], list[int]]) -> PeopleTally:
    requests, shown, clicked = zip(*people, strict=True)
    return PeopleTally(*(np.array(part, dtype=np.float64) for part in (requests, shown, clicked)))


def test_precision_and_coverage_by_hand() -> None:
    found = tally((4, [4, 2], [1, 1]), (6, [6, 0], [3, 0]))
    assert measure(found, at_threshold(0, "precision")).value == pytest.approx(0.4)
    assert measure(found, at_threshold(0, "coverage")).value == 1
    assert measure(found, at_threshold(1, "precision")).value == pytest.approx(0.5)
    assert measure(found, at_threshold(1, "coverage")).value == pytest.approx(0.2)
    assert measure(found, precision_at(0.6)).value == pytest.approx(0.45)  # half-way between the two
    assert measure(found, coverage_at(0.45)).value == pytest.approx(0.6)
    assert measure(found, coverage_at(0.9)).value == 0
    assert np.isnan(measure(found, precision_at(0.1)).value)  # never so little is covered


def test_tallies_count_people_and_keep_those_without_the_requests_asked_for() -> None:
    user, shown = np.array([7, 7, 9]), np.array([[True], [False], [True]])
    clicked, first = np.array([[True], [False], [False]]), np.array([True, False, False])
    some = PeopleTally.of(user, shown, clicked, first)
    assert some.requests.tolist() == [1, 0]
    assert (some.shown[:, 0].tolist(), some.clicked[:, 0].tolist()) == ([1, 0], [1, 0])


def test_intervals_over_people_hold_what_intervals_over_requests_miss() -> None:
    """60 people of 50 requests each, clicking always or never: what requests tell is what 60 people tell."""
    draws = np.random.default_rng(5)
    held = narrow = 0
    for _ in range(100):
        clicks = 50.0 * (draws.random(60) < 0.4)
        found = measure(tally(*((50, [50], [int(each)]) for each in clicks)), at_threshold(0, "precision"))
        held += found.low <= 0.4 <= found.high
        share = clicks.sum() / 3000
        reach = 1.96 * np.sqrt(share * (1 - share) / 3000)  # as if requests were independent
        narrow += share - reach <= 0.4 <= share + reach
    assert held >= 88  # below .88 of 100 has probability .003 at a true 95%
    assert narrow < 60


def test_differences_are_paired_over_people() -> None:
    draws = np.random.default_rng(6)
    habits = draws.random(300)
    one = tally(*((20, [20], [round(20 * each)]) for each in habits))
    other = tally(*((20, [20], [max(round(20 * each) - 1, 0)]) for each in habits))
    paired = compare(one, other, at_threshold(0, "precision"))
    assert 0.03 < paired.low < paired.high < 0.06
    apart = [measure(each, at_threshold(0, "precision")) for each in (one, other)]
    assert apart[0].low < apart[1].high  # unpaired, the intervals overlap


@pytest.mark.parametrize("name", toy_studies("contexts-"))
def test_each_study_runs_and_leaves_its_files(name: str, tmp_path: Path) -> None:
    found = load_study(name).outcome(StudyRequest(tmp_path, StudyScale.TOY, seeds=1))
    assert {finding.claim for finding in found.findings} == set(load_study(name).claims)
    assert all(finding.holds is None for finding in found.findings)  # toy scale decides nothing
    assert load_study(name).findings(tmp_path) == found.findings  # the folder is enough
    assert all(path.is_file() for path in found.files)
    assert "synthetic" in found.note
    table = results.read_table(tmp_path, name)
    assert len(next(iter(table.values()))) > 3


def test_a_published_log_is_read(tmp_path: Path) -> None:
    folder = os.environ.get("TACIT_DATA")
    if folder is None or not (Path(folder) / "checkins_nyc.csv.gz").is_file():
        pytest.skip("TACIT_DATA is not set or has no checkins_nyc.csv.gz: no public sample of visits to read")
    found = [
        each.trial()
        for each in trial_sources(StudyRequest(tmp_path, StudyScale.TOY, seeds=1, data=Path(folder)))
    ]
    assert [each.trace.rows for each in found] == [101_355]
    assert len(np.unique(found[0].trace.user)) == 2_676
    assert found[0].trace.places == 3_607


def test_a_folder_without_visits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"visits or checkins_nyc"):
        load_study("contexts-threshold").outcome(StudyRequest(tmp_path, StudyScale.TOY, data=tmp_path))
