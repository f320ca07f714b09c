"""`tacit room`: it teaches, says who may have what and what is promised, and refuses in one line."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.modes import Mode, Signer
from tacit.cleanroom.protocol.signatures import private_key
from tacit.cli import main
from tacit.commands.output import extra_installed
from tacit.data.columns import Columns
from tacit.data.encoding.fingerprints import key_fingerprints
from tacit.entropy import Entropy
from tacit.errors import BadInput, RoomRefused
from tacit.services.room import trial
from tacit.services.room.agreement_file import read_agreement
from tacit.services.room.operation import hand_back_run, lock_store, open_room
from tacit.services.room.remote_room import RemoteRoom
from tacit.services.room.settings import load_room_settings
from tacit.services.room.status import inspect_room
from tacit.services.settings import read_secret_file
from tacit.store.room import SqlRoomStore
from tests.support.room_network import NOW, listening

ACTIONS = ("keys", "agree", "serve", "train", "runs", "status", "trial", "attack")
TERMS = """\
name = "spring"
epsilon = {epsilon}
tasks = ["conversion"]
begins = 2026-01-01T00:00:00Z
expires = {expires}
"""


def tacit(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What the command prints; a refusal must be one line, and is given back instead."""
    capsys.readouterr()
    assert main(["room", *map(str, words)]) == code
    out, err = capsys.readouterr()
    if code == 2:
        assert out == ""
        assert err.startswith("tacit room: ")
        assert err.count("\n") == 1
    return err if code == 2 else out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rooms") / "trial"
    trial.make_trial(
        folder, rows=2_000, mode=Mode.AGGREGATE, epsilon=Fraction(3), port=1, seed=1, now=NOW, entropy=Entropy()
    )
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "trial"))


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["room", action, "--help"])
    assert ended.value.code == 0
    page = capsys.readouterr().out
    assert len(page) > 600
    assert "tacit room" in page


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tacit.cli import parser\nparser()\n"
        "heavy = {'numpy', 'grpc', 'torch', 'sqlalchemy', 'cryptography', 'pyarrow'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_without_its_extra_it_says_what_to_install(folder: Path) -> None:
    script = "import sys\nsys.modules['grpc'] = None\nfrom tacit.cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "room", "serve", str(folder / "room/room.toml")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr == "tacit room: expected grpc to be installed: pip install 'tacit[room]'\n"
    with pytest.raises(BadInput, match=re.escape("pip install 'tacit[train]'")), extra_installed():
        raise ModuleNotFoundError(name="torch.nn")
    with pytest.raises(ModuleNotFoundError), extra_installed():  # a fault of ours stays one
        raise ModuleNotFoundError(name="tacit.nothing")


def test_keys_say_who_may_have_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tacit(capsys, "keys", "--out", tmp_path / "one")
    for name in ("room/room.secret", "platform/platform.signing", "authority/authority.key"):
        assert re.search(rf"{name} +private", out)
    assert re.search("room/room.crt +public", out)
    assert "nothing private goes anywhere else" in out
    listed = json.loads(tacit(capsys, "keys", "--out", tmp_path / "two", "--json"))
    assert {Path(each["file"]) for each in listed} == set(tmp_path.glob("two/*/*"))
    assert {each["holder"] for each in listed} == {"authority", "room", "platform"}
    assert "never written over" in tacit(capsys, "keys", "--out", tmp_path / "one", code=2)
    assert "--platform" in tacit(capsys, "keys", "--out", tmp_path / "x", "--platform", "A B", code=2)
    assert "--days" in tacit(capsys, "keys", "--out", tmp_path / "x", "--days", "0", code=2)
    assert not (tmp_path / "x").exists()


