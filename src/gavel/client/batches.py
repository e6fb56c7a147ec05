"""The batches of one epoch from a given index, skipped in the fastest way that yields exactly the same batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Batch = TypeVar("Batch")


def tell_epoch(data: object, epoch: int) -> None:
    """Tell samplers that shuffle by epoch number (DistributedSampler) which epoch begins."""
    batches = getattr(data, "batch_sampler", None)
    holders = (data, getattr(data, "sampler", None), batches, getattr(batches, "sampler", None))
    for holder in {id(holder): holder for holder in holders}.values():
        tell = getattr(holder, "set_epoch", None)
        if callable(tell):
            tell(epoch)


def batches_from(data: Iterable[Batch], index: int, *, by_index: bool | None = None) -> Iterator[Batch]:
    """Return the batches of an epoch from number `index`.

    A loader with a sampler can skip by index, without loading. Within this process that gives the same batches; with
    worker processes, random augmentations would draw different numbers, so there it is done only on request.
    """
    torch_data = sys.modules.get("torch.utils.data")
    known = torch_data is not None and type(data) is torch_data.DataLoader
    return skipping(data, lambda: iter(data), index, by_index=by_index if known else False)


def skipping(
    data: Any, begin: Callable[[], Iterator[Any]], index: int, *, by_index: bool | None = None
) -> Iterator[Any]:
    """Begin an epoch and skip its first batches; `data` is a torch DataLoader unless `by_index` is false."""
    sampler = _index_sampler(data) if index and by_index is not False else None
    if sampler is not None and (by_index or data.num_workers == 0):
        return _skipping_indices(data, begin, sampler, index)
    iterator = begin()
    for _ in range(index):
        next(iterator, None)
    return iterator


def _index_sampler(data: Any) -> str | None:
    """Return the name of the attribute that holds the index sampler of a torch DataLoader."""
    torch_data = sys.modules["torch.utils.data"]
    if isinstance(data.dataset, torch_data.IterableDataset):
        return None
    return "sampler" if data.batch_sampler is None else "batch_sampler"


def _skipping_indices(data: Any, begin: Callable[[], Iterator[Any]], sampler: str, index: int) -> Iterator[Any]:
    # The loader reads its sampler when an epoch begins, and refuses ordinary assignment of the attribute.
    attributes = vars(data)
    whole = attributes[sampler]
    rest = attributes[sampler] = _From(whole, index)
    try:
        iterator = begin()
    finally:
        attributes[sampler] = whole
    rest.skip()
    return iterator


class _From:
    """A sampler that omits its first entries, once: loaders with persistent workers keep it for later epochs.

    It skips only after the loader has begun: both draw random numbers then, and the loader must draw first.
    """

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler = sampler
        self._skipped = skipped
        self._entries: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._entries = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        if self._skipped:
            self.skip()
        return next(self._entries)

    def __len__(self) -> int:
        return len(self._sampler)

    def skip(self) -> None:
        skipped, self._skipped = self._skipped, 0
        for _ in range(skipped):
            next(self._entries, None)
