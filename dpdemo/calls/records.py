"""Records of a program's calls: one for each object, module or function that splits a batch.

A record is that of an object, of a module however often it is wrapped, and of all modules of a class that one
place of the program wraps: a loop that makes a model at each step has one record. Functions are one by their
code.
"""

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, FrameType, FunctionType

from torch import nn

from dpdemo.calls.live import Splitter
from dpdemo.calls.tokens import TokenCount, TokenTally
from dpdemo.calls.trace import Trace
from dpdemo.results.batches import BatchGroup
from dpdemo.results.devices import Devices
from dpdemo.results.execution import Use

MAX_SPLITS = 200
"""Different splits kept of one DataParallel object; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Split:
    """The split of one call; equal ones compare equal."""

    device_ids: tuple[int, ...]
    dim: int
    trace: Trace

    def group(self, first: int, count: int) -> BatchGroup:
        """Report `count` equal calls from number `first` on."""
        ids = self.device_ids if self.trace.replicas else ()
        return self.trace.group(first, count, self.dim, Devices.of("cuda", ids))


@dataclass(slots=True)
class Record:
    """The calls of one DataParallel object, or of one kind of functional call."""

    number: int
    wrapper: str
    module: str
    device_ids: tuple[int, ...]
    is_function: bool = False
    in_replica: bool = False
    num_objects: int = 0
    num_calls: int = 0
    num_failed: int = 0
    num_unlisted: int = 0
    splits: dict[Split, list[int]] = field(default_factory=dict)  # → [number of the first call, how many]
    tokens: TokenTally = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = TokenTally(len(self.device_ids))

    def add(self, split: Split | None, told: Sequence[TokenCount] = ()) -> None:
        """Count a call; None is one that raised."""
        if split is None:
            self.num_failed += 1
            return
        self.num_calls += 1
        self.tokens.add(self.num_calls, told)
        found = self.splits.get(split)
        if found is not None:
            found[1] += 1
        elif len(self.splits) < MAX_SPLITS:
            self.splits[split] = [self.num_calls, 1]
        else:
            self.num_unlisted += 1

    def use(self) -> Use:
        """Report the calls."""
        return Use(
            number=self.number,
            wrapper=self.wrapper,
            module=self.module,
            devices=Devices.of("cuda", self.device_ids),
            splits=tuple(split.group(first, count) for split, (first, count) in self.splits.items()),
            num_calls=self.num_calls,
            num_failed=self.num_failed,
            num_unlisted=self.num_unlisted,
            is_function=self.is_function,
            in_replica=self.in_replica,
            num_objects=self.num_objects,
            tokens=self.tokens.seen(tuple(Devices.of("cuda", self.device_ids))),
        )


class _Identities:
    """Remembers records by an object's identity while it lives: a module may define equality as it likes."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, object], tuple[weakref.ref[nn.Module], Record]] = {}

    def get(self, module: nn.Module | None, kind: object) -> Record | None:
        """Return the record of a module that is split in this way, if it has one."""
        known = self._found.get((id(module), kind))
        return known[1] if known is not None and known[0]() is module else None

    def put(self, module: nn.Module, kind: object, record: Record) -> None:
        """Remember the record of a module."""
        key = id(module), kind
        self._found[key] = weakref.ref(module, lambda _: self._found.pop(key, None)), record


class Records:
    """The records of a program, by the identity of what is called."""

    def __init__(self) -> None:
        self._records: dict[object, Record] = {}
        self._identities = _Identities()

    def uses(self) -> tuple[Use, ...]:
        """Report all calls so far, in the order of construction."""
        return tuple(record.use() for record in self._records.values())

    def of(self, wrapper: nn.Module | Splitter) -> Record:
        """Return the record of the calls of a wrapper, or of a function over the same GPUs."""
        if isinstance(wrapper, Splitter):
            return self._of_function(wrapper.function, wrapper.module, ids_of(wrapper))
        names = type(wrapper).__name__, type(getattr(wrapper, "module", None)).__name__
        if getattr(wrapper, "_is_replica", False):  # a new object at each call of the DataParallel around it
            return self._in_replica(wrapper, names)
        record = self._identities.get(wrapper, None)
        if record is None:
            module, kind = getattr(wrapper, "module", None), (type(wrapper), ids_of(wrapper), dim_of(wrapper))
            record = self._identities.get(module, kind)
            if record is None:
                record = self._found((names, kind[1:], _place()), names, kind[1])
            record.num_objects += 1
            self._identities.put(wrapper, None, record)
            if isinstance(module, nn.Module):
                self._identities.put(module, kind, record)
        return record

    def _found(self, key: object, names: tuple[str, str], ids: tuple[int, ...]) -> Record:
        """Return the record of a key, a new one where there is none."""
        if key not in self._records:
            self._records[key] = Record(len(self._records) + 1, *names, ids)
        return self._records[key]

    def _in_replica(self, replica: nn.Module, names: tuple[str, str]) -> Record:
        """Find the record of the object that this is a replica of: one of its classes, not called itself."""
        key = "replica", names
        same = (record for record in self._records.values() if (record.wrapper, record.module) == names)
        free = next((record for record in same if record.in_replica or not record.num_calls), None)
        found = self._records.get(key) or free or self._found(key, names, ids_of(replica))
        found.num_objects = found.num_objects or 1
        found.in_replica = True
        return found

    def _of_function(self, name: str, called: object, ids: tuple[int, ...]) -> Record:
        names, kind = (name, _code(called)[0]), (name, ids)
        is_module = isinstance(called, nn.Module) and not getattr(called, "_is_replica", False)
        record = self._identities.get(called, kind) if is_module else None  # type: ignore[arg-type]
        if record is None:
            record = self._found((kind, _code(called), _place() if is_module else ()), names, ids)
            record.is_function = True
            record.num_objects = record.num_objects + 1 if is_module else 1
            if is_module:
                self._identities.put(called, kind, record)  # type: ignore[arg-type]
        return record


def _code(called: object) -> tuple[str, ...]:
    """Return the name of what is called, and the place of its code."""
    while isinstance(called, partial):
        called = called.func
    called = getattr(called, "__func__", called)  # a bound method's own object does not matter
    if isinstance(called, FunctionType):
        code = called.__code__
        return called.__name__, code.co_filename, str(code.co_firstlineno)
    named = called if isinstance(called, BuiltinFunctionType) else type(called)
    return named.__name__, str(named.__module__), named.__qualname__


def _place() -> tuple[object, ...]:
    """Return where the program is: the code, and the place in it, of each function that is under way."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect's own way is a hundred times slower
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def dim_of(wrapper: nn.Module | Splitter) -> int:
    """Return the dimension that a wrapper splits."""
    dim: int = getattr(wrapper, "dim", 0)
    return dim


def ids_of(wrapper: nn.Module | Splitter) -> tuple[int, ...]:
    """Return the GPUs of a wrapper."""
    return tuple(getattr(wrapper, "device_ids", ()))
