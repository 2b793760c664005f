"""The trace of one call of DataParallel: shapes and devices of the batch, and of each replica's chunk.

Nothing here knows the rule of the split.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from dpdemo.reports.devices import Devices
from dpdemo.reports.split import BatchGroup, Outside, ReplicaRun, Shapes
from dpdemo.watching.tree import named_tensors


class Seen(NamedTuple):
    """Shapes and devices of the arguments and the result of one call; equal ones compare equal."""

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
    """Convert the shapes of `see` into a report's."""
    return (("", tuple(seen)),) if isinstance(seen, torch.Size) else seen


def as_runs(replicas: tuple[Seen, ...], dim: int) -> tuple[ReplicaRun, ...]:
    """Join equal neighbours of replicas to a report's runs."""
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


class Trace(NamedTuple):
    """One call: what each replica saw, in order, and what the caller saw; equal calls compare equal."""

    replicas: tuple[Seen, ...]
    outside: Seen

    def group(self, first: int, count: int, dim: int, devices: Devices) -> BatchGroup:
        """Report `count` equal calls from number `first` on, over these devices."""
        runs = as_runs(self.replicas, dim)
        whole = as_shapes(self.outside.input)
        return BatchGroup(
            first=first,
            count=count,
            batch_size=num_rows(whole, dim) if whole else sum(run.rows * len(run) for run in runs),
            in_model=runs,
            idle=devices.without(run.devices for run in runs),
            outside=Outside(
                _name(self.outside.input_device),
                _name(self.outside.output_device),
                whole,
                as_shapes(self.outside.output),
            ),
        )


def _name(device: torch.device | None) -> str:
    return "" if device is None else str(device)
