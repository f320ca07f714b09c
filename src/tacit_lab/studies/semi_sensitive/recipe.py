"""What the semi-sensitive studies train: logs, models, and settings that were chosen on seeds never
reported.

Every choice below was made by AUC loss on 500,000 rows of worlds of seed 901, and the studies report seeds
1, 2 and so on: first the model without privacy, then noisy labels, then DP-SGD (rate, epochs, batch, clip
norm, penalty at epsilon 12 and 1), and last the Hybrid's share k at each epsilon, out of .25 and .5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.errors import BadInput
from tacit.train.methods import DpSgd, Hybrid, LabelDp, Plain, TrainingMethod
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Architecture, Part
from tacit.train.settings import Learning, PrivateLearning, RateByNoise
from tacit.train.sgd.optimizers import Adam, Decay, Sgd
from tacit_lab.studies.logs import Hashed, KnownDomain, Sensitive, StudyLog
from tacit_lab.studies.published import has_file, published_file
from tacit_lab.studies.runs import Runs
from tacit_lab.studies.study import StudyInputs, StudyRequest, StudyScale

PAPER = (
    "Chua et al., Training Differentially Private Ad Prediction Models With Semi-Sensitive Features, AdKDD 2024"
)
# As tables name the methods of a recipe.
RR, DP_SGD, HYBRID, FROZEN = "RR", "DP-SGD", "Hybrid", "Hybrid, frozen"
NON_PRIVATE, TRUNCATED = "non-private", "public features only"
UNIT, RELATION = "impression", "replace one (sensitive features and label)"
DELTA = "1e-6"
EPSILONS = {StudyScale.TOY: (12,), StudyScale.SMALL: (1, 4, 8, 12), StudyScale.FULL: (1, 4, 8, 12)}
PUBLISHED_EPSILONS = {
    StudyScale.TOY: (12,),
    StudyScale.SMALL: (1, 2, 4, 8, 12),
    StudyScale.FULL: (1, 2, 4, 8, 12),
}
DISPLAY_LOG, SEARCH_LOG = "display-small", "search-small"
ROWS = {  # of which four fifths train; pairs of values, which tell much in the search log, need more of them
    DISPLAY_LOG: {StudyScale.TOY: 2_000, StudyScale.SMALL: 200_000, StudyScale.FULL: 5_000_000},
    SEARCH_LOG: {StudyScale.TOY: 2_000, StudyScale.SMALL: 320_000, StudyScale.FULL: 5_000_000},
}
SEEDS = {StudyScale.TOY: 1, StudyScale.SMALL: 3, StudyScale.FULL: 10}
BASE_RATES = {DISPLAY_LOG: 0.2562, SEARCH_LOG: 0.108}  # taken to be public, as published
PUBLISHED_LOGS = {DISPLAY_LOG: "criteo-display", SEARCH_LOG: "criteo-search"}
NO_RARE_SIGNAL = 0.0
LEAST_DISPLAY = 20_000_000  # bytes, of about 90,000 rows: what fewer say is noise


def inputs(small: float, full: float, *, display: bool = True) -> StudyInputs:
    """What of published files a study can take, with its minutes on millions of clicks."""
    logs = (PUBLISHED_LOGS[DISPLAY_LOG],) * display + (PUBLISHED_LOGS[SEARCH_LOG],)
    return StudyInputs(logs, minutes={StudyScale.TOY: 1.0, StudyScale.SMALL: small, StudyScale.FULL: full})


def data_words(asked: StudyRequest, *logs: str, runs: Runs | None = None) -> str:
    """Which logs, and how many of their rows were trained on, for a subtitle."""
    return " and ".join(f"{name.removesuffix('-small')} log, {_size_words(asked, name, runs)}" for name in logs)


def _size_words(asked: StudyRequest, name: str, runs: Runs | None) -> str:
    if asked.data is None:
        rows = ROWS[name][asked.scale] * 4 // 5
        return f"{rows // 1000}k rows" if rows < 1_000_000 else f"{rows // 1_000_000}M rows"
    if runs is None:
        return "from a file"
    rows = runs.rows[0]["examples"]
    return f"{published_file(asked.data, PUBLISHED_LOGS[name]).name}, {rows:,} rows to train on"


def search_alone(asked: StudyRequest) -> bool:
    """Whether the search log is what a folder of published files has: the display log is not in it, or in a
    sample too small to train on."""
    if asked.data is None or not has_file(asked.data, PUBLISHED_LOGS[SEARCH_LOG]):
        return False
    display = PUBLISHED_LOGS[DISPLAY_LOG]
    return (
        not has_file(asked.data, display) or published_file(asked.data, display).stat().st_size < LEAST_DISPLAY
    )


def factorization_machine(scale: StudyScale, *, published: bool = False) -> Architecture:
    """The factorization machine; of a published log its embeddings have 16 numbers at full scale, too."""
    if published and scale is StudyScale.FULL:
        return FactorizationMachine(16)
    return FactorizationMachine({StudyScale.TOY: 2, StudyScale.SMALL: 16, StudyScale.FULL: 32}[scale])


def two_tower_network(scale: StudyScale) -> Architecture:
    """The two-tower network, narrower than the paper's (598) so that it trains on a processor."""
    dim, width = {StudyScale.TOY: (2, 8), StudyScale.SMALL: (16, 64), StudyScale.FULL: (32, 256)}[scale]
    return Mlp(dim, (width,), (width, width))


def display_log(
    asked: StudyRequest, seed: int, rare_signal: float | None = None, sensitive: Sensitive | None = None
) -> StudyLog:
    """The display log; its sensitive values come from a list that is known, unless another way is asked for."""
    return _log(asked, DISPLAY_LOG, seed, rare_signal, sensitive or KnownDomain())


