"""`tacit train` on labels that are amounts, or reported several times: what they cost, what a model learns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import Columns
from tacit.privacy.budget import Budget
from tacit.train.examples import Examples
from tacit.train.job.training_job import TrainingJob
from tacit.train.models.saving import load
from tacit.train.targets import Head
from tests.support.training_logs import (
    Told,
    granted,
    label_dp,
    prepared,
    refused,
    reservations,
    spent,
    told,
)

MEANS = np.array([2.0, 10.0, 40.0, 90.0])
ROWS = 8_000
SCHEMA = """\
name = "spend"
bins = { public = 40, sensitive = 4 }
[columns.site]
role = "public"
[columns.visitor]
role = "user"
[columns.second]
role = "time"
kind = "whole"
[columns.spend]
role = "label"
kind = "real"
"""
BINS: dict[str, Any] = {"mechanism": "bins", "values": [2, 10, 40, 90], "edges": [5, 25, 65]}
BEST: dict[str, Any] = {
    "mechanism": "bins", "values": [0, 2, 10, 20, 40, 60, 90, 120],
    "prior": [0.1, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1],
}  # fmt: skip
ENDS: dict[str, Any] = {"mechanism": "ends", "low": 0, "high": 150}
LEARNING = {"epochs": 12, "batch": 128, "rate": 0.01}


def rows_of(seed: int = 4, *, rows: int = ROWS) -> list[str]:
    """What was spent is around a mean that the site tells."""
    draw = np.random.default_rng(seed)
    site = draw.integers(0, len(MEANS), rows)
    spend = MEANS[site] * draw.uniform(0.8, 1.2, rows)
    return [
        f"s{at},v{draw.integers(0, 3000)},{second * 100},{value:.2f}"
        for second, (at, value) in enumerate(zip(site, spend, strict=True))
    ]


def made(folder: Path, rows: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spend.csv").write_text("\n".join(["site,visitor,second,spend", *rows]) + "\n")
    (folder / "spend.toml").write_text(SCHEMA)
    source, schema = str(folder / "spend.csv"), str(folder / "spend.toml")
    assert main(["data", "prepare", source, "--schema", schema, "--out", str(folder / "log"), "--json"]) == 0
    return folder / "log"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("spend"), rows_of())


@pytest.fixture
def place(tmp_path: Path, log: Path, capsys: Told) -> Path:
    shutil.copytree(log, tmp_path / "log")
    granted(tmp_path / "ledger.sqlite", "replace-label", "10", delta="0")
    granted(tmp_path / "ledger.sqlite", "replace-label", "10", delta="0", unit="user")
    capsys.readouterr()
    return tmp_path


def values(place: Path, labels: dict[str, Any], out: str = "model", **changes: Any) -> Path:
    privacy = {"method": "label-dp", "epsilon": 4}
    return label_dp(place, out, **{"privacy": privacy, "labels": {**LEARNING, **labels}, **changes})


def explained(capsys: Told, place: Path) -> str:
    assert main(["explain", str(place)]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("labels", "classes"), [(BINS, 4), (BEST, None), ({**BEST, "correction": "raw"}, None), (ENDS, 2)]
)
def test_predictions_come_close_to_what_was_spent(
    place: Path, capsys: Told, labels: dict[str, Any], classes: int | None
) -> None:
    record = told(capsys, "train", values(place, labels))
    assert 4 <= record["statement"]["epsilon"] < 4 * (1 + 1e-12)  # rounded up
    assert record["statement"]["relation"] == "replace-label"
    (mechanism,) = record["statement"]["mechanisms"]
    assert mechanism.startswith("randomized response on ")
    assert classes is None or mechanism == f"randomized response on {classes} classes, ε = 4 per label"
    (paid,) = reservations(place).values()
    assert paid.amount.budget == Budget.of(4, 0)
    assert str(paid.state) == "committed"
    saved, examples = load(place / "model"), Examples.of(Columns.open(place / "log"), "test")
    assert saved.head is Head.SQUARED
    assert saved.statement == record["statement"]
    predicted = saved.predict(examples)
    assert len(np.unique(predicted)) == len(MEANS)  # it reads the site alone
    # Noise of at most 150 / (2 truth - 1) on 1,600 labels a site has a standard deviation of 4; reports as they
    # are, read raw, are pulled together by the lies.
    close = 0.2 if labels.get("correction") == "raw" else 0.12
    assert np.sort(np.unique(predicted)) == pytest.approx(MEANS, abs=close * MEANS[-1])
    figures = told(capsys, "evaluate", place / "model", place / "log", "--labels-are-public")
    assert figures["explained"]["low"] > 0.6
    assert examples.label is not None
    label = examples.at.of(examples.label)
    assert figures["mean_squared_error"]["value"] == pytest.approx(float(((predicted - label) ** 2).mean()))
    assert figures["mean"] == pytest.approx(float(label.mean()))


def test_targets_of_other_rows_teach_nothing(tmp_path: Path, capsys: Told) -> None:
    """The twin that must fail: with amounts in another order, no prediction comes close."""
    rows = [row.rsplit(",", 1) for row in rows_of()]
    spent_on = [row[1] for row in rows]
    np.random.default_rng(1).shuffle(spent_on)
    made(tmp_path, [f"{row[0]},{value}" for row, value in zip(rows, spent_on, strict=True)])
    granted(tmp_path / "ledger.sqlite", "replace-label", "10", delta="0")
    capsys.readouterr()
    told(capsys, "train", values(tmp_path, BINS))
    predicted = load(tmp_path / "model").predict(Examples.of(Columns.open(tmp_path / "log"), "test"))
    assert np.sort(np.unique(predicted)) != pytest.approx(MEANS, abs=0.2 * MEANS[-1])


def test_each_way_of_reporting_is_a_release_of_its_own(place: Path, capsys: Told) -> None:
    other = {**BINS, "edges": [5, 25, 70]}
    for number, labels in enumerate((BINS, other), start=1):
        assert told(capsys, "train", values(place, labels, f"model-{number}"))["paid"] == "reserved"
        assert spent(place) == 4 * number
    again = {**BINS, "values": [1, 11, 41, 91], "correction": "raw", "epochs": 2}  # reads the same reports
    assert "paid for before" in told(capsys, "train", values(place, again, "again"))["paid"]
    assert spent(place) == 8
    privacy = {"method": "label-dp", "epsilon": 1}
    assert told(capsys, "train", values(place, BINS, "less", privacy=privacy))["paid"] == "reserved"
    assert spent(place) == 9


def test_a_page_says_how_values_were_reported(place: Path, capsys: Told) -> None:
    config = values(place, BINS)
    words = (
        "each label is put into one of 4 bins, which begin at 5, 25 and 65 and stand for 2, 10, 40 and 90; its "
        "bin is reported by randomized response"
    )
    assert f"Reports: {words}." in explained(capsys, config)
    assert main(["train", str(config)]) == 0
    assert f"reports   {words}\n" in capsys.readouterr().out
    page = explained(capsys, place / "model")
    assert f"It reads 1 public fields, and predicts a value. Reports: {words}." in page
    assert "(4, 0)-differentially private per impression" in page
    told(capsys, "train", values(place, {**ENDS, "head": "poisson"}, "counts"))
    page = explained(capsys, place / "counts")
    assert "and predicts a count. Reports: each label is rounded at random to 0 or 150, the ends" in page


def test_an_epsilon_is_shared_by_the_rows_of_a_user(place: Path, capsys: Told) -> None:
    privacy = {"method": "label-dp", "epsilon": 6, "unit": "user", "cap": 2, "split": "epsilon/K_i"}
    record = told(capsys, "train", values(place, BINS, privacy=privacy))
    assert 6 <= record["statement"]["epsilon"] < 6 * (1 + 1e-12)
    assert record["statement"]["unit"] == "user"
    assert spent(place) == 6


def test_values_that_changed_need_a_new_version(place: Path, capsys: Told) -> None:
    told(capsys, "train", values(place, BINS))
    label = np.load(place / "log" / "label.npy")
    label[3] += 0.25  # within its bin: what was behind the flips has changed all the same
    np.save(place / "log" / "label.npy", label)
    said = refused(capsys, "train", values(place, BINS, "second"))
    assert "labels.version: expected a higher one for labels that have changed" in said
    assert told(capsys, "train", values(place, {**BINS, "version": 1}, "second"))["paid"] == "reserved"
    assert spent(place) == 8


def test_a_run_goes_on_with_the_values_that_were_paid_for(
    place: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = values(place, BINS, checkpoint={"every_steps": 50})
    train = TrainingJob.train

    def stopped(job: Any, watch: Any, keeper: Any = None, mark: Any = None) -> Any:
        def watched(progress: Any) -> None:
            if watch is not None:
                watch(progress)
            if progress.step == 120:
                raise OSError(5, "Input/output error")

        return train(job, watched, keeper, mark)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingJob, "train", stopped)
        assert "go on with: tacit train" in refused(capsys, "train", config)
    assert told(capsys, "train", config, "--resume")["paid"] == "reserved before: the same noisy labels"
    assert spent(place) == 4
    predicted = load(place / "model").predict(Examples.of(Columns.open(place / "log"), "test"))
    assert np.sort(np.unique(predicted)) == pytest.approx(MEANS, abs=0.12 * MEANS[-1])


def test_values_are_measured_beside_a_baseline(place: Path, capsys: Told) -> None:
    told(capsys, "train", values(place, BINS, "good"))
    told(capsys, "train", values(place, {**BINS, "rate": 1e-9}, "idle"))
    arguments = ["evaluate", str(place / "good"), str(place / "log"), "--baseline", str(place / "idle")]
    assert main([*arguments, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["mean_squared_error_difference"]["high"] < 0
    assert main(arguments) == 0
    page = capsys.readouterr().out
    assert "mean squared error less baseline's" in page
    assert "exact figures of private values" in page
    assert "expected a model of probabilities with --calibration" in refused(
        capsys, *arguments[:3], "--calibration"
    )
    assert "expected a model of probabilities with --labels noisy" in refused(
        capsys, *arguments[:3], "--labels", "noisy"
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "column label: expected 0 or 1, got another value"),
        ({"edges": [5]}, "labels.edges: expected only with mechanism bins, got randomized-response"),
        ({**BINS, "prior": [1, 0, 0, 0]}, "labels.edges: expected where bins begin, or labels.prior"),
        ({**BINS, "edges": "5"}, "labels.edges: expected a list of numbers, got '5'"),
        ({**BINS, "edges": [5, "many", 6]}, "expected labels.edges[1] to be a finite number, got 'many'"),
        ({**BINS, "values": [0, 1e31, 2, 3]}, "expected labels.values within 1e+30"),
        ({**BINS, "edges": [5, 6]}, "labels: expected 3 values for the bins, got 4"),
        ({**BINS, "correction": "forward"}, "labels.correction: expected one of unbiased, raw, got 'forward'"),
        ({**BINS, "head": "logistic"}, "labels.head: expected one of squared, poisson, got 'logistic'"),
        ({**BINS, "prior_rate": 0.1}, "labels.prior_rate: expected only with mechanism prior or laplace"),
        ({**BEST, "prior": [0.5] * 8}, "labels: expected 8 probabilities >= 0 that sum to 1 as prior"),
        ({**ENDS, "high": 0}, "labels: expected low < high, and a finite range"),
        ({"mechanism": "ends", "low": 0}, "labels.high: expected the high end of the range, got no such key"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_changes(
    place: Path, capsys: Told, labels: dict[str, Any], message: str
) -> None:
    assert message in refused(capsys, "train", values(place, labels))
    assert spent(place) == 0
    assert not (place / "model").exists()
    assert not (place / "flips.secret").exists()


def test_values_are_for_label_dp_alone(place: Path, capsys: Told) -> None:
    privacy = {"method": "hybrid", "epsilon": 4, "delta": 1e-6, "k": 0.5}
    said = refused(capsys, "train", values(place, {"mechanism": "ends"}, privacy=privacy))
    assert "labels.mechanism: expected one for labels of 0 or 1, as DP-SGD takes them, got ends" in said
    said = refused(capsys, "train", values(place, {"low": 0}, privacy=privacy))
    assert "labels.low: expected only with method label-dp, got it with hybrid" in said


def test_labels_of_zero_and_one_may_be_values_too(tmp_path: Path, capsys: Told) -> None:
    prepared(tmp_path)
    granted(tmp_path / "ledger.sqlite", "replace-label", "8", delta="0")
    capsys.readouterr()
    told(capsys, "train", label_dp(tmp_path, "flips"))
    told(capsys, "train", label_dp(tmp_path, "ends", labels={"mechanism": "ends", "low": 0, "high": 1}))
    assert spent(tmp_path) == 4  # of one set of labels, which the register knows


# Labels that are reported twice, as conversions arrive.

RATES = np.array([0.1, 0.3, 0.5, 0.7])
DAY = 86_400
CLICKS = """\
name = "clicks"
bins = { public = 40, sensitive = 4 }
[columns.site]
role = "public"
[columns.second]
role = "time"
kind = "whole"
[columns.bought]
role = "label"
kind = "flag"
[columns.wait]
role = "delay"
kind = "whole"
"""
REPORTS: dict[str, Any] = {"report_days": [1, 30], "shares": ["1/2", "1/2"], "arrived": [0.6, 1]}


def clicks() -> list[tuple[int, int, int]]:
    """Sites, seconds and delays of conversions, 60% of which come within a day; -1 where none comes."""
    draw, rows = np.random.default_rng(6), 10_000
    site = draw.integers(0, len(RATES), rows)
    second = np.sort(draw.integers(0, 5 * DAY, rows))
    early = draw.random(rows) < 0.6
    delay = np.where(early, draw.integers(0, DAY, rows), draw.integers(DAY + 1, 30 * DAY, rows))
    delay = np.where(draw.random(rows) < RATES[site], delay, -1)
    return list(zip(site.tolist(), second.tolist(), delay.tolist(), strict=True))


def known_by(place: Path, now: int, rows: list[tuple[int, int, int]]) -> None:
    """The log as it stands at a time: later conversions are not in it yet."""
    lines = ["site,second,bought,wait"]
    for site, second, delay in rows:
        came = delay >= 0 and second + delay <= now
        lines.append(f"s{site},{second},{int(came)},{delay if came else ''}")
    (place / "clicks.csv").write_text("\n".join(lines) + "\n")
    (place / "clicks.toml").write_text(CLICKS)
    source, schema = str(place / "clicks.csv"), str(place / "clicks.toml")
    arguments = [source, "--schema", schema, "--out", str(place / "log"), "--overwrite", "--json"]
    assert main(["data", "prepare", *arguments]) == 0


@pytest.fixture
def week(tmp_path: Path, capsys: Told) -> Path:
    """Clicks of five days, as known two days later: every label has its first report, and none its last."""
    known_by(tmp_path, 7 * DAY, clicks())
    granted(tmp_path / "ledger.sqlite", "replace-label", "20", delta="0")
    granted(tmp_path / "ledger.sqlite", "replace-one", "20")
    capsys.readouterr()
    return tmp_path


def reports(place: Path, out: str = "model", *, epsilon: float = 6, **labels: Any) -> Path:
    privacy = {"method": "label-dp", "epsilon": epsilon}
    said = {**LEARNING, **REPORTS, "as_of": 7 * DAY, **labels}
    return label_dp(place, out, privacy=privacy, labels={key: each for key, each in said.items() if each != {}})


def rates(place: Path, model: str = "model") -> Any:
    """What a model predicts for each site."""
    return np.sort(np.unique(load(place / model).predict(Examples.of(Columns.open(place / "log"), "test"))))


@pytest.mark.parametrize("correction", ["forward", "unbiased"])
def test_early_reports_teach_final_rates(week: Path, capsys: Told, correction: str) -> None:
    record = told(capsys, "train", reports(week, correction=correction))
    assert record["phases"][0]["noisy_labels"] == {"labels": record["examples"], "epsilon": 6}
    statement = record["statement"]
    assert 6 <= statement["epsilon"] < 6 * (1 + 1e-12)
    assert statement["mechanisms"] == ["; ".join(["randomized response on 2 classes, ε = 3 per label"] * 2)]
    (paid,) = reservations(week).values()
    assert paid.amount.budget == Budget.of(6, 0)
    assert str(paid.state) == "committed"
    assert load(week / "model").statement == statement
    # 2,000 labels a site, flipped at epsilon 3 and of which .6 are there: a standard deviation of about .02.
    assert rates(week) == pytest.approx(RATES, abs=0.08)


def test_reports_taken_for_final_ones_teach_too_little(week: Path, capsys: Told) -> None:
    """The twin that must fail: that all conversions are there by the first day is not so."""
    told(capsys, "train", reports(week, arrived=[1, 1]))
    assert rates(week) != pytest.approx(RATES, abs=0.08)
    assert rates(week) == pytest.approx(0.6 * RATES, abs=0.08)


def test_later_reports_of_the_same_labels_are_paid_for_already(week: Path, capsys: Told) -> None:
    told(capsys, "train", reports(week, "early"))
    known_by(week, 80 * DAY, clicks())  # the same rows a month later, with the conversions since
    capsys.readouterr()
    record = told(capsys, "train", reports(week, "late", as_of=80 * DAY))
    assert record["paid"] == "paid for before: the same noisy labels, read again"
    assert spent(week) == 6
    assert rates(week, "late") == pytest.approx(RATES, abs=0.06)
    early, late = (load(week / name).statement for name in ("early", "late"))
    assert early == late
    # As of the first week the same reports come out again, from the longer log too.
    record = told(capsys, "train", reports(week, "again"))
    assert record["phases"][0]["noisy_labels"]["labels"] == record["examples"]
    assert spent(week) == 6


def test_a_report_is_of_what_stood_then(week: Path, capsys: Told) -> None:
    """A conversion that is found to have come earlier changes what was reported, and needs a new version."""
    told(capsys, "train", reports(week, "early"))
    rows = clicks()
    trained = Examples.of(Columns.open(week / "log"), "train").key("row").tolist()
    place = next(at for at in trained if rows[at][2] > DAY)
    site, second, _ = rows[place]
    known_by(week, 80 * DAY, [*rows[:place], (site, second, 5), *rows[place + 1 :]])
    capsys.readouterr()
    for as_of in (7 * DAY, 80 * DAY):
        said = refused(capsys, "train", reports(week, "late", as_of=as_of))
        assert "labels.version: expected a higher one for labels that have changed" in said
    assert spent(week) == 6
    assert told(capsys, "train", reports(week, "late", version=1))["paid"] == "reserved"
    assert spent(week) == 12


def test_another_plan_of_reports_is_another_release(week: Path, capsys: Told) -> None:
    told(capsys, "train", reports(week, "one"))
    told(capsys, "train", reports(week, "two", arrived=[0.7, 1], prior_rate=0.3, correction="raw"))
    assert spent(week) == 6  # these only read reports
    told(capsys, "train", reports(week, "three", shares=[0.25, 0.75]))
    assert spent(week) == 12
    told(capsys, "train", reports(week, "four", report_days=[2, 30]))
    assert spent(week) == 18


def test_a_page_says_when_labels_are_reported(week: Path, capsys: Told) -> None:
    words = (
        "each label is reported 2 times by randomized response, as it stood 1 and 30 days after its row, with "
        "1/2 and 1/2 of epsilon"
    )
    config = reports(week)
    assert "Sensitive: no field; and the label, with seconds to conversion." in explained(capsys, week / "log")
    assert f"Reports: {words}." in explained(capsys, config)
    assert main(["train", str(config)]) == 0
    assert f"reports   {words}\n" in capsys.readouterr().out
    page = explained(capsys, week / "model")
    assert f"Reports: {words}." in page
    assert page.count("randomized response on 2 classes, ε = 3 per label") == 2


def test_a_plan_warns_of_reports_that_are_too_few(week: Path, capsys: Told) -> None:
    record = told(capsys, "train", reports(week, as_of=DAY + 3_600), "--dry-run")  # of an hour's clicks
    count = record["phases"][0]["noisy_labels"]["labels"]
    assert 0 < count < 200
    assert record["few"].startswith(f"{count} labels with a report by then are too few")
    assert told(capsys, "train", reports(week), "--dry-run")["few"] is None


def test_a_run_of_reports_goes_on_as_of_the_same_time(
    week: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reports(week)
    config.write_text(config.read_text() + "[checkpoint]\nevery_steps = 50\n")
    train = TrainingJob.train

    def stopped(job: Any, watch: Any, keeper: Any = None, mark: Any = None) -> Any:
        def watched(progress: Any) -> None:
            if watch is not None:
                watch(progress)
            if progress.step == 120:
                raise OSError(5, "Input/output error")

        return train(job, watched, keeper, mark)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingJob, "train", stopped)
        assert "go on with: tacit train" in refused(capsys, "train", config)
    later = config.read_text().replace(f"as_of = {7 * DAY}", f"as_of = {32 * DAY}")
    other = config.with_name("later.toml")
    other.write_text(later)
    assert "expected" in refused(capsys, "train", other, "--resume")  # of other reports
    assert told(capsys, "train", config, "--resume")["paid"] == "reserved before: the same noisy labels"
    assert spent(week) == 6
    assert rates(week) == pytest.approx(RATES, abs=0.08)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"shares": [0.5, 0.4]}, "labels: expected 2 shares of epsilon that sum to 1, got 1/2, 2/5"),
        ({"shares": ["half", 0.5]}, "expected labels.shares[0] to be a finite number, got 'half'"),
        ({"shares": 1}, "labels.shares: expected a list of numbers, got 1"),
        (
            {"shares": {}},
            "labels.shares: expected the share of epsilon that each report may spend, got no",
        ),
        ({"arrived": [0.6, 0.9]}, "labels: expected 2 arrived shares that rise to 1, got 3/5, 9/10"),
        ({"report_days": [30, 1]}, "labels: expected 1..8 delays, each longer than the last"),
        (
            {"report_days": [0.00001, 30]},
            "labels.report_days: expected days of whole seconds, got 1e-05",
        ),
        ({"report_days": {}}, "labels.shares: expected only with report_days, got it alone"),
        ({"as_of": "today"}, "expected labels.as_of to be a whole number, got 'today'"),
        ({"as_of": 2**40}, "expected reports as of a time that has come, got 1099511627776"),
        ({"as_of": 60}, "expected at least one closed reporting window at now=60, got none"),
        (
            {"mechanism": "prior", "prior_rate": 0.3},
            "labels.report_days: expected only with mechanism",
        ),
        ({"correction": "posterior"}, "labels.correction: expected one of forward, unbiased, raw"),
        ({"epsilon": 0.001}, "expected epsilon >= 0.001 for each label, got 0.0005 divided by 1"),
    ],
)
def test_reports_that_cannot_be_meant_are_refused(
    week: Path, capsys: Told, labels: dict[str, Any], message: str
) -> None:
    assert message in refused(capsys, "train", reports(week, **labels))
    assert spent(week) == 0
    assert not (week / "model").exists()
    assert not (week / "flips.secret").exists()


def test_reports_need_label_dp_and_a_log_that_tells_delays(week: Path, capsys: Told) -> None:
    privacy = {"method": "dp-sgd", "epsilon": 4, "delta": 1e-6}
    said = refused(capsys, "train", label_dp(week, privacy=privacy, labels=REPORTS))
    assert "labels.report_days: expected only with method label-dp, got it with dp-sgd" in said
    said = refused(capsys, "train", label_dp(week, privacy={**privacy, "method": "hybrid"}, labels=REPORTS))
    assert "labels.report_days: expected only with method label-dp, got it with hybrid" in said
    prepared(week / "without")
    capsys.readouterr()
    said = refused(capsys, "train", label_dp(week, data="without/log", labels={**LEARNING, **REPORTS}))
    assert "expected seconds to conversion (a column of role delay, or tacit data prepare --delays)" in said
    assert spent(week) == 0
