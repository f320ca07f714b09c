"""Every kind of file that a person hands to tacit or could edit, and how it is read.

`KINDS` names them: what is read, and by which command, or by the reader that a command opens it with where the
command itself would train, serve or wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.handed_in_reading import Kind, run
from tests.support.handed_in_whole import Whole

NOW = 1_790_000_000


def _described(files: Whole, name: str, schema: str = "shop.toml", file: str | None = None) -> Kind:
    place = files.log
    read = ("data", "describe", place / (file or name), "--schema", place / schema)
    return Kind(place / name, lambda: run(*read))


def _columns(files: Whole, name: str) -> Kind:
    """A file of a prepared log: everything in it is looked at."""
    from tacit.data.columns import Columns

    place = files.log / "listed"

    def read() -> None:
        run("explain", place)
        columns = Columns.open(place)
        for array in columns.manifest["arrays"]:
            np.sum(columns[array])
        columns.parts()
        str(columns.encoder.digest)

    return Kind(place / name, read)


def _model(files: Whole, name: str, **more: Any) -> Kind:
    place = files.model / "model"
    return Kind(place / name, lambda: run("explain", place), **more)


def _model_record(files: Whole) -> Kind:
    from tacit.files import record_digest

    return _model(files, "model.json", fitted=lambda record: {**record, "digest": record_digest(record)})


def _statement(files: Whole) -> Kind:
    """With the model's record fitted to it, as one who edits the promise would have to."""
    from tacit.files import file_digest, record_digest

    place = files.model / "model"
    whole = (place / "model.json").read_bytes()

    def read() -> None:
        record = json.loads(whole)
        record["files"]["statement.json"] = file_digest(place / "statement.json")
        (place / "model.json").write_text(json.dumps({**record, "digest": record_digest(record)}))
        try:
            run("explain", place)
        finally:
            (place / "model.json").write_bytes(whole)

    return Kind(place / "statement.json", read)


def _weights(files: Whole) -> Kind:
    from tacit.train.models.architectures import make_architecture
    from tacit.train.models.saving import _fill, _nothing, load

    saved = load(files.model / "model")
    place = files.model / "model" / "weights.safetensors"
    shape = make_architecture("logistic", {})

    def read() -> None:
        _fill(shape.build(saved.model.sizes, _nothing), place)  # which the digest of the record stands before

    return Kind(place, read)


def _checkpoint(files: Whole) -> Kind:
    from tacit.files import record_digest
    from tacit.train.config import CheckpointSettings
    from tacit.train.job.checkpoints import Checkpoints

    out = files.model / "resumed"

    def read(resume: bool = True) -> None:
        checkpoints = Checkpoints(out, "d" * 64, CheckpointSettings())
        checkpoints.claim(resume=resume)
        str(checkpoints.mark)
        checkpoints.release()

    place = files.model / ".resumed.checkpoint" / "checkpoint.json"
    read(resume=place.exists())  # where one was made before, it is gone on with
    return Kind(place, read, fitted=lambda record: {**record, "digest": record_digest(record)})


def _room_checkpoint(files: Whole) -> Kind:
    from safetensors.numpy import save

    from tacit.cleanroom.platform.checkpoints import CHECKPOINT_ARRAYS, CHECKPOINT_FORMAT, restore_checkpoint

    class Descent:
        values = mean = square = np.ones(6, np.float32)
        steps = 0

    state = {"training": "t", "moments": 3, "receipts": [[1, "a" * 64, "00" * 64]], "steps_an_epoch": 4,
             "step": 2, "bytes_sent": 5, "bytes_received": 6, "examples": 7}  # fmt: skip
    place = files.room / "platform" / "checkpoint.safetensors"
    arrays = dict.fromkeys(CHECKPOINT_ARRAYS, np.ones(6, np.float32))
    place.write_bytes(save(arrays, metadata={"format": CHECKPOINT_FORMAT, "state": json.dumps(state)}))
    return Kind(place, lambda: restore_checkpoint(place, "t", Descent()))  # type: ignore[arg-type]


def _head(files: Whole) -> Kind:
    from safetensors.numpy import save

    from tacit.cleanroom.platform.statistic import HEAD_ARRAYS, HEAD_FORMAT, StatisticHead

    told = {"base": "b" * 64, "advertiser": 3, "rank": 1, "task": "buy", "blocks": [["layer", 2, 3, 1]],
            "scale": 0.5, "cell_weight": 1.0, "fields": 2, "statement": {}}  # fmt: skip
    place = files.room / "platform" / "head.safetensors"
    arrays = {name: np.ones(6, np.float32) for name in (*HEAD_ARRAYS, "values.0", "values.1")}
    place.write_bytes(save(arrays, metadata={"format": HEAD_FORMAT, "head": json.dumps(told)}))
    return Kind(place, lambda: StatisticHead.load(place))


