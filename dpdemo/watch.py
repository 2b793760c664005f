"""Watching every call of DataParallel that a program makes, whatever the program is.

Three places are replaced while the watch is on, all of them steps that PyTorch documents, and put back
after: `DataParallel.__init__` (what was built), `DataParallel.__call__` (what came in and went out) and
`parallel_apply` (what reached each replica); and `data_parallel`, the functional form. Nothing is stored on
the program's own objects, so that pickles and copies stay as they were; nothing here knows the split rule.
Equal calls are counted, not kept.
"""

import functools
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dpdemo.devices import Devices
from dpdemo.execreport import Use
from dpdemo.observer import Seen, as_runs, as_shapes, num_rows, see
from dpdemo.report import BatchGroup, Outside
from dpdemo.virtual.patches import Patch, applied

MAX_SPLITS = 200
"""Different splits kept of one DataParallel object; further ones are only counted."""

_DATA_PARALLEL: Any = sys.modules["torch.nn.parallel.data_parallel"]
_PARALLEL_APPLY: Any = sys.modules["torch.nn.parallel.parallel_apply"]

_NOTHING = Seen((), None, (), None)


@dataclass(slots=True)
class _Call:
    """A call under way: what its replicas saw, once `parallel_apply` is through."""

    replicas: tuple[Seen, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Split:
    """How one call was split; equal ones compare equal."""

    device_ids: tuple[int, ...]
    dim: int
    replicas: tuple[Seen, ...]
    outside: Seen


@dataclass(slots=True)
class _Record:
    """What is known of one DataParallel object, or of one kind of functional call."""

    number: int
    wrapper: str
    module: str
    device_ids: tuple[int, ...]
    is_function: bool = False
    in_replica: bool = False
    num_calls: int = 0
    num_failed: int = 0
    num_unlisted: int = 0
    splits: dict[_Split, list[int]] = field(default_factory=dict)  # → [number of the first call, how many]

    def add(self, split: _Split) -> None:
        self.num_calls += 1
        found = self.splits.get(split)
        if found is not None:
            found[1] += 1
        elif len(self.splits) < MAX_SPLITS:
            self.splits[split] = [self.num_calls, 1]
        else:
            self.num_unlisted += 1


class Watch:
    """Collects the calls; `uses` tells of them. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[_Record] = []
        self._by_object: weakref.WeakKeyDictionary[nn.Module, _Record] = weakref.WeakKeyDictionary()
        self._by_kind: dict[tuple[object, ...], _Record] = {}
        self._local = threading.local()
        self._is_paused = False

    def uses(self) -> tuple[Use, ...]:
        """Tell what was seen so far, in the order of construction."""
        with self._lock:
            return tuple(_use(record) for record in self._records)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Look away for the length of a `with` block, in which calls are made that are not the program's."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def build(self, wrapper: nn.Module) -> None:
        """Note an object that was built."""
        if self._is_paused:
            return
        with self._lock:
            self._record_of(wrapper)

    @contextmanager
    def call(self) -> Iterator[_Call]:
        """Let `parallel_apply` find the call that it belongs to, for the length of a `with` block."""
        outer = getattr(self._local, "call", None)
        self._local.call = call = _Call()
        try:
            yield call
        finally:
            self._local.call = outer

    def note_object(self, wrapper: nn.Module, call: _Call, outside: Seen) -> None:
        """Count a call of a DataParallel object."""
        if self._is_paused:
            return
        split = _Split(
            _ids(wrapper), getattr(wrapper, "dim", 0), _replicas(call, _ids(wrapper), outside), outside
        )
        with self._lock:
            self._record_of(wrapper).add(split)

    def note_function(self, name: str, module: nn.Module, split: _Split) -> None:
        """Count a call of a function that does what DataParallel does."""
        if self._is_paused:
            return
        with self._lock:
            self._record_of_kind(name, module, split).add(split)

    def fail(self, wrapper: nn.Module) -> None:
        """Count a call that raised."""
        if self._is_paused:
            return
        with self._lock:
            self._record_of(wrapper).num_failed += 1

    def replicas_seen(self, replicas: tuple[Seen, ...]) -> bool:
        """Hand over what replicas saw; tells whether a call was waiting for it."""
        if self._is_paused:
            return True
        call: _Call | None = getattr(self._local, "call", None)
        if call is None:
            return False
        call.replicas = replicas
        return True

    def _record_of(self, wrapper: nn.Module) -> _Record:
        if getattr(wrapper, "_is_replica", False):  # a new object at each call of the DataParallel around it
            key = ("replica", type(wrapper), type(wrapper.module))
            return self._by_kind.get(key) or self._keep(key, self._in_replica(wrapper))
        record = self._by_object.get(wrapper)
        if record is None:
            record = self._by_object[wrapper] = self._new(wrapper)
        return record

    def _in_replica(self, replica: nn.Module) -> _Record:
        """Find the record of the object that this is a replica of: one of its classes, not called itself."""
        for record in self._records:
            if (record.wrapper, record.module) == _classes(replica) and not record.num_calls:
                break
        else:
            record = self._new(replica)
        record.in_replica = True
        return record

    def _new(self, wrapper: nn.Module) -> _Record:
        record = _Record(len(self._records) + 1, *_classes(wrapper), _ids(wrapper))
        self._records.append(record)
        return record

    def _record_of_kind(self, name: str, module: nn.Module, split: _Split) -> _Record:
        key = (name, type(module), split.device_ids)
        found = self._by_kind.get(key)
        if found is not None:
            return found
        number = len(self._records) + 1
        record = _Record(number, name, type(module).__name__, split.device_ids, is_function=True)
        self._records.append(record)
        return self._keep(key, record)

    def _keep(self, key: tuple[object, ...], record: _Record) -> _Record:
        self._by_kind[key] = record
        return record


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch every DataParallel call of the process for the length of a `with` block."""
    watch = Watch()
    parallel_apply = _watched_parallel_apply(watch, _PARALLEL_APPLY.parallel_apply)
    data_parallel = _watched_data_parallel(watch, _DATA_PARALLEL.data_parallel)
    why = "what reached each replica"
    patches = [
        Patch(nn.DataParallel, "__init__", _watched_init(watch), "what was built"),
        Patch(nn.DataParallel, "__call__", _watched_call(watch), "what came in and went out"),
        Patch(_PARALLEL_APPLY, "parallel_apply", parallel_apply, why),
        Patch(_DATA_PARALLEL, "parallel_apply", parallel_apply, why),
        Patch(torch.nn.parallel, "parallel_apply", parallel_apply, why),
        Patch(_DATA_PARALLEL, "data_parallel", data_parallel, "the functional form"),
        Patch(torch.nn.parallel, "data_parallel", data_parallel, "the functional form"),
    ]
    with applied(patches):
        yield watch


def _watched_init(watch: Watch) -> Any:
    genuine: Any = nn.DataParallel.__init__

    @functools.wraps(genuine)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it takes that place
        genuine(self, *args, **kwargs)
        watch.build(self)

    return __init__


def _watched_call(watch: Watch) -> Any:
    genuine: Any = nn.DataParallel.__call__

    @functools.wraps(genuine)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it takes that place
        with watch.call() as call:
            try:
                output = genuine(self, *args, **kwargs)
            except BaseException:
                watch.fail(self)
                raise
        watch.note_object(self, call, see((*args, *kwargs.values()), output))
        return output

    return __call__


def _watched_parallel_apply(watch: Watch, genuine: Any) -> Any:
    @functools.wraps(genuine)
    def parallel_apply(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> Any:
        outputs = genuine(modules, inputs, kwargs_tup, devices)
        replicas = _see_replicas(inputs, kwargs_tup, devices, outputs)
        if not watch.replicas_seen(replicas) and len(modules):
            ids = tuple(int(str(seen.input_device).rpartition(":")[2]) for seen in replicas)
            watch.note_function("parallel_apply", modules[0], _Split(ids, 0, replicas, _NOTHING))
        return outputs

    return parallel_apply


def _watched_data_parallel(watch: Watch, genuine: Any) -> Any:
    @functools.wraps(genuine)
    def data_parallel(  # noqa: PLR0913, PLR0917 - its own parameters
        module: Any,
        inputs: Any,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        module_kwargs: Any = None,
    ) -> Any:
        with watch.call() as call:
            output = genuine(module, inputs, device_ids, output_device, dim, module_kwargs)
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        outside = see((*given, *(module_kwargs or {}).values()), output)
        chosen = range(torch.cuda.device_count()) if device_ids is None else device_ids
        ids = tuple(device if isinstance(device, int) else torch.device(device).index for device in chosen)
        watch.note_function("data_parallel", module, _Split(ids, dim, _replicas(call, ids, outside), outside))
        return output

    return data_parallel


def _see_replicas(inputs: Any, kwargs_tup: Any, devices: Any, outputs: Any) -> tuple[Seen, ...]:
    """Note what each replica got and gave, on the GPU where its chunk lies, or else where it ran."""
    found = []
    for index, (given, output) in enumerate(zip(inputs, outputs, strict=True)):
        arguments = given if isinstance(given, (list, tuple)) else (given,)
        if kwargs_tup and kwargs_tup[index]:
            arguments = (*arguments, *kwargs_tup[index].values())
        seen = see(arguments, output)
        if seen.input_device is None or seen.input_device.type != "cuda":
            seen = seen._replace(input_device=_device(devices[index] if devices else index))
        found.append(seen)
    return tuple(found)


def _device(which: Any) -> torch.device:
    return torch.device("cuda", which) if isinstance(which, int) else torch.device(which)


def _classes(wrapper: nn.Module) -> tuple[str, str]:
    return type(wrapper).__name__, type(getattr(wrapper, "module", None)).__name__


def _ids(wrapper: nn.Module) -> tuple[int, ...]:
    return tuple(getattr(wrapper, "device_ids", ()))


def _replicas(call: _Call, device_ids: Sequence[int], outside: Seen) -> tuple[Seen, ...]:
    """Tell what the replicas saw; with one GPU there is no `parallel_apply`, and the chunk is the batch."""
    if call.replicas is not None:
        return call.replicas
    if len(device_ids) != 1:
        return ()
    return (outside._replace(input_device=torch.device("cuda", device_ids[0])),)


def _use(record: _Record) -> Use:
    return Use(
        number=record.number,
        wrapper=record.wrapper,
        module=record.module,
        devices=Devices.of("cuda", record.device_ids),
        splits=tuple(_group(split, *counted) for split, counted in record.splits.items()),
        num_calls=record.num_calls,
        num_failed=record.num_failed,
        num_unlisted=record.num_unlisted,
        is_function=record.is_function,
        in_replica=record.in_replica,
    )


def _group(split: _Split, first: int, count: int) -> BatchGroup:
    runs = as_runs(split.replicas, split.dim)
    whole = as_shapes(split.outside.input)
    return BatchGroup(
        first=first,
        count=count,
        batch_size=num_rows(whole, split.dim) if whole else sum(run.rows * len(run) for run in runs),
        in_model=runs,
        idle=Devices.of("cuda", split.device_ids[len(split.replicas) :] if split.replicas else ()),
        outside=Outside(
            _name(split.outside.input_device),
            _name(split.outside.output_device),
            whole,
            as_shapes(split.outside.output),
        ),
    )


def _name(device: torch.device | None) -> str:
    return "" if device is None else str(device)