class Table:
    """Two parties at a table: their keys, their terms, and one agreement that they pass to and fro."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.file, self._capsys = folder, folder / "agreement.json", capsys
        tacit(capsys, "keys", "--out", folder)

    def terms(self, *, epsilon: str = "3", expires: str = "2026-07-01T00:00:00Z", more: str = "") -> Path:
        place = self.folder / "terms.toml"
        place.write_text(TERMS.format(epsilon=epsilon, expires=expires) + more)
        return place

    def agree(self, role: str, *words: object, code: int = 0) -> dict[str, Any]:
        key = ("--role", role, "--key", self.folder / role / f"{role}.signing")
        said = tacit(self._capsys, "agree", self.file, *key, *words, "--json", code=code)
        return {"refused": said} if code else json.loads(said)


@pytest.fixture
def table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Table:
    return Table(tmp_path, capsys)


def test_an_agreement_from_proposal_to_amendments(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    proposed = table.agree("room", "--terms", table.terms())
    assert (proposed["in_force"], proposed["waits_for"]) == (False, ["platform"])
    assert table.agree("platform")["in_force"]

    tighter = table.agree("platform", "--terms", table.terms(epsilon="2"))  # one is enough
    assert (tighter["in_force"], tighter["changed"], tighter["looser_in"]) == (True, ["epsilon"], [])

    looser = table.agree("platform", "--terms", table.terms(epsilon="2", expires="2027-07-01T00:00:00Z"))
    assert (looser["in_force"], looser["looser_in"], looser["waits_for"]) == (False, ["expires"], ["room"])
    assert looser["total"] == looser["total_before"] == {"epsilon": "3", "delta": "0"}
    assert looser["total_if_nothing_left"] == {"epsilon": "2", "delta": "0"}
    assert table.agree("room")["in_force"]

    page = tacit(capsys, "agree", table.file)  # shown, in plain words
    assert "Allows more than before in: expires. Only both together can do that." in page
    assert "What may leave under these terms is (2, 0)-differentially private per impression" in page
    assert "was released is" not in page, "the agreement does not know: (3, 0) may have left before"
    assert "sums over labels that were flipped once" in page
    assert "step 2 is in force" in page
    stays = "(ε = 2, δ = 0) if nothing has left under earlier terms, else at most (ε = 3, δ = 0)"
    assert f"All that may ever be released about one record's labels stays {stays}." in page


def test_what_both_sign_for_in_all_is_said_before_they_sign(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """Terms say 5 after 3: what was released at 3 cannot be taken back, so both sign for up to 8."""
    first = table.agree("room", "--terms", table.terms())
    assert (first["total_before"]["epsilon"], first["total"]["epsilon"]) == ("0", "3")
    assert "labels, once it is signed: (ε = 3, δ = 0)." in tacit(capsys, "agree", table.file)
    table.agree("platform")
    more = table.agree("platform", "--terms", table.terms(epsilon="5"))
    assert (more["total_before"]["epsilon"], more["total"]["epsilon"]) == ("3", "8")
    page = tacit(capsys, "agree", table.file)
    after = "(ε = 5, δ = 0) if nothing has left under earlier terms, else at most (ε = 8, δ = 0)."
    assert f"labels: (ε = 3, δ = 0) before; once it is signed, {after}" in page
    table.agree("room")
    assert f"before; with this step, {after}" in tacit(capsys, "agree", table.file)


def test_what_agree_refuses(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected an agreement at" in table.agree("room", code=2)["refused"]
    assert "terms.toml" in table.agree("room", "--terms", table.terms(epsilon="-1"), code=2)["refused"]
    assert "epsilom" in table.agree("room", "--terms", table.terms(more="epsilom = 2\n"), code=2)["refused"]
    assert not table.file.exists()
    table.agree("room", "--terms", table.terms(), "--dry-run")
    assert not table.file.exists()
    table.agree("room", "--terms", table.terms())
    assert "waits for the room" in table.agree("room", code=2)["refused"]
    wrong = ("--role", "platform", "--key", table.folder / "room/room.signing")
    assert "expected the platform's key" in tacit(capsys, "agree", table.file, *wrong, code=2)
    (table.folder / "platform/platform.signing").chmod(0o644)
    assert "only its owner may read" in table.agree("platform", code=2)["refused"]
    table.file.write_bytes(table.file.read_bytes().replace(b'"epsilon":"3"', b'"epsilon":"4"'))
    assert "room's signature on step 0 is false" in tacit(capsys, "agree", table.file, code=2)


def test_a_trial_has_no_label_of_the_sensitive_advertiser_at_the_platform(folder: Path) -> None:
    """The room's file has them all; the platform's log has zeros, and the rest of its folder no such file."""
    labels = pq.read_table(folder / "room/labels.parquet")
    assert sum(labels["conversion"].to_pylist()) > 0
    columns = Columns.open(folder / "platform/log")
    assert columns.synthetic
    hidden = columns["advertiser"] == columns["advertiser"][_rows_of(columns, labels)][0]
    assert hidden.sum() == len(labels)
    for column in (columns.label, columns.auxiliary("cart"), columns.auxiliary("engaged")):
        assert column[hidden].sum() == 0
        assert column[~hidden].sum() > 0
    assert not list((folder / "platform").rglob("*.parquet"))
    assert (folder / "room/labels.parquet").stat().st_mode & 0o077 == 0


def _rows_of(columns: Columns, labels: Any) -> Any:
    return np.isin(columns["record"], key_fingerprints(labels["click_id"].combine_chunks(), "record"))


def test_what_trial_refuses(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new"
    assert "--rows" in tacit(capsys, "trial", "--out", new, "--rows", "10", code=2)
    assert "--mode" in tacit(capsys, "trial", "--out", new, "--mode", "plain", code=2)
    assert "epsilon" in tacit(capsys, "trial", "--out", new, "--epsilon", "1000", code=2)
    assert "--port" in tacit(capsys, "trial", "--out", new, "--port", "0", code=2)
    assert not new.exists()
    assert "nothing is written over" in tacit(capsys, "trial", "--out", folder, code=2)


def edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_what_serve_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room, original = folder / "room/room.toml", (folder / "room/room.toml").read_text()
    assert "expected a room's settings" in tacit(capsys, "serve", folder / "platform/platform.toml", code=2)
    for old, new, said in (
        ("[store]", "[stores]", "stores"),
        ('id = "click_id"', 'id = "clicks"', "labels.id"),
        ('file = "labels.parquet"', 'file = "none.parquet"', "labels.file"),
        ('certificate = "room.crt"', 'certificate = "authority.crt"', "tls.certificate"),
        ('private_key = "room.key"', 'private_key = "room.crt"', "tls.private_key"),
        ('room = "room.secret"', 'room = "room.crt"', "secrets.room"),
        ('signing = "room.signing"', 'signing = "room.secret"', "signing key"),
        ('file = "agreement.json"', 'file = "parties.toml"', "agreement.file"),
        ("port = 1\n", 'port = "x"\n', "listen.port"),
    ):
        assert said in tacit(capsys, "serve", edited(room, old, new), code=2)
        room.write_text(original)
    with lock_store(folder / "room/room.sqlite"):
        assert "nobody else serves" in tacit(capsys, "serve", room, code=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        edited(room, "port = 1\n", f"port = {taken.getsockname()[1]}\n")
        assert "expected a free place to listen on" in tacit(capsys, "serve", room, code=2)


def test_an_agreement_that_only_one_signed_is_not_served(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_sided = json.loads((folder / "room/agreement.json").read_text())
    del one_sided["steps"][0]["signatures"]["platform"]
    (folder / "room/agreement.json").write_text(json.dumps(one_sided, sort_keys=True, separators=(",", ":")))
    said = tacit(capsys, "serve", folder / "room/room.toml", code=2)
    assert "waits for the signature of the platform" in said
    assert not (folder / "room/room.sqlite").exists()


def test_the_cost_before_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No room is running, and none is asked."""
    cost = json.loads(tacit(capsys, "train", folder / "platform/platform.toml", "--dry-run", "--json"))
    assert cost["bytes_sent"] > cost["bytes_received"] > 0
    assert cost["epsilon"] == pytest.approx(3)
    assert "What the run would cost" in tacit(capsys, "train", folder / "platform/platform.toml", "--dry-run")
    for old, new, said in (
        ("batch =", "bach =", "plan.bach"),
        ("batch = ", "batch = 1 # ", "plan.batch: expected batches of"),
        ("advertiser = 8", "advertiser = 77", "data.advertiser"),
        ('base = "model.safetensors"', 'base = "platform.crt"', "platform.crt"),
    ):
        path, original = folder / "platform/platform.toml", (folder / "platform/platform.toml").read_text()
        assert re.search(said, tacit(capsys, "train", edited(path, old, new), "--dry-run", code=2))
        path.write_text(original)