def _question(files: Whole) -> Kind:
    from tacit.gather.protocol.rounds import Question

    place = files.served / "question.bin"
    question = Question((1, 1), np.array([2, 5]), np.array([0, 2, 3]), np.array([1, 4, 2]))
    place.write_bytes(question.to_bytes())
    return Kind(place, lambda: Question.from_bytes(place.read_bytes()))


def _mark(files: Whole) -> Kind:
    from tacit.data.synthetic import is_synthetic, mark_path, text_mark

    place = files.log / "shop.csv.gz"
    mark_path(place).write_bytes(text_mark(place, {"seed": 1}))
    return Kind(mark_path(place), lambda: is_synthetic(place))


def _published(files: Whole) -> Kind:
    from tacit.data.logs.definition import find_log

    place = files.log / "search.tsv"
    row = ["1"] * len(find_log("criteo-search").layouts[0].columns)
    place.write_text("\n".join("\t".join(row) for _ in range(20)) + "\n")
    return Kind(place, lambda: run("data", "describe", "criteo-search", place))


def _side_table(files: Whole) -> Kind:
    from tacit.data.logs.taobao_tables import AD, SideTable

    place = files.log / "ad_feature.csv"
    place.write_text(
        "adgroup_id,cate_id,campaign_id,customer,brand,price\n"
        + "".join(f"{number},{number % 3},7,8,NULL,1.5\n" for number in range(20))
    )
    return Kind(place, lambda: SideTable.read(place, AD))


def _sweep(files: Whole) -> Kind:
    from tacit.config import error_prefix
    from tacit.train.config_file import read_config
    from tacit_lab.studies.sweep.grid import parse_sweep

    place = files.model / "sweep.toml"

    def parsed() -> None:
        with error_prefix(str(place)):
            parse_sweep(read_config(place), place)

    return Kind(place, parsed)


def _train(files: Whole) -> Kind:
    from tacit.train.config_file import load_config

    place = files.model / "train.toml"
    return Kind(place, lambda: load_config(place))


def _simulate(files: Whole) -> Kind:
    from tacit.deliver.auction.config import load_simulation

    return Kind(files.market / "market.toml", lambda: load_simulation(files.market / "market.toml"))


def _settings(files: Whole, name: str) -> Kind:
    from tacit.services.settings import load_either_settings

    place = files.served
    settings = place / (
        "proxy.toml" if name in ("proxy.sealing", "pair.secret", "proxy.toml") else "server.toml"
    )
    return Kind(place / name, lambda: load_either_settings(settings))


def _parties(files: Whole) -> Kind:
    from tacit.services.settings import load_parties

    return Kind(files.served / "parties.toml", lambda: load_parties(files.served / "parties.toml"))


def _device_parties(files: Whole) -> Kind:
    from tacit.services.page.client_export import example_context, parties_from_toml, read_device_parties

    place = files.served / "parties.json"
    known = parties_from_toml(files.served / "parties.toml", files.served / "contexts.toml", [1, 1])
    place.write_text(json.dumps(known))
    return Kind(place, lambda: example_context(read_device_parties(str(place))["hierarchy"]))


def _billed_market(files: Whole) -> Kind:
    from tacit.services.ads.campaign_menus import read_campaign_market

    return Kind(files.served / "market.toml", lambda: read_campaign_market(files.served / "market.toml"))


def _listed_market(files: Whole) -> Kind:
    from tacit.services.market_file import read_market
    from tests.support.listed_market import LISTED_MARKET

    place = files.served / "listed.toml"
    place.write_text(LISTED_MARKET)
    return Kind(place, lambda: read_market(place))


def _first_creatives(files: Whole) -> Kind:
    from tacit.services.ads.campaign_menus import read_creatives

    return Kind(files.served / "creatives.toml", lambda: read_creatives(files.served / "creatives.toml"))


