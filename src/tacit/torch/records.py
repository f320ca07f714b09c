"""Records of a loader's dataset: which loaders are taken, and how a Poisson sample is read, in pieces that fit
into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.dataloader import default_collate

from tacit import expect
from tacit.errors import BadInput
from tacit.train.examples import Places


def admit_loader(loader: DataLoader[Any]) -> tuple[int, int]:
    """How many records there are and how many a batch has on average; BadInput where sampling would not be
    ours."""
    if not isinstance(loader, DataLoader):
        raise BadInput(f"expected a torch DataLoader, got {type(loader).__name__}")
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset):
        raise BadInput(
            f"expected a dataset that is read by index, got the IterableDataset {type(dataset).__name__}"
        )
    if not hasattr(dataset, "__len__") or len(dataset) < 1:
        raise BadInput(f"expected a dataset with a length of at least 1, got {type(dataset).__name__}")
    if loader.batch_size is None:
        raise BadInput(
            f"expected a loader with a batch_size, got the batch sampler "
            f"{type(loader.batch_sampler).__name__}: "
            "Poisson samples are drawn here"
        )
    sampler = loader.sampler
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None
    )
    if not plain:
        drawn = "a RandomSampler of its own size" if type(sampler) is RandomSampler else type(sampler).__name__
        raise BadInput(
            f"expected a loader with shuffle=True or False, got {drawn}: each record joins a step with the "
            f"same "
            "probability, or the account is wrong; select records by a Subset"
        )
    if loader.num_workers:
        raise BadInput(f"expected num_workers=0, got {loader.num_workers}: batches are read in this process")
    return len(dataset), int(loader.batch_size)


class RecordReader:
    """Reads records of a loader's dataset by their places and puts them together as the loader would."""

    def __init__(self, loader: DataLoader[Any], most_at_once: int | None) -> None:
        self._dataset, self._collate = loader.dataset, loader.collate_fn
        if most_at_once is not None:
            expect.whole("max_physical_batch", most_at_once, at_least=1)
        self._most = most_at_once
        # Tensors that are only to be stacked: rows by their places are the same, a thousand times faster.
        self._whole = type(self._dataset) is TensorDataset and self._collate is default_collate

    def pieces(self, places: Places) -> list[Places]:
        """The sample in equal stretches of at most `most_at_once`; none if it is empty."""
        count = -(-len(places) // (self._most or max(1, len(places))))
        return np.array_split(places, count) if count else []

    def read(self, places: Places) -> Any:
        if self._whole:
            at = torch.from_numpy(places)
            return [each[at] for each in self._dataset.tensors]  # type: ignore[attr-defined]
        if hasattr(self._dataset, "__getitems__"):
            return self._collate(self._dataset.__getitems__(places.tolist()))
        return self._collate([self._dataset[place] for place in places.tolist()])


@dataclass(frozen=True)
class WaitingBatch:
    """A batch that was handed out and has no losses yet."""

    batch: Any
    count: int
    last: bool  # of its sample
    look: int | None  # which of its records is looked at
