"""Evidence that lasts: each batch counts once, whoever is killed or comes second, and published priors stay."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tacit.deliver.protocol.priors import DEFAULT_PRIOR, LearntPrior
from tacit.deliver.server.evidence_store import EvidenceStore
from tacit.deliver.server.prior_evidence import ALL, PriorEvidence, ReportedRanks
from tacit.deliver.server.report_chances import LAWS
from tacit.errors import BadInput, EvidenceError
from tacit.privacy.choice.top_choice import TopChoice
from tacit.store import SqlEvidenceStore
from tests.support.ledger_places import Place

PUBLIC, LAW = np.array([5.0, 4.0, 3.5, 1.0]), TopChoice.for_epsilon(2, 4, 4, 1)


def batch(*counts: int, group: str = ALL) -> list[ReportedRanks]:
    return [ReportedRanks(PUBLIC, LAW, np.array(counts), group)]


def expect_same(one: PriorEvidence, other: PriorEvidence) -> None:
    assert one.groups.keys() == other.groups.keys()
    for name, known in one.groups.items():
        assert known.reports == pytest.approx(other.groups[name].reports)
        np.testing.assert_allclose(known.log_likelihood, other.groups[name].log_likelihood, atol=1e-8)


def test_a_batch_counts_once_and_lasts(place: Place) -> None:
    store: EvidenceStore = SqlEvidenceStore.open(place.where)
    assert store.evidence().reports == 0
    first = store.learn("monday", batch(50, 30, 15, 5))
    assert first.added
    assert first.evidence.as_json() == PriorEvidence().learn(batch(50, 30, 15, 5)).as_json()
    assert store.evidence().as_json() == first.evidence.as_json()
    for again in (store, SqlEvidenceStore.open(place.where)):
        repeated = again.learn("monday", batch(50, 30, 15, 5))
        assert not repeated.added
        assert repeated.evidence.as_json() == first.evidence.as_json()
    with pytest.raises(BadInput, match="batch monday: expected the reports that were learnt under this name"):
        store.learn("monday", batch(0, 0, 0, 99))
    second = SqlEvidenceStore.open(place.where).learn("tuesday", batch(5, 3, 1, 5, group="sport"))
    assert second.added
    expected = PriorEvidence().learn([*batch(50, 30, 15, 5), *batch(5, 3, 1, 5, group="sport")])
    assert store.evidence().as_json() == second.evidence.as_json() == expected.as_json()


def test_a_batch_of_nothing_is_a_batch(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where)
    assert store.learn("quiet", []).added
    assert not store.learn("quiet", []).added
    assert store.evidence().reports == 0


def test_what_is_refused_leaves_nothing(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where)
    with pytest.raises(BadInput, match="reported ranks, got str"):
        store.learn("monday", [*batch(1, 1, 1, 1), "more"])  # type: ignore[list-item]
    for name in ("", "a\nb", 3):
        with pytest.raises(BadInput, match="batch"):
            store.learn(name, batch(1, 1, 1, 1))  # type: ignore[arg-type]
    assert store.evidence().reports == 0
    assert store.learn("monday", batch(1, 1, 1, 1)).added


def test_the_horizon_is_the_stores_own(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where, horizon=100)
    assert store.learn("monday", batch(500, 300, 150, 50)).evidence.reports == pytest.approx(100)
    assert SqlEvidenceStore.open(place.where).evidence().horizon == 100
    assert SqlEvidenceStore.open(place.where, horizon=100).evidence().horizon == 100
    with pytest.raises(BadInput, match=r"expected the horizon of the evidence at .*, 100, got 200"):
        SqlEvidenceStore.open(place.where, horizon=200)
    with pytest.raises(BadInput, match="horizon"):
        SqlEvidenceStore.open(place.where, horizon=0)


# Published priors.


def test_a_published_prior_stays_what_it_was(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where)
    assert store.in_force(0) is None
    empty = store.publish(1)
    assert isinstance(empty.prior, LearntPrior)
    assert empty.prior.mixture.parts == ((1.0, DEFAULT_PRIOR),)
    assert (empty.version, empty.reports, empty.batches, empty.epoch, empty.group) == (1, 0.0, 0, 1, ALL)
    store.learn("monday", batch(500, 300, 150, 50))
    assert store.publish(1) == empty, "what menus of an epoch had is fixed"
    later = store.publish(5)
    assert (later.reports, later.batches) == (1000.0, 1)
    assert later.prior == store.evidence().prior()
    store.learn("tuesday", batch(500, 500, 500, 500))
    again = SqlEvidenceStore.open(place.where)
    assert again.publish(5) == later
    found = [again.in_force(epoch) for epoch in (0, 1, 4, 5, 2**40)]
    assert found == [None, empty, empty, later, later]
    with pytest.raises(BadInput, match="expected an epoch after 5, for which a prior was published, got 3"):
        again.publish(3)
    assert again.in_force(3) == empty


def test_each_group_has_its_own(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where)
    store.learn("monday", [*batch(5_000, 100, 100, 100, group="news"), *batch(1, 1, 1, 1, group="sport")])
    news, sport = store.publish(7, "news"), store.publish(3, "sport")
    assert (news.reports, sport.reports) == (5_300.0, 4.0)
    assert (news.batches, sport.batches) == (1, 1)
    assert store.in_force(7, "news") == news
    assert store.in_force(7, "sport") == sport
    assert store.in_force(7) is None
    assert store.publish(4, "music").prior == store.evidence().prior("music"), "begins with what others know"


@pytest.mark.parametrize("epoch", [-1, 2**53 + 1, 0.5, "1", None, True])
def test_an_epoch_is_a_whole_number(place: Place, epoch: object) -> None:
    store = SqlEvidenceStore.open(place.where)
    for ask in (store.publish, store.in_force):
        with pytest.raises(BadInput, match="epoch"):
            ask(epoch)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="group"):
            ask(1, None)  # type: ignore[arg-type]


# Rivals and crashes.

CHILD = """
import os, signal, sys
import numpy as np
from tacit.deliver.server import prior_evidence
from tacit.deliver.server.prior_evidence import PriorEvidence, ReportedRanks
from tacit.privacy.choice.top_choice import TopChoice
from tacit.store import SqlEvidenceStore
where, dies, names = sys.argv[1], sys.argv[2] == "dies", sys.argv[3:]
store, law = SqlEvidenceStore.open(where), TopChoice.for_epsilon(2, 4, 4, 1)
if dies:
    whole = PriorEvidence.add
    def half(self, weighed):
        found = whole(self, weighed)
        os.kill(os.getpid(), signal.SIGKILL)  # the batch is inserted, the evidence is not
        return found
    PriorEvidence.add = half
