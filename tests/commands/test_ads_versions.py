"""`tacit ads models` and `tacit ads statistics`: on the store and over HTTP, retraining among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tacit.cli import main
from tacit.deliver.campaigns.access import AccessRole
from tacit.deliver.campaigns.store import Author
from tacit.deliver.campaigns.versions import VersionKind
from tacit.entropy import Entropy
from tacit.services import trial
from tacit.services.ads import access_client
from tacit.services.ads.rollouts import judge_rollout
from tacit.store import SqlAdStore, SqlVersionStore
from tacit.train.evaluation.intervals import MeasuredValue
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.saving import save
from tacit.train.promise_words import NO_PROMISE
from tests.services.ads.test_rate_models import a_model, an_encoder
from tests.services.ads.test_versions import statistics
from tests.support.ads_services import AdsWorld
from tests.support.service_worlds import SERVER_URL

Told = pytest.CaptureFixture[str]
SCHEMA = """\
name = "clicks"
bins = { public = 64, sensitive = 1 }
[columns.city]
role = "public"
[columns.topic]
role = "public"
[columns.campaign]
role = "public"
[columns.second]
role = "time"
kind = "whole"
[columns.clicked]
role = "label"
kind = "flag"
"""
CONFIG = """\
data = "log"
out = "clicks"
[model]
name = "logistic"
[privacy]
method = "plain"
[descent]
epochs = EPOCHS
batch = 100
rate = 0.2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial's settings, a log of clicks, a configuration, and two models."""
    place = tmp_path_factory.mktemp("retrained")
    trial.write_trial(place, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    draw = np.random.default_rng(7)
    rows = ["city,topic,campaign,second,clicked"]
    for second in range(1_500):
        north, food, campaign = draw.integers(0, 2), draw.integers(0, 2), int(draw.integers(1, 5))
        clicked = int(draw.random() < 0.1 + 0.6 * food + 0.2 * north)
        rows.append(
            f"{('South', 'North')[north]},{('Sport', 'Food')[food]},{campaign},{second * 1000},{clicked}"
        )
    (place / "clicks.csv").write_text("\n".join(rows) + "\n")
    (place / "clicks.toml").write_text(SCHEMA)
    schema = ["--schema", str(place / "clicks.toml"), "--out", str(place / "log")]
    assert main(["data", "prepare", str(place / "clicks.csv"), *schema]) == 0
    (place / "train.toml").write_text(CONFIG.replace("EPOCHS", "3"))
    save(place / "good", a_model(FactorizationMachine(dim=2, start=0.1), statement=STATEMENT))
    save(place / "personal", a_model(FactorizationMachine(dim=2), an_encoder(("city", "age"))))
    return place


STATEMENT: dict[str, Any] = {
    "unit": "impression", "relation": "replace-label", "epsilon": 2.0, "delta": 0.0, "mechanisms": ["flips"],
    "sampler": "the system's", "accountant": "exact", "not_protected": [], "window_origin": None,
}  # fmt: skip


def run(told: Told, *words: str, code: int = 0) -> str:
    told.readouterr()
    assert main(["ads", *words]) == code
    said = told.readouterr()
    return said.out if code == 0 else said.err


def test_models_are_added_listed_shown_and_rolled_back(folder: Path, capsys: Told, tmp_path: Path) -> None:
    settings = ("--settings", str(_own(folder, tmp_path) / "server.toml"))
    added = run(capsys, "models", "add", str(folder / "good"), "--use", *settings)
    assert added == "model 1 was added, in use from the next epoch on\n"
    assert "was there already" in run(capsys, "models", "add", str(folder / "good"), *settings)
    save(tmp_path / "other", a_model(FactorizationMachine(dim=2, start=0.3)))
    other = json.loads(run(capsys, "models", "add", str(tmp_path / "other"), "--use", "--json", *settings))
    assert (other["number"], other["in_use"], other["new"]) == (2, True, True)
    assert run(capsys, "models", "use", "1", *settings) == "model 1 is in use, from the next epoch on\n"
    listed = json.loads(run(capsys, "models", "list", "--json", *settings))
    assert [(each["number"], each["in_use"]) for each in listed] == [(2, False), (1, True)]
    table = run(capsys, "models", "list", *settings)
    assert "good" in table
    shown = run(capsys, "models", "show", "1", *settings)
    assert "model 1, in use: good" in shown
    assert "city, topic, campaign" in shown
    assert "(e^2) less or more often" in shown
    assert NO_PROMISE in run(capsys, "models", "show", "2", *settings)
    assert json.loads(run(capsys, "models", "list", "--conversions", "--json", *settings)) == []


def test_what_is_refused_is_one_line(folder: Path, capsys: Told, tmp_path: Path) -> None:
    settings = ("--settings", str(_own(folder, tmp_path) / "server.toml"))
    for words, said in (
        (("models", "add", str(folder / "personal")), "got one that reads age"),
        (("models", "use", "7"), "version 7"),
        (("models", "show", "7"), "version 7"),
        (("models", "list", "--key-file", "key"), "--key-file: expected none beside --settings"),
        (("models", "retrain", str(folder / "train.toml"), "--name", "a/b"), "--name: expected letters"),
        (("models", "retrain", str(folder / "train.toml")), "expected --labels-are-public, or --epsilon"),
    ):
        line = run(capsys, *words, *settings, code=2)
        assert said in line
        assert line.count("\n") == 1
    line = run(capsys, "models", "retrain", str(folder / "train.toml"), "--url", SERVER_URL, code=2)
    assert "--url: expected --settings" in line
    assert not (folder / "clicks-a").exists()


def test_statistics_are_listed_and_rolled_back(folder: Path, capsys: Told, tmp_path: Path) -> None:
    place = _own(folder, tmp_path)
    settings = ("--settings", str(place / "server.toml"))
    store = SqlAdStore.open(place / "ads.sqlite")
    versions = SqlVersionStore(store.database)
    for clicks in (5, 6):
        versions.add(statistics(clicks), Author("schedule", 1_800_000_000), use=True)
    counted = statistics(7, VersionKind.CONVERSION_STATISTICS)
    versions.add(counted, Author("schedule", 1_800_000_000), use=True)
    store.close()
    converted = json.loads(run(capsys, "statistics", "list", "--conversions", "--json", *settings))
    assert [(each["number"], each["kind"]) for each in converted] == [(3, "conversion-statistics")]
    assert "Statistics of conversions" in run(capsys, "statistics", "list", "--conversions", *settings)
    assert "conversion-statistics 3 is in use" in run(capsys, "statistics", "use", "3", *settings)
    assert "statistics 1 is in use" in run(capsys, "statistics", "use", "1", *settings)
    listed = json.loads(run(capsys, "statistics", "list", "--json", *settings))
    assert [(each["number"], each["in_use"]) for each in listed] == [(2, False), (1, True)]
    assert "statistics 1, in use" in run(capsys, "statistics", "show", "1", *settings)
    assert "expected a model's" in run(capsys, "models", "use", "1", *settings, code=2)


def test_retraining_adds_a_version_and_puts_it_in_use_unless_worse(
    folder: Path, capsys: Told, tmp_path: Path
) -> None:
    settings = ("--settings", str(_own(folder, tmp_path) / "server.toml"), "--labels-are-public", "--json")
    first = json.loads(
        run(capsys, "models", "retrain", str(folder / "train.toml"), "--name", "monday", *settings)
    )
    assert first["use"], first["why"]
    assert "none was in use" in first["why"]
    assert (folder / "clicks-monday").is_dir()
    again = json.loads(
        run(capsys, "models", "retrain", str(folder / "train.toml"), "--name", "monday", *settings)
    )
    assert (again["number"], again["new"]) == (first["number"], False)

    worse = folder / "worse.toml"
    worse.write_text(CONFIG.replace("EPOCHS", "1").replace("rate = 0.2", "rate = 0.000001"))
    refused = json.loads(run(capsys, "models", "retrain", str(worse), "--name", "tuesday", *settings))
    assert not refused["use"]
    assert not refused["in_use"]
    assert refused["why"].startswith("it is worse (log loss minus that of the one in use: ")
    assert refused["body"]["evaluation"]["log_loss_difference"]["low"] > 0

    better = folder / "better.toml"
    better.write_text(CONFIG.replace("EPOCHS", "5"))
    rolled = json.loads(run(capsys, "models", "retrain", str(better), "--name", "wednesday", *settings))
    assert rolled["in_use"], rolled["why"]
    used = run(capsys, "models", "use", str(first["number"]), *settings[:2])  # back with one command
    assert f"model {first['number']} is in use" in used


def test_the_rule_is_the_stated_one() -> None:
    def difference(low: float, high: float) -> MeasuredValue:
        return MeasuredValue((low + high) / 2, low, high, 0.95)

    assert judge_rollout(difference(-0.02, -0.01), 0.3, 0.2)[0]
    assert judge_rollout(difference(-0.01, 0.02), 0.3, 0.2)[0]
    assert judge_rollout(difference(0.0, 0.02), 0.3, 0.2)[0]
    assert not judge_rollout(difference(0.001, 0.02), 0.3, 0.2)[0]
    assert not judge_rollout(None, 0.6, 0.2)[0]
    assert judge_rollout(None, 0.4, 0.2)[0]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdsWorld]:
    made = AdsWorld(tmp_path)
    yield made
    made.end()