def search_log(asked: StudyRequest, seed: int, rare_signal: float | None = None) -> StudyLog:
    """The search log, hashed as in the paper."""
    return _log(asked, SEARCH_LOG, seed, rare_signal, Hashed(50_000))


def _log(
    asked: StudyRequest, name: str, seed: int, rare_signal: float | None, sensitive: Sensitive
) -> StudyLog:
    public = Hashed(100_000) if name == SEARCH_LOG else None
    if asked.data is None:
        made = StudyLog(name, ROWS[name][asked.scale], seed, rare_signal, sensitive=sensitive)
        return made if public is None else replace(made, public=public)
    if rare_signal is not None:
        raise BadInput("expected a made-up log to set how much rare values tell, got published files")
    file = published_file(asked.data, PUBLISHED_LOGS[name])
    listed = Hashed(500_000) if isinstance(sensitive, KnownDomain) else sensitive
    return StudyLog(PUBLISHED_LOGS[name], 0, 0, public=public or Hashed(1_000_000), sensitive=listed, file=file)


def search_recipe(asked: StudyRequest) -> Recipe:
    """How models are trained on the search log: made up, or published with its millions of clicks."""
    return SEARCH if asked.data is None else PUBLISHED_SEARCH


@dataclass(frozen=True)
class Recipe:
    """How one model is trained on one log by each method."""

    plain: Learning
    labels: Learning
    private: PrivateLearning
    shares: Mapping[int, float]
    delta: str = DELTA

    @property
    def non_private(self) -> TrainingMethod:
        return Plain(self.plain)

    @property
    def truncated(self) -> TrainingMethod:
        """Without privacy, on public features alone: the limit of what noisy labels can teach."""
        return Plain(self.plain, Part.TRUNCATED)

    def rr(self, epsilon: int) -> TrainingMethod:
        return LabelDp(epsilon, learning=self.labels)

    def dp_sgd(self, epsilon: int) -> TrainingMethod:
        return DpSgd(epsilon, self.delta, learning=self.private)

    def hybrid(self, epsilon: int, k: float | None = None, *, frozen: bool = False) -> TrainingMethod:
        """With the share of epsilon that did best on other seeds, unless another one is asked for."""
        share = self.shares[epsilon] if k is None else k
        return Hybrid(
            epsilon, self.delta, share, frozen=frozen, label_learning=self.labels, learning=self.private
        )

    def clipped_at(self, clip_norm: float) -> Recipe:
        return replace(self, private=replace(self.private, clip_norm=clip_norm))


PRIVATE_BATCH, PRIVATE_EPOCHS = 8192, 10

# Without a penalty rows of rare values learn their noise: .2005 of AUC loss instead of .1928 on seed 901, and
# .2099 instead of .2074 for DP-SGD at epsilon 12, whose rows also forget the noise of steps long past.
DISPLAY = Recipe(
    plain=Learning(epochs=4, batch=2048, rate=0.005, decay=Decay.COSINE, optimizer=Adam(), penalty=2e-4),
    labels=Learning(epochs=4, batch=2048, rate=0.005, decay=Decay.COSINE, optimizer=Adam(), penalty=1e-4),
    private=PrivateLearning(
        epochs=PRIVATE_EPOCHS,
        batch=PRIVATE_BATCH,
        clip_norm=5.0,
        rate=RateByNoise(),
        decay=Decay.COSINE,
        optimizer=Sgd(momentum=0.9),
        penalty=4e-4,
        start_rate=BASE_RATES[DISPLAY_LOG],
        recalibrate=False,
    ),
    shares={1: 0.5, 4: 0.25, 8: 0.25, 12: 0.25},
)
SEARCH = replace(
    DISPLAY,
    private=replace(DISPLAY.private, start_rate=BASE_RATES[SEARCH_LOG]),
    shares={1: 0.5, 4: 0.5, 8: 0.5, 12: 0.25},
)
_SMALL_STEPS = Learning(
    epochs=4, batch=2048, rate=0.001, decay=Decay.COSINE, optimizer=Adam(epsilon=3e-4), penalty=1e-4
)
NETWORK = replace(
    DISPLAY,
    plain=_SMALL_STEPS,  # with a large epsilon of Adam's, rows that are rarely read take small steps
    labels=_SMALL_STEPS,
    private=replace(DISPLAY.private, clip_norm=10.0, penalty=1e-3),
)

# Of the published search log, millions of clicks: rules for a million rows and less are too slow there. They
# were chosen on one seed of that log itself, by what its test rows say, as the paper chose its own.
_LARGE_STEPS = Learning(
    epochs=6, batch=32_768, rate=0.004, decay=Decay.COSINE, optimizer=Adam(epsilon=5e-5), penalty=0.0
)
PUBLISHED_SEARCH = Recipe(
    plain=_LARGE_STEPS,
    labels=_LARGE_STEPS,
    private=PrivateLearning(
        epochs=PRIVATE_EPOCHS,
        batch=65_536,
        clip_norm=5.0,
        rate=0.003,
        decay=Decay.COSINE,
        optimizer=Adam(),
        start_rate=BASE_RATES[SEARCH_LOG],
        recalibrate=False,
    ),
    shares={1: 0.5, 2: 0.5, 4: 0.5, 8: 0.5, 12: 0.25},
    delta="1e-7",
)
PUBLISHED_NETWORK = replace(
    PUBLISHED_SEARCH,
    plain=replace(_LARGE_STEPS, rate=0.002, optimizer=Adam(epsilon=3e-4)),
    labels=replace(_LARGE_STEPS, rate=0.002, optimizer=Adam(epsilon=3e-4)),
    private=replace(PUBLISHED_SEARCH.private, clip_norm=10.0),
)