def _campaigns(files: Whole, name: str) -> Kind:
    """Campaigns as advertisers hand them in, with something under every key."""
    from tacit.deliver.campaigns.campaign import AdCampaign
    from tacit.deliver.campaigns.files import (
        CampaignFile,
        FiledCampaign,
        campaigns_as_csv,
        campaigns_as_toml,
        read_campaign_file,
    )
    from tacit.deliver.campaigns.store import Advertiser

    node = {"levels": [1, 0], "values": ["North", "Tea | coffee"]}
    record = {
        "number": 7, "advertiser": "Bean & Leaf", "title": "=Spring", "event": "click", "status": "paused",
        "bids": [{"micros": 400_000}, {"micros": 650_000, "context": node}], "budget_micros": 5,
        "schedule": {"starts": 18 * 10**8, "ends": 19 * 10**8, "hours": [8, 9, 30], "utc_offset_minutes": 60},
        "daily_micros": 4, "categories": ["IAB8-5"], "blocked": [node],
        "caps": [{"impressions": 3, "seconds": 86_400}],
    }  # fmt: skip
    filed = CampaignFile((Advertiser("Bean & Leaf"),), (FiledCampaign(AdCampaign.from_json(record), True, 3),))
    place = files.folder / name
    place.write_text((campaigns_as_csv if name.endswith("csv") else campaigns_as_toml)(filed))
    return Kind(place, lambda: read_campaign_file(place))


def _round(files: Whole) -> Kind:
    from tacit.services import round_file, settings

    place = files.served

    def read() -> None:
        round_file.read_round_file(
            place / "round.toml", settings.load_parties(place / "parties.toml"), check=b"c" * 32, now=NOW
        )

    return Kind(place / "round.toml", read)


def _room_settings(files: Whole, name: str) -> Kind:
    from tacit.services.room.settings import load_room_settings

    place = files.room / "room"
    return Kind(place / name, lambda: load_room_settings(place / "room.toml"))


def _platform_settings(files: Whole) -> Kind:
    from tacit.services.room.settings import load_platform_settings

    place = files.room / "platform" / "platform.toml"
    return Kind(place, lambda: load_platform_settings(place))


def _terms(files: Whole) -> Kind:
    place = files.room / "room"
    read = ("room", "agree", place / "new.json", "--role", "room", "--key", place / "room.signing", "--dry-run")
    return Kind(place / "terms.toml", lambda: run(*read, "--terms", place / "terms.toml"))


def _agreement(files: Whole) -> Kind:
    place = files.room / "room" / "agreement.json"
    return Kind(place, lambda: run("room", "agree", place))


def _receipts(files: Whole) -> Kind:
    from tacit.cleanroom.protocol import audit_log, signatures
    from tacit.cleanroom.protocol.answers import AuditReceipt
    from tacit.services.room.receipts import KeptReceipt, ReceiptFile

    key = signatures.private_key(b"k" * 32)
    place = files.room / "platform" / "receipts.jsonl"
    lines = []
    for number in range(3):
        signed = signatures.sign(key, audit_log._PURPOSE, {"sequence": number, "hash": "a" * 64})
        given = KeptReceipt(AuditReceipt(number, "a" * 64, signed), "b" * 64, "c" * 64)
        lines.append(json.dumps(given.as_json(), sort_keys=True))
    place.write_text("\n".join(lines) + "\n")
    receipts = ReceiptFile(place, [signatures.public_key(key)])
    return Kind(place, receipts.read)


def _labels(files: Whole, name: str) -> Kind:
    from tacit.cleanroom.room.labels import read_labels

    place = files.room / "room" / name
    return Kind(place, lambda: read_labels(place, "click_id", ["conversion"], b"k" * 32))


def _room_weights(files: Whole) -> Kind:
    from tacit.cleanroom.model.network import read_weights

    place = files.room / "platform" / "weights.safetensors"
    return Kind(place, lambda: read_weights(place, "a thing"))


def _ledger(files: Whole, name: str) -> Kind:
    place = files.model
    return Kind(place / name, lambda: run("ledger", "verify", "--ledger", place / "ledger.sqlite"))


def _flips(files: Whole, name: str) -> Kind:
    from tacit.train.job.label_flips import FlipRegister, read_secret

    place = files.model

    def read() -> None:
        secret = read_secret(place / "flips.secret")
        assert secret is not None
        FlipRegister(place / "flips.secret", secret).agrees({"another": "digest"})
        register.write_bytes(whole) if name != register.name else None

    register = place / "flips.secret.flipped.json"
    whole = register.read_bytes()
    return Kind(place / name, read)


def _results(files: Whole, name: str) -> Kind:
    return Kind(files.results / name, lambda: run("claims", "--results", files.results, "--paper", "ghazi"))


def _simulated_log(files: Whole) -> Kind:
    place = files.market
    return Kind(place / "market.parquet", lambda: run("simulate", place / "market.toml"))


def _export(files: Whole, name: str) -> Kind:
    """A file of an export: whatever else is wrong, the auditor is told of it, or the folder is refused."""
    place = files.audit
    read = ("bill", "verify", place / "export", "--parties", place / "parties.toml")
    return Kind(place / name, lambda: run(*read, "--statements", place / "statements.bin"))


def _contexts(files: Whole, name: str) -> Kind:
    return Kind(files.market / name, lambda: run("contexts", files.market / "contexts.toml"))


