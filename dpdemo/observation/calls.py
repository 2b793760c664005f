"""Watching every call of DataParallel that a program makes, whatever the program is.

It stands around four steps of the seam (`observation/steps.py`): the building of a wrapper, its call (what
came in and went out), `parallel_apply` (what reached each replica), and `data_parallel`, the functional form.
Nothing is stored on the program's own objects, so that pickles and copies stay as they were; nothing here
knows the split rule. Equal calls are counted, not kept.
"""

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, FunctionType

import torch
from torch import nn

from dpdemo.observation.epoch import Seen, as_runs, as_shapes, num_rows, see_input, see_output
from dpdemo.observation.steps import Around, around
from dpdemo.reports.devices import Devices
from dpdemo.reports.execution import Use
from dpdemo.reports.split import BatchGroup, Outside

MAX_SPLITS = 200
"""Different splits kept of one DataParallel object; further ones are only counted."""

Device = int | str | torch.device
Keywords = Sequence[Mapping[str, object]] | None
"""The keyword arguments of each replica, as `parallel_apply` gets them."""

_NOTHING = Seen((), None, (), None)


@dataclass(slots=True)
class _Call:
    """A call under way: what its replicas saw, once `parallel_apply` has finished."""

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
    num_objects: int = 1
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
    """Collects the calls, of any thread; `uses` lists them.

    Args:
        is_aside: says of the calling thread whether what it does is not the program's own, and is left out.

    """

    def __init__(self, is_aside: Callable[[], bool] = lambda: False) -> None:
        self._is_aside = is_aside
        self._lock = threading.Lock()
        self._records: list[_Record] = []
        self._by_object: weakref.WeakKeyDictionary[nn.Module, _Record] = weakref.WeakKeyDictionary()
        self._by_module: dict[int, tuple[weakref.ref[nn.Module], dict[tuple[object, ...], _Record]]] = {}
        self._by_kind: dict[tuple[object, ...], _Record] = {}
        self._local = threading.local()

    def uses(self) -> tuple[Use, ...]:
        """List what was seen so far, in the order of construction."""
        with self._lock:
            return tuple(_use(record) for record in self._records)

    def build(self, wrapper: nn.Module) -> None:
        """Note an object that was built."""
        if self._is_aside():
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
        if self._is_aside():
            return
        split = _Split(
            _ids(wrapper), getattr(wrapper, "dim", 0), _replicas(call, _ids(wrapper), outside), outside
        )
        with self._lock:
            self._record_of(wrapper).add(split)

    def note_function(self, name: str, module: nn.Module, split: _Split) -> None:
        """Count a call of a function that does what DataParallel does."""
        if self._is_aside():
            return
        with self._lock:
            self._record_of_kind(name, module, split.device_ids).add(split)

    def fail_function(self, name: str, module: object, device_ids: tuple[int, ...]) -> None:
        """Count a call of a function that raised."""
        if self._is_aside():
            return
        with self._lock:
            self._record_of_kind(name, module, device_ids).num_failed += 1

    def fail(self, wrapper: nn.Module) -> None:
        """Count a call that raised."""
        if self._is_aside():
            return
        with self._lock:
            self._record_of(wrapper).num_failed += 1

    def replicas_seen(self, replicas: tuple[Seen, ...]) -> bool:
        """Hand over what replicas saw; return whether a call was waiting for it."""
        if self._is_aside():
            return True
        call: _Call | None = getattr(self._local, "call", None)
        if call is None:
            return False
        call.replicas = replicas
        return True

    def _record_of(self, wrapper: nn.Module) -> _Record:
        if getattr(wrapper, "_is_replica", False):  # a new object at each call of the DataParallel around it
            key = ("replica", type(wrapper), type(wrapper.module))
            if key not in self._by_kind:
                self._by_kind[key] = self._in_replica(wrapper)
            return self._by_kind[key]
        record = self._by_object.get(wrapper)
        if record is None:
            record = self._by_object[wrapper] = self._wrapped_anew(wrapper) or self._new(wrapper)
        return record

    def _wrapped_anew(self, wrapper: nn.Module) -> _Record | None:
        """Find the record of an earlier object around the module: a trainer makes one per evaluation."""
        module = getattr(wrapper, "module", None)
        record = self._records_of(module).get(_kind(wrapper))
        if record is not None:
            record.num_objects += 1
        return record

    def _records_of(self, module: nn.Module | None) -> dict[tuple[object, ...], _Record]:
        """Find the records of a module, by its identity: a module may define equality as it likes."""
        if module is None:
            return {}
        known = self._by_module.get(id(module))
        if known is None or known[0]() is not module:  # another one lay there before
            known = self._by_module[id(module)] = (weakref.ref(module), {})
        return known[1]

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
        self._records_of(getattr(wrapper, "module", None))[_kind(wrapper)] = record
        return record

    def _record_of_kind(self, name: str, module: object, device_ids: tuple[int, ...]) -> _Record:
        if isinstance(module, nn.Module) and not getattr(module, "_is_replica", False):
            known = self._records_of(module)
        else:
            known = self._by_kind  # what is called is new at each call
        called, code = _code(module)
        key = (name, code, device_ids)
        if key not in known:
            number = len(self._records) + 1
            known[key] = _Record(number, name, called, device_ids, is_function=True)
            self._records.append(known[key])
        return known[key]


