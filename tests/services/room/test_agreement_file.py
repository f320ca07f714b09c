"""The agreement as a file, from Python: who signs what, and what the last step changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tacit.cleanroom.protocol.modes import Signer
from tacit.errors import BadInput
from tacit.services.room.agreement_file import AgreementSummary, propose_terms, read_agreement, sign_waiting
from tests.support.room_terms import KEYS, terms

FIRST = terms(epsilon=2)


def test_first_terms_wait_for_the_other_party_and_can_be_replaced_until_then() -> None:
    proposed = propose_terms(None, terms(epsilon=1), Signer.PLATFORM, KEYS[Signer.PLATFORM])
    again = propose_terms(proposed, FIRST, Signer.PLATFORM, KEYS[Signer.PLATFORM])
    told = AgreementSummary(again)
    assert told.waits_for == (Signer.ROOM,)
    assert (told.changed, told.looser, told.change_words) == ([], (), None)
    assert told.state_words == "waits for the signature of the room"
    assert "once it is signed" in told.total_words
    with pytest.raises(BadInput, match="waits for the platform's signature, got one that does not"):
        sign_waiting(again, Signer.PLATFORM, KEYS[Signer.PLATFORM])
    signed = AgreementSummary(sign_waiting(again, Signer.ROOM, KEYS[Signer.ROOM]))
    assert signed.as_json()["in_force"]
    assert signed.state_words == "is in force"


def test_an_amendment_says_what_it_allows_and_who_must_sign() -> None:
    agreed = sign_waiting(
        propose_terms(None, FIRST, Signer.ROOM, KEYS[Signer.ROOM]), Signer.PLATFORM, KEYS[Signer.PLATFORM]
    )
    more = replace(FIRST, smallest_batch=FIRST.smallest_batch - 1)
    told = AgreementSummary(propose_terms(agreed, more, Signer.PLATFORM, KEYS[Signer.PLATFORM]))
    assert told.looser == ("smallest_batch",)
    assert told.waits_for == (Signer.ROOM,)
    less = replace(FIRST, smallest_batch=FIRST.smallest_batch + 1)
    told = AgreementSummary(propose_terms(agreed, less, Signer.PLATFORM, KEYS[Signer.PLATFORM]))
    assert (told.changed, told.looser, told.waits_for) == (["smallest_batch"], (), ())
    assert told.change_words == "Allows no more than before in any field: one signature is enough."


def test_a_file_that_is_none_is_refused_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "agreement.json").write_text("{}")
    with pytest.raises(BadInput, match=r"agreement\.file: .*expected an agreement of 1 to"):
        read_agreement("agreement.file", tmp_path / "agreement.json")
