"""Which clip norm each measure wants (S12), and what it is worth to give each its own (T28)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.studies.results import Kept
from tacit.studies.runs import Floats, Runs
from tacit.studies.study import Claim, Finding
from tacit.studies.verdicts import apart, below, every

MEASURES = {"auc_loss": "AUC loss", "log_loss": "Log loss"}
BASE = {"method": "non-private"}
S12 = Claim("S12", "appendix A", "log loss wants a larger clip norm than AUC")
SAME_NORM = "one norm of the grid is best for both"
T28 = Claim(
    "T28", "one clip norm for both", "a clip norm chosen for the measure that counts beats one for both"
)


def judge(kept: Kept) -> list[Finding]:
    runs = Runs(kept.rows)
    private = [row for row in runs.rows if row["clip_norm"] is not None]
    methods = dict.fromkeys(str(row["method"]) for row in private)
    norms = sorted({float(row["clip_norm"]) for row in private})
    return [
        finding
        for method in methods
        for finding in (best_norms(runs, method, norms), own_norms(runs, method, norms))
    ]


def best_norms(runs: Runs, method: str, norms: Sequence[float]) -> Finding:
    losses = {
        figure: {norm: runs.figures(figure, method=method, clip_norm=norm) for norm in norms}
        for figure in MEASURES
    }
    ranking, logarithmic = (
        min(norms, key=lambda norm: float(np.mean(losses[figure][norm]))) for figure in ("auc_loss", "log_loss")
    )
    apart_for_sure = logarithmic != ranking and every(
        below(losses[figure][own], losses[figure][other])
        for figure, own, other in (("auc_loss", ranking, logarithmic), ("log_loss", logarithmic, ranking))
    )
    percent = [100 * (losses[figure][logarithmic] / losses[figure][ranking] - 1) for figure in MEASURES]
    moved = ", ".join(
        f"{title} {apart(each, 0 * each)}%" for title, each in zip(MEASURES.values(), percent, strict=True)
    )
    return Finding(
        S12,
        "the best norm for log loss is larger, and each beats the other on its own figure, 95% over seeds; "
        "fails where it is smaller and each does; where both are one norm, the grid cannot tell",
        f"best for AUC {ranking:g}, for log loss {logarithmic:g}: from the first to the second, {moved}",
        logarithmic > ranking if apart_for_sure else None,
        method,
        why=SAME_NORM if logarithmic == ranking else "",
    )


def own_norms(runs: Runs, method: str, norms: Sequence[float]) -> Finding:
    """A norm is chosen on all seeds but the one that it is tried on: choosing well by luck earns nothing."""
    rule = (
        "the mean of both increases is lower with a norm for each than with the best norm for their sum, "
        "norms chosen on the other seeds, 95% over seeds; where all of these are one norm, the grid cannot tell"
    )
    # (measure, norm, seed)
    percent = np.array(
        [
            [runs.percent_over(figure, BASE, method=method, clip_norm=norm) for norm in norms]
            for figure in MEASURES
        ]
    )
    if percent.shape[2] < 2:
        return Finding(T28, rule, "one seed: there is no other to choose a norm on", None, method)
    own, shared, at = tried_elsewhere(percent)
    same = bool((own == shared).all())
    return Finding(
        T28,
        rule,
        f"{apart(own, shared)} points of increase; one norm for both: "
        + ", ".join(f"{norms[each]:g}" for each in dict.fromkeys(at)),
        None if same else below(own, shared),
        method,
        why=SAME_NORM if same else "",
    )


def tried_elsewhere(percent: Floats) -> tuple[Floats, Floats, list[int]]:
    """For each seed: the mean increase with a norm for each measure, with one for both, and which that is."""
    own, shared, at = [], [], []
    for seed in range(percent.shape[2]):
        others = np.delete(percent, seed, axis=2).mean(axis=2)  # (measure, norm)
        here = percent[:, :, seed]
        own.append(float(np.mean([here[measure, best] for measure, best in enumerate(others.argmin(axis=1))])))
        at.append(int(others.sum(axis=0).argmin()))
        shared.append(float(here[:, at[-1]].mean()))
    return np.array(own), np.array(shared), at
