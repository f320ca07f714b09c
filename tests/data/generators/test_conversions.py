"""The made-up conversion log: its contract, its rates, its truth, and how advertisers differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from tacit.data.generators.conversion_model import (
    LONGEST,
    TOPICS,
    ActionSequences,
    ConversionClicks,
    recent_actions,
)
from tacit.data.generators.conversions import FIELD_VALUES, ConversionsWorld
from tacit.data.generators.worlds import seeded_generator
from tacit.errors import BadInput
from tests.support.exact_tests import ALPHA
from tests.support.generator_checks import label_surprises

ROWS = 200_000
WORLD = ConversionsWorld(seed=4)
LABELS = {"conversion": "probability", "cart": "probability_cart", "engaged": "probability_engaged"}
SEQUENCE = ("sequence_topic", "sequence_item", "sequence_action")
SENSITIVE = 8

Reals = NDArray[np.float64]
Log = tuple[pa.Table, pa.Table]


def drawn(world: ConversionsWorld, rows: int) -> Log:
    parts = list(world.batches(rows))
    return pa.Table.from_batches([p.batch for p in parts]), pa.Table.from_batches([p.truth for p in parts])


@pytest.fixture(scope="module")
def log() -> Log:
    return drawn(WORLD, ROWS)


def test_columns_and_types(log: Log) -> None:
    whole = ["click_id", "user", "time", "advertiser", "topic", *(f"f{number}" for number in range(1, 12))]
    expected = [(name, pa.int64()) for name in whole]
    expected += [(name, pa.list_(pa.int16())) for name in SEQUENCE] + [(name, pa.int8()) for name in LABELS]
    assert [(field.name, field.type) for field in log[0].schema] == expected
    assert [(field.name, field.type) for field in log[1].schema] == [
        (name, pa.float64()) for name in LABELS.values()
    ]
    assert log[0].num_rows == log[1].num_rows == ROWS
    assert sum(column.null_count for column in [*log[0].columns, *log[1].columns]) == 0


@pytest.mark.parametrize("rows", [0, 1, 65_536, 100_001])
def test_a_shorter_log_is_the_beginning_of_a_longer_one(log: Log, rows: int) -> None:
    world = WORLD if rows <= 65_536 else ConversionsWorld(seed=4)
    parts = list(world.batches(rows))
    assert sum(part.batch.num_rows for part in parts) == rows
    if rows:
        assert pa.Table.from_batches([part.batch for part in parts]).equals(log[0].slice(0, rows))
        assert pa.Table.from_batches([part.truth for part in parts]).equals(log[1].slice(0, rows))


def test_another_seed_is_another_log(log: Log) -> None:
    assert not drawn(ConversionsWorld(seed=5), 1000)[0].equals(log[0].slice(0, 1000))


def test_clicks_are_numbered_in_time_order(log: Log) -> None:
    assert (log[0]["click_id"].to_numpy() == np.arange(ROWS)).all()
    time = log[0]["time"].to_numpy()
    assert (np.diff(time) >= 0).all()
    assert time[-1] / 86_400 == pytest.approx(ROWS / WORLD.clicks_a_day, rel=0.001)


def test_fields_stay_within_their_vocabularies(log: Log) -> None:
    topics, *others = FIELD_VALUES
    assert (topics, others[0], others[-1], len(others)) == (32, 12, 4000, 11)
    # Rounded to whole numbers.
    assert np.diff(np.log(others)) == pytest.approx(np.log(4000 / 12) / 10, rel=0.05)
    for name, size in zip(["topic", *(f"f{number}" for number in range(1, 12))], FIELD_VALUES, strict=True):
        values = log[0][name].to_numpy()
        assert values.min() == 0
        assert size * 0.95 < len(np.unique(values)) <= size


def test_sequences_have_4_to_16_actions(log: Log) -> None:
    lengths = [pyarrow.compute.list_value_length(log[0][name]).to_numpy() for name in SEQUENCE]
    assert (lengths[0] == lengths[1]).all()
    assert (lengths[0] == lengths[2]).all()
    assert np.unique(lengths[0]).tolist() == list(range(4, 17))
    for name, size in zip(SEQUENCE, (32, 64, 4), strict=True):
        flat = log[0][name].combine_chunks().flatten().to_numpy()
        assert np.unique(flat).tolist() == list(range(size))


def test_a_later_sequence_begins_with_what_happened_since() -> None:
    users = np.arange(500)
    length = np.full(500, LONGEST)
    earlier = recent_actions(77, users, np.full(500, 10**6), length)
    # Six hours: at most 17 / 4 actions, rounded up.
    later = recent_actions(77, users, np.full(500, 10**6 + 21_600), length)
    new = [_new_actions(earlier, later, user) for user in range(500)]
    assert set(new) <= set(range(6))
    assert len(set(new)) > 3


def test_four_fifths_of_the_actions_keep_to_three_topics() -> None:
    users, reads = 200, 40
    second = np.repeat(np.arange(reads) * 9 * 86_400, users)  # nobody needs longer for 16 actions
    seen = recent_actions(3, np.tile(np.arange(users), reads), second, np.full(users * reads, LONGEST))
    counts = np.zeros((users, TOPICS))
    np.add.at(counts, (np.tile(np.arange(users), reads)[:, None], seen.topic), 1)
    top = np.sort(counts, axis=1)[:, ::-1]
    assert (top[:, 2] > 3 * top[:, 3]).all()
    kept = 0.8 + 0.2 * 3 / TOPICS
    assert binomtest(int(top[:, :3].sum()), int(counts.sum()), kept).pvalue > ALPHA
    assert binomtest(int(top[:, :3].sum()), int(counts.sum()), 0.8).pvalue < ALPHA


@pytest.mark.parametrize(
    ("label", "rate", "tolerance"), [("conversion", 0.015, 0.08), ("cart", 0.06, 0.04), ("engaged", 0.3, 0.018)]
)
def test_labels_have_their_rates(log: Log, label: str, rate: float, tolerance: float) -> None:
    # Four standard deviations of 200,000 labels and of the sample that the base was solved on.
    assert log[0][label].to_numpy().mean() == pytest.approx(rate, rel=tolerance)


def test_a_sensitive_advertiser_has_a_quarter_of_the_clicks_and_converts_less(log: Log) -> None:
    sensitive = log[0]["advertiser"].to_numpy() == SENSITIVE
    assert sensitive.mean() == pytest.approx(0.25, rel=0.02)
    truth = log[1]["probability"].to_numpy()
    assert truth[~sensitive].mean() / truth[sensitive].mean() == pytest.approx(2.5, rel=0.05)


def test_what_was_learnt_elsewhere_predicts_two_and_a_half_times_too_much(clicks: ConversionClicks) -> None:
    own, elsewhere = (
        np.mean([WORLD.model.probabilities(_of(clicks, a), seeded_generator(0))[0].mean() for a in advertisers])
        for advertisers in ([SENSITIVE], range(8))
    )
    assert elsewhere / own == pytest.approx(2.5, rel=0.04)


@pytest.mark.parametrize("label", LABELS)
def test_the_truth_is_the_law_of_the_labels(log: Log, label: str) -> None:
    drawn_label, truth = log[0][label].to_numpy(), log[1][LABELS[label]].to_numpy()
    advertiser = log[0]["advertiser"].to_numpy()
    assert label_surprises(drawn_label, truth) == 0
    assert label_surprises(drawn_label[advertiser == SENSITIVE], truth[advertiser == SENSITIVE]) == 0
    assert label_surprises(drawn_label, truth * 1.3) > 0  # the twin: a truth that is too high
    assert label_surprises(drawn_label, np.roll(truth, 1)) > 0  # and one that belongs to other rows


def test_labels_go_together(log: Log) -> None:
    conversion, cart, engaged = (log[0][name].to_numpy() for name in LABELS)
    assert cart[conversion == 1].mean() > 3 * cart[conversion == 0].mean()
    assert engaged[conversion == 1].mean() > 1.3 * engaged[conversion == 0].mean()


@pytest.fixture(scope="module")
def clicks() -> ConversionClicks:
    return WORLD.clicks(seeded_generator(99), np.arange(20_000) * 100)[1]


@pytest.mark.parametrize("kind", ["value", "lowrank"])
def test_sensitive_advertisers_are_further_away_than_sharing_ones_are(
    clicks: ConversionClicks, kind: str
) -> None:
    # Four of each: a single advertiser of world lowrank may be near by luck, it differs by so few numbers.
    world = ConversionsWorld(seed=4, world=kind, advertisers_sharing=4, advertisers_sensitive=4)
    alike: Reals = np.asarray(np.corrcoef(_signals(world, clicks)))
    sharing, sensitive = (block[np.triu_indices(4, 1)].mean() for block in (alike[:4, :4], alike[4:, 4:]))
    between = alike[:4, 4:].mean()
    assert 0.99 > sharing > between + 0.04
    assert between > sensitive + 0.04


def test_advertisers_without_a_shift_are_all_the_same(clicks: ConversionClicks) -> None:
    signals = _signals(ConversionsWorld(seed=4, shift_sharing=0, shift_sensitive=0), clicks)
    assert np.allclose(signals, signals[0])


def test_every_advertiser_has_as_much_signal(clicks: ConversionClicks) -> None:
    weights = np.array([1.3, 0.3, 0.7])
    for signal in _signals(WORLD, clicks):
        assert abs(signal.mean()) < 0.06  # four standard deviations of 20,000 clicks and of the calibration
        assert signal.std() == pytest.approx(np.linalg.norm(weights), rel=0.06)  # the parts hardly go together


@pytest.mark.parametrize("kind", ["value", "lowrank"])
def test_an_advertiser_changes_the_liking_of_topics_by_rank_two(kind: str) -> None:
    cells = TOPICS * TOPICS
    topic, ad_topic = np.divmod(np.arange(cells), TOPICS)
    still = np.zeros(cells, dtype=np.int64)
    once = np.zeros((cells, LONGEST), dtype=np.int64)
    past = ActionSequences(still + 1, topic=once + topic[:, None], item=once, action=once)
    each = ConversionClicks(still, [ad_topic, *[still] * (len(FIELD_VALUES) - 1)], past)
    effects = ConversionsWorld(seed=4, world=kind, shift_sharing=0).model.effects
    sharing, other, sensitive = (
        effects.parts(_of(each, advertiser))[2].reshape(TOPICS, TOPICS) for advertiser in (0, 1, SENSITIVE)
    )
    assert (sharing == other).all()
    assert np.linalg.matrix_rank(sensitive - sharing, tol=1e-9) == 2
    assert np.linalg.matrix_rank(sharing, tol=1e-9) > 20


def test_only_world_value_changes_single_values(clicks: ConversionClicks) -> None:
    """How L changes along one field, all else equal, as two advertisers have it."""
    still = [np.zeros(4000, dtype=np.int64) for _ in FIELD_VALUES]
    past = ActionSequences(*(part[:4000] for part in vars(clicks.sequences).values()))
    along = ConversionClicks(np.zeros(4000, dtype=np.int64), [*still[:-1], np.arange(4000)], past)
    for kind, proportional in (("lowrank", True), ("value", False)):
        effects = ConversionsWorld(seed=4, world=kind).model.effects
        sharing, sensitive = (effects.parts(_of(along, advertiser))[0] for advertiser in (0, SENSITIVE))
        same = np.corrcoef(sharing, sensitive)[0, 1]
        assert (same > 1 - 1e-9) if proportional else (0.85 < same < 0.96)


def test_shares_are_taken_as_given() -> None:
    world = ConversionsWorld(seed=1, advertisers_sharing=2, advertisers_sensitive=2, shares=(5, 2, 2, 1))
    table, truth = drawn(world, 65_536)
    shares = np.bincount(table["advertiser"].to_numpy()) / 65_536
    assert shares == pytest.approx([0.5, 0.2, 0.2, 0.1], abs=0.01)
    assert truth["probability"].to_numpy().mean() == pytest.approx(0.015, rel=0.05)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"world": "other"}, "one of value, lowrank"),
        ({"shares": (1.0, 2.0)}, "a share for each of 9"),
        ({"shift_sensitive": 1.2}, "shift_sensitive"),
        ({"advertisers_sharing": 0}, "advertisers_sharing"),
        ({"over_prediction": 0}, "over_prediction"),
    ],
)
def test_it_refuses_what_cannot_be_meant(setting: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        ConversionsWorld(seed=1, **setting)  # type: ignore[arg-type]


def _of(clicks: ConversionClicks, advertiser: int) -> ConversionClicks:
    return replace(clicks, advertiser=np.full_like(clicks.advertiser, advertiser))


def _signals(world: ConversionsWorld, clicks: ConversionClicks) -> Reals:
    """The same clicks as each advertiser in turn would have them."""
    return np.stack([world.model.signal(_of(clicks, advertiser)) for advertiser in range(world.advertisers)])


def _new_actions(earlier: ActionSequences, later: ActionSequences, user: int) -> int:
    for new in range(LONGEST):
        if all(
            (getattr(later, part)[user, new:] == getattr(earlier, part)[user, : LONGEST - new]).all()
            for part in ("topic", "item", "action")
        ):
            return new
    return LONGEST
