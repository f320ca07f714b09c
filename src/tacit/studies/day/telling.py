"""A day in words: the table for people, the records for machines, and one sentence."""

from __future__ import annotations

from typing import Any

from tacit.data.generators.town import ADVERTISERS, SECRETIVE
from tacit.pipeline import LOG, Served
from tacit.studies.day.comparing import Compared, Spent

COLUMNS = ("", "tacit", "without privacy", "without personalisation")
SHY = ADVERTISERS[SECRETIVE]


def table(found: Compared) -> list[tuple[str, ...]]:
    """What was learnt, shown, charged and spent, beside both other days."""
    tacit, exact, public = found.tacit.served, found.exact.served, found.impersonal
    learnt, exactly = found.learnt, found.learnt_exactly
    days = (tacit, exact, public)
    return [
        ("learnt: server's click model, AUC", *_three(learnt.server_auc, exactly.server_auc)),
        ("learnt: devices' click model, AUC", *_three(learnt.device_auc, exactly.device_auc)[:2], "not needed"),
        (f"learnt: purchases of {SHY}, AUC", *_three(learnt.purchase_auc, exactly.purchase_auc)),
        ("learnt: rates by context, off by (points)", *_off(learnt.rates_off, exactly.rates_off)),
        ("shown: impressions", *(f"{len(day.ad):,}" for day in days)),
        ("shown: true click-through rate", *(f"{day.click_rate:.1%}" for day in days)),
        ("shown: true worth to advertisers, €", *(f"{day.worth_micros / 1e6:,.0f}" for day in days)),
        ("charged: clicks", *(f"{len(day.charges.impressions):,}" for day in days)),
        ("charged: €, exactly", *(f"{day.charges.total_micros / 1e6:,.6f}" for day in days)),
        *(
            (
                f"spent: {words(each)}",
                _spent(each.epsilon, each.delta),
                "everything",
                _spent(*_impersonally(found, each)),
            )
            for each in found.spent
        ),
        ("spent: a device's choices, a day", f"ε ≤ {most_spent(found):g}", "everything", "nothing"),
        (
            "spent: one device, counted and choosing",
            f"ε ≤ {both(found):g}, δ = {found.device_delta:.0e}",
            "everything",
            _spent(float(found.privacy.counts), found.device_delta),
        ),
    ]


def words(spent: Spent) -> str:
    """Whose promise a line of the ledger keeps."""
    return f"{spent.line.scope} ({spent.line.unit}, {spent.line.relation})"


def as_json(found: Compared) -> list[dict[str, Any]]:
    """The same for machines: a record a day, then the ledger's lines."""
    days = {"tacit": found.tacit.served, "without privacy": found.exact.served}
    days["without personalisation"] = found.impersonal
    learnt = {"tacit": found.learnt, "without privacy": found.learnt_exactly}
    records: list[dict[str, Any]] = [
        {"name": name, "synthetic": True, **_measures(day), **vars(learnt.get(name, found.learnt))}
        for name, day in days.items()
    ]
    lines = [
        {
            "name": f"spent: {each.line.scope}",
            "line": str(each.line),
            "epsilon": each.epsilon,
            "delta": each.delta,
        }
        for each in found.spent
    ]
    device = [
        {"name": "spent: a device's choices", "epsilon": most_spent(found), "delta": 0.0},
        {"name": "spent: one device in all", "epsilon": both(found), "delta": found.device_delta},
    ]
    return [*records, *lines, *device]


def most_spent(found: Compared) -> float:
    """The most that one device may have spent on its choices in the day: epsilon."""
    return float(found.privacy.wallet)


def both(found: Compared) -> float:
    """The same people count and choose: what one device spends on both adds up. Of its events nothing is left
    in a neighbour (zero-out), of what it chooses by anything may be other. Were events replaced by others, the
    counts would cost twice as much."""
    return float(found.privacy.counts + found.privacy.wallet)


def summary(found: Compared) -> str:
    """What privacy cost, in two sentences."""
    rate, public, exact = (day.click_rate for day in (found.tacit.served, found.impersonal, found.exact.served))
    return (
        f"Of every hundred ads {100 * rate:.1f} are clicked on average: {100 * public:.1f} without "
        f"personalisation, {100 * exact:.1f} without privacy. Of what personalisation adds in this town, "
        f"privacy keeps {share(found.clicks_kept)} of the clicks and {share(found.worth_kept)} of the worth to "
        "advertisers."
    )


def share(kept: float | None) -> str:
    """A share in words; there may have been nothing to keep."""
    return "nothing, as there was nothing," if kept is None else f"{kept:.0%}"


def _three(tacit: float, exact: float) -> tuple[str, str, str]:
    return f"{tacit:.3f}", f"{exact:.3f}", f"{tacit:.3f}"


def _off(tacit: float, exact: float) -> tuple[str, str, str]:
    return f"{100 * tacit:.1f}", f"{100 * exact:.1f}", f"{100 * tacit:.1f}"


def _spent(epsilon: float, delta: float) -> str:
    return f"ε = {epsilon:.4g}, δ = {delta:.0e}" if delta else f"ε = {epsilon:.4g}"


def _impersonally(found: Compared, spent: Spent) -> tuple[float, float]:
    """What the same line would have spent if devices chose nothing: their model would not be needed."""
    return (float(found.privacy.labels), 0.0) if spent.line == LOG else (spent.epsilon, spent.delta)


def _measures(day: Served) -> dict[str, Any]:
    return {
        "impressions": len(day.ad),
        "click_rate": day.click_rate,
        "clicks": int(day.clicked.sum()),
        "worth_micros": day.worth_micros,
        "charged_micros": day.charges.total_micros,
        "charged_micros_by_advertiser": {
            ADVERTISERS[advertiser]: owed for advertiser, owed in day.charges.by_campaign.items()
        },
    }
