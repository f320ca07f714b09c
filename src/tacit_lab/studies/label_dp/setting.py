"""What the label-DP studies share: the log, the models, how they learn, and how much work a scale is.

Learning was tuned on made-up logs of seeds 901 and 902, which no study reports: for the model without
privacy first, then for noisy labels (user and impression, epsilon 1 to 16), which came out with the same
settings. What mattered most is Adam's epsilon: where it is large, rows of rare values take small steps, and
their noise is not learnt (AUC loss without privacy .246 against .262 with the usual 1e-8).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit_lab.studies.logs import Hashed, StudyLog, is_made_up, published_file
from tacit_lab.studies.study import StudyRequest, StudyScale

if TYPE_CHECKING:
    from tacit.train.models.model import Architecture
    from tacit.train.settings import Learning

PAPER = "Ghazi, Evaluation of Label DP (Randomized Response) Mechanisms on Binary Conversion Models"
LOG_NAME = "criteo-attribution"
# 36% are clicks.
ROWS = {StudyScale.TOY: 12_000, StudyScale.SMALL: 1_100_000, StudyScale.FULL: 16_468_027}
BINS = {StudyScale.TOY: 1_000, StudyScale.SMALL: 80_000, StudyScale.FULL: 80_000}
EPSILONS = {
    StudyScale.TOY: (1, 3, 4, 16),
    StudyScale.SMALL: (1, 4, 8, 16),
    StudyScale.FULL: (1, 2, 3, 4, 8, 16),
}
CAPS = {StudyScale.TOY: (1, 2), StudyScale.SMALL: (1, 2, 4), StudyScale.FULL: (1, 2, 4, 8)}
SEEDS = {StudyScale.TOY: 2, StudyScale.SMALL: 6, StudyScale.FULL: 3}
FM, NETWORK = "fm", "network"


def study_log(asked: StudyRequest, seed: int) -> StudyLog:
    """The log of one seed: a world of its own, or the published file."""
    hashed = Hashed(BINS[asked.scale])
    if asked.data is not None:
        file = published_file(asked.data, LOG_NAME)
        return StudyLog(LOG_NAME, 0, 0, public=hashed, sensitive=Hashed(1), file=file)
    return StudyLog(LOG_NAME, ROWS[asked.scale], seed, public=hashed, sensitive=Hashed(1))


def log_files(asked: StudyRequest) -> list[Path] | None:
    """The published file, if that is the log."""
    return [file] if (file := study_log(asked, 1).file) else None


def is_synthetic(asked: StudyRequest) -> bool:
    """Whether the log was made up, a published file's place notwithstanding."""
    return is_made_up(asked, log_files(asked))


def data_words(asked: StudyRequest) -> str:
    if asked.data is not None:
        return "Criteo-Attribution-like file" if is_synthetic(asked) else "Criteo Attribution as published"
    return f"Criteo-Attribution-like, {ROWS[asked.scale] * 0.3612 / 1000:,.0f}k clicks"


def architecture(name: str) -> Architecture:
    from tacit.train.models.architectures import Mlp
    from tacit.train.models.factorization_machine import FactorizationMachine

    # The paper's network: embeddings of 8, hidden layers of 128 and 64.
    return FactorizationMachine(16) if name == FM else Mlp(8, (), (128, 64))


def learning(name: str) -> Learning:
    """How a model learns, from true labels and from noisy ones."""
    from tacit.train.settings import Learning
    from tacit.train.sgd.optimizers import Adam, Decay

    epochs, rate, penalty = (4, 0.02, 1e-4) if name == FM else (2, 0.01, 1e-3)
    return Learning(epochs, 4096, rate, Decay.COSINE, Adam(epsilon=2e-4), penalty)
