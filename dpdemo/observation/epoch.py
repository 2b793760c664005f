"""Watching what DataParallel really did with a batch, by hooks; nothing here knows the split rule.

Replicas share their module's hooks (`nn.Module._replicate_for_data_parallel` copies `__dict__`), so one
forward hook sees the input and the output of each replica, in its own thread. The list that `replicate`
returned says which replica it was.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.observation.steps import Around, around
from dpdemo.observation.tree import named_tensors
from dpdemo.reports.devices import Devices
from dpdemo.reports.split import BatchGroup, Outside, ReplicaRun, Shapes


class Seen(NamedTuple):
    """Shapes and devices of one call, as they were seen; equal calls compare equal."""

    input: torch.Size | Shapes
    input_device: torch.device | None
    output: torch.Size | Shapes
    output_device: torch.device | None


def see(arguments: Sequence[object], result: object) -> Seen:
    """Note the shapes and devices of a call's arguments and of its result."""
    given = arguments[0] if len(arguments) == 1 else arguments
    if isinstance(given, torch.Tensor) and isinstance(result, torch.Tensor):
        # as Seen(...) does it, without the step through Python that a NamedTuple's own __new__ is
        return tuple.__new__(Seen, (given.shape, given.device, result.shape, result.device))
    return Seen(_shapes(given), _device(given), _shapes(result), _device(result))


def see_input(args: Sequence[object], kwargs: Mapping[str, object]) -> Seen:
    """Note the arguments of a call before it is made, since it may change them; keywords by name."""
    given: object = args[0] if len(args) == 1 else args
    if kwargs:
        given = dict[object, object]([*enumerate(args), *kwargs.items()])
    return Seen(_shapes(given), _device(given), (), None)


def see_output(before: Seen, result: object) -> Seen:
    """Add what the call returned."""
    return before._replace(output=_shapes(result), output_device=_device(result))


def _shapes(value: object) -> Shapes:
    return tuple((path, tuple(tensor.shape)) for path, tensor in named_tensors(value))


def _device(value: object) -> torch.device | None:
    found = named_tensors(value)
    return found[0][1].device if found else None


def as_shapes(seen: torch.Size | Shapes) -> Shapes:
    """Turn what `see` noted into a report's shapes."""
    return (("", tuple(seen)),) if isinstance(seen, torch.Size) else seen


class ReplicaObserver:
    """Notes what reached each replica of one DataParallel module, batch by batch.

    `look` turns a call's arguments and its result into what is kept of it: shapes, if left out.
    """

    def __init__(
        self, wrapper: nn.Module, split: nn.Module, look: Callable[[Any, Any], object] = see
    ) -> None:
        self._look = look
        self._order: dict[int, int] = {}
        self._seen: list[tuple[int, object]] = []
        self._close = ExitStack()
        self._close.callback(split.register_forward_hook(self._note, with_kwargs=True).remove)
        self._wrapped = wrapper.module if isinstance(wrapper, nn.DataParallel) else None
        if self._wrapped is not None:
            self._close.enter_context(around(replicate=self._replicate))

    def _replicate(self, proceed: Around, network: nn.Module, *args: object) -> object:
        replicas = proceed(network, *args)
        if network is self._wrapped:
            self._order = {id(replica): index for index, replica in enumerate(replicas)}
        return replicas

    def _note(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        seen = self._look((*args, *kwargs.values()) if kwargs else args, output)
        self._seen.append((self._order.get(id(module), 0), seen))  # one step, whichever threads do it

    def take(self) -> tuple[Any, ...]:
        """Hand out what was seen since the last call, in replica order."""
        seen, self._seen = self._seen, []
        if len(seen) == 1:
            return (seen[0][1],)
        seen.sort(key=itemgetter(0))
        return tuple([found for _, found in seen])

    def close(self) -> None:
        """Stop looking."""
        self._close.close()


class EpochRecorder:
    """Collects the batches of an epoch, neighbouring equal ones as one group."""

    def __init__(self, devices: Devices, dim: int) -> None:
        self._devices = devices
        self._dim = dim
        self._groups: list[BatchGroup] = []
        self._current: tuple[tuple[Seen, ...], Seen] | None = None
        self._count = 0
        self._next = 1

    def add(self, replicas: tuple[Seen, ...], outside: Seen) -> None:
        """Record one batch: what each replica saw, and what was seen outside."""
        batch = (replicas, outside)
        if batch != self._current:
            self._flush()
            self._current = batch
        self._count += 1

    def groups(self) -> tuple[BatchGroup, ...]:
        """Give what was recorded so far."""
        self._flush()
        return tuple(self._groups)

    @property
    def num_batches(self) -> int:
        """How many batches were recorded."""
        return self._next - 1 + self._count

    def _flush(self) -> None:
        if self._current is None:
            return
        replicas, outside = self._current
        in_model = as_runs(replicas, self._dim)
        self._groups.append(
            BatchGroup(
                first=self._next,
                count=self._count,
                batch_size=num_rows(as_shapes(outside.input), self._dim),
                in_model=in_model,
                idle=self._devices.without(run.devices for run in in_model),
                outside=Outside(
                    str(outside.input_device),
                    str(outside.output_device),
                    as_shapes(outside.input),
                    as_shapes(outside.output),
                ),
            )
        )
        self._next += self._count
        self._count = 0
        self._current = None


def as_runs(replicas: tuple[Seen, ...], dim: int) -> tuple[ReplicaRun, ...]:
    """Turn what replicas saw, in their order, into a report's runs of equal neighbours."""
    runs: list[ReplicaRun] = []
    start = 0
    for stop in range(1, len(replicas) + 1):
        if stop < len(replicas) and _alike(replicas[stop], replicas[start]):
            continue
        inputs = as_shapes(replicas[start].input)
        runs.append(
            ReplicaRun(
                first=start,
                devices=Devices.from_names([str(seen.input_device) for seen in replicas[start:stop]]),
                rows=num_rows(inputs, dim),
                input=inputs,
                output=as_shapes(replicas[start].output),
            )
        )
        start = stop
    return tuple(runs)


def _alike(one: Seen, other: Seen) -> bool:
    return bool(one.input == other.input and one.output == other.output)


def num_rows(shapes: Shapes, dim: int) -> int:
    """Count the rows along `dim` of a structure's first tensor that has it; 0 where none has."""
    return next((shape[dim] for _, shape in shapes if len(shape) > dim), 0)
