"""What a data set and its samplers say of themselves, without drawing a sample."""

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Subset

from dpdemo.ranks.observe.numbers import checksum

_MOST_NESTED, _MOST_INDICES, _MOST_ROWS = 8, 1024, 16


def fingerprint(data: Any, depth: int = 2) -> int:
    """Return a checksum that tells shards of a data set apart, without drawing a sample."""
    try:
        return _of_table(data) if _is_table(data) else _fingerprint(data, depth)
    except Exception:  # noqa: BLE001 - an attribute of any library's class
        return zlib.crc32(type(data).__name__.encode())


def _fingerprint(data: Any, depth: int) -> int:
    if isinstance(data, torch.Tensor):
        return checksum(data, zlib.crc32(repr(tuple(data.shape)).encode()), 1 << 14)
    if isinstance(data, (str, bytes, int, float, bool, type(None), type)):
        return zlib.crc32(repr(data).encode())
    if isinstance(data, Subset):
        return fingerprint(data.dataset, depth)  # the indices are mapped
    if hasattr(data, "tobytes") and hasattr(data, "shape"):
        return zlib.crc32(data[:64].tobytes() if data.shape else b"")
    if depth < 0:
        return zlib.crc32(type(data).__name__.encode())
    if isinstance(data, (list, tuple)):
        parts: list[Any] = [len(data), *data[:4], *data[-4:]]
    elif isinstance(data, dict):
        parts = [len(data), *list(data.items())[:64]]
    else:
        parts = [type(data).__name__, *sorted(getattr(data, "__dict__", {}).items())]
    return zlib.crc32(repr([fingerprint(part, depth - 1) for part in parts]).encode())


def _is_table(data: Any) -> bool:
    """Return whether this is a `datasets.Dataset`, without importing that."""
    return hasattr(data, "_indices") and hasattr(getattr(data, "_data", None), "column_names")


def _of_table(data: Any) -> int:
    """Return a checksum of some rows of a `datasets.Dataset`: its own name may differ between ranks."""
    table, places = data._data, data._indices
    some = range(0, len(data), max(1, len(data) // _MOST_ROWS))
    rows = [each if places is None else places.column(0)[each].as_py() for each in some]
    found = [[column[each].as_py() for each in rows] for column in table.columns]
    return zlib.crc32(repr((len(data), table.column_names, found)).encode())


def part_of(data: Any) -> tuple[int, ...]:
    """Return the length of a Subset and a checksum of some of its indices; nothing for another data set."""
    if not isinstance(data, Subset):
        return ()
    indices: Any = data.indices
    some = [int(each) for each in indices[:: max(1, len(indices) // _MOST_INDICES)]]
    return len(data), zlib.crc32(repr((some, part_of(data.dataset))).encode())


def contents(data: Any) -> int:
    """Return a checksum of a data set's lists, tensors and tables alone: a rank's number is no content."""
    while isinstance(data, Subset):
        data = data.dataset
    is_plain = not hasattr(data, "__dict__") or isinstance(data, (torch.Tensor, list, tuple, dict))
    if is_plain or _is_table(data):
        return fingerprint(data)
    parts = [
        (name, fingerprint(part, 3))
        for name, part in sorted(vars(data).items())
        if not isinstance(part, (str, bytes, int, float, bool, type(None)))
    ]
    return zlib.crc32(repr(parts).encode())


def whole_length(data: Any, *, is_indexed: bool) -> int | None:
    """Return the number of samples of the whole data set, if it is known.

    The length of a stream may be one rank's or one worker's share: only libraries that say which are asked.
    """
    while isinstance(data, Subset):
        data = data.dataset
    with contextlib.suppress(Exception):
        if is_indexed:
            return len(data)
        kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(data).__mro__}
        if "streaming.StreamingDataset" in kinds:
            return int(data.num_samples)
        if "accelerate.IterableDatasetShard" in kinds:
            return whole_length(data.dataset, is_indexed=False)
        if "fastai.DataLoader" in kinds:
            return len(data.dataset)
    return None


def split_of(data: Any) -> str:
    """Name the function that has given this rank a part of a stream, if the stream remembers it."""
    while type(data).__name__ == "IterableDatasetShard":
        data = data.dataset
    part = getattr(data, "_distributed", None)
    if part is not None and getattr(part, "world_size", 1) > 1:
        return "split_dataset_by_node"
    return ""


def splitter_of(loader: Any, data: Any) -> str:
    """Name the class that gives each rank a part of a stream, if it is one of accelerate's."""
    found = [
        type(each).__name__ for each in (loader, data) if type(each).__module__.startswith("accelerate.")
    ]
    return found[0] if found else ""


def nested(loader: Any) -> list[Any]:
    """Return the samplers of a loader, from the one that makes batches to the one that makes the order."""
    batches = getattr(loader, "batch_sampler", None)
    found: list[Any] = []
    _follow(batches if batches is not None else getattr(loader, "sampler", None), found)
    return found


def _follow(sampler: Any, found: list[Any]) -> None:
    if sampler is None or len(found) >= _MOST_NESTED or any(each is sampler for each in found):
        return
    if not hasattr(sampler, "__iter__"):
        return
    found.append(sampler)
    for inner in _inside(sampler):
        _follow(inner, found)


def _inside(sampler: Any) -> Iterator[Any]:
    """Yield the samplers inside one; Lightning's DistributedSamplerWrapper has its as a data set."""
    for name in ("batch_sampler", "sampler", "_sampler"):
        inner = vars(sampler).get(name) if hasattr(sampler, "__dict__") else None
        if inner is not None:
            yield inner
    data = getattr(sampler, "dataset", None)
    if type(data).__name__ == "_DatasetSamplerWrapper":
        yield getattr(data, "_sampler", None)


def parts_of(sampler: Any) -> int:
    """Return into how many parts a sampler cuts an order, of which a rank takes one; 0 if it takes all."""
    found = (getattr(sampler, name, None) for name in ("num_replicas", "num_processes", "world_size"))
    return next((each for each in found if type(each) is int), 0)


def splits_by_rank(sampler: Any) -> bool:
    """Return whether a sampler takes one rank's part of an order."""
    return any(hasattr(sampler, name) for name in ("num_replicas", "num_processes", "world_size"))


def repeats(sampler: Any) -> bool:
    """Return whether a sampler draws some samples several times by its own purpose."""
    many = getattr(sampler, "num_repeats", 1)
    is_many = isinstance(many, (int, float)) and many > 1
    return is_many or getattr(sampler, "replacement", False) is True