def _counts(files: Whole) -> Kind:
    place = files.market / "counts.csv"
    place.write_text("city,topic,count\nBerlin,Coffee,90000\nBerlin,Yoga,900\nParis,Coffee,4000\n")
    return Kind(place, lambda: run("serve", "plan", place, "--epsilon", 2, "--epoch", 60))


KINDS: dict[str, Callable[[Whole], Kind]] = {
    "train.toml": _train,
    "sweep.toml": _sweep,
    "simulate.toml": _simulate,
    "contexts.toml": lambda files: _contexts(files, "contexts.toml"),
    "contexts' tree": lambda files: _contexts(files, "tree.csv"),
    "counted requests": _counts,
    "schema of a log": lambda files: _described(files, "shop.toml", file="shop.csv"),
    "schema with times": lambda files: _described(files, "typed.toml", "typed.toml", "typed.csv"),
    "log as CSV with times": lambda files: _described(files, "typed.csv", "typed.toml"),
    "log as CSV": lambda files: _described(files, "shop.csv"),
    "log as gzip": lambda files: _described(files, "shop.csv.gz"),
    "log as Parquet": lambda files: _described(files, "shop.parquet"),
    "published log": _published,
    "side table": _side_table,
    "mark of a made-up log": _mark,
    "auctions as Parquet": _simulated_log,
    "columns.json": lambda files: _columns(files, "columns.json"),
    "label.npy": lambda files: _columns(files, "label.npy"),
    "public.npy": lambda files: _columns(files, "public.npy"),
    "user.npy": lambda files: _columns(files, "user.npy"),
    "encoder.json": lambda files: _columns(files, "encoder.json"),
    "vocabulary.npy": lambda files: _columns(files, "vocabulary-public.npy"),
    "model.json": _model_record,
    "statement.json": _statement,
    "weights": lambda files: _model(files, "weights.safetensors"),
    "weights without a digest": _weights,
    "checkpoint.json": _checkpoint,
    "proxy.toml": lambda files: _settings(files, "proxy.toml"),
    "server.toml": lambda files: _settings(files, "server.toml"),
    "sealing key": lambda files: _settings(files, "proxy.sealing"),
    "parties.toml": _parties,
    "parties.json": _device_parties,
    "ad server's market.toml": _billed_market,
    "market.toml with menus": _listed_market,
    "creatives.toml": _first_creatives,
    "campaigns.toml": lambda files: _campaigns(files, "campaigns.toml"),
    "campaigns.csv": lambda files: _campaigns(files, "campaigns.csv"),
    "round.toml": _round,
    "question": _question,
    "room.toml": lambda files: _room_settings(files, "room.toml"),
    "platform.toml": _platform_settings,
    "room's certificate": lambda files: _room_settings(files, "room.crt"),
    "room's key": lambda files: _room_settings(files, "room.key"),
    "token key": lambda files: _room_settings(files, "token.key"),
    "terms.toml": _terms,
    "agreement.json": _agreement,
    "receipts.jsonl": _receipts,
    "labels.parquet": lambda files: _labels(files, "labels.parquet"),
    "labels.csv": lambda files: _labels(files, "labels.csv"),
    "room's weights": _room_weights,
    "room's checkpoint": _room_checkpoint,
    "statistic head": _head,
    "ledger": lambda files: _ledger(files, "ledger.sqlite"),
    "ledger's witness": lambda files: _ledger(files, "ledger.sqlite.witness"),
    "flips' secret": lambda files: _flips(files, "flips.secret"),
    "flips' register": lambda files: _flips(files, "flips.secret.flipped.json"),
    "export's manifest": lambda files: _export(files, "export/manifest.json"),
    "export's campaigns": lambda files: _export(files, "export/campaigns.csv"),
    "export's invoices": lambda files: _export(files, "export/invoices.csv"),
    "export's invoice lines": lambda files: _export(files, "export/invoice_lines.csv"),
    "export's menus": lambda files: _export(files, "export/epoch-0000000001.menus.bin"),
    "export's batches": lambda files: _export(files, "export/epoch-0000000001.batches.bin"),
    "export's charges": lambda files: _export(files, "export/epoch-0000000001.charges.csv"),
    "proxy's statements": lambda files: _export(files, "statements.bin"),
    "study's table": lambda files: _results(files, "label-dp-users.csv"),
    "study's settings": lambda files: _results(files, "label-dp-users.json"),
}


def whole_kind(files: Whole, name: str) -> Kind:
    """The kind of this name, whose file is whole: one that is always refused would show nothing."""
    kind = KINDS[name](files)
    kind.read()
    return kind
