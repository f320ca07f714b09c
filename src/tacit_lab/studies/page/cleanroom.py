"""The clean room: messages of a small run, bytes by codec, calibration by loss, and attacks.

The messages are those of a run that is made here (`record_run`), byte by byte the same every time; all else is
from the recorded tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tacit.train.evaluation.intervals import MeasuredValue
from tacit_lab.studies.cleanroom import attacks, labels, sizes
from tacit_lab.studies.cleanroom.setting import NONE, TuningArm
from tacit_lab.studies.cleanroom.tuning import TuningMeasurements
from tacit_lab.studies.page.charts import (
    Chart,
    describe_source,
    epsilons_of,
    plain_number,
    read_recorded,
    round_figure,
    value_json,
)
from tacit_lab.studies.plotting import Mechanism
from tacit_lab.studies.runs import mean

if TYPE_CHECKING:
    from tacit.cleanroom.in_process import InProcessRoom
    from tacit.cleanroom.protocol.answers import RoomDescription, StepAnswer
    from tacit.cleanroom.protocol.requests import StepRequest


def cleanroom_data() -> dict[str, Any]:
    return {
        "run": record_run(),
        "codecs": _codecs(),
        "calibration": _calibration(),
        "reader": _reader(),
        "attacks": _attacks(),
    }


CODEC_WORDS = {
    "fp32-dense": "32-bit numbers, written out",
    "bf16-dense": "16-bit numbers, written out",
    "qsgd-8": "8-bit numbers (QSGD), written out",
    "fp32": "32-bit factors",
    "int8": "8-bit factors",
}


def _codecs() -> dict[str, Any]:
    """Bytes of a click's derivatives by codec, and the AUC that each costs against the plainest."""
    kept = read_recorded(sizes.CODECS_NAME)
    measured = TuningMeasurements.of_table(kept)
    plainest = sizes.codec_arm(sizes.DENSE[0])
    rows = []
    for codec in (*sizes.DENSE, *sizes.FACTORED):
        arm, printed = sizes.codec_arm(codec), sizes.PUBLISHED_LOSS.get(codec)
        rows.append(
            {
                "codec": codec,
                "name": CODEC_WORDS[codec],
                "factored": codec in sizes.FACTORED,
                "bytes": round_figure(float(measured.figures(arm, "bytes_an_example").mean())),
                "auc_percent": value_json(mean(measured.change(arm, plainest))),
                "published_percent": None if printed is None else -printed,
            }
        )
    return {"source": describe_source(kept), "rank": sizes.CODEC_RANK, "rows": rows}


def _calibration() -> dict[str, Any]:
    """Predicted over observed, from labels that were flipped, with and without de-biasing."""
    kept = read_recorded(labels.LABELS_NAME)
    measured = TuningMeasurements.of_table(kept)
    beside = {"before tuning": TuningArm(NONE), "no label flipped": TuningArm()}
    rows: list[dict[str, Any]] = [
        {"name": name, "epsilon": None, "debiased": None, "published": None, **_ratio(measured, arm)}
        for name, arm in beside.items()
    ]
    for place, epsilon in enumerate(labels.EPSILONS):
        for loss, title in labels.TITLES.items():
            rows.append(
                {
                    "name": title,
                    "epsilon": plain_number(epsilon),
                    "debiased": loss == labels.FORWARD,
                    "published": labels.CALIBRATION[loss][place],
                    **_ratio(measured, TuningArm(epsilon=epsilon, loss=loss)),
                }
            )
    return {"source": describe_source(kept), "rows": rows}


def _ratio(measured: TuningMeasurements, arm: TuningArm) -> dict[str, float]:
    return value_json(mean(measured.figures(arm, "calibration_ratio")))


def _reader() -> dict[str, Any]:
    """The attack that reads one record per parameter, over epsilon."""
    kept = read_recorded(attacks.NAME)
    rows = [row for row in kept.rows if row["attack"] == attacks.READER]
    rows.sort(key=lambda row: plain_number(row["epsilon"]))
    epsilons = epsilons_of(rows)
    chart = Chart(
        "reader", "One record at a time", "labels told apart beyond a coin (0: none, 1: all)",
        f"The attack “{attacks.READER}”: a platform that shapes its derivatives to read single labels out of "
        "the room's sums.",
        [kept], epsilons,
    )  # fmt: skip
    drawn = {
        "published protocol": (Mechanism.NON_PRIVATE, [2 * plain_number(row["reached"]) - 1 for row in rows]),
        "tacit's room, attacked": (Mechanism.OURS, [plain_number(row["advantage"]) for row in rows]),
        "the terms allow": (Mechanism.RR, [plain_number(row["allowed"]) for row in rows]),
    }
    for name, (mechanism, heights) in drawn.items():
        points = [
            (epsilon, MeasuredValue(height, height, height, 0.0))
            for epsilon, height in zip(epsilons, heights, strict=True)
        ]
        chart.add_line(name, mechanism, points, variant=int(mechanism is Mechanism.RR))
    return chart.as_json()


