"""A prepared Taobao log and two models as a market; the same from the command line; and the published tables,
where somebody has them."""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tacit.cli import main
from tacit.data.columns import MANIFEST, Columns
from tacit.data.logs.definition import find_log
from tacit.data.preparation import hashing_encoder, prepare
from tacit.data.reading.reader import LogReader
from tacit.errors import BadInput
from tacit.train.examples import Examples
from tacit.train.models.model import Part
from tacit.train.models.saving import load
from tacit_lab.studies.choice.markets import LoggedAuctions, LoggedMarket, study_markets
from tacit_lab.studies.registry import load_study
from tacit_lab.studies.study import StudyRequest, StudyScale

pytest.importorskip("torch")

SERVER = """[model]
name = "fnn"
dim = 4
layers = [8]
"""
DEVICE = """[model]
name = "din"
dim = 4
attention = [8]
layers = [8]
"""
PLAIN = """[privacy]
method = "plain"
[descent]
epochs = 1
"""
NOISY = """[privacy]
method = "label-dp"
epsilon = 2
[labels]
epochs = 1
"""


def configured(folder: Path, name: str, *tables: str) -> Path:
    path = folder / f"{name}.toml"
    seed = "[run]\nsimulated = 1\n"
    path.write_text("\n".join([f'data = "log"\nout = "{name}"\n', *tables, seed]))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and both models, by the commands that anybody would use."""
    place = tmp_path_factory.mktemp("taobao")
    raw, log = str(place / "raw"), str(place / "log")
    assert main(["data", "generate", "taobao", "--rows", "4000", "--seed", "3", "--out", raw]) == 0
    bins = ["--public-bins", "2000", "--sensitive-bins", "200"]
    assert main(["data", "prepare", "taobao", raw, "--out", log, *bins, "--json"]) == 0
    for name, tables in (("server", (SERVER, PLAIN)), ("device", (DEVICE, PLAIN)), ("noisy", (DEVICE, NOISY))):
        assert main(["train", str(configured(place, name, *tables)), "--json"]) == 0
    return place


def test_histories_taken_whole_are_remarked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for length, remarked in ((20, False), (1_000_000, True)):
        model = DEVICE + f"length = {length}\n"
        assert main(["train", str(configured(folder, f"long-{length}", model, PLAIN)), "--dry-run"]) == 0
        assert ("length 1,000,000 takes next to every event" in capsys.readouterr().out) is remarked


def test_a_study_says_of_a_made_up_log_that_it_is(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data it was"
    data.mkdir()
    for name, model in (("fnn", "server"), ("din", "device")):
        (data / name).symlink_to(folder / model)
    shutil.copytree(folder / "log", data / "taobao")
    for synthetic in (True, False):
        place = data / "taobao" / MANIFEST
        place.write_text(json.dumps({**json.loads(place.read_text()), "synthetic": synthetic}))
        outcome = load_study("choice-candidates").outcome(StudyRequest(tmp_path / "out", seeds=1, data=data))
        record = json.loads((tmp_path / "out" / "choice-candidates.json").read_text())
        assert record["synthetic"] is synthetic
        assert ("synthetic, Taobao-like (" in outcome.note) is synthetic
        assert record["command"].endswith(f"--data '{data}'")


def market(folder: Path, part: str = "test") -> LoggedMarket:
    columns = Columns.open(folder / "log")
    return LoggedMarket.of(columns, server=load(folder / "server"), device=load(folder / "device"), part=part)


def joined(blocks: list[LoggedAuctions]) -> LoggedAuctions:
    sizes = np.concatenate([np.diff(block.offsets) for block in blocks])
    values = (
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("bid", "server", "device", "click")
    )
    return LoggedAuctions(np.concatenate([[0], np.cumsum(sizes)]), *values)


def test_what_is_saved_says_what_it_reads(folder: Path) -> None:
    server, device, noisy = (load(folder / name) for name in ("server", "device", "noisy"))
    assert (server.part, device.part, noisy.part) == (Part.TRUNCATED, Part.WHOLE, Part.WHOLE)
    assert noisy.settings["as_if"]["epsilon"] == pytest.approx(2)  # rounded up
    assert any("sensitive features" in gap for gap in noisy.settings["as_if"]["not_protected"])


def test_evaluate_measures_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    arguments = [str(folder / "device"), str(folder / "log"), "--baseline", str(folder / "server"), "--json"]
    assert main(["evaluate", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 500


def test_dp_sgd_is_refused_by_the_command_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = '[privacy]\nmethod = "dp-sgd"\nepsilon = 8\ndelta = 1e-6\n'
    capsys.readouterr()
    assert main(["train", str(configured(folder, "refused", DEVICE, private))]) == 2
    told = capsys.readouterr().err.strip()
    assert "\n" not in told
    assert "expected method plain or label-dp for din" in told


def test_a_log_without_histories_is_refused_before_it_trains(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = DEVICE + 'history = ["history_shop"]\n'
    capsys.readouterr()
    assert main(["train", str(configured(folder, "absent", other, PLAIN))]) == 2
    assert "which here are history_brand, history_category, got 'history_shop'" in capsys.readouterr().err


def test_auctions_are_one_users_one_second_as_a_slow_reader_finds_them(folder: Path) -> None:
    columns = Columns.open(folder / "log")
    examples = Examples.of(columns, "test")
    rows = examples.rows(np.arange(len(examples)))
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, row in enumerate(rows.tolist()):
        groups[(int(columns["user"][row]), int(columns["time"][row]))].append(place)
    whole = joined(list(market(folder).blocks()))
    assert whole.count == len(groups)
    assert np.diff(whole.offsets).tolist() == [len(places) for places in groups.values()]
    order = np.array([place for places in groups.values() for place in places])
    assert np.array_equal(whole.bid, columns["price"][rows[order]])
    assert np.array_equal(whole.click, columns.label[rows[order]] == 1)
    # A prediction may differ in its last bits with the batch that it is made in.
    for found, name in ((whole.server, "server"), (whole.device, "device")):
        np.testing.assert_allclose(found, load(folder / name).predict(examples)[order], rtol=1e-5)
    assert not np.allclose(whole.server, whole.device)


def test_blocks_of_any_size_hold_the_same_auctions(folder: Path) -> None:
    found = market(folder)
    whole, small = joined(list(found.blocks())), joined(list(found.blocks(7)))
    assert [block.count for block in found.blocks(7)][:-1] == [7] * (-(-found.count // 7) - 1)
    assert found.reserve == whole.bid.min()
    for name in ("offsets", "bid", "click"):
        assert np.array_equal(getattr(whole, name), getattr(small, name))
    np.testing.assert_allclose(small.device, whole.device, rtol=1e-5)


def test_a_study_meets_the_logged_auctions_in_their_order(folder: Path, tmp_path: Path) -> None:
    for name, there in (("taobao", "log"), ("fnn", "server"), ("din", "device")):
        (tmp_path / name).symlink_to(folder / there)
    (found,) = study_markets(StudyRequest(tmp_path / "out", StudyScale.TOY, seeds=1, data=tmp_path))
    whole = joined(list(market(folder).blocks()))
    assert found.count == whole.count
    publics = [block.public for block in found.blocks]
    names = [public.names.of(at) for public in publics for at in range(public.count)]
    assert names == [str(at) for at in range(whole.count)]
    campaigns = np.concatenate([np.asarray(public.campaign) for public in publics])
    assert campaigns.tolist() == list(range(len(whole.bid)))
    micros = np.concatenate([public.bid_micros for public in publics])
    np.testing.assert_array_equal(micros, np.floor(whole.bid * 1e6))
    for half, name in (("private", "device"), ("truth", "click")):
        rates = np.concatenate([getattr(block, half).click for block in found.blocks])
        np.testing.assert_allclose(rates, getattr(whole, name), rtol=1e-5)


def test_an_ad_without_a_price_is_no_candidate(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for path in (folder / "log").iterdir():
        (tmp_path / "log" / path.name).write_bytes(path.read_bytes())
    bids = np.load(tmp_path / "log" / "price.npy")
    bids[::3] = np.nan
    np.save(tmp_path / "log" / "price.npy", bids)
    columns = Columns.open(tmp_path / "log")
    found = LoggedMarket.of(columns, server=load(folder / "server"), device=load(folder / "device"))
    whole = joined(list(found.blocks()))
    assert 0 < found.without_bid == len(found.examples) - len(whole.bid)
    assert not np.isnan(whole.bid).any()
    assert np.diff(whole.offsets).min() > 0


def test_a_server_that_reads_the_person_is_refused(folder: Path) -> None:
    columns, device = Columns.open(folder / "log"), load(folder / "device")
    with pytest.raises(BadInput, match="server: expected a model without sensitive features"):
        LoggedMarket.of(columns, server=device, device=device)


def test_a_model_of_another_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    log = find_log("taobao")
    other = prepare(LogReader(log, folder / "raw"), hashing_encoder(log, 100, 100), tmp_path / "log").columns
    with pytest.raises(BadInput, match="server: expected a model of the encoder"):
        LoggedMarket.of(other, server=load(folder / "server"), device=load(folder / "device"))


def test_the_published_tables(folder: Path, tmp_path: Path) -> None:
    """Prepares the real tables, and makes a market of them; the models need not be any good."""
    data = os.environ.get("TACIT_DATA")
    if data is None:
        pytest.skip("TACIT_DATA is not set: the published Taobao tables were not read")
    if not (Path(data) / "taobao").is_dir():
        pytest.skip(f"{data} has no folder taobao: the published Taobao tables were not read")
    encoder = Columns.open(folder / "log").encoder
    columns = prepare(LogReader(find_log("taobao"), Path(data) / "taobao"), encoder, tmp_path / "log").columns
    server, device = (load(folder / name) for name in ("server", "device"))
    block = next(LoggedMarket.of(columns, server=server, device=device).blocks(1000))
    assert block.count == 1000
    assert ((block.device > 0) & (block.device < 1)).all()
