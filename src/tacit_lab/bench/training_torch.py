"""Our two models in stock torch and by Opacus, and one's own torch module by `tacit.torch` beside both.

Stock torch trains by its own optimizers with dense gradients, Opacus by ghost clipping. Steps and memory of
two modules of one's own: a network of embeddings and layers on a log, and a transformer over sequences of
items. Ours draws its Poisson sample, reads it from the dataset and takes it in by halves; peers get batches of
the same size ready.

`python -m tacit_lab.bench.training_torch` measures the memory of one case: the most that a process grew by
once its data was there, weights and gradients included.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tacit.torch
from tacit.arrays import Floats32
from tacit.train.examples import Sizes
from tacit.train.sgd.descent import Clipping
from tacit_lab.bench.measurement import Contestant, process_kilobytes
from tacit_lab.bench.training_work import CLIPPING, READY_BATCHES, TrainingScale, TrainingWorkload

DIM, HEADS, BLOCKS = 32, 4, 2
SEQUENCES = 16_384  # in the transformer's data
MOST_RECORDS = 200_000  # of the log, as tensors
STEPS = 3
PIECE = 0.6  # of a batch: samples come in two halves, which take less memory
EPOCHS = 10_000  # more than anybody takes

Batches = Iterator[tuple[NDArray[np.int64], Floats32]]
Optimize = Callable[[nn.Module], torch.optim.Optimizer]


class TorchFm(nn.Module):
    """One table of both sides: the linear weight, then the embedding. Split in two tables it is no faster."""

    def __init__(self, sizes: Sizes, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(sizes.public_rows + sizes.sensitive_rows, 1 + dim)
        nn.init.normal_(self.table.weight, std=0.01)
        self.bias = _bias()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.table(ids)  # (batch, fields, 1 + dim)
        embeddings = rows[..., 1:]
        total = embeddings.sum(dim=1)  # (batch, dim)
        pairs = (total.square().sum(dim=1) - embeddings.square().sum(dim=(1, 2))) / 2
        score: torch.Tensor = self.bias((rows[..., 0].sum(dim=1) + pairs)[:, None])
        return score[:, 0]


class TorchMlp(nn.Module):
    """A public tower of one layer, and two layers over it and the sensitive embeddings."""

    def __init__(self, sizes: Sizes, dim: int, width: int) -> None:
        super().__init__()
        self.public_fields, self.public_rows = sizes.public_fields, sizes.public_rows
        self.public_table = nn.Embedding(sizes.public_rows, dim)
        self.sensitive_table = nn.Embedding(sizes.sensitive_rows, dim)
        for table in (self.public_table, self.sensitive_table):
            nn.init.normal_(table.weight, std=0.01)
        self.tower = nn.Sequential(nn.Linear(sizes.public_fields * dim, width), nn.ReLU())
        self.common = nn.Sequential(
            nn.Linear(width + sizes.sensitive_fields * dim, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        public_ids = ids[:, : self.public_fields].contiguous()  # Opacus cannot do with a view
        public = self.public_table(public_ids).flatten(1)  # (batch, fields * dim)
        sensitive = self.sensitive_table(ids[:, self.public_fields :] - self.public_rows).flatten(1)
        score: torch.Tensor = self.common(torch.cat([self.tower(public), sensitive], dim=1))
        return score[:, 0]


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.001)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=0.001)


def torch_step(module: nn.Module, batches: Batches, optimize: Optimize = sgd) -> Callable[[], None]:
    """A plain training step by automatic differentiation."""
    optimizer, criterion = optimize(module), nn.BCEWithLogitsLoss()
    ready = _tensors(batches)

    def step() -> None:
        ids, labels = next(ready)
        optimizer.zero_grad()
        criterion(module(ids), labels).backward()
        optimizer.step()

    return step


def opacus_step(
    module: nn.Module, batches: Batches, batch: int, clipping: Clipping, examples: int
) -> tuple[Callable[[], None], Any]:
    """A private step by Opacus's ghost clipping, and the module as Opacus has wrapped it.

    Its noise comes from torch's generator, which is fast and not cryptographic.
    """
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its generator is not secure: said above
        wrapped, optimizer, criterion, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=sgd(module),
            criterion=nn.BCEWithLogitsLoss(),
            data_loader=DataLoader(TensorDataset(torch.empty(examples, 1)), batch_size=batch),  # for its sizes
            noise_multiplier=clipping.noise_multiplier,
            max_grad_norm=clipping.clip_norm,
            grad_sample_mode="ghost",
        )
    ready = _tensors(batches)

    def step() -> None:
        ids, labels = next(ready)
        optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook")  # ids have no gradients: so be it
            criterion(wrapped(ids), labels).backward()
        optimizer.step()

    return step, wrapped


def _bias() -> nn.Linear:
    """An added number, as a layer that Opacus has a rule for: a weight of 1 that is not trained, and a bias."""
    bias = nn.Linear(1, 1)
    nn.init.ones_(bias.weight)
    nn.init.zeros_(bias.bias)
    bias.weight.requires_grad = False
    return bias


def _tensors(batches: Batches) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Without copying: the arrays are ready, and so are the tensors."""
    return ((torch.from_numpy(ids), torch.from_numpy(labels)) for ids, labels in batches)


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
