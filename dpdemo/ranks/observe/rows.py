"""Fingerprints of a batch's rows: 64 bits of each row's content, for samples that have no index.

A row is all that a batch holds at one place of its first dimension, over all tensors, arrays and lists that
have this dimension. Its words are multiplied by random numbers and summed up, below the emulation and for
all rows at once. Zeros at a row's end change nothing, so that padding to another length does not either. Rows
of a few numbers are compared as numbers: `5` and `5.0` are alike.
"""

import ctypes
import functools
import itertools
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from dpdemo.ranks.observe.numbers import is_plain

_FEW, _MOST_COLUMNS, _MOST_DEPTH, _PART = 4, 32, 6, 1 << 20
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_PLAIN = (str, bytes, int, float, bool, complex, type(None))


@dataclass(frozen=True)
class Fingerprints:
    """The rows of a batch: their fingerprints, those of each column alone, and short rows as numbers."""

    rows: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]
    labels: dict[int, str] = field(default_factory=dict)


def fingerprints(batch: Any, count: int | None = None) -> Fingerprints | None:
    """Return the fingerprints of a batch's rows, `count` of them where that is known; None if it has none."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        found = list(_columns(batch, count, 0))[:_MOST_COLUMNS]
        if not found:
            return None
        lengths = Counter(_length(column) for column in found)
        number = count if count is not None else lengths.most_common(1)[0][0]
        same = [column for column in found if _length(column) == number]
        if not same or not number:
            return None
        hashed = [_hashes(column) for column in same]
        mixed = (_mixed(each + _signed(_MIX[0] * place)) for place, each in enumerate(hashed, 1))
        rows = tuple(functools.reduce(torch.add, mixed).tolist())
        columns = tuple(tuple(each.tolist()) for each in hashed)
        return Fingerprints(rows, columns, _labels(rows, same))


def _columns(batch: Any, count: int | None, depth: int) -> Iterator[Any]:
    """Yield the tensors of a batch, as they are in memory, and its lists with an entry for each row."""
    if isinstance(batch, torch.Tensor):
        yield from _plain(batch)
    elif hasattr(batch, "__array_interface__") and hasattr(batch, "shape"):
        yield from _array(batch)
    elif isinstance(batch, _PLAIN):
        yield from ([] if batch is None else [[batch]])
    elif isinstance(batch, (list, tuple)) and depth < _MOST_DEPTH:
        parts = [list(_columns(part, count, depth + 1)) for part in batch]
        yield from [list(batch)] if _is_column(batch, parts, count) else itertools.chain(*parts)
    elif depth < _MOST_DEPTH:
        values = batch if isinstance(batch, Mapping) else _fields(batch)
        for value in values.values():
            yield from _columns(value, count, depth + 1)


def _fields(batch: Any) -> dict[str, Any]:
    """Return the fields of a dataclass; of other objects nobody knows what they hold for each row."""
    return dict(vars(batch)) if hasattr(batch, "__dataclass_fields__") else {}


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor without a library's class; none that keeps its numbers elsewhere, as DTensor does."""
    if tensor.layout is torch.strided:
        plain = tensor.detach().as_subclass(torch.Tensor)
        if is_plain(plain) and (plain.data_ptr() or not plain.numel()):
            yield plain


def _is_column(batch: Any, parts: list[list[Any]], count: int | None) -> bool:
    """Return whether a list has an entry for each row, and not a tensor for each kind of thing in them."""
    if not len(batch):
        return False
    if all(isinstance(each, _PLAIN) for each in batch):
        return count is None or len(batch) == count
    lengths = [{_length(column) for column in part} for part in parts]
    if count is not None:
        return len(batch) == count and not all(count in each for each in lengths)
    common = set.intersection(*lengths) if lengths else set()
    return not common and len({type(each) for each in batch}) == 1


def _array(array: Any) -> Iterator[Any]:
    """Yield an array of NumPy as a tensor, or the list of its rows if it holds objects."""
    if array.dtype.kind in "biuf":
        yield torch.from_numpy(array if array.flags.writeable else array.copy())
    else:
        yield array.tolist() if array.ndim else [array.item()]


def _length(column: Any) -> int:
    if isinstance(column, torch.Tensor):
        return int(column.shape[0]) if column.ndim else 1
    return len(column)


