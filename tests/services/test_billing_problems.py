"""Refusals of billing cross the network as problem documents, and come out as they went in."""

from __future__ import annotations

import json

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.errors import BillRefused, TacitError
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.services.http_clients import MOST_TITLE, error_from_problem
from tacit.services.problems import BILL_STATUS, problem_from_error, refusal_name


@pytest.mark.parametrize("verdict", [each for each in BillVerdict if each])
def test_a_refusal_comes_out_as_it_went_in(verdict: BillVerdict) -> None:
    answer = problem_from_error(BillRefused(verdict, "epoch 7 is there already"))
    assert answer.status_code == BILL_STATUS[verdict]
    assert 400 <= answer.status_code < 500
    problem = json.loads(bytes(answer.body))
    assert (problem["title"], problem["detail"]) == (verdict.words, "epoch 7 is there already")
    error = error_from_problem(bytes(answer.body))
    assert isinstance(error, BillRefused)
    assert (error.reason, error.detail) == (verdict, "epoch 7 is there already")


def test_names_are_not_those_of_gathering() -> None:
    names = [refusal_name(each) for each in (*BillVerdict, *MessageVerdict)]
    assert len(set(names)) == len(names)
    assert set(BILL_STATUS) == set(BillVerdict)


def test_a_detail_is_one_short_line_whatever_the_other_party_wrote() -> None:
    body = json.dumps({"type": "tacit:bill-forged", "detail": "two\nlines " + "x" * 10_000}).encode()
    error = error_from_problem(body)
    assert isinstance(error, BillRefused)
    assert "\n" not in error.detail
    assert len(error.detail) == MOST_TITLE


@pytest.mark.parametrize("body", [b"", b"[]", b'{"type": "tacit:bill-new"}', b'{"type": 3}'])
def test_what_is_no_known_problem_is_still_an_error_of_ours(body: bytes) -> None:
    error = error_from_problem(body)
    assert isinstance(error, TacitError)
    assert not isinstance(error, BillRefused)
