"""The parts of the training suite, each for a process of its own: `python -m tacit.bench.training_parts`.

A part prints its measurements as JSON, so that the suite can choose that process's allocator and threads.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tacit.bench.measurement import Measurement
from tacit.bench.training_growth import growth_with_batch, growth_with_log
from tacit.bench.training_labels import label_phase
from tacit.bench.training_steps import CLIPPING, Scale, Workload, our_step, ready_batches
from tacit.bench.training_turns import Contestant, Seconds, milliseconds, take_turns
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.models.mlp import Mlp
from tacit.train.sgd.descent import NoiseForm
from tacit.train.sgd.optimizers import Adam, Sgd

DIM = 32
FM = FactorizationMachine(DIM)
PEERS = "ours samples and reads its batch, peers get theirs ready"


def fm(scale: Scale, folder: Path) -> list[Measurement]:
    """SGD on the factorization machine: without privacy, with lazy noise, with dense noise, and the peers."""
    work = Workload.open(folder)
    ours = partial(our_step, work, FM, scale.batch)
    private = partial(ours, clipping=CLIPPING)
    momentum = Sgd(momentum=0.9)
    contestants = {
        "plain": Contestant(ours()),
        "lazy": Contestant(private(noise_form=NoiseForm.LAZY)),
        "dense": Contestant(private(noise_form=NoiseForm.DENSE)),
        "momentum plain": Contestant(ours(optimizer=momentum)),
        "momentum lazy": Contestant(private(optimizer=momentum, noise_form=NoiseForm.LAZY)),
        **_peers("fm", scale, work),
    }
    seconds = take_turns(contestants, scale.rounds)
    settings = _settings(f"FM of dim {DIM}, {scale.described}, batch {scale.batch}", seconds)
    compare = partial(_ratio, seconds, settings)
    return [
        compare("fm_lazy_vs_plain", "lazy", "plain", bar=1.4),
        compare("fm_lazy_vs_torch", "lazy", "torch", bar=0.25),
        compare("fm_opacus_vs_lazy", "opacus", "lazy", bar=75, at_least=True),
        compare("fm_dense_vs_plain", "dense", "plain", bar=3.0),
        compare("fm_opacus_vs_dense", "opacus", "dense", bar=35, at_least=True),
        compare("fm_momentum_lazy_vs_plain", "momentum lazy", "momentum plain"),
        Measurement("fm_lazy_ms", 1000 * seconds["lazy"].processor, "ms", settings=settings),
    ]


def adam(scale: Scale, folder: Path) -> list[Measurement]:
    """Adam goes over the whole table in every step, with or without noise."""
    work = Workload.open(folder)
    ours = partial(our_step, work, FM, scale.batch, optimizer=Adam())
    contestants = {"plain": Contestant(ours()), "private": Contestant(ours(clipping=CLIPPING))}
    if _installed("torch"):
        from tacit.bench import training_peers as peers

        batches = ready_batches(work, scale.batch)
        step = peers.torch_step(peers.TorchFm(work.examples.sizes, DIM), batches, peers.adam)
        contestants["torch"] = Contestant(step)
    seconds = take_turns(contestants, scale.rounds)
    settings = _settings(f"FM of dim {DIM} by Adam, {scale.described}, batch {scale.batch}", seconds)
    compare = partial(_ratio, seconds, settings)
    return [
        compare("adam_private_vs_plain", "private", "plain", bar=2.0),
        compare("adam_private_vs_torch", "private", "torch"),
    ]


def mlp(scale: Scale, folder: Path) -> list[Measurement]:
    """The two-tower network, which needs torch for its products in any case."""
    if not _installed("torch"):
        return [_not_measured("mlp_lazy_vs_torch", "torch")]
    work, width = Workload.open(folder), scale.mlp_width
    network = Mlp(DIM, public_layers=(width,), common_layers=(width, width))
    ours = partial(our_step, work, network, scale.mlp_batch)
    contestants = {
        "plain": Contestant(ours()),
        "lazy": Contestant(ours(clipping=CLIPPING, noise_form=NoiseForm.LAZY)),
        **_peers("mlp", scale, work),
    }
    seconds = take_turns(contestants, -(-scale.rounds // 2))
    shape = f"embeddings of {DIM}, layers ({width},) and ({width}, {width})"
    settings = _settings(f"MLP: {shape}, {scale.described}, batch {scale.mlp_batch}", seconds)
    compare = partial(_ratio, seconds, settings)
    return [
        compare("mlp_lazy_vs_torch", "lazy", "torch", bar=1.2),
        compare("mlp_lazy_vs_plain", "lazy", "plain"),
        compare("mlp_opacus_vs_lazy", "opacus", "lazy", at_least=True),
    ]


Part = Callable[[Scale, Path], list[Measurement]]
PARTS: dict[str, Part] = {
    "fm": fm,
    "adam": adam,
    "mlp": mlp,
    "growth-with-batch": growth_with_batch,
    "growth-with-log": growth_with_log,
    "labels": label_phase,
}


def _peers(model: str, scale: Scale, work: Workload) -> dict[str, Contestant]:
    """Stock torch and Opacus on this model, as far as they are installed."""
    if not _installed("torch"):
        return {}
    from tacit.bench import training_peers as peers

    sizes = work.examples.sizes
    batch = scale.batch if model == "fm" else scale.mlp_batch
    batches = ready_batches(work, batch)

    def module() -> peers.TorchFm | peers.TorchMlp:
        return peers.TorchFm(sizes, DIM) if model == "fm" else peers.TorchMlp(sizes, DIM, scale.mlp_width)

    found = {"torch": Contestant(peers.torch_step(module(), batches))}
    if _installed("opacus"):
        step, _ = peers.opacus_step(module(), batches, batch, CLIPPING, len(work.examples))
        every = scale.slow_every if model == "fm" else max(1, scale.slow_every // 2)
        found["opacus"] = Contestant(step, every=every)
    return found


def _ratio(
    seconds: Mapping[str, Seconds],
    settings: str,
    name: str,
    one: str,
    other: str,
    *,
    bar: float | None = None,
    at_least: bool = False,
) -> Measurement:
    """The processor's time for the one over that for the other."""
    for contestant in (one, other):
        if contestant not in seconds:
            return _not_measured(name, contestant)
    value = seconds[one].processor / seconds[other].processor
    return Measurement(name, value, "x", bar, at_least, settings)


def _settings(what: str, seconds: Mapping[str, Seconds]) -> str:
    rounds = ", ".join(f"{name} {each.turns}" for name, each in seconds.items())
    with_versions = [f"{package} {version(package)}" for package in ("torch", "opacus") if _installed(package)]
    return (
        f"{what}; processor (wall) ms a step: {milliseconds(seconds)}; medians of interleaved turns "
        f"({rounds}); {PEERS}; {', '.join(with_versions) or 'no peers'}"
    )


def _installed(package: str) -> bool:
    return find_spec(package) is not None


def _not_measured(name: str, package: str) -> Measurement:
    return Measurement(name, math.nan, "x", settings=f"not measured: {package} is not installed")


def main() -> None:
    name, folder, scale = sys.argv[1], Path(sys.argv[2]), Scale(**json.loads(sys.argv[3]))
    if _installed("torch"):
        import torch

        torch.set_num_threads(1)
    print(json.dumps([asdict(measured) for measured in PARTS[name](scale, folder)]))


if __name__ == "__main__":
    main()
