"""Makes `device_statistics_v1.json`: rounds, questions and answers that devices in two languages agree on.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_device_statistics_v1.py

rounds         with their fields, whether their noise keeps the promise (`kept`), and whether a device in a
               browser reads them (`supported`)
noise          Gaussian: rounds with the variance that the plan takes, with the least part of it that Python
               says yes to, and with a little less, to which it says no
bad_rounds, bad_questions   the reason for which each is refused by devices; all of them are refused by Python
left_to_parties             rounds that the parties refuse, and that a device in a browser reads all the same:
                            what is wrong with them concerns nobody's privacy
answers        counts of events, each in a context that `numbers` has the number of

Bytes are spelled in hex. The same file comes out every time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from tacit.gather.client.contributions import Contributions, Event, answer_question
from tacit.gather.estimate.plan import CountNoiseLaw, plan_run
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.promises import Contribution, Promise, promise_shortfall
from tacit.gather.protocol.rounds import Question, Round
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Skellam
from tests.support.gather_rounds import QUESTION, a_round, rounds_of_every_kind

SCHEDULED: tuple[tuple[dict[str, Any], int, float, int], ...] = (
    ({"events": 10}, 1, 0.5, 100_000),
    ({"events": 10, "each": 1}, 1, 0.5, 100_000),
    ({"events": 50, "each": 1}, 1, 0.5, 1_000_000),
    ({"events": 10, "each": 1, "totals_only": True}, 1, 0.5, 100_000),
    ({"events": 1}, 1, 0.1, 100_000),
    ({"events": 20, "each": 5}, 4, 2.0, 10_000),
    ({"events": 10}, 8, 6.0, 1_000),
)
"""What devices contribute, levels, epsilon and devices; the first as the table [statistics] is documented."""
WHOLE = 100_000
"""Into how many parts the plan's variance is cut, to find the least that is enough."""
WITH_REST: tuple[dict[str, Any], int, float, int] = ({"events": 10, "each": 3}, 1, 0.5, 100_000)


def planned(run: tuple[dict[str, Any], int, float, int], law: CountNoiseLaw | None = None) -> Round:
    contribution, levels, epsilon, parties = run
    plan = plan_run(
        contribution=Contribution(**contribution), levels=levels, parties=parties, epsilon=epsilon, law=law
    )
    return a_round(task="menu-rates-1", parties=parties, noise=plan.noise, promise=plan.promise)


def round_records() -> dict[str, Any]:
    rounds = {**rounds_of_every_kind(), **{f"scheduled {at}": planned(run) for at, run in enumerate(SCHEDULED)}}
    plain = rounds["scheduled 0"]
    pure = replace(plain.promise, events=3, each=2, epsilon=Fraction(1, 3))
    rounds |= {
        "at its limits": a_round(
            task="t" * 100, scope="é" * 200, level=99, cells=2**20, opens=2**53 - 1, closes=2**53, skew=2**53,
            parties=2**42, smallest_batch=2**42, noise=ServerNoise(DiscreteLaplace(Fraction(23_999))),
            promise=Promise(2**20, 2**20, 100, Fraction(10**5), Fraction(0)),
        ),
        "Laplace, exactly enough": replace(
            plain, noise=ServerNoise(DiscreteLaplace(Fraction(18))), promise=pure
        ),
        "Laplace, a little less": replace(
            plain, noise=ServerNoise(DiscreteLaplace(Fraction(18) - Fraction(1, 10**30))), promise=pure
        ),
        "Laplace with a delta": replace(plain, promise=replace(plain.promise, delta=Fraction(1, 10**6))),
        "Gaussian without a delta": replace(plain, noise=ServerNoise(DiscreteGaussian(Fraction(10**6)))),
        "Gaussian with too little noise": replace(
            planned(SCHEDULED[1]), noise=ServerNoise(DiscreteGaussian(Fraction(9)))
        ),
        "Gaussian with far too little noise": replace(
            planned(SCHEDULED[1]), noise=ServerNoise(DiscreteGaussian(Fraction(1, 2)))
        ),
        "Gaussian with plenty of noise": replace(
            planned(SCHEDULED[1]), noise=ServerNoise(DiscreteGaussian(Fraction(10**6, 3)))
        ),
        "field64 without proofs": replace(plain, group=Group.FIELD64),
    }  # fmt: skip
    return {name: round_record(each) for name, each in rounds.items()}