def _hashes(column: Any) -> torch.Tensor:
    """Return a number for each row of a column."""
    if isinstance(column, list):
        return torch.tensor([_signed(_hash_of(each)) for each in column], dtype=torch.int64, device="cpu")
    rows = column.reshape(1) if not column.ndim else column
    number, per_row = int(rows.shape[0]), rows.numel() // max(1, int(rows.shape[0]))
    if per_row <= _FEW:
        rows = _numbers(rows, per_row)
    words = _words(rows, number)
    if words is None:
        return torch.zeros(number, dtype=torch.int64, device="cpu")
    weights = _weights(words.shape[1])
    if words.numel() <= _PART:
        return (words * weights).sum(1)
    step = max(1, _PART // words.shape[1])
    return torch.cat([(part * weights).sum(1) for part in torch.split(words, step)])


def _numbers(rows: torch.Tensor, per_row: int) -> torch.Tensor:
    """Return rows of a few numbers as float64, whatever their type."""
    plain = _copy_of(rows).reshape(rows.shape[0], per_row)
    return (
        torch.view_as_real(plain).reshape(rows.shape[0], -1) if plain.is_complex() else plain.double() + 0.0
    )


def _copy_of(rows: torch.Tensor) -> torch.Tensor:
    """Return the same numbers in memory without a label of a virtual GPU."""
    rows = rows.detach().resolve_conj().resolve_neg().contiguous()
    length = rows.numel() * rows.element_size()
    if not length or not rows.data_ptr():
        return torch.zeros(rows.shape, dtype=rows.dtype, device="cpu")
    memory = (ctypes.c_char * length).from_address(rows.data_ptr())
    return torch.frombuffer(bytearray(memory), dtype=rows.dtype).reshape(rows.shape)


def _words(rows: torch.Tensor, number: int) -> torch.Tensor | None:
    """View the bytes of each row as whole numbers of 32 bits; a row's last word is filled up with zeros."""
    rows = rows.detach().resolve_conj().resolve_neg().contiguous()
    length = rows.numel() * rows.element_size()
    if not length or not rows.data_ptr():
        return None
    memory = (ctypes.c_char * length).from_address(rows.data_ptr())
    if length // number % 4 == 0:
        return torch.frombuffer(memory, dtype=torch.int32).view(number, -1)
    data = torch.frombuffer(memory, dtype=torch.uint8).view(number, -1)
    filled = torch.zeros(number, -(-data.shape[1] // 4) * 4, dtype=torch.uint8, device="cpu")
    filled[:, : data.shape[1]] = data
    return filled.view(torch.int32)


_made: list[torch.Tensor] = []


def _weights(number: int) -> torch.Tensor:
    """Return odd random numbers, always the same ones."""
    if not _made or _made[0].numel() < number:
        places = torch.arange(1, max(number, 1 << 12) + 1, dtype=torch.int64, device="cpu")
        _made[:] = [_mixed(places * _signed(_MIX[0])) | 1]
    return _made[0][:number]


def _mixed(numbers: torch.Tensor) -> torch.Tensor:
    """Mix the bits of each number (the end of SplitMix64)."""
    numbers = (numbers ^ ((numbers >> 30) & ((1 << 34) - 1))) * _signed(_MIX[1])
    numbers = (numbers ^ ((numbers >> 27) & ((1 << 37) - 1))) * _signed(_MIX[2])
    return numbers ^ ((numbers >> 31) & ((1 << 33) - 1))


def _signed(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _hash_of(entry: Any) -> int:
    """Return a number for what a list holds for one row."""
    if isinstance(entry, (int, float, bool)):
        return int(_hashes(torch.tensor([float(entry)], dtype=torch.float64, device="cpu"))[0])
    if isinstance(entry, torch.Tensor):
        return next((int(_hashes(each.reshape(1, -1))[0]) for each in _plain(entry) if each.numel()), 0)
    if isinstance(entry, Mapping):
        entry = [value for pair in entry.items() for value in pair]
    elif hasattr(entry, "__array_interface__") and hasattr(entry, "shape"):
        entry = next(_array(entry))
        return _hash_of(entry)
    if isinstance(entry, (list, tuple)):
        return sum(_MIX[1] * (2 * place + 1) * (_hash_of(each) + 1) for place, each in enumerate(entry))
    text = entry if isinstance(entry, bytes) else str(entry).encode("utf-8", "replace")
    return zlib.crc32(text) << 32 | zlib.crc32(text, _MIX[2] & 0xFFFFFFFF)


def _labels(rows: tuple[int, ...], columns: list[Any]) -> dict[int, str]:
    """Name rows of a few numbers or words by these."""
    if sum(_width(column) for column in columns) > _FEW:
        return {}
    parts = [_entries(column) for column in columns]
    return {row: " ".join(words) for row, *words in zip(rows, *parts, strict=True)}


def _width(column: Any) -> int:
    if isinstance(column, list):
        return 1 if all(isinstance(each, (int, float)) for each in column) else _FEW + 1
    return column.numel() // max(1, _length(column))  # type: ignore[no-any-return]


def _entries(column: Any) -> list[str]:
    if isinstance(column, list):
        return [f"{each:g}" for each in column]
    rows = column.reshape(1) if not column.ndim else column
    if rows.is_complex():
        return [""] * int(rows.shape[0])
    numbers = _numbers(rows, rows.numel() // max(1, int(rows.shape[0]))).tolist()
    return [" ".join(f"{each:g}" for each in row) for row in numbers]
