"""Training on noisy labels beside training on true ones: the same model, batches and optimizer."""

from __future__ import annotations

from pathlib import Path

from tacit.bench.measurement import Measurement
from tacit.bench.training_steps import Scale, Workload
from tacit.bench.training_turns import Contestant, take_turns
from tacit.entropy import Entropy, Simulation
from tacit.train.methods import LabelDp, Method, Plain
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.model import Part
from tacit.train.run import Run
from tacit.train.settings import Learning
from tacit.train.sgd.optimizers import Adam

FM = FactorizationMachine()
EPOCHS = 4
FEWER_ROUNDS = 5  # a turn is a whole training
MOST = 1.05
"""No slower, but for what differs from one run to the next."""


def label_phase(scale: Scale, folder: Path) -> list[Measurement]:
    """A whole training of the truncated model by Adam, the flips included."""
    work, secret = Workload.open(folder), Entropy().bytes(32)
    learning = Learning(epochs=EPOCHS, batch=scale.batch, optimizer=Adam())
    methods: dict[str, Method] = {
        "true labels": Plain(learning, Part.TRUNCATED),
        "flipped labels": LabelDp(epsilon=4, learning=learning),
    }
    contestants = {}
    for name, method in methods.items():
        model = FM.build(work.examples.sizes, Simulation(1).normal)
        run = Run(method.plan(work.examples, secret=secret), model, work.examples, Entropy(), secret)
        contestants[name] = Contestant(run.go, every=FEWER_ROUNDS)
    seconds = take_turns(contestants, scale.rounds)
    times = ", ".join(f"{name} {each.processor:.2f}" for name, each in seconds.items())
    turns = seconds["true labels"].turns
    settings = (
        f"FM of dim {FM.dim} on public features, {scale.described}, {EPOCHS} epochs by Adam, batch "
        f"{scale.batch}; processor seconds: {times}; medians of {turns} interleaved turns"
    )
    value = seconds["flipped labels"].processor / seconds["true labels"].processor
    return [Measurement("label_phase_vs_plain", value, "x", MOST, False, settings)]