def is_supported(round: Round) -> bool:
    """Whether devices in browsers take part in such rounds at all."""
    by_servers = isinstance(round.noise, ServerNoise) and not isinstance(round.noise.law, Skellam)
    return by_servers and round.bounds is None and round.group is not Group.FIELD64


def round_record(round: Round) -> dict[str, Any]:
    promise = round.promise
    return {
        "bytes": round.to_bytes().hex(),
        "digest": round.digest.hex(),
        "supported": is_supported(round),
        "kept": is_kept(round),
        "fields": {
            **{name: getattr(round, name) for name in ("task", "cells", "opens", "closes", "skew")},
            **{name: getattr(round, name).hex() for name in ("question", "proxy_key", "server_key")},
            "width": round.group.width,
            "in_all": round.most_in_all,
            **{name: getattr(promise, name) for name in ("events", "each", "levels", "totals_only")},
            "epsilon": [str(promise.epsilon.numerator), str(promise.epsilon.denominator)],
            "delta": [str(promise.delta.numerator), str(promise.delta.denominator)],
        },
    }


def is_kept(round: Round) -> bool:
    return promise_shortfall(round.promise, round.noise) is None


def noise_record(run: tuple[dict[str, Any], int, float, int], least: int | None = None) -> dict[str, Any]:
    """With the least part looked for, unless it is told."""
    round = planned(run, CountNoiseLaw.DISCRETE_GAUSSIAN)
    assert isinstance(round.noise, ServerNoise)
    assert isinstance(round.noise.law, DiscreteGaussian)
    variance = round.noise.law.sigma_squared

    def of_part(part: int) -> Round:
        return replace(round, noise=ServerNoise(DiscreteGaussian(variance * Fraction(part, WHOLE))))

    if least is None:
        least, less = WHOLE, WHOLE * 9 // 10
        while least - less > 1:
            middle = (least + less) // 2
            least, less = (middle, less) if is_kept(of_part(middle)) else (least, middle)
    rounds = {"refused": least - 1, "least": least, "planned": WHOLE}
    return {
        "run": list(run), "delta": float(round.promise.delta), "variance": float(variance),
        "parts": rounds,
        "rounds": {name: of_part(part).to_bytes().hex() for name, part in rounds.items()},
        "kept": {name: is_kept(of_part(part)) for name, part in rounds.items()},
    }  # fmt: skip


FIELDS = [
    "kind", "version", "task", "level", "cells", "question", "group", "opens", "closes", "skew", "parties",
    "smallest_batch", "noise", "bounds", "scope", "promise", "check", "proxy_key", "server_key",
]  # fmt: skip


def changed(**fields: Any) -> bytes:
    """The scheduled round with other fields."""
    plain = dict(zip(FIELDS, msgpack.unpackb(planned(SCHEDULED[0]).to_bytes(), use_list=False), strict=True))
    return bytes(msgpack.packb(tuple((plain | fields).values())))


