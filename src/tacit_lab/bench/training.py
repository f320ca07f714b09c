"""Training: private steps beside plain ones, stock torch and Opacus; users; memory; growth; one thread.

Each part runs in a process of its own, `python -m tacit_lab.bench.training`, with one thread and the C
allocator set so that torch reuses its memory: as it comes, glibc hands large tensors back after every step,
and torch takes three times as long. A part prints its measurements as JSON, so that the suite can choose
that process's allocator and threads.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine
from tacit.train.sgd.descent import NoiseForm
from tacit.train.sgd.optimizers import Adam, Sgd
from tacit_lab.bench.measurement import (
    Contestant,
    Measurement,
    Seconds,
    SuiteProgress,
    milliseconds,
    take_turns,
)
from tacit_lab.bench.training_work import (
    CLIPPING,
    TrainingScale,
    TrainingWorkload,
    draw_units,
    growth_with_batch,
    growth_with_log,
    label_phase,
    make_log,
    memory,
    our_step,
    ready_batches,
)

DIM = 32
FM = FactorizationMachine(DIM)
PEERS_READY = "ours samples and reads its batch, peers get theirs ready"


def fm(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """SGD on the factorization machine: without privacy, with lazy noise, with dense noise, and the peers."""
    work = TrainingWorkload.open(folder)
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


def units(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """People clipped as one, with all of their rows, beside rows clipped one by one: as many rows a step."""
    work = TrainingWorkload.open(folder)
    step = partial(our_step, work, FM, scale.batch, clipping=CLIPPING, noise_form=NoiseForm.LAZY)
    people = draw_units(len(work.examples))
    contestants = {"impressions": Contestant(step()), "users": Contestant(step(units=people))}
    seconds = take_turns(contestants, scale.rounds)
    made = f"{len(people):,} rows of {int(people.max()) + 1:,} made-up users"
    what = f"FM of dim {DIM} with lazy noise, {scale.described}, {made}, {scale.batch} rows a step on average"
    settings = _settings(what, seconds)
    return [_ratio(seconds, settings, "fm_users_vs_impressions", "users", "impressions", bar=1.5)]


def adam(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """Adam goes over the whole table in every step, with or without noise."""
    work = TrainingWorkload.open(folder)
    ours = partial(our_step, work, FM, scale.batch, optimizer=Adam())
    contestants = {"plain": Contestant(ours()), "private": Contestant(ours(clipping=CLIPPING))}
    if _is_installed("torch"):
        from tacit_lab.bench import training_torch as peers

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


def mlp(scale: TrainingScale, folder: Path) -> list[Measurement]:
    """The two-tower network, which needs torch for its products in any case."""
    if not _is_installed("torch"):
        return [_not_measured("mlp_lazy_vs_torch", "torch")]
    work, width = TrainingWorkload.open(folder), scale.mlp_width
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


def torch_module(name: str, scale: TrainingScale, folder: Path) -> list[Measurement]:
    """One's own torch module, by `tacit.torch` and by those that it stands beside."""
    if not _is_installed("torch"):
        return [_not_measured(f"torch_{name}_vs_plain", "torch")]
    from tacit_lab.bench.training_torch import TorchWork, memory_beside_plain

    work = TorchWork(name, scale, folder)
    seconds = take_turns(work.contestants(opacus=_is_installed("opacus")), scale.rounds)
    settings = _settings(f"own {name}: {work.described}", seconds)
    compare = partial(_ratio, seconds, settings)
    memory_part, grown = memory_beside_plain(name, scale, folder)
    return [
        compare(f"torch_{name}_vs_plain", "ours", "torch", bar=1.3),
        compare(f"opacus_vs_torch_{name}", "opacus", "ours", bar=2.0, at_least=True),
        Measurement(f"torch_{name}_memory", memory_part, "x", 1.0, False, f"{work.described}; {grown}"),
    ]


Part = Callable[[TrainingScale, Path], list[Measurement]]
PROCESS_PARTS: dict[str, Part] = {
    "fm": fm,
    "units": units,
    "adam": adam,
    "mlp": mlp,
    "torch-mlp": partial(torch_module, "mlp"),
    "torch-transformer": partial(torch_module, "transformer"),
    "growth-with-batch": growth_with_batch,
    "growth-with-log": growth_with_log,
    "labels": label_phase,
}


def _peers(model: str, scale: TrainingScale, work: TrainingWorkload) -> dict[str, Contestant]:
    """Stock torch and Opacus on this model, as far as they are installed."""
    if not _is_installed("torch"):
        return {}
    from tacit_lab.bench import training_torch as peers

    sizes = work.examples.sizes
    batch = scale.batch if model == "fm" else scale.mlp_batch
    batches = ready_batches(work, batch)

    def module() -> peers.TorchFm | peers.TorchMlp:
        return peers.TorchFm(sizes, DIM) if model == "fm" else peers.TorchMlp(sizes, DIM, scale.mlp_width)

    found = {"torch": Contestant(peers.torch_step(module(), batches))}
    if _is_installed("opacus"):
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
    with_versions = [
        f"{package} {version(package)}" for package in ("torch", "opacus") if _is_installed(package)
    ]
    return (
        f"{what}; processor (wall) ms a step: {milliseconds(seconds)}; medians of interleaved turns "
        f"({rounds}); {PEERS_READY}; {', '.join(with_versions) or 'no peers'}"
    )


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _not_measured(name: str, package: str) -> Measurement:
    return Measurement(name, math.nan, "x", settings=f"not measured: {package} is not installed")


ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
FULL = TrainingScale()


def run(progress: SuiteProgress, scale: TrainingScale = FULL) -> list[Measurement]:
    measured: list[Measurement] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "columns"
        parts: list[Callable[[], list[Measurement]]] = [
            partial(_log_made, scale, folder),
            *(partial(_in_a_process, name, scale, folder) for name in PROCESS_PARTS),
            partial(memory, scale, folder),
        ]
        for part in progress(parts, "training"):
            measured.extend(part())
    return measured


def _log_made(scale: TrainingScale, folder: Path) -> list[Measurement]:
    make_log(scale, folder)
    return []


def _in_a_process(name: str, scale: TrainingScale, folder: Path) -> list[Measurement]:
    """One part, by a process whose environment is this one's but for threads and allocator."""
    variables = {**ONE_THREAD, **ALLOCATOR}
    arguments = ["tacit_lab.bench.training", name, str(folder), json.dumps(asdict(scale))]
    command = ["env", *(f"{key}={value}" for key, value in variables.items()), sys.executable, "-m", *arguments]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    chosen = ", ".join(f"{key}={value}" for key, value in ALLOCATOR.items())
    return [
        replace(measured, settings=f"{measured.settings}; 1 thread; {chosen}")
        for measured in (Measurement(**record) for record in json.loads(child.stdout))
    ]


def main() -> None:
    name, folder, scale = sys.argv[1], Path(sys.argv[2]), TrainingScale(**json.loads(sys.argv[3]))
    if _is_installed("torch"):
        import torch

        torch.set_num_threads(1)
    print(json.dumps([asdict(measured) for measured in PROCESS_PARTS[name](scale, folder)]))


if __name__ == "__main__":
    main()
