"""The work of docs/comparison.md: made-up data, the same for every tool, and what a job takes.

`python docs/comparison/opacus_jobs.py` prints its figures. Each file runs where its tool is installed;
diffprivlib 0.6.6 cannot be imported beside scikit-learn 1.9, and so has an environment of its own.
"""

import inspect
import statistics
import time
import warnings

import numpy as np
import pandas as pd

SITES = ["news", "games", "mail", "maps", "shop", "chat", "film", "bank"]
EPSILON, DELTA = 1.0, 1e-5
NOISE, ROWS, BATCH, STEPS = 1.1, 60_000, 256, 3515  # a schedule: 15 epochs
REQUESTS, CHOICE_EPSILON = 1_000, 2.0
TIMES = 5


def visits(rows: int, seed: int) -> pd.DataFrame:
    """Clicks that depend on the site, and on a person's age: one row per person."""
    rng = np.random.default_rng(seed)
    site, age = rng.integers(0, len(SITES), rows), rng.integers(18, 80, rows)
    logit = 0.6 * (site - 4) + np.where(age > 60, 1.0, -0.5)
    frame = pd.DataFrame({"site": np.array(SITES)[site], "hour": rng.integers(0, 24, rows), "age": age})
    return frame.assign(clicked=(rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(int))


TRAIN, TEST = visits(20_000, 1), visits(20_000, 2)
PUBLIC = np.array([0.50, 0.45, 0.41, 0.30, 0.12])  # of five ads, what anybody may know
PRIVATE = np.clip(PUBLIC * np.random.default_rng(3).lognormal(0, 0.5, (REQUESTS, 5)), 0, 1)  # in [0, 1]


def gain(chosen: np.ndarray) -> str:
    """Of what the best choice would add to the public best, the share that this choice adds."""
    public, best = PRIVATE[:, 0].mean(), PRIVATE.max(axis=1).mean()
    return f"{(PRIVATE[np.arange(REQUESTS), chosen].mean() - public) / (best - public):.0%} of the gain"


def off(counts: np.ndarray) -> str:
    truth = TRAIN.site.value_counts()[SITES].to_numpy()
    return f"off by {np.abs(np.asarray(counts) - truth).mean():.1f} on average"


def lines(job) -> int:
    """Of code, imports included, without the first line and the docstring."""
    body = inspect.getsource(job).split('"""')[2]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in body.splitlines())


def report(*jobs) -> None:
    """Each job once to warm up, then as often as TIMES says, in turns: lines, median seconds, what came out."""
    warnings.simplefilter("ignore")
    results = {job: job() for job in jobs}
    took = {job: [] for job in jobs}
    for _ in range(TIMES):
        for job in jobs:
            begun = time.perf_counter()
            results[job] = job()
            took[job].append(time.perf_counter() - begun)
    for job in jobs:
        seconds = statistics.median(took[job])
        print(f"{job.__name__:10} {lines(job):2d} lines  {seconds:9.4f} s  {results[job]}")
