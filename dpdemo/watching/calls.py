"""All calls of DataParallel that a program makes: objects and functions, of any thread.

Listeners sit on four steps of the seam: a wrapper is built, it is called, `parallel_apply` reaches its
replicas, and `data_parallel`, the functional form. Nothing is stored on the program's own objects, so pickles
and copies stay as they were. Equal calls are counted, not kept.

A record is that of an object, of a module however often it is wrapped, and of all modules of a class that one
place of the program wraps: a loop that makes a model at each step has one record. Functions are one by their
code.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, FrameType, FunctionType

import torch
from torch import nn

from dpdemo.results.batches import BatchGroup
from dpdemo.results.devices import Devices
from dpdemo.results.execution import Use
from dpdemo.watching.seam import Around, around
from dpdemo.watching.tokens import TokenTally, Told, tell_tokens
from dpdemo.watching.trace import Seen, Trace, see_input, see_output

MAX_SPLITS = 200
"""Different splits kept of one DataParallel object; further ones are only counted."""

Device = int | str | torch.device
Keywords = Sequence[Mapping[str, object]] | None
"""The keyword arguments of each replica, as `parallel_apply` gets them."""

_NOTHING = Seen((), None, (), None)


@dataclass(frozen=True, slots=True)
class _Split:
    """The split of one call; equal ones compare equal."""

    device_ids: tuple[int, ...]
    dim: int
    trace: Trace

    def group(self, first: int, count: int) -> BatchGroup:
        """Report `count` equal calls from number `first` on."""
        ids = self.device_ids if self.trace.replicas else ()
        return self.trace.group(first, count, self.dim, Devices.of("cuda", ids))


@dataclass(slots=True)
class _Record:
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
    splits: dict[_Split, list[int]] = field(default_factory=dict)  # → [number of the first call, how many]
    tokens: TokenTally = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = TokenTally(len(self.device_ids))

    def add(self, split: _Split | None, told: Sequence[Told] = ()) -> None:
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
        self._found: dict[tuple[int, object], tuple[weakref.ref[nn.Module], _Record]] = {}

    def get(self, module: nn.Module | None, kind: object) -> _Record | None:
        """Return the record of a module that is split in this way, if it has one."""
        known = self._found.get((id(module), kind))
        return known[1] if known is not None and known[0]() is module else None

    def put(self, module: nn.Module, kind: object, record: _Record) -> None:
        """Remember the record of a module."""
        key = id(module), kind
        self._found[key] = weakref.ref(module, lambda _: self._found.pop(key, None)), record


class Watch:
    """Collects the calls; `uses` lists them.

    Args:
        is_aside: returns whether the calling thread is not the program's own, and is left out.

    """

    def __init__(self, is_aside: Callable[[], bool] = lambda: False) -> None:
        self._is_aside = is_aside
        self._lock = threading.Lock()
        self._records: dict[object, _Record] = {}
        self._identities = _Identities()
        self._local = threading.local()

    def uses(self) -> tuple[Use, ...]:
        """List the calls so far, in the order of construction."""
        with self._lock:
            return tuple(record.use() for record in self._records.values())

    def build(self, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> None:
        """Listen to a wrapper's construction."""
        proceed(wrapper, *args, **kwargs)
        if not self._is_aside():
            with self._lock:
                self._record_of(wrapper)

    def call(self, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> object:
        """Listen to a wrapper's call."""
        run = partial(proceed, wrapper, *args, **kwargs)
        find = partial(self._record_of, wrapper)
        return self._noted(run, see_input(args, kwargs), find, _ids(wrapper), getattr(wrapper, "dim", 0))

    def data_parallel(  # noqa: PLR0913, PLR0917 - its own parameters
        self,
        proceed: Around,
        module: nn.Module,
        inputs: object,
        device_ids: Sequence[Device] | None = None,
        output_device: Device | None = None,
        dim: int = 0,
        module_kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Listen to a call of `torch.nn.parallel.data_parallel`."""
        run = partial(proceed, module, inputs, device_ids, output_device, dim, module_kwargs)
        before = see_input(inputs if isinstance(inputs, tuple) else (inputs,), module_kwargs or {})
        ids = _chosen(device_ids)
        return self._noted(run, before, partial(self._record_of_kind, "data_parallel", module, ids), ids, dim)

    def parallel_apply(
        self,
        proceed: Around,
        modules: Sequence[nn.Module],
        inputs: Sequence[object],
        kwargs_tup: Keywords = None,
        devices: Sequence[Device] | None = None,
    ) -> object:
        """Listen to the call of all replicas, by a wrapper or by the program itself."""
        before = _see_inputs(inputs, kwargs_tup, devices)
        told = _tell_all(modules, inputs, kwargs_tup)
        outputs = proceed(modules, inputs, kwargs_tup, devices)
        replicas = tuple(map(see_output, before, outputs))
        calls: list[tuple[tuple[Seen, ...], list[Told]] | None] = getattr(self._local, "calls", [])
        if calls and not self._is_aside():
            calls[-1] = replicas, told
        elif len(modules):
            ids = tuple((seen.input_device and seen.input_device.index) or 0 for seen in replicas)
            replica = getattr(modules[0], "replica", modules[0])  # a watched replica is wrapped
            find = partial(self._record_of_kind, "parallel_apply", replica, ids)
            self._add(find, _Split(ids, 0, Trace(replicas, _NOTHING)), told)
        return outputs

    def _noted(
        self, run: Around, before: Seen, find: Callable[[], _Record], ids: tuple[int, ...], dim: int
    ) -> object:
        """Run a call and count it, with what `parallel_apply` shows of its replicas meanwhile."""
        calls = self._local.__dict__.setdefault("calls", [])
        calls.append(None)
        try:
            output = run()
        except BaseException:
            self._add(find, None)
            raise
        finally:
            seen = calls.pop()
        outside = see_output(before, output)
        if seen is None:  # with one GPU there is no `parallel_apply`, and the chunk is the batch
            device = [torch.device("cuda", index) for index in ids]
            seen = ((outside._replace(input_device=device[0]),) if len(device) == 1 else ()), []
        self._add(find, _Split(ids, dim, Trace(seen[0], outside)), seen[1])
        return output

    def _add(self, find: Callable[[], _Record], split: _Split | None, told: Sequence[Told] = ()) -> None:
        if not self._is_aside():
            with self._lock:
                find().add(split, told)

    def _record_of(self, wrapper: nn.Module) -> _Record:
        names = _classes(wrapper)
        if getattr(wrapper, "_is_replica", False):  # a new object at each call of the DataParallel around it
            return self._in_replica(wrapper, names)
        record = self._identities.get(wrapper, None)
        if record is None:
            module, kind = getattr(wrapper, "module", None), (type(wrapper), _ids(wrapper), _dim(wrapper))
            record = self._identities.get(module, kind)
            if record is None:
                record = self._found((names, kind[1:], _place()), names, kind[1])
            record.num_objects += 1
            self._identities.put(wrapper, None, record)
            if isinstance(module, nn.Module):
                self._identities.put(module, kind, record)
        return record

    def _found(self, key: object, names: tuple[str, str], ids: tuple[int, ...]) -> _Record:
        """Return the record of a key, a new one where there is none."""
        if key not in self._records:
            self._records[key] = _Record(len(self._records) + 1, *names, ids)
        return self._records[key]

    def _in_replica(self, replica: nn.Module, names: tuple[str, str]) -> _Record:
        """Find the record of the object that this is a replica of: one of its classes, not called itself."""
        key = "replica", names
        if key not in self._records:
            same = [
                candidate
                for candidate in self._records.values()
                if (candidate.wrapper, candidate.module) == names
            ]
            found = next(
                (candidate for candidate in same if candidate.in_replica or not candidate.num_calls), None
            )
            if found is None:
                found = self._found(key, names, _ids(replica))
                found.num_objects = 1
            found.in_replica = True
            return found
        return self._records[key]

    def _record_of_kind(self, name: str, called: object, ids: tuple[int, ...]) -> _Record:
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


@contextmanager
def watching(is_aside: Callable[[], bool] = lambda: False) -> Iterator[Watch]:
    """Watch every DataParallel call of the process for the length of a `with` block.

    Args:
        is_aside: returns whether to leave out the calls of the calling thread.

    """
    watch = Watch(is_aside)
    with around(
        build=watch.build,
        call=watch.call,
        parallel_apply=watch.parallel_apply,
        data_parallel=watch.data_parallel,
    ):
        yield watch


def _chosen(device_ids: Sequence[Device] | None) -> tuple[int, ...]:
    """Return the GPUs that `data_parallel` takes; none where what it was given names none."""
    if device_ids is None:
        return tuple(range(torch.cuda.device_count()))
    try:
        return tuple(_device(device_id).index or 0 for device_id in device_ids)
    except (TypeError, ValueError, RuntimeError):  # PyTorch says so
        return ()


def _see_inputs(
    inputs: Sequence[object], kwargs_tup: Keywords, devices: Sequence[Device] | None
) -> list[Seen]:
    """Note what each replica gets, on the GPU of its chunk, or else where it will run."""
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


def _tell_all(modules: Sequence[nn.Module], inputs: Sequence[object], kwargs_tup: Keywords) -> list[Told]:
    """Count the tokens of each replica; none where one of them does not tell."""
    found = []
    for index, (module, given) in enumerate(zip(modules, inputs, strict=False)):  # PyTorch refuses others
        arguments = given if isinstance(given, (list, tuple)) else (given,)
        named = dict(enumerate(kwargs_tup or ())).get(index) or {}
        told = tell_tokens(getattr(module, "replica", module), arguments, named)
        if told is None:
            return []
        found.append(told)
    return found


def _device(which: Device) -> torch.device:
    return torch.device("cuda", which) if isinstance(which, int) else torch.device(which)


def _classes(wrapper: nn.Module) -> tuple[str, str]:
    return type(wrapper).__name__, type(getattr(wrapper, "module", None)).__name__


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


def _dim(wrapper: nn.Module) -> object:
    return getattr(wrapper, "dim", 0)


def _ids(wrapper: nn.Module) -> tuple[int, ...]:
    return tuple(getattr(wrapper, "device_ids", ()))