def bad_rounds() -> dict[str, dict[str, str]]:
    good = planned(SCHEDULED[0]).to_bytes()
    fields = msgpack.unpackb(good, use_list=False)
    noise, promise = ("servers", "discrete-laplace", "40/1"), (10, 10, 1, "1/2", "0/1")
    malformed = {
        "nothing": b"",
        "cut off": good[:-1],
        "bytes after": good + b"\0",
        "a map": bytes(msgpack.packb({1: 1})),
        "a number": b"\x01",
        "a text": bytes(msgpack.packb("round")),
        "nothing at all": b"\xc0",
        "another kind": changed(kind=2),
        "another version": changed(version=2),
        "a field more": bytes(msgpack.packb((*fields, 0))),
        "a field fewer": bytes(msgpack.packb(fields[:-1])),
        "a long array": good.replace(b"\xdc\x00\x13", b"\xdd\x00\x00\x00\x13", 1),
        "a long number": good.replace(b"\xc4\x20", b"\xc5\x00\x20", 1),
        "a long text": good.replace(b"\xacmenu-rates-1", b"\xd9\x0cmenu-rates-1", 1),
        "a long count": changed(level=0).replace(b"menu-rates-1\x00", b"menu-rates-1\xcc\x00", 1),
        "a fraction for a count": changed(skew=60.0),
        "a yes for a count": changed(skew=True),
        "a negative count": changed(skew=-1),
        "bytes for a task": changed(task=b"menu-rates-1"),
        "text that is no UTF-8": good.replace(b"menu-rates-1", b"menu-rates-\xff", 1),
        "a level too many": changed(level=1),
        "no cells": changed(cells=0),
        "too many cells": changed(cells=2**20 + 1),
        "times that fall": changed(opens=1_700_086_400),
        "times too late": changed(closes=2**53 + 1),
        "no devices": changed(parties=0, smallest_batch=0),
        "a batch beyond its devices": changed(smallest_batch=100_001),
        "a short digest": changed(question=bytes(31)),
        "a text for a digest": changed(question="q" * 32),
        "a short key": changed(proxy_key=bytes(31)),
        "one key for both": changed(proxy_key=fields[-1]),
        "a number for noise": changed(noise=5),
        "a text for a promise": changed(promise="1/2"),
        "no noise": changed(noise=(*noise[:2], "zero")),
        "negative noise": changed(noise=(*noise[:2], "-40/1")),
        "noise of a number": changed(noise=(*noise[:2], 40)),
        "a fraction without its lower half": changed(noise=(*noise[:2], "40")),
        "a fraction over 0": changed(noise=(*noise[:2], "40/0")),
        "a fraction with a zero in front": changed(noise=(*noise[:2], "040/1")),
        "no events": changed(promise=(0, *promise[1:])),
        "more of a cell than events": changed(promise=(10, 11, *promise[2:])),
        "no levels": changed(promise=(10, 10, 0, "1/2", "0/1")),
        "101 levels": changed(promise=(10, 10, 101, "1/2", "0/1")),
        "a promise with a word": changed(promise=(*promise, "more")),
        "a promise with two words": changed(promise=(*promise, "totals", "totals")),
        "a promise cut off": changed(promise=promise[:4]),
        "nested too deeply": b"\x91" * 400 + b"\x00",
    }
    unsupported = {
        "an unknown law": changed(noise=("servers", "uniform", "40/1")),
        "noise by nobody": changed(noise=("nobody", "discrete-laplace", "40/1")),
        "noise of four parts": changed(noise=(*noise, "1/1")),
        "an unknown group": changed(group="ring16"),
        "bounds without a key": changed(bounds=(1, 1)),
    }
    return {
        **{name: {"bytes": each.hex(), "reason": "MALFORMED"} for name, each in malformed.items()},
        **{name: {"bytes": each.hex(), "reason": "UNSUPPORTED"} for name, each in unsupported.items()},
    }


def left_to_parties() -> dict[str, str]:
    found = {
        "a task of 101 characters": changed(task="t" * 101),
        "a task of more bytes than texts have": changed(task="t" * 1025),
        "a task that is blank": changed(task="  "),
        "a scope that nobody can read": changed(scope="a\nb"),
        "a group too small for its sums": changed(group="ring32", parties=2**40),
        "a fraction that can be shortened": changed(noise=("servers", "discrete-laplace", "80/2")),
        "a check key without bounds": changed(check=bytes(31) + b"\1"),
        "noise too wide to draw": changed(noise=("servers", "discrete-laplace", f"{10**9}/1")),
        "an epsilon that no ledger counts": changed(promise=(10, 10, 1, f"{10**9 + 1}/1", "0/1")),
        "a delta of 1": changed(promise=(10, 10, 1, "1/2", "1/1")),
    }
    return {name: each.hex() for name, each in found.items()}


def question_of(levels: Any, nodes: list[int], offsets: list[int], ad: list[int]) -> Question:
    return Question(levels, *(np.array(each, np.int64) for each in (nodes, offsets, ad)))


QUESTIONS = {
    "of three contexts": QUESTION,
    "of totals alone": question_of((0,), [7], [0, 0], []),
    "at its limits": question_of((2**31 - 1,) * 64, [0, 2**53 - 1], [0, 1, 2], [2**53 - 1, 0]),
}


def question_records() -> dict[str, Any]:
    return {
        name: {
            "bytes": each.to_bytes().hex(),
            "digest": each.digest.hex(),
            "cells": each.cells,
            "levels": list(each.levels),
            **{column: getattr(each, column).tolist() for column in ("nodes", "offsets", "ad")},
        }
        for name, each in QUESTIONS.items()
    }