def _attacks() -> dict[str, Any]:
    kept = read_recorded(attacks.NAME)
    epsilon = kept.settings["parameters"]["epsilon"]
    rows = [
        {
            "attack": row["attack"],
            "works_against": row["works_against"],
            "measured": row["measured"],
            "reached": round_figure(plain_number(row["reached"])),
            "right": row["right"],
            "said": row["said"],
            "advantage": round_figure(plain_number(row["advantage"])),
            "at_least": round_figure(max(0.0, plain_number(row["at_least"]))),
            "allowed": round_figure(plain_number(row["allowed"])),
        }
        for row in kept.rows
        if row["epsilon"] == epsilon
    ]
    return {"source": describe_source(kept), "epsilon": plain_number(epsilon), "rows": rows}


CLICKS, STEP_CLICKS, RANK, EPSILON = 4_000, 512, 4, 3
PLATFORM, ROOM = "platform", "room"


@dataclass
class CountedRoom:
    """A link to a room that notes every message: from whom, what it is, and how many bytes."""

    room: InProcessRoom
    messages: list[dict[str, Any]] = field(default_factory=list)

    def note(self, sender: str, what: str, size: int) -> None:
        self.messages.append({"from": sender, "what": what, "bytes": size})

    def describe(self) -> RoomDescription:
        answer = self.room.describe()
        self.note(ROOM, "the agreed terms, and what of them is left", len(answer.to_bytes()))
        return answer

    def step(self, request: StepRequest, slabs: Iterable[bytes]) -> StepAnswer:
        sent: list[int] = []

        def counted() -> Iterator[bytes]:
            for slab in slabs:
                sent.append(len(slab))
                yield slab

        answer = self.room.step(request, counted())
        self.note(PLATFORM, f"step {request.number + 1}: what is asked for", len(request.to_bytes()))
        words = f"tokens, predictions and derivatives of {request.rows} clicks"
        self.note(PLATFORM, f"step {request.number + 1}: {words}", sum(sent))
        received = sum(map(len, answer.to_chunks()))
        self.note(ROOM, f"step {request.number + 1}: one sum over them, and a signed receipt", received)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.room, name)


def record_run() -> dict[str, Any]:
    """A small run of an adapter through a room in this process: every message with its bytes.

    Made up: clicks of two advertisers, one of which shares its conversions and one does not.
    """
    import numpy as np

    from tacit.cleanroom import (
        AdapterPlan,
        ConversionExamples,
        ConversionModel,
        LearnSettings,
        pretrain,
        room_in_process,
        token_key,
        tokens,
        train_adapter,
    )
    from tacit.entropy import Simulation

    draw = np.random.default_rng(1)
    fields, advertiser = draw.integers(0, 8, (CLICKS, 3)), draw.integers(1, 3, CLICKS)
    effects = draw.normal(size=(2, 8))
    logit = effects[0][fields[:, 0]] + np.where(advertiser == 1, 1, -1) * effects[1][fields[:, 1]] - 2
    clicks = ConversionExamples(
        fields=fields,
        numbers=np.zeros((CLICKS, 0), np.float32),
        sequences=np.zeros((CLICKS, 1, 0), np.int64),
        lengths=np.zeros(CLICKS, np.int64),
        advertiser=advertiser,
        records=np.arange(CLICKS, dtype=np.uint64),
        tasks={"conversion": (draw.random(CLICKS) < 1 / (1 + np.exp(-logit))).astype(np.uint8)},
        sizes=(8, 8, 8),
        sequence_sizes=(),
    )
    shared, sensitive = clicks.of_advertiser(1), clicks.of_advertiser(2)
    model = ConversionModel(clicks.settings(dim=4, tower=(16,)), seed=1)
    pretrain(model, shared, settings=LearnSettings(epochs=1, batch=256, learning_rate=1e-2))
    model.add_adapter("sensitive", advertiser=2, rank=RANK, seed=1)
    source = Simulation("messages of a run")
    named = tokens(sensitive.records, token_key(source.bytes(32), "trial"))
    given = sensitive.labels("conversion")[:, None]
    link = CountedRoom(room_in_process(named, given, source=source, epsilon=EPSILON))
    plan = AdapterPlan(batch=STEP_CLICKS, epochs=1, learning_rate=2e-2)
    trained = train_adapter(model, "sensitive", sensitive, named, link, plan, run="page")
    return {
        "clicks": len(sensitive),
        "steps": trained.steps,
        "codec": plan.codec,
        "parameters": model.adapter_layout("sensitive").parameters,
        "statement": trained.statement.as_text().split("\n\n")[0],
        "messages": link.messages,
    }
