"""What cannot work is refused before it begins: in one line, at once, by the key that must be changed."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import grpc
import pyarrow.parquet as pq
import pytest

from tacit.cleanroom.attacks import suite
from tacit.cleanroom.protocol.agreement import Agreement
from tacit.cleanroom.protocol.modes import Mode, Signer
from tacit.cleanroom.protocol.signatures import private_key
from tacit.cli import main
from tacit.entropy import Entropy
from tacit.errors import AuditBroken, BadInput, RoomError, RoomRefused
from tacit.services.room import operation, trial
from tacit.services.room.agreement_file import read_agreement
from tacit.services.room.keys import CertificateAuthority, check_key_pair
from tacit.services.room.operation import open_room
from tacit.services.room.remote_room import RemoteRoom
from tacit.services.room.service import error_from_status
from tacit.services.room.settings import LinkPatience, load_platform_settings, load_room_settings
from tacit.services.settings import read_secret_file
from tacit.store.room import SqlRoomStore
from tests.support.room_fakes import Echo
from tests.support.room_network import NOW, all_keys, identities, listening, remote

DAY = 86_400


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


Said = Callable[..., tuple[str, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*words: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert main(["room", *map(str, words)]) == code
        return capsys.readouterr()

    return run


def edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def agreed(folder: Path, **changes: Any) -> None:
    """Another agreement in both folders, signed by both."""
    terms = read_agreement("agreement", folder / "room/agreement.json").in_force
    agreement = Agreement.propose(replace(terms, **changes))
    for role in Signer:
        agreement = agreement.sign(
            role, private_key(read_secret_file("signing", folder / str(role) / f"{role}.signing"))
        )
    for role in Signer:
        (folder / str(role) / "agreement.json").write_bytes(agreement.to_bytes())


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", ".hidden", "/x", "a b", "a\\\\b", "ä", "x" * 101])
@pytest.mark.parametrize(
    ("key", "line"), [("run.name", 'name = "first"'), ("model.adapter", 'adapter = "sensitive"')]
)
def test_a_name_does_not_lead_out_of_its_folder(
    folder: Path, said: Said, key: str, line: str, name: str
) -> None:
    settings = edited(folder / "platform/platform.toml", line, f'{line.partition(" ")[0]} = "{name}"')
    before = set(folder.parent.rglob("*"))
    out, err = said("train", settings, code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert f"{key}: expected 1 to 100 letters" in err
    assert set(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["first", "a.b", "-_9", "A" * 100])
def test_a_plain_name_is_taken(folder: Path, name: str) -> None:
    settings = edited(folder / "platform/platform.toml", 'name = "first"', f'name = "{name}"')
    assert load_platform_settings(settings).run == name


def test_status_does_not_wait_long_nor_in_silence_for_a_room_that_does_not_run(
    folder: Path, said: Said
) -> None:
    """It waits as long as the settings say for the first answer, not as long as for a room that restarts."""
    assert LinkPatience().at_first.again_seconds == 10
    assert LinkPatience(again_seconds=3).at_first.again_seconds == 3
    settings = edited(folder / "platform/platform.toml", "[plan]", "[patience]\nfirst_seconds = 1\n\n[plan]")
    for action in ("status", "train"):
        began = time.monotonic()
        out, err = said(action, settings, code=2)
        assert time.monotonic() - began < 8
        waiting, refusal = err.splitlines()
        assert waiting.startswith("waiting for the room at 127.0.0.1:1: ")
        assert "expected a room that answers at 127.0.0.1:1, got none for" in refusal
        assert "(does it run?)" in refusal
        assert out == ""


def test_a_handshake_that_the_room_breaks_off_is_put_down_to_certificates() -> None:
    parties, other = identities(CertificateAuthority("trial", now=NOW)), CertificateAuthority("other", now=NOW)
    with (
        listening(Echo(), replace(parties["room"], authority=other.own.certificate)) as place,
        remote(place, parties["platform"]) as link,
        pytest.raises(RoomError, match=r"does it accept our tls\.certificate"),
    ):
        link.describe()


@pytest.mark.parametrize("room", ["room", "elsewhere"])
def test_a_room_with_another_certificate_is_said_to_have_it(room: str) -> None:
    """Of another authority, or of another name."""
    parties = identities(CertificateAuthority("trial", now=NOW))
    mine = (
        parties["platform"]
        if room != "room"
        else identities(CertificateAuthority("other", now=NOW))["platform"]
    )
    with (
        listening(Echo(), parties["room"]) as place,
        remote(place, mine, room=room) as link,
        pytest.raises(RoomError, match=rf"expected the certificate of {room} at {place}, signed by tls\.auth"),
    ):
        link.describe()
    assert link.tries == 1


@pytest.mark.parametrize("role", list(Signer))
def test_certificates_that_no_handshake_succeeds_with_are_refused_at_once(
    folder: Path, tmp_path: Path, role: Signer
) -> None:
    all_keys(tmp_path / "other")
    load: Callable[[Path], object] = load_room_settings if role is Signer.ROOM else load_platform_settings
    settings, mine, others = folder / f"{role}/{role}.toml", folder / str(role), tmp_path / "other" / str(role)
    load(settings)
    for names, refused in (
        ([f"{role}.key"], r"tls\.private_key: expected the key of tls\.certificate"),
        ([f"{role}.crt"], r"tls\.private_key: expected the key of tls\.certificate"),
        ([f"{role}.crt", f"{role}.key"], r"tls\.certificate: expected one that tls\.authority signed"),
        (["authority.crt"], r"tls\.certificate: expected one that tls\.authority signed"),
    ):
        kept = {name: (mine / name).read_bytes() for name in names}
        for name in names:
            (mine / name).write_bytes((others / name).read_bytes())
        with pytest.raises(BadInput, match=refused):
            load(settings)
        for name, content in kept.items():
            (mine / name).write_bytes(content)
    load(settings)


def test_keys_and_authorities_are_told_from_other_texts() -> None:
    authority = CertificateAuthority("trial", now=NOW)
    room, trusted = authority.room("shop"), authority.own.certificate
    several = CertificateAuthority("other", now=NOW).own.certificate + trusted  # one of them is enough
    check_key_pair(room.certificate, room.private_key, several)
    for key in (b"", b"secret text", room.certificate):
        with pytest.raises(BadInput, match=r"tls\.private_key: expected a private key in PEM") as refused:
            check_key_pair(room.certificate, key, trusted)
        assert "secret" not in str(refused.value)
    with pytest.raises(BadInput, match=r"tls\.authority: expected a certificate in PEM"):
        check_key_pair(room.certificate, room.private_key, b"nobody")


@pytest.mark.parametrize(
    ("begins", "expires", "why"),
    [(-9, -2, "EXPIRED on {expires} 00:00:00 UTC"), (3, 9, "NOT BEGUN before {begins} 00:00:00 UTC")],
)
def test_an_agreement_that_is_not_open_is_not_served(
    folder: Path, said: Said, begins: int, expires: int, why: str
) -> None:
    today = NOW // DAY
    times = {"begins": (today + begins) * DAY, "expires": (today + expires) * DAY}
    agreed(folder, **times)
    told = why.format(**{key: time.strftime("%Y-%m-%d", time.gmtime(at)) for key, at in times.items()})
    out, err = said("serve", folder / "room/room.toml", code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert f"agreement.file: expected an agreement that holds now, got one {told}" in err
    assert not (folder / "room/room.sqlite").exists()
    out, _ = said("status", folder / "room/room.toml")
    assert f"Agreement trial ({told})" in out
    assert json.loads(said("status", folder / "room/room.toml", "--json")[0])["closed"] == told
    out, err = said("train", folder / "platform/platform.toml", "--dry-run")
    assert "What the run would cost" in out
    assert f"the agreement is not open: {told}" in err


def test_an_open_agreement_is_shown_with_dates_and_without_warning(folder: Path, said: Said) -> None:
    agreed(folder, begins=NOW - 5, expires=4_102_444_800)
    for words in (("status", folder / "room/room.toml"), ("agree", folder / "room/agreement.json")):
        out, _ = said(*words)
        assert re.search(r"expires +2100-01-01 00:00:00 UTC \(4102444800\)", out)
    out, err = said("train", folder / "platform/platform.toml", "--dry-run")
    assert "not open" not in err
    assert re.search(r"releases per record +unlimited \(labels are flipped once\)", out)


def test_a_bounded_number_of_releases_is_shown_as_one(folder: Path, said: Said) -> None:
    agreed(folder, mode=Mode.NOISED, delta=Fraction(1, 10**6), releases_per_record=3)
    out, _ = said("train", folder / "platform/platform.toml", "--dry-run")
    assert re.search(r"releases per record +2\b", out)


def test_a_room_does_not_start_on_a_log_that_does_not_hold(folder: Path, said: Said) -> None:
    settings = folder / "room/room.toml"
    room = open_room(load_room_settings(settings))
    for _ in range(3):
        with pytest.raises(RoomRefused):
            room.describe(peer="somebody", now=NOW)  # an entry more
    open_room(load_room_settings(settings))
    with sqlite3.connect(folder / "room/room.sqlite") as connection:
        connection.execute(
            "UPDATE room_entries SET contents = replace(contents, 'some', 'no') WHERE sequence = 2"
        )
    connection.close()
    out, err = said("serve", settings, code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(r"store\.room: .*entry 2", err)


def test_a_log_is_verified_across_portions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit is noticed in whichever portion it is, and so is one that only the next portion shows."""
    settings = load_room_settings(folder / "room/room.toml")
    room = open_room(settings)
    for _ in range(5):
        with pytest.raises(RoomRefused):
            room.describe(peer="somebody", now=NOW)
    monkeypatch.setattr(operation, "ENTRIES_PER_PORTION", 2)
    store = SqlRoomStore.open(settings.store, witness=settings.room_witness)
    assert operation.verify_stored_log(store).sequence == 6
    with sqlite3.connect(settings.store) as connection:
        connection.execute("DELETE FROM room_entries WHERE sequence IN (3, 4)")  # a portion, whole
    connection.close()
    with pytest.raises(AuditBroken, match="entry 3"):
        operation.verify_stored_log(store)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("rank = 8", "rank = 0", r"model\.rank"),
        ("rank = 8", "rank = 9999", r"model\.rank"),
        ("batch = ", "batch = 0 # ", r"plan\.batch: "),
        ("batch = ", 'batch = "9" # ', r"plan\.batch: expected a value without quotes"),
        ("batch = ", 'codec = "zip" # ', r"plan\.codec: "),
        ("batch = ", 'task = "cart" # ', r"plan\.task: "),
        ("batch = ", 'loss = "zip" # ', r"plan\.loss: "),
        ("batch = ", 'learning_rate = "1" # ', r"plan\.learning_rate: expected a value without quotes"),
        ("batch = ", "epochs = 0\nproject = 1 # ", r"plan\.epochs: "),
        ("batch = ", "loss_every = -1 # ", r"plan\.loss_every: "),
    ],
)
def test_settings_are_refused_by_their_key(folder: Path, said: Said, old: str, new: str, refused: str) -> None:
    settings = edited(folder / "platform/platform.toml", old, new)
    out, err = said("train", settings, "--dry-run", code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(refused, err)


def test_too_few_rows_are_not_blamed_on_a_key_of_the_plan(folder: Path, said: Said) -> None:
    agreed(folder, smallest_batch=100_000)
    _, err = said("train", folder / "platform/platform.toml", "--dry-run", code=2)
    assert "plan: expected batches of the agreed 100000 rows or more" in err


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["attack", "--seed", "-1"], "--seed"),
        (["attack", "--mode", "plain"], "--mode to be one of"),
        (["attack", "--noise", "some"], "--noise to be one of"),
        (["attack", "--releases", "0"], "--releases"),
        (["trial", "--out", "{new}", "--mode", "plain"], "--mode to be one of"),
        (["trial", "--out", "{new}", "--join", "names"], "--join to be one of"),
        (["keys", "--out", "{new}", "--days", "0"], "--days"),
        (["keys", "--out", "{new}", "--days", "999999999"], "--days"),
    ],
)
def test_options_are_refused_by_their_name(tmp_path: Path, said: Said, words: list[str], refused: str) -> None:
    new = tmp_path / "new"
    out, err = said(*(word.format(new=new) for word in words), code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert refused in err
    assert not new.exists()


def test_ids_that_the_labels_do_not_have_are_blamed_on_their_key(folder: Path, said: Said) -> None:
    settings = edited(folder / "room/room.toml", 'id = "click_id"', 'id = "cart"')
    assert "labels.id: column cart: expected each id once" in said("serve", settings, code=2)[1]
    agreed(folder, tasks=("visits",))
    edited(settings, 'id = "cart"', 'id = "click_id"')
    assert "labels.file: expected one column visits" in said("serve", settings, code=2)[1]


def test_a_trial_knows_how_many_rows_auc_takes(made: Path) -> None:
    """9 q (1 - q) / ((2q - 1) r)^2 tested rows of rate r at three standard errors, of a tenth of the log."""
    terms = read_agreement("agreement", made / "room/agreement.json").in_force
    found = pq.read_table(made / "room/labels.parquet")["conversion"].to_pylist()
    rate, keep = sum(found) / len(found), terms.keep
    tested = 9 * keep * (1 - keep) / ((2 * keep - 1) * rate) ** 2
    needed = trial._rows_for_auc(made / "room", 2_000, terms)
    assert needed == pytest.approx(tested * 10 * 2_000 / len(found), rel=1e-3)


@pytest.mark.parametrize(("needed", "warns"), [(412_345, True), (60_000, False), (None, False)])
def test_a_trial_of_too_few_rows_says_so(
    made: Path, said: Said, monkeypatch: pytest.MonkeyPatch, needed: int | None, warns: bool
) -> None:
    terms = read_agreement("agreement", made / "room/agreement.json").in_force
    done = trial.RoomTrial(
        made, made / "room/room.toml", made / "platform/platform.toml", 60_000, 1, terms, needed
    )
    monkeypatch.setattr(trial, "make_trial", lambda *_, **__: done)
    out, _ = said("trial", "--out", made.parent / "new")
    assert ("it takes about --rows 410,000" in out) == warns
    assert json.loads(said("trial", "--out", made.parent / "new", "--json")[0])["rows_for_auc"] == needed


def test_attacks_say_which_figure_is_held_to_the_promise(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(each for each in suite.attacks(time.thread_time) if each.name == "a parameter for each record")
    monkeypatch.setattr(suite, "attacks", lambda _clock: [one])
    out, _ = said("attack", "--seed", "3")
    assert "an advantage is a point estimate; its lower bound (at least) is what is held to" in out


def test_what_the_other_side_nests_beyond_all_measure_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep = "[" * 100_000
    told = error_from_status(grpc.StatusCode.INVALID_ARGUMENT, deep)
    assert "did not say why in a known way" in str(told)
    monkeypatch.setattr(RemoteRoom, "_call", lambda *_: [deep.encode()])
    with pytest.raises(AuditBroken, match="expected entries of an audit log"):
        RemoteRoom.audit(RemoteRoom.__new__(RemoteRoom), 0)