def bad_questions() -> dict[str, dict[str, str]]:
    kind, version, levels, nodes, offsets, ad = msgpack.unpackb(QUESTION.to_bytes(), use_list=False)

    def column(*values: int) -> bytes:
        return np.array(values, "<i8").tobytes()

    def spelled(*fields: Any) -> bytes:
        return bytes(msgpack.packb(fields))

    malformed = {
        "nothing": b"",
        "another kind": spelled(1, version, levels, nodes, offsets, ad),
        "a column fewer": spelled(kind, version, levels, nodes, offsets),
        "a column more": spelled(kind, version, levels, nodes, offsets, ad, ad),
        "no levels": spelled(kind, version, (), nodes, offsets, ad),
        "a number for levels": spelled(kind, version, 3, nodes, offsets, ad),
        "bytes for levels": spelled(kind, version, b"\3\0", nodes, offsets, ad),
        "a text for levels": spelled(kind, version, "30", nodes, offsets, ad),
        "a negative level": spelled(kind, version, (3, -1), nodes, offsets, ad),
        "a large level": spelled(kind, version, (3, 2**31), nodes, offsets, ad),
        "65 levels": spelled(kind, version, (0,) * 65, nodes, offsets, ad),
        "half a number": spelled(kind, version, levels, nodes[:-1], offsets, ad),
        "a text for a column": spelled(kind, version, levels, "n" * 24, offsets, ad),
        "no contexts": spelled(kind, version, levels, b"", column(0), b""),
        "contexts that fall": spelled(kind, version, levels, column(2, 9, 5), offsets, ad),
        "a context twice": spelled(kind, version, levels, column(2, 5, 5), offsets, ad),
        "a negative context": spelled(kind, version, levels, column(-2, 5, 9), offsets, ad),
        "an offset fewer": spelled(kind, version, levels, nodes, column(0, 2, 5), ad),
        "offsets from 1": spelled(kind, version, levels, nodes, column(1, 2, 2, 5), ad),
        "offsets that fall": spelled(kind, version, levels, nodes, column(0, 3, 2, 5), ad),
        "offsets beyond the ads": spelled(kind, version, levels, nodes, column(0, 2, 2, 6), ad),
        "ads that fall": spelled(kind, version, levels, nodes, offsets, column(7, 1, 0, 1, 4)),
        "an ad twice": spelled(kind, version, levels, nodes, offsets, column(1, 7, 0, 4, 4)),
        "a negative ad": spelled(kind, version, levels, nodes, offsets, column(-1, 7, 0, 1, 4)),
    }
    return {
        **{name: {"bytes": each.hex(), "reason": "MALFORMED"} for name, each in malformed.items()},
        "another question": {"bytes": QUESTIONS["at its limits"].to_bytes().hex(), "reason": "CONFLICT"},
    }


def answer_records() -> list[dict[str, Any]]:
    """Contexts are one text, whose number is that of the vector: -1 where the device knows none."""
    numbers = {"a": 2, "b": 5, "c": 9, "d": 4, "e": -1}
    some = [("a", 1, True), ("a", 7, False), ("a", 7, True), ("a", 2, True), ("b", 1, True), ("c", 4, False)]
    more = [*some, ("c", 4, False), ("c", 4, False), ("d", 1, True), ("e", 1, True), ("c", 0, True)]
    found = []
    for name in ("of three contexts", "of totals alone"):
        for events in ([], some, more, [("a", 1, True)] * 9):
            for each in (1, 2, 9):
                chosen = Contributions(tuple(Event((context,), ad, hit) for context, ad, hit in events), 20)
                counts = answer_question(QUESTIONS[name], chosen, lambda _, context: numbers[context[0]], each)
                said = [{"context": [context], "campaign": ad, "clicked": hit} for context, ad, hit in events]
                found.append({"question": name, "events": said, "each": each, "counts": counts.tolist()})
    return [{"numbers": numbers}, *found]


def records(least: Mapping[int, int] | None = None) -> dict[str, Any]:
    """`least` has the least parts of `noise`, by their place, where they are known."""
    told = least or {}
    numbers, *answers = answer_records()
    return {
        "version": 1,
        "rounds": round_records(),
        "noise": [noise_record(run, told.get(at)) for at, run in enumerate((*SCHEDULED, WITH_REST))],
        "bad_rounds": bad_rounds(),
        "left_to_parties": left_to_parties(),
        "questions": question_records(),
        "bad_questions": bad_questions(),
        **numbers,
        "answers": answers,
    }


def main() -> None:
    spelled = json.dumps(records(), indent=1)
    Path(__file__).with_name("device_statistics_v1.json").write_text(spelled + "\n")


if __name__ == "__main__":
    main()
