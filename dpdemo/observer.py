"""Watching what DataParallel really did with a batch, by hooks; nothing here knows the split rule.

Replicas share their module's hooks (`nn.Module._replicate_for_data_parallel` copies `__dict__`), so one
forward hook sees the input and the output of each replica, in its own thread. Which replica it was is told by
the list that `replicate` returned.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.devices import Devices
from dpdemo.report import BatchGroup, Outside, ReplicaRun, Shapes


class Seen(NamedTuple):
    """Shapes and devices of one call, as they were seen; equal calls compare equal."""

    input: Any
    input_device: Any
    output: Any
    output_device: Any


def see(arguments: Any, result: Any) -> Seen:
    """Note the shapes and devices of a call's arguments and of its result."""
    given = arguments[0] if len(arguments) == 1 else arguments
    if isinstance(given, torch.Tensor) and isinstance(result, torch.Tensor):
        return Seen(given.shape, given.device, result.shape, result.device)
    return Seen(_shapes(given), _device(given), _shapes(result), _device(result))


def named_tensors(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """List the tensors of a structure by path: a lone one has the path "", `out["logits"]` has "logits"."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, dict):
        parts = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(str(index), part) for index, part in enumerate(value)]
    else:
        return []
    return [found for key, part in parts for found in named_tensors(part, f"{path}.{key}" if path else key)]


def _shapes(value: Any) -> Shapes:
    return tuple((path, tuple(tensor.shape)) for path, tensor in named_tensors(value))


def _device(value: Any) -> torch.device | None:
    found = named_tensors(value)
    return found[0][1].device if found else None


def as_shapes(seen: Any) -> Shapes:
    """Turn what `see` noted into a report's shapes."""
    return (("", tuple(seen)),) if isinstance(seen, torch.Size) else seen


class ReplicaObserver:
    """Notes what reached each replica of one DataParallel module, batch by batch.

    `look` turns a call's arguments and its result into what is kept of it: shapes, if left out.
    """

    def __init__(self, wrapper: nn.Module, split: nn.Module, look: Callable[[Any, Any], Any] = see) -> None:
        self._look = look
        self._order: dict[int, int] = {}
        self._seen: list[tuple[int, Any]] = []
        self._lock = threading.Lock()
        self._hook = split.register_forward_hook(self._note, with_kwargs=True)
        self._wrapper = wrapper
        if isinstance(wrapper, nn.DataParallel):
            genuine = wrapper.replicate

            def replicate(*args: Any) -> Any:
                replicas = genuine(*args)
                self._order = {id(replica): index for index, replica in enumerate(replicas)}
                return replicas

            vars(wrapper)["replicate"] = replicate  # seen before the method of the class

    def _note(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        seen = self._look((*args, *kwargs.values()), output)
        with self._lock:
            self._seen.append((self._order.get(id(module), 0), seen))

    def take(self) -> tuple[Any, ...]:
        """Hand out what was seen since the last call, in replica order."""
        seen, self._seen = self._seen, []
        if len(seen) > 1:
            seen.sort(key=lambda pair: pair[0])
        return tuple(found for _, found in seen)

    def close(self) -> None:
        """Take the hooks off again."""
        self._hook.remove()
        self._wrapper.__dict__.pop("replicate", None)


class EpochRecorder:
    """Collects the batches of an epoch, neighbouring equal ones as one group."""

    def __init__(self, devices: Devices, dim: int) -> None:
        self._devices = devices
        self._dim = dim
        self._groups: list[BatchGroup] = []
        self._current: Any = None
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
        if not self._count:
            return
        replicas, outside = self._current
        self._groups.append(
            BatchGroup(
                first=self._next,
                count=self._count,
                batch_size=num_rows(as_shapes(outside.input), self._dim),
                in_model=as_runs(replicas, self._dim),
                idle=self._devices[len(replicas) :],
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
    """Count the rows of a structure's first tensor along `dim`; 0 where it has no such dimension."""
    return shapes[0][1][dim] if shapes and len(shapes[0][1]) > dim else 0
