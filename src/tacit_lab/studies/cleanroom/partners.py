"""What the study of real advertisers measures: partners of a search log, a base of those that share, and arms.

Each partner of the log is an advertiser. A hundred and fifty share their sales, and the base is pre-trained on
their clicks; of those with a thousand sales or more every fifth, by size, does not share, and is tuned for by
itself: on the first 70% of its 30,000 latest clicks, measured on the rest. Every fifth of the others is in
neither: rates and batches were chosen on them. What is measured is written down by partner, smallest first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit_lab.studies.cleanroom.comparisons import calibrated_logits, own_logits
from tacit_lab.studies.cleanroom.setting import LEARNING, NO_PRIVACY, TASK
from tacit_lab.studies.digests import TRAINING, digest
from tacit_lab.studies.logs import Frequent, Hashed, ReadyLog, StudyLog
from tacit_lab.studies.published import published_file
from tacit_lab.studies.runs import Record
from tacit_lab.studies.study import StudyRequest, StudyScale

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.cleanroom.in_process import InProcessRoom
    from tacit.cleanroom.model.examples import ConversionExamples
    from tacit.cleanroom.model.learning import LearnSettings
    from tacit.cleanroom.model.network import ConversionModel
    from tacit.cleanroom.platform.steps import AdapterPlan
    from tacit.privacy.calibration import CalibrationMemory

MADE_UP, PUBLISHED = "search-small", "criteo-search"
BINS = 2**15  # of the user's side, device and audience, that the platform knows and hashes
USER_FIELDS = 2  # of it that are read: the third names the user
FIRST = 0.7  # of each partner's clicks in time: what is tuned on
RATE_OF_ALL = 3e-4  # that of an adapter is the default, chosen on partners that are in no table
DELTA, NOISED_RATE = "1e-6", 1.0
DIRECTIONS = 16
OTHERS = 2000  # clicks of others on which predictions must not change
NONE, ALL, VALUES, BOTH, CALIBRATION, OWN = "none", "all", "values", "values+8", "bias and scale", "own labels"


@dataclass(frozen=True)
class PartnerWork:
    """How much: `rows` of a made-up log, clicks that the base learns from, partners that share and do not, and
    how many of its latest clicks count of one that does not."""

    rows: int
    clicks: int
    sharing: int
    tuned: int
    least_sales: int
    latest: int = 30_000


WORK = {
    StudyScale.TOY: PartnerWork(16_000, 6_000, 12, 3, 60),
    StudyScale.SMALL: PartnerWork(120_000, 60_000, 24, 8, 200),
    StudyScale.FULL: PartnerWork(600_000, 300_000, 24, 10, 500),
}
REAL = PartnerWork(0, 1_000_000, 150, 20, 1_000)
REAL_TOY = PartnerWork(0, 20_000, 150, 3, 1_000)


def partner_work(asked: StudyRequest) -> PartnerWork:
    if asked.data is None:
        return WORK[asked.scale]
    return REAL_TOY if asked.scale is StudyScale.TOY else REAL


def partner_log(asked: StudyRequest) -> StudyLog:
    """The published log where there is one, or a made-up one; the user's side is hashed by the platform."""
    public, user = Frequent(5), Hashed(BINS)
    if asked.data is None:
        return StudyLog(MADE_UP, WORK[asked.scale].rows, 1, public=public, sensitive=user)
    file = published_file(asked.data, PUBLISHED)
    return StudyLog(PUBLISHED, 0, 0, public=public, sensitive=user, file=file)


@dataclass(frozen=True)
class PartnerArm:
    """One way to tune for a partner: what is tuned, from which labels, in which mode, through which codec.

    `tuned` is a rank, or one of the words above; at the epsilon of no privacy labels are as good as true.
    """

    tuned: str
    epsilon: float = NO_PRIVACY
    loss: str = "raw"
    mode: str = "aggregate"
    codec: str = "fp32"


