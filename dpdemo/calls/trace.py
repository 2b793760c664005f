"""The trace of one call of DataParallel: shapes and devices of the batch, and of each replica's chunk.

Nothing here knows the rule of the split.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from dpdemo.calls.arguments import as_one
from dpdemo.calls.tree import named_tensors
from dpdemo.results.batches import BatchGroup, Outside, Replica, Shapes
from dpdemo.results.devices import Devices


class CallShapes(NamedTuple):
    """Shapes and devices of the arguments and the result of one call; equal ones compare equal."""

    input: torch.Size | Shapes
    input_device: torch.device | None
    output: torch.Size | Shapes
    output_device: torch.device | None


def see(arguments: Sequence[object], result: object) -> CallShapes:
    """Note the shapes and devices of a call's arguments and of its result."""
    given = arguments[0] if len(arguments) == 1 else arguments
    if isinstance(given, torch.Tensor) and isinstance(result, torch.Tensor):
        # as Seen(...) does it, without the step through Python that a NamedTuple's own __new__ is
        return tuple.__new__(CallShapes, (given.shape, given.device, result.shape, result.device))
    return CallShapes(_shapes(given), _device(given), _shapes(result), _device(result))


def see_input(args: Sequence[object], kwargs: Mapping[str, object]) -> CallShapes:
    """Note the arguments of a call before it is made, since it may change them; keywords by name."""
    given = as_one(args, kwargs)
    return CallShapes(_shapes(given), _device(given), (), None)


def see_output(before: CallShapes, result: object) -> CallShapes:
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


def as_replicas(replicas: tuple[CallShapes, ...], dim: int) -> tuple[Replica, ...]:
    """Convert what each replica saw into a report's replicas."""
    found = []
    for number, seen in enumerate(replicas):
        inputs = as_shapes(seen.input)
        rows, output = num_rows(inputs, dim), as_shapes(seen.output)
        found.append(Replica(number, str(seen.input_device), rows, inputs, output))
    return tuple(found)


def num_rows(shapes: Shapes, dim: int) -> int:
    """Count the rows along `dim` of a structure's first tensor that has it; 0 where none has."""
    return next((shape[dim] for _, shape in shapes if len(shape) > dim), 0)


class Trace(NamedTuple):
    """One call: what each replica saw, in order, and what the caller saw; equal calls compare equal."""

    replicas: tuple[CallShapes, ...]
    outside: CallShapes

    def group(self, first: int, count: int, dim: int, devices: Devices) -> BatchGroup:
        """Report `count` equal calls from number `first` on, over these devices."""
        replicas = as_replicas(self.replicas, dim)
        whole = as_shapes(self.outside.input)
        return BatchGroup(
            first=first,
            count=count,
            batch_size=num_rows(whole, dim) if whole else sum(replica.rows for replica in replicas),
            in_model=replicas,
            idle=devices.without([replica.device for replica in replicas]),
            outside=Outside(
                _name(self.outside.input_device),
                _name(self.outside.output_device),
                whole,
                as_shapes(self.outside.output),
            ),
        )


def _name(device: torch.device | None) -> str:
    return "" if device is None else str(device)