@contextmanager
def watching(is_aside: Callable[[], bool] = lambda: False) -> Iterator[Watch]:
    """Watch every DataParallel call of the process for the length of a `with` block.

    Args:
        is_aside: says of the calling thread whether what it does is left out.

    """
    watch = Watch(is_aside)
    with around(
        build=partial(_build, watch),
        call=partial(_call, watch),
        parallel_apply=partial(_parallel_apply, watch),
        data_parallel=partial(_data_parallel, watch),
    ):
        yield watch


def _build(watch: Watch, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> None:
    proceed(wrapper, *args, **kwargs)
    watch.build(wrapper)


def _call(watch: Watch, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> object:
    before = see_input(args, kwargs)
    with watch.call() as call:
        try:
            output = proceed(wrapper, *args, **kwargs)
        except BaseException:
            watch.fail(wrapper)
            raise
    watch.note_object(wrapper, call, see_output(before, output))
    return output


def _parallel_apply(  # noqa: PLR0913, PLR0917 - its own parameters
    watch: Watch,
    proceed: Around,
    modules: Sequence[nn.Module],
    inputs: Sequence[object],
    kwargs_tup: Keywords = None,
    devices: Sequence[Device] | None = None,
) -> object:
    before = _see_inputs(inputs, kwargs_tup, devices)
    outputs = proceed(modules, inputs, kwargs_tup, devices)
    replicas = tuple(map(see_output, before, outputs))
    if not watch.replicas_seen(replicas) and len(modules):
        ids = tuple((seen.input_device and seen.input_device.index) or 0 for seen in replicas)
        replica = getattr(modules[0], "replica", modules[0])  # what watches a replica stands for it
        watch.note_function("parallel_apply", replica, _Split(ids, 0, replicas, _NOTHING))
    return outputs


def _data_parallel(  # noqa: PLR0913, PLR0917 - its own parameters
    watch: Watch,
    proceed: Around,
    module: nn.Module,
    inputs: object,
    device_ids: Sequence[Device] | None = None,
    output_device: Device | None = None,
    dim: int = 0,
    module_kwargs: Mapping[str, object] | None = None,
) -> object:
    before = see_input(inputs if isinstance(inputs, tuple) else (inputs,), module_kwargs or {})
    ids = _chosen(device_ids)
    with watch.call() as call:
        try:
            output = proceed(module, inputs, device_ids, output_device, dim, module_kwargs)
        except BaseException:
            watch.fail_function("data_parallel", module, ids)
            raise
    outside = see_output(before, output)
    watch.note_function("data_parallel", module, _Split(ids, dim, _replicas(call, ids, outside), outside))
    return output


def _chosen(device_ids: Sequence[Device] | None) -> tuple[int, ...]:
    """Return the GPUs that `data_parallel` takes; none where what it was given names none."""
    if device_ids is None:
        return tuple(range(torch.cuda.device_count()))
    try:
        return tuple(_device(one).index or 0 for one in device_ids)
    except (TypeError, ValueError, RuntimeError):  # PyTorch says so
        return ()


def _see_inputs(
    inputs: Sequence[object], kwargs_tup: Keywords, devices: Sequence[Device] | None
) -> list[Seen]:
    """Note what each replica gets, on the GPU where its chunk lies, or else where it will run."""
    found = []
    for index, given in enumerate(inputs):
        arguments = given if isinstance(given, (list, tuple)) else (given,)
        named = dict(enumerate(kwargs_tup or ())).get(index)  # parallel_apply refuses other numbers of them
        seen = see_input(arguments, named or {})
        if seen.input_device is None or seen.input_device.type != "cuda":
            device = dict(enumerate(devices or ())).get(index, index)
            seen = seen._replace(input_device=_device(device))
        found.append(seen)
    return found


def _device(which: Device) -> torch.device:
    return torch.device("cuda", which) if isinstance(which, int) else torch.device(which)


def _classes(wrapper: nn.Module) -> tuple[str, str]:
    return type(wrapper).__name__, type(getattr(wrapper, "module", None)).__name__


def _code(called: object) -> tuple[str, object]:
    """Return the name of what is called, and what all objects that run the same code have in common."""
    while isinstance(called, partial):
        called = called.func
    called = getattr(called, "__func__", called)  # a bound method's own object does not matter
    if isinstance(called, (FunctionType, BuiltinFunctionType)):
        return called.__name__, getattr(called, "__code__", called)
    return type(called).__name__, type(called)


def _kind(wrapper: nn.Module) -> tuple[object, ...]:
    """Return what two objects around one module must have in common to split it alike."""
    return type(wrapper), _ids(wrapper), getattr(wrapper, "dim", 0)


def _ids(wrapper: nn.Module) -> tuple[int, ...]:
    return tuple(getattr(wrapper, "device_ids", ()))


def _replicas(call: _Call, device_ids: Sequence[int], outside: Seen) -> tuple[Seen, ...]:
    """Return what the replicas saw; with one GPU there is no `parallel_apply`, and the chunk is the batch."""
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
        num_objects=record.num_objects,
    )


def _group(split: _Split, first: int, count: int) -> BatchGroup:
    runs = as_runs(split.replicas, split.dim)
    whole = as_shapes(split.outside.input)
    return BatchGroup(
        first=first,
        count=count,
        batch_size=num_rows(whole, split.dim) if whole else sum(run.rows * len(run) for run in runs),
        in_model=runs,
        idle=Devices.of("cuda", split.device_ids if runs else ()).without(run.devices for run in runs),
        outside=Outside(
            _name(split.outside.input_device),
            _name(split.outside.output_device),
            whole,
            as_shapes(split.outside.output),
        ),
    )


def _name(device: torch.device | None) -> str:
    return "" if device is None else str(device)