print("ready", flush=True)
sys.stdin.readline()
for name in names:
    counts = np.array([int(name), 3, 2, 1])
    print(name, store.learn(name, [ReportedRanks([5.0, 4.0, 3.5, 1.0], law, counts)]).added, flush=True)
"""


def started(where: str, dies: bool, names: Sequence[int]) -> subprocess.Popen[str]:
    arguments = [where, "dies" if dies else "lives", *map(str, names)]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_batch_that_was_killed_half_way_is_not_there(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where)
    before = store.learn("1", batch(1, 3, 2, 1)).evidence
    child = started(place.where, dies=True, names=[2])
    assert child.communicate("go\n", timeout=60)[0] == ""
    assert child.returncode == -signal.SIGKILL
    again = SqlEvidenceStore.open(place.where)
    assert again.evidence().as_json() == before.as_json()
    assert again.learn("2", batch(2, 3, 2, 1)).added
    expect_same(again.evidence(), PriorEvidence().learn([*batch(1, 3, 2, 1), *batch(2, 3, 2, 1)]))


def test_of_several_writers_none_loses_what_another_learnt(place: Place) -> None:
    SqlEvidenceStore.open(place.where)
    shared, own = list(range(100, 106)), [list(range(10 * n, 10 * n + 6)) for n in range(1, 3)]
    children = [started(place.where, dies=False, names=[*names, *shared]) for names in own]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=120)[0].split("\n") for child in children]
    assert all(child.returncode == 0 for child in children)
    added = [line.split()[0] for lines in said for line in lines if line.endswith("True")]
    everything = [*shared, *(name for names in own for name in names)]
    assert sorted(map(int, added)) == sorted(everything), "each batch by one of them, and by one alone"
    found = SqlEvidenceStore.open(place.where).evidence()
    expect_same(found, PriorEvidence().learn([each for name in everything for each in batch(name, 3, 2, 1)]))


# What is not ours.


def test_other_versions_are_refused_by_name(place: Place) -> None:
    SqlEvidenceStore.open(place.where)
    place.sql("UPDATE evidence_version SET version = 2")
    with pytest.raises(EvidenceError, match=r"of version 1 of laws 1 at .*, got version 2 of laws 1"):
        SqlEvidenceStore.open(place.where)
    place.sql("UPDATE evidence_version SET version = 1, laws = 7")
    with pytest.raises(EvidenceError, match="got version 1 of laws 7"):
        SqlEvidenceStore.open(place.where)
    place.sql("DELETE FROM evidence_version")
    with pytest.raises(EvidenceError, match="got none"):
        SqlEvidenceStore.open(place.where)


def test_evidence_about_other_laws_is_refused_where_it_is_read(place: Place) -> None:
    store = SqlEvidenceStore.open(place.where)
    store.learn("monday", batch(1, 2, 3, 4))
    store.publish(1)
    place.sql(
        """UPDATE evidence_state SET record = '{"version": 2, "horizon": 5, "groups": {}}'""".replace(
            ":", r"\:"
        )
    )
    with pytest.raises(BadInput, match="evidence: expected version 1, got 2"):
        store.evidence()
    with pytest.raises(BadInput, match="evidence: expected version 1, got 2"):
        store.learn("tuesday", batch(1, 2, 3, 4))
    assert store.in_force(1) is not None, "what was published can still be looked up"
    place.sql("UPDATE evidence_state SET record = 'torn'")
    with pytest.raises(EvidenceError, match="records as JSON"):
        store.evidence()
    place.sql("UPDATE evidence_published SET record = :record", record='{"version": 9}')
    with pytest.raises(BadInput, match="prior: expected version 1, got 9"):
        store.in_force(1)


def test_a_file_of_others_is_left_alone(sqlite_place: Place) -> None:
    sqlite_place.sql("CREATE TABLE mine (x INTEGER)")
    with pytest.raises(EvidenceError, match=r"expected an evidence store or nothing at .*, got tables mine"):
        SqlEvidenceStore.open(sqlite_place.where)


def test_the_file_is_its_owners_and_is_short(tmp_path: Path) -> None:
    path = tmp_path / "evidence.sqlite"
    store = SqlEvidenceStore.open(path)
    store.learn("monday", batch(1, 2, 3, 4))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(LAWS) * 40 < 4096, "a page for each group"