@dataclass(frozen=True, eq=False)
class Partners:
    """The log's clicks by partner; numbers of partners are ranks by sales, smallest first."""

    ready: ReadyLog
    base: NDArray[np.int64]  # rows that the base is pre-trained on
    own: tuple[NDArray[np.int64], ...]  # rows of each partner that does not share, in order of time
    encoded: str

    @classmethod
    def of(cls, ready: ReadyLog, work: PartnerWork) -> Partners:
        import numpy as np

        from tacit.schema.columns import Role

        columns = ready.columns
        keys, times = columns.key(Role.ADVERTISER), columns.key(Role.TIME)
        assert keys is not None, "the log has partners"
        assert times is not None, "and times"
        when, label = np.asarray(times), np.asarray(columns.label) == 1
        _, partner = np.unique(np.asarray(keys), return_inverse=True)
        sales = np.bincount(partner, label)
        large = np.flatnonzero(sales >= work.least_sales)
        large = large[np.argsort(sales[large], kind="stable")]
        step = max(2, len(large) // work.tuned)
        tuned = large[step // 2 :: step][: work.tuned]
        rest = np.setdiff1d(np.arange(len(sales)), np.concatenate([tuned, large[::step]]))
        sharing = np.random.default_rng(0).permutation(rest)[: work.sharing]
        early = when <= np.quantile(when, FIRST)
        rows = np.flatnonzero(np.isin(partner, sharing) & early)
        rows = np.sort(np.random.default_rng(1).permutation(rows)[: work.clicks])
        own = []
        for each in tuned:
            mine = np.flatnonzero(partner == each)
            own.append(mine[np.argsort(when[mine], kind="stable")][-work.latest :])
        return cls(ready, rows, tuple(own), columns.encoder.digest)

    def examples(self, rows: NDArray[np.int64]) -> ConversionExamples:
        """With the fields that anybody may know, and device and audience, which the platform does."""
        import numpy as np

        from tacit.cleanroom.model.examples import ConversionExamples, field_ids
        from tacit.schema.columns import Role

        columns, n = self.ready.columns, len(rows)
        public, sizes = field_ids(columns.encoder, np.asarray(columns.public[rows]))
        user = np.asarray(columns.sensitive[rows])[:, :USER_FIELDS]
        keys = columns.key(Role.ADVERTISER)
        assert keys is not None, "the log has partners"
        return ConversionExamples(
            fields=np.concatenate([public, user], axis=1),
            numbers=np.zeros((n, 0), np.float32),
            sequences=np.zeros((n, 1, 0), np.int16),
            lengths=np.zeros(n, np.int16),
            advertiser=np.asarray(keys[rows]).view(np.int64),
            records=rows.astype(np.uint64),
            tasks={TASK: np.asarray(columns.label[rows]).astype(np.uint8)},
            sizes=(*sizes, *(BINS,) * USER_FIELDS),
            sequence_sizes=(),
            encoder=self.encoded,
        )

    def split(self, number: int) -> tuple[ConversionExamples, ConversionExamples]:
        """What a partner is tuned on, and what is measured."""
        rows = self.own[number]
        first = int(FIRST * len(rows))
        return self.examples(rows[:first]), self.examples(rows[first:])


@lru_cache(maxsize=1)
def _partners(folder: Path, work: PartnerWork) -> Partners:
    from tacit_lab.studies.logs import open_log

    return Partners.of(open_log(folder), work)


def partners_of(ready: ReadyLog, work: PartnerWork) -> Partners:
    """Sorted once per process: all arms of all partners read them."""
    return _partners(ready.columns.folder, work)


def base_settings() -> LearnSettings:
    """One pass: a second one learns the sharing partners' ids by heart."""
    from tacit.cleanroom.model.learning import LearnSettings

    return LearnSettings(epochs=1, batch=2048, learning_rate=2e-3)


def base_model(ready: ReadyLog, work: PartnerWork) -> ConversionModel:
    """Pre-trained on those who share, made if it is not there yet."""
    from tacit.cleanroom.model.learning import pretrain
    from tacit.cleanroom.model.network import ConversionModel

    folder = ready.columns.folder
    named = digest(f"{work} {base_settings()}", packages=(*TRAINING, *LEARNING, "tacit_lab/studies/cleanroom"))
    path = folder.with_name(f"{folder.name}.partners-{named}.safetensors")
    if not path.exists():
        split = partners_of(ready, work)
        examples = split.examples(split.base)
        model = ConversionModel(examples.settings(interactions=1), seed=1)
        pretrain(model, examples, settings=base_settings())
        model.save(path)
    return ConversionModel.load(path)


@dataclass(frozen=True)
class BaseTask:
    """The base, before the arms that start from it."""

    log: StudyLog
    work: PartnerWork
    packages = LEARNING

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        del memory  # nothing is calibrated
        began = time.perf_counter()
        base_model(ready, self.work)
        split = partners_of(ready, self.work)
        return {
            "seconds": round(time.perf_counter() - began, 1),
            "clicks": len(split.base),
            "partners": len(split.own),
        }


@dataclass(frozen=True)
class PartnerTask:
    """Simulated, from the partner's number: nothing of it is released. Measured on its later clicks."""

    log: StudyLog
    work: PartnerWork
    arm: PartnerArm
    number: int
    packages = (*LEARNING, "cleanroom/platform", "cleanroom/room", "cleanroom/in_process")

    def measure(self, ready: ReadyLog, memory: CalibrationMemory) -> Record:
        del memory  # the room's own noise is calibrated in milliseconds
        split, model = partners_of(ready, self.work), base_model(ready, self.work)
        tuned, test = split.split(self.number)
        others = split.examples(split.base[:OTHERS])
        before = _predict(model, others)
        began = time.process_time()
        logits, sent = self._tune(model, tuned, test)
        seconds = time.process_time() - began
        return {
            **_quality(test, logits),
            "clicks": len(tuned) + len(test),
            "sales": int(tuned.labels(TASK).sum()) + int(test.labels(TASK).sum()),
            "bytes_an_example": sent,
            "others_changed": 0 if self.arm.tuned == ALL else int((_predict(model, others) != before).sum()),
            "seconds": round(seconds, 2),
        }

    def _tune(
        self, model: ConversionModel, tuned: ConversionExamples, test: ConversionExamples
    ) -> tuple[NDArray[np.floating], float]:
        """Logits for the later clicks, and bytes per example and pass."""
        from tacit.cleanroom.model.learning import tune_all
        from tacit.cleanroom.platform.released_labels import ask_for_labels
        from tacit.cleanroom.platform.statistic import fit_statistic
        from tacit.cleanroom.platform.training import train_adapter

        arm, rows = self.arm, len(tuned)
        if arm.tuned == NONE:
            return _predict(model, test), 0.0
        if arm.tuned == ALL:
            tune_all(model, tuned, TASK, tuned.labels(TASK), _plan(arm, rows, self.number).learning(rows))
            return _predict(model, test), 0.0
        tokens, link = self._room(tuned)
        if arm.tuned in (CALIBRATION, OWN):
            asked = ask_for_labels(tokens, link, task=TASK, run="labels")
            fit = calibrated_logits if arm.tuned == CALIBRATION else own_logits
            logits = fit(_predict(model, tuned), _predict(model, test), tuned, test, asked.labels, asked.keep)
            return logits, asked.bytes_sent / rows
        rank = None if arm.tuned == VALUES else int(arm.tuned.removeprefix(f"{VALUES}+"))
        values = tuned if arm.tuned.startswith(VALUES) else None
        model.add_adapter("tuned", int(tuned.advertiser[0]), rank, seed=1, values=values)
        if arm.mode == "statistic":
            fitted = fit_statistic(
                model,
                "tuned",
                tuned,
                tokens,
                link,
                task=TASK,
                run="once",
                directions=DIRECTIONS,
                least_share=0.0,
            )
            model.remove_adapter("tuned")
            return fitted.head.logits(model, test), fitted.bytes_sent / rows
        plan = _plan(arm, rows, self.number)
        trained = train_adapter(model, "tuned", tuned, tokens, link, plan, run="tuned")
        return _predict(model, test), (trained.bytes_sent + trained.bytes_received) / trained.examples

    def _room(self, tuned: ConversionExamples) -> tuple[NDArray[np.uint8], InProcessRoom]:
        from tacit.cleanroom.in_process import room_in_process
        from tacit.cleanroom.protocol.tokens import token_key
        from tacit.entropy import Simulation

        arm, source = self.arm, Simulation(f"partner {self.number}")
        tokens = tuned.tokens(token_key(source.bytes(32), "partner"))
        terms: dict[str, Any] = {"mode": arm.mode, "epsilon": arm.epsilon, "codecs": (arm.codec,)}
        if arm.tuned in (CALIBRATION, OWN):
            terms["mode"] = "release"
        if arm.mode in ("noised", "statistic"):
            terms["delta"] = DELTA
        return tokens, room_in_process(
            tokens, tuned.labels(TASK)[:, None], source=source, smallest_batch=64, **terms
        )


def _plan(arm: PartnerArm, rows: int, number: int) -> AdapterPlan:
    from tacit.cleanroom.platform.steps import AdapterPlan, Optimizer
    from tacit.cleanroom.protocol.losses import Loss

    own: dict[str, Any] = {
        "task": TASK,
        "loss": Loss(arm.loss),
        "codec": arm.codec,
        "seed": number,
        "least_share": 0.0,
    }
    if arm.mode == "noised":
        own |= {"epochs": 1, "learning_rate": NOISED_RATE, "one_cycle": False, "optimizer": Optimizer.SGD}
        return AdapterPlan(batch=1024, **own)
    if arm.tuned == ALL:
        own["learning_rate"] = RATE_OF_ALL
    return AdapterPlan(**own).for_rows(rows)


def _predict(model: ConversionModel, examples: ConversionExamples) -> NDArray[np.float32]:
    from tacit.cleanroom.model.learning import predict

    return predict(model, examples, TASK)


def _quality(test: ConversionExamples, logits: NDArray[np.floating]) -> dict[str, float]:
    import numpy as np
    from scipy.special import expit

    from tacit.train.evaluation import measures
    from tacit.train.evaluation.measures import Outcomes

    outcomes, predicted = Outcomes.of_labels(test.labels(TASK)), expit(logits.astype(np.float64))
    return {
        "auc": measures.auc_value(outcomes, predicted),
        "log_loss": measures.log_loss(outcomes, predicted).value,
        "calibration_ratio": measures.calibration_ratio(outcomes, predicted).value,
    }
