"""One's own torch module by `tacit.torch`, beside plain torch and Opacus' ghost clipping: steps, and memory.

Two modules: a network of embeddings and layers on a log, and a transformer over sequences of items. Ours draws
its Poisson sample, reads it from the dataset and takes it in by halves; peers get batches of the same size
ready.

`python -m tacit_lab.bench.training_torch` measures the memory of one case: the most that a process grew by
once its data was there, weights and gradients included.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tacit.torch
from tacit_lab.bench.measurement import Contestant, process_kilobytes
from tacit_lab.bench.training_peers import TorchMlp, opacus_step, sgd, torch_step
from tacit_lab.bench.training_work import CLIPPING, READY_BATCHES, TrainingScale, TrainingWorkload

DIM, HEADS, BLOCKS = 32, 4, 2
SEQUENCES = 16_384  # in the transformer's data
MOST_RECORDS = 200_000  # of the log, as tensors
STEPS = 3
PIECE = 0.6  # of a batch: samples come in two halves, which take less memory
EPOCHS = 10_000  # more than anybody takes


class TransformerBlock(nn.Module):
    """Attention and two layers, of linear maps."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.maps, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.back = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, values: Tensor) -> Tensor:
        batch, length, dim = values.shape
        maps = self.maps(self.before(values)).view(batch, length, 3, HEADS, dim // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*maps).transpose(1, 2).reshape(values.shape)
        values = values + self.out(mixed)
        changed: Tensor = values + self.back(nn.functional.gelu(self.wide(self.between(values))))
        return changed


class Transformer(nn.Module):
    """A score of a sequence of items, as of what somebody looked at before."""

    def __init__(self, items: int, length: int, dim: int) -> None:
        super().__init__()
        self.items, self.places = nn.Embedding(items, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*(TransformerBlock(dim) for _ in range(BLOCKS)))
        self.after, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]).expand(ids.shape).contiguous()  # Opacus cannot do with a view
        read = self.blocks(self.items(ids) + self.places(places))
        score: Tensor = self.head(self.after(read).mean(dim=1))
        return score[:, 0]


class TorchWork:
    """A module, its data, and its expected batch."""

    def __init__(self, name: str, scale: TrainingScale, folder: Path) -> None:
        torch.manual_seed(1)
        self.make: Callable[[], nn.Module]
        if name == "mlp":
            examples = TrainingWorkload.open(folder).examples
            rows = slice(0, min(len(examples), MOST_RECORDS))
            sides = (examples.public[rows], examples.sensitive[rows] + np.int32(examples.sizes.public_rows))
            ids = torch.from_numpy(np.concatenate(sides, axis=1).astype(np.int64))
            labels = torch.from_numpy(examples.labels[rows].astype(np.float32))
            self.batch = scale.mlp_batch
            self.make = lambda: TorchMlp(examples.sizes, DIM, scale.mlp_width)
            self.described = (
                f"embeddings of {DIM}, layers ({scale.mlp_width},) and ({scale.mlp_width}, {scale.mlp_width}), "
                f"{scale.described}, batch {self.batch}"
            )
        else:
            shape = (min(SEQUENCES, scale.log_rows), scale.sequence)
            # Few items are often read, and many rarely: ranks with P(r) about 1 / r.
            ids = (scale.items ** torch.rand(shape)).long().clamp_(max=scale.items - 1)
            labels = torch.rand(shape[0]).round()
            self.batch = scale.transformer_batch
            self.make = lambda: Transformer(scale.items, scale.sequence, scale.transformer_dim)
            self.described = (
                f"{BLOCKS} blocks of width {scale.transformer_dim}, {HEADS} heads, sequences of "
                f"{scale.sequence} of "
                f"{scale.items:,} items, batch {self.batch}"
            )
        self.data = TensorDataset(ids, labels)

    def ready(self) -> Iterator[tuple[Any, Any]]:
        """For peers: a few batches of exactly the expected size, over and over."""
        found = []
        for _ in range(READY_BATCHES):
            at = torch.randperm(len(self.data))[: self.batch].sort().values
            found.append(tuple(each[at].numpy() for each in self.data.tensors))
        return cycle(found)  # type: ignore[arg-type]

    def plain(self) -> Callable[[], None]:
        return torch_step(self.make(), self.ready())

    def opacus(self) -> Callable[[], None]:
        return opacus_step(self.make(), self.ready(), self.batch, CLIPPING, len(self.data))[0]

    def ours(self) -> Callable[[], None]:
        """A Poisson sample of the same size on average, read from the data, and a step with a release's
        noise."""
        module, criterion = self.make(), nn.BCEWithLogitsLoss(reduction="none")
        run = tacit.torch.private(
            module,
            sgd(module),
            DataLoader(self.data, batch_size=self.batch),
            noise_multiplier=CLIPPING.noise_multiplier,
            max_grad_norm=CLIPPING.clip_norm,
            delta=1e-6,
            epochs=EPOCHS,
            max_physical_batch=math.ceil(PIECE * self.batch),
        )
        batches = run.batches()

        def step() -> None:
            moved = False
            while not moved:
                ids, labels = next(batches)
                moved = run.step(criterion(module(ids), labels))

        return step

    def contestants(self, *, opacus: bool) -> dict[str, Contestant]:
        found = {"torch": Contestant(self.plain()), "ours": Contestant(self.ours())}
        if opacus:
            found["opacus"] = Contestant(self.opacus())
        return found


def memory_beside_plain(name: str, scale: TrainingScale, folder: Path) -> tuple[float, str]:
    """What a process grows by, as a part of what it does with plain torch and one more copy of the
    gradients."""
    grown = {each: _grown(name, scale, folder, each) for each in ("plain", "ours")}
    size = 4 * sum(each.numel() for each in TorchWork(name, scale, folder).make().parameters()) / 2**20
    words = ", ".join(f"{each} {megabytes:.0f} MB" for each, megabytes in grown.items())
    settings = f"peak growth over {STEPS} steps: {words}; gradients {size:.0f} MB"
    return grown["ours"] / (grown["plain"] + size), settings


def _grown(name: str, scale: TrainingScale, folder: Path, whose: str) -> float:
    """In megabytes, by a process of its own with the C library's usual allocator."""
    case = json.dumps({"name": name, "whose": whose, "scale": asdict(scale)})
    unset = [part for each in ALLOCATOR_NAMES for part in ("-u", each)]
    command = ["env", *unset, sys.executable, "-m", "tacit_lab.bench.training_torch", str(folder), case]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


ALLOCATOR_NAMES = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def main() -> None:
    folder, case = Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    work = TorchWork(case["name"], TrainingScale(**case["scale"]), folder)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = process_kilobytes("VmRSS")
    step = work.plain() if case["whose"] == "plain" else work.ours()
    for _ in range(STEPS):
        step()
    print((process_kilobytes("VmHWM") - before) / 1024)


if __name__ == "__main__":
    main()