def test_the_same_over_http(
    world: AdsWorld, folder: Path, capsys: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_client, "open_client", lambda *_: httpx.Client(transport=world.network))
    key = tmp_path / "operator.key"
    key.write_text(world.key(AccessRole.OPERATOR) + "\n")
    there = ("--url", SERVER_URL, "--key-file", str(key))
    key.chmod(0o644)
    assert "only its owner may read" in run(capsys, "models", "list", *there, code=2)
    key.chmod(0o600)
    assert "model 1 was added, not in use" in run(capsys, "models", "add", str(folder / "good"), *there)
    assert "model 1 is in use" in run(capsys, "models", "use", "1", *there)
    assert json.loads(run(capsys, "models", "list", "--json", *there))[0]["in_use"]
    assert "model 1, in use: good" in run(capsys, "models", "show", "1", *there)
    assert "version 9" in run(capsys, "models", "use", "9", *there, code=2)
    assert "got one that reads age" in run(capsys, "models", "add", str(folder / "personal"), *there, code=2)
    used = world.running.versions.in_use(VersionKind.MODEL)
    assert used is not None
    line = run(capsys, "models", "list", "--url", SERVER_URL, code=2)
    assert "TACIT_ADS_KEY" in line
    monkeypatch.setenv("TACIT_ADS_KEY", "tacit_0_0")
    assert "expected an access key" in run(capsys, "models", "list", "--url", SERVER_URL, code=2)
    stranger = world.key(AccessRole.OPERATOR)
    monkeypatch.setenv("TACIT_ADS_KEY", stranger[:-1] + ("0" if stranger[-1] != "0" else "1"))
    assert "key that holds" in run(capsys, "models", "list", "--url", SERVER_URL, code=2)
    monkeypatch.setenv("TACIT_ADS_URL", SERVER_URL)  # as all of tacit ads has it
    monkeypatch.setenv("TACIT_ADS_KEY", stranger)
    assert json.loads(run(capsys, "models", "list", "--json"))[0]["number"] == 1


def _own(folder: Path, place: Path) -> Path:
    """The settings of a trial, with a store of its own."""
    made = place / "served"
    trial.write_trial(made, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    assert (folder / "contexts.toml").read_text() == (made / "contexts.toml").read_text()
    return made
