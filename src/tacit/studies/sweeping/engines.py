"""Where runs are done: processes of this machine with one thread each, or a Ray cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.studies import processes

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Choice):
    LOCAL = "local"
    RAY = "ray"


def spread(
    engine: Engine, work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with what came of it, in the order in which they are done, at most `jobs` at a time."""
    if engine is Engine.RAY:
        return _on_ray(_ray(), work, items, jobs)
    return processes.spread(work, items, jobs)


def check(engine: Engine) -> None:
    """Refuse before any work what could not be done."""
    if engine is Engine.RAY:
        _ray()


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise BadInput("--engine: expected Ray to be installed, got none: pip install ray") from None


def _on_ray(
    ray: Any, work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[tuple[Item, Result]]:
    """Joins the cluster that Ray's own settings name, or starts one here. Its nodes must see the data."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1)(work)
    left = list(reversed(items))
    waiting: dict[Any, Item] = {}
    try:
        while left or waiting:
            while left and len(waiting) < jobs:
                item = left.pop()
                waiting[remote.remote(item)] = item
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            yield waiting.pop(done), ray.get(done)
    finally:
        for reference in waiting:
            ray.cancel(reference)
