"""What rounding to 8 bits costs in AUC: one adapter tuned twice on the conversions log, by int8 and by fp32."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import stdtrit

from tacit.bench.cleanroom_held import held_room
from tacit.bench.cleanroom_workload import ACTION_PARTS, ADAPTER, TASK, Scale, described
from tacit.bench.measurement import Measurement
from tacit.cleanroom.model.examples import Examples
from tacit.cleanroom.model.learning import LearnSettings, predict, pretrain
from tacit.cleanroom.model.network import ConversionModel
from tacit.cleanroom.platform.plans import Plan
from tacit.cleanroom.platform.training import train_adapter
from tacit.cleanroom.wire.losses import Loss
from tacit.cleanroom.wire.tokens import KEY_BYTES, tokens
from tacit.data.generators.action_sequences import LONGEST
from tacit.data.generators.conversions import FIELD_NAMES, FIELD_VALUES, ConversionsWorld
from tacit.data.generators.generated import World
from tacit.train.evaluation.auc import expected_auc

AS_GOOD_AS_TRUE = Fraction(40)  # an epsilon at which one label in 10^17 is flipped
AUC_BAR = 0.1  # percent of AUC, either way
LEVEL = 0.95
SEED = 11
TEST_SHARE = 1 / 3  # of the sensitive advertiser's clicks, the last ones
CODECS = ("fp32", "int8")
RATE = 5e-3  # so that there is a gain to lose: at the plan's own rate an adapter this small hardly learns
LIGHT: dict[str, Any] = {"dim": 8, "interactions": 1, "tower": (32,)}  # fast to train; the rest are defaults


@dataclass(frozen=True, eq=False)
class Setting:
    """A pre-trained model, and the clicks of the advertiser that it was not trained on."""

    model: ConversionModel
    tuned: Examples
    test: Examples
    truth: NDArray[np.float64]  # the probability of each conversion in `test`

    @classmethod
    def made(cls, rows: int) -> Setting:
        sharing = ConversionsWorld.advertisers_sharing
        world = ConversionsWorld(
            SEED, shares=(1 / sharing,) * sharing + (1.0,)
        )  # half of all clicks are its own
        examples, truth = drawn(world, rows)
        own = np.flatnonzero(examples.advertiser == sharing)
        model = ConversionModel(examples.settings(**LIGHT), seed=SEED)
        others = examples.select(examples.advertiser != sharing)
        pretrain(model, others, settings=LearnSettings(batch=512, seed=SEED))
        last = own[-round(TEST_SHARE * len(own)) :]
        tuned = examples.select(own[: len(own) - len(last)])
        return cls(model, tuned, examples.select(last), truth[last])

    def auc_after(self, codec: str, rank: int, seed: int) -> float:
        """Without the noise of labels in the test: their probabilities are known."""
        key = bytes(KEY_BYTES)
        named = tokens(self.tuned.records, key)
        link = held_room(named, self.tuned.labels(TASK), epsilon=AS_GOOD_AS_TRUE)
        self.model.add_adapter(ADAPTER, int(self.tuned.advertiser[0]), rank, seed=seed)
        try:
            batch = min(1024, len(self.tuned))
            plan = Plan(loss=Loss.RAW, codec=codec, batch=batch, learning_rate=RATE, seed=seed)
            train_adapter(self.model, ADAPTER, self.tuned, named, link, plan, run=f"{codec} {seed}")
            return expected_auc(predict(self.model, self.test, TASK), self.truth)
        finally:
            self.model.remove_adapter(ADAPTER)


def quality(scale: Scale) -> list[Measurement]:
    setting = Setting.made(scale.log_rows)
    before = expected_auc(predict(setting.model, setting.test, TASK), setting.truth)
    found = [
        {codec: setting.auc_after(codec, scale.tuned_rank, seed) for codec in CODECS}
        for seed in range(scale.seeds)
    ]
    losses = [100 * (1 - each["int8"] / each["fp32"]) for each in found]
    reach = float(stdtrit(len(losses) - 1, (1 + LEVEL) / 2)) * stdev(losses) / math.sqrt(len(losses))
    settings = (
        f"{described(setting.model.settings)}; conversions log, made up: {len(setting.tuned):,} clicks of the "
        f"sensitive advertiser, tested on {len(setting.test):,} with known probabilities; rank "
        f"{scale.tuned_rank}, {scale.seeds} seeds, one cycle up to "
        f"{RATE} in {Plan.epochs} epochs; the same rows, order and start for both codecs; AUC "
        f"before {before:.4f}, after: "
        + ", ".join(f"fp32 {each['fp32']:.5f} int8 {each['int8']:.5f}" for each in found)
        + f"; loss of AUC {mean(losses):+.4f}% +- {reach:.4f} ({LEVEL:.0%}, over seeds); memoised flips at "
        f"epsilon {AS_GOOD_AS_TRUE}, so that rounding is all that differs"
    )
    gains = [100 * (each["int8"] / before - 1) for each in found]
    return [
        Measurement("auc_change_int8_percent", abs(mean(losses)), "%", AUC_BAR, False, settings),
        Measurement("auc_gain_by_tuning_percent", mean(gains), "%", settings=settings),
    ]


def drawn(world: World, rows: int) -> tuple[Examples, NDArray[np.float64]]:
    """Clicks as a model reads them, and the probability of each conversion."""
    parts = list(world.batches(rows))
    table = pa.Table.from_batches([part.batch for part in parts])
    truth = np.concatenate([part.truth["probability"].to_numpy() for part in parts])
    lists = {name: table[f"sequence_{name}"].combine_chunks() for name in ACTION_PARTS}
    lengths = np.diff(lists["topic"].offsets.to_numpy())
    sequences = np.zeros((rows, LONGEST, len(ACTION_PARTS)), np.int64)
    for part, values in enumerate(lists.values()):
        sequences[np.arange(LONGEST) < lengths[:, None], part] = values.flatten().to_numpy()
    examples = Examples(
        np.stack([table[name].to_numpy() for name in FIELD_NAMES], axis=1),
        np.zeros((rows, 0), np.float32),
        sequences,
        lengths,
        table["advertiser"].to_numpy(),
        table["click_id"].to_numpy().astype(np.uint64),
        {TASK: table[TASK].to_numpy().astype(np.uint8)},
        tuple(FIELD_VALUES),
        tuple(ACTION_PARTS.values()),
    )
    return examples, truth
