"""The beginning of a call that splits a batch: of a wrapper, of a function, or of steps called by hand."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dpdemo.checking.recording.cuts import Cuts, is_in_chunks
from dpdemo.checking.recording.drafts import Draft, Splitter
from dpdemo.checking.recording.inside import threads_state
from dpdemo.watching.tree import tensors_in

_IN_CHUNKS = "its arguments are in chunks already"


def paired(inputs: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """Pair what each replica gets, also where the two are not equally many, which parallel_apply refuses."""
    filled = itertools.zip_longest(inputs, kwargs or ())
    return [(as_arguments(args), named or {}) for args, named in filled]


def as_arguments(args: object) -> object:
    """Read one replica's arguments as parallel_apply does: a lone value need not stand in a tuple."""
    return () if args is None else args if isinstance(args, (list, tuple)) else (args,)


def draft_of_call(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, object]) -> Draft:
    """Begin a call of a wrapper."""
    num_gpus = len(getattr(wrapper, "device_ids", ()))
    if any(is_in_chunks(one, num_gpus) for one in (*args, *kwargs.values())):
        return Draft(wrapper, (), {}, callers_state=threads_state(), gap=_IN_CHUNKS)
    return Draft(wrapper, args, kwargs, callers_state=threads_state())


def draft_of_function(  # noqa: PLR0913, PLR0917 - the parameters of `data_parallel`
    module: Any, inputs: object, device_ids: Any, output_device: Any, dim: int, module_kwargs: Any
) -> Draft:
    """Begin a call of `data_parallel`."""
    chosen = range(torch.cuda.device_count()) if device_ids is None else device_ids
    ids = [index_of(device) for device in chosen]
    last = (*ids, 0)[0] if output_device is None else index_of(output_device)
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    splitter = Splitter(module, ids, last, dim, function="data_parallel")
    return Draft(splitter, args, module_kwargs or {}, callers_state=threads_state())


def index_of(device: Any) -> int:
    """Return the number of a GPU, however it is named."""
    return device if isinstance(device, int) else torch.device(device).index or 0


@dataclass
class Scattered:
    """What a call of scatter by hand was given, and what came of it."""

    args: Any
    kwargs: Any
    dim: int
    chunks: Any

    def is_source_of(self, inputs: Any) -> bool:
        """Return whether these inputs of replicas are the chunks."""
        mine, others = ([id(tensor) for tensor in tensors_in(value)] for value in (self.chunks, list(inputs)))
        return bool(mine) and mine == others


@dataclass
class Made:
    """What a thread has scattered and replicated by hand."""

    scattered: tuple[Scattered, ...] = ()
    cuts: Cuts | None = None
    replicated: tuple[nn.Module, list[int], Any] | None = None


def call_by_hand(
    made: Made, modules: Sequence[Any], inputs: Any, kwargs_tup: Any, devices: Any
) -> Draft | None:
    """Put a call together from what was scattered and replicated by hand in this thread.

    Of functions there is none: PyTorch only calls them, and they are no replicas of a module.
    """
    if not modules or not all(isinstance(one, nn.Module) for one in modules):
        return None
    gap = ""
    known = made.replicated
    if known is not None and len(modules) and any(modules[0] is replica for replica in known[2]):
        module, ids, _ = known
    else:
        module, ids = modules[0], [index_of(device) for device in devices or range(len(modules))]
        gap = "its replicas were not made by replicate"
    source = next((one for one in made.scattered if one.is_source_of(inputs)), None)
    joined = None
    if source is None and made.cuts is not None:
        joined = made.cuts.joined(paired(inputs, kwargs_tup))
    if source is None and joined is None:
        gap = gap or "its chunks were not made by scatter"
    elif source is not None and kwargs_tup and any(kwargs_tup) and not source.kwargs:
        gap = gap or "its keyword arguments were not made by scatter_kwargs"
    made.scattered, made.replicated, made.cuts = (), None, None
    batch = joined or source
    splitter = Splitter(module, ids, (*ids, 0)[0], batch.dim if batch else 0, joined.shares if joined else ())
    args, kwargs = (batch.args, batch.kwargs) if batch else ((), {})
    return Draft(splitter, tuple(args), kwargs, callers_state=threads_state(), gap=gap)