@pytest.fixture
def served(folder: Path) -> Iterator[Path]:
    """A trial whose room runs in this process, on a free port."""
    settings = load_room_settings(folder / "room/room.toml")
    with listening(open_room(settings), settings.identity) as place:
        edited(folder / "platform/platform.toml", "127.0.0.1:1", place)
        edited(folder / "platform/platform.toml", "[plan]", "[patience]\nagain_seconds = 1\n\n[plan]")
        yield folder


def test_train_then_status(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = served / "platform/platform.toml"
    before = json.loads(tacit(capsys, "status", settings, "--json"))
    assert (before["remaining"]["epsilon_left"], before["audit"]["holds"]) == ("3", True)

    main(["room", "train", str(settings)])
    out, err = capsys.readouterr()
    assert "saved" in out
    assert "epsilon 3" in out
    assert re.search(r"step (\d+)/\1, sent .* KB|MB, .* examples per second, epsilon 3 paid, 0 left", err)

    after = json.loads(tacit(capsys, "status", settings, "--json"))
    assert (after["remaining"]["epsilon_left"], after["remaining"]["epsilon_spent"]) == ("0", "3")
    assert after["audit"]["receipts"] > 3
    page = tacit(capsys, "status", settings)
    assert "What was released so far is (ε = 3, δ = 0) about one record's labels" in page
    assert "What may leave under these terms is (3, 0)-differentially private per impression" in page
    assert "all in place" in page
    assert "Not protected" in page
    own = json.loads(tacit(capsys, "status", served / "room/room.toml", "--json"))
    assert own["audit"]["entries"] == after["audit"]["entries"]
    assert own["remaining"] == after["remaining"]


def test_a_room_that_logs_another_answer_than_it_gave_is_noticed(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = served / "platform/platform.toml"
    main(["room", "train", str(settings)])
    place = served / "platform/runs/receipts.jsonl"
    first, *others = place.read_text().splitlines()
    kept = json.loads(first)
    kept["answer"] = "0" * 64  # as if this had come, and the room had signed an entry about something else
    place.write_text("\n".join([json.dumps(kept), *others]) + "\n")
    assert re.search("DOES NOT HOLD.* another request or answer", tacit(capsys, "status", settings, code=1))


def test_an_old_copy_of_both_stores_is_noticed_by_witnesses_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a restored backup of the room's folder would be: everything in it is old, and fits together."""
    settings = folder / "room/room.toml"
    room = open_room(load_room_settings(settings))
    assert len(list((folder / "room-witness").glob("*.witness"))) == 2
    assert not list((folder / "room").glob("*.witness"))
    shutil.copytree(folder / "room", folder / "backup")
    with pytest.raises(RoomRefused):
        room.describe(peer="somebody", now=NOW)  # an entry more
    shutil.rmtree(folder / "room")
    shutil.copytree(folder / "backup", folder / "room")
    assert "an old copy was put back" in tacit(capsys, "serve", settings, code=2)
    assert "an old copy was put back" in tacit(capsys, "status", settings, code=2)


def test_where_witnesses_are(folder: Path) -> None:
    settings = folder / "room/room.toml"
    assert load_room_settings(settings).ledger_witness == folder / "room/../room-witness/ledger.witness"
    edited(settings, "room_witness", "# room_witness")
    assert load_room_settings(settings).room_witness is None
    edited(settings, 'ledger = "room-ledger.sqlite"', 'ledger = "postgresql+psycopg://somewhere/ledger"')
    load_room_settings(settings)
    edited(settings, "ledger_witness", "# ledger_witness")
    with pytest.raises(BadInput, match=r"store\.ledger_witness: expected a path"):
        load_room_settings(settings)


def test_a_log_that_was_edited_is_noticed_by_both(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = served / "platform/platform.toml"
    main(["room", "train", str(settings)])
    for change in (
        "UPDATE room_entries SET contents = replace(contents, 'step', 'stop') WHERE sequence = 3",
        "DELETE FROM room_entries WHERE sequence = 4",
    ):
        with sqlite3.connect(served / "room/room.sqlite") as connection:
            connection.execute(change)
        connection.close()
        told = json.loads(tacit(capsys, "status", settings, "--json", code=1))
        assert not told["audit"]["holds"]
    assert "DOES NOT HOLD" in tacit(capsys, "status", served / "room/room.toml", code=1)
    with sqlite3.connect(served / "room/room.sqlite") as connection:  # the last one: as in an older copy
        connection.execute("DELETE FROM room_entries WHERE sequence = (SELECT max(sequence) FROM room_entries)")
    connection.close()
    assert "an old copy was put back" in tacit(capsys, "status", served / "room/room.toml", code=2)


def test_a_room_under_other_terms_is_not_trained_with(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The platform tightened its own copy; until the room has it too, they do not speak of the same."""
    terms = served / "terms.toml"
    terms.write_text(
        'name = "trial"\nepsilon = 2\nsmallest_batch = 64\n'
        f"begins = {NOW - 86_400}\nexpires = {NOW + 90 * 86_400}\n"
    )
    place = served / "platform"
    key = ("--role", "platform", "--key", place / "platform.signing", "--terms", terms)
    tacit(capsys, "agree", place / "agreement.json", *key)
    assert "exchange the file" in tacit(capsys, "train", place / "platform.toml", code=2)


def test_a_room_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = edited(folder / "platform/platform.toml", "[plan]", "[patience]\nagain_seconds = 1\n\n[plan]")
    assert "expected a room that answers at 127.0.0.1:1, got none for" in tacit_waiting(capsys, settings)


def tacit_waiting(capsys: pytest.CaptureFixture[str], settings: Path) -> str:
    capsys.readouterr()
    assert main(["room", "train", str(settings)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert all(line.startswith("waiting for the room at 127.0.0.1:1: ") for line in lines[:-1])
    return lines[-1]


# Runs that compete


@pytest.fixture
def noised(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A trial of mode noised whose room runs in this process, with two platforms that hold the same keys."""
    folder = Path(shutil.copytree(made, tmp_path / "trial"))
    terms = read_agreement("agreement", folder / "room/agreement.json").in_force
    changed = replace(terms, mode=Mode.NOISED, delta=Fraction(1, 10**6), releases_per_record=3)
    agreement = Agreement.propose(changed)
    for role in Signer:
        secret = read_secret_file("signing", folder / str(role) / f"{role}.signing")
        agreement = agreement.sign(role, private_key(secret))
    for place in ("room", "platform"):
        (folder / place / "agreement.json").write_bytes(agreement.to_bytes())
    settings = load_room_settings(folder / "room/room.toml")
    with listening(open_room(settings), settings.identity) as place:
        toml = folder / "platform/platform.toml"
        toml.write_text(toml.read_text().replace("127.0.0.1:1", place))
        toml.write_text(re.sub("batch = .*", "batch = 64\nepochs = 3", toml.read_text()))
        shutil.copytree(folder / "platform", folder / "second")
        edited(folder / "second/platform.toml", 'name = "', 'name = "second-')
        yield folder


def test_of_competing_runs_the_first_ends_and_the_others_cost_nothing(
    noised: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process in the same folder, and another run from another folder, both while the first trains."""
    first, said = noised / "platform/platform.toml", []
    step, went = RemoteRoom.step, iter(range(10**6))

    def racing(self: RemoteRoom, request: Any, slabs: Any) -> Any:
        if next(went) == 2:
            for other in (first, noised / "second/platform.toml"):
                assert main(["room", "train", str(other)]) == 2
                said.append(capsys.readouterr().err)
        return step(self, request, slabs)

    monkeypatch.setattr(RemoteRoom, "step", racing)
    assert main(["room", "train", str(first), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["steps"] > 6
    assert "run.folder: expected a folder that no other run is using, got" in said[0]
    assert "needs 3 releases of each record, 0 of 3 are left; first holds 3" in said[1]
    assert said[1].count("\n") == 1
    assert not (noised / "second/adapter.safetensors").exists()

    room = noised / "room/room.toml"
    listed = json.loads(tacit(capsys, "runs", room, "--json"))["runs"]
    assert [(each["releases"], each["handed_back"]) for each in listed.values()] == [(3, False)]
    (name,) = listed
    opened: list[str] = []
    open_store, close_store = SqlRoomStore.open, SqlRoomStore.close

    def opening(*given: Any, **more: Any) -> SqlRoomStore:
        opened.append("open")
        return open_store(*given, **more)

    def closing(store: SqlRoomStore) -> None:
        opened.append("close")
        close_store(store)

    monkeypatch.setattr(SqlRoomStore, "open", opening)
    monkeypatch.setattr(SqlRoomStore, "close", closing)
    settings = load_room_settings(room)
    assert hand_back_run(settings, name, 1) == 0
    assert opened == ["open", "close"]
    with pytest.raises(BadInput):
        hand_back_run(settings, "nobody", 1)
    inspect_room(settings)
    assert opened == ["open", "close"] * 3
    assert json.loads(tacit(capsys, "runs", room, "--hand-back", name, "--json"))["handed_back"] == 0
    assert "handed back" in tacit(capsys, "runs", room)
    assert "expected a run that began here, got 'nobody'" in tacit(
        capsys, "runs", room, "--hand-back", "nobody", code=2
    )
    assert json.loads(tacit(capsys, "status", first, "--json"))["audit"]["holds"]
