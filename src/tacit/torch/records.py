"""Records of a loader's dataset: which loaders are taken, and how a Poisson sample is read, in pieces that fit
into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)
from torch.utils.data.dataloader import default_collate

from tacit import expect
from tacit.errors import BadInput
from tacit.privacy.randomness import UniformBelow
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
        given = loader.batch_sampler
        got = "none" if given is None else f"the batch sampler {type(given).__name__}: samples are drawn here"
        raise BadInput(f"expected a loader with a batch_size, got {got}")
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
    _refuse_repeated(dataset)
    return len(dataset), int(loader.batch_size)


def _refuse_repeated(dataset: Any) -> None:
    """BadInput where a Subset or a ConcatDataset is seen to have one record twice: it would be two records,
    each with a promise of its own."""
    if not isinstance(dataset, Subset | ConcatDataset):
        return
    try:
        found = _record_numbers(dataset, {})
    except (TypeError, ValueError, IndexError, OverflowError):
        raise BadInput("expected a Subset of whole numbers within its dataset, got other indices") from None
    if len(np.unique(found)) < len(found):
        kind = type(dataset).__name__
        raise BadInput(f"expected every record once, got a {kind} that has one twice: it would count as two")


def _record_numbers(dataset: Any, starts: dict[Any, int]) -> NDArray[np.int64]:
    """A number for each record: the same one for what lies at the same place of the same dataset."""
    if isinstance(dataset, Subset):
        inner = _record_numbers(dataset.dataset, starts)
        return inner[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_record_numbers(each, starts) for each in dataset.datasets])
    known = tuple(map(id, dataset.tensors)) if type(dataset) is TensorDataset else id(dataset)
    if known not in starts:
        starts[known] = len(starts) << 40
    return starts[known] + np.arange(len(dataset), dtype=np.int64)


class RecordsOfUsers:
    """Whose each record is: a sample has users, and of each of them one record, drawn each time.

    Guarantee:  whatever records one user has, each step reads at most one of them, with the probability that
                the user is sampled with.
    Neighbours: all records of one user, replaced, added or removed.
    Assumes:    every record's id is that of the person it is about; how many users there are is public.
    Source:     sampling by units: McMahan et al. 2018 (arXiv 1710.06963), with one record for each of them.
    """

    def __init__(self, users: Any, records: int) -> None:
        given = users.to_numpy() if hasattr(users, "to_numpy") else users
        try:
            ids = np.asarray(given)
            missing = ids != ids if ids.dtype.kind in "fcO" else np.zeros(1, bool)
            if ids.ndim == 1 and ids.dtype == object:
                missing = missing | np.array([each is None for each in ids], dtype=bool)
            if ids.shape != (records,):
                raise BadInput(f"expected users to have one id for each of {records:,} records, got others")
            if np.any(missing):
                raise BadInput("expected an id in every place of users, got a missing one")
            _, owner, counts = np.unique(ids, return_inverse=True, return_counts=True)
        except (TypeError, ValueError) as problem:
            if isinstance(problem, BadInput):
                raise
            raise BadInput("expected users to be a list of ids of one kind, got another") from None
        self._places = np.argsort(owner, kind="stable")
        self._counts = counts
        self._starts = np.cumsum(counts) - counts

    def __len__(self) -> int:
        return len(self._counts)

    def draw(self, users: Places, below: UniformBelow) -> Places:
        """One record of each of these users."""
        chosen = [below(int(count)) for count in self._counts[users]]
        drawn: Places = self._places[self._starts[users] + np.array(chosen, dtype=np.int64)]
        return drawn


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
