"""The beginning of a call that splits a batch: of a wrapper, of a function, or of steps called by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.calls.arguments import index_of, of_each_replica
from dpdemo.calls.live import Splitter
from dpdemo.calls.tree import rebuild, tensors_in
from dpdemo.checking.recording.drafts import Draft
from dpdemo.checking.recording.inside import threads_state

_IN_CHUNKS = "its arguments are in chunks already"


def draft_of(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft:
    """Begin a call of a wrapper, or of a function that does the same."""
    num_gpus = 0 if isinstance(wrapper, Splitter) else len(getattr(wrapper, "device_ids", ()))
    if any(is_in_chunks(arg, num_gpus) for arg in (*args, *kwargs.values())):
        return Draft(wrapper, (), {}, callers_state=threads_state(), gap=_IN_CHUNKS)
    return Draft(wrapper, args, kwargs, callers_state=threads_state())


def is_in_chunks(value: object, num_gpus: int) -> bool:
    """Return whether a value is a list of one part for each GPU, each of them on its own GPU."""
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= num_gpus:
        return False
    homes = [{leaf.device for leaf in tensors_in(part)} for part in value]
    is_on_gpus = all(device.type == "cuda" for device in set.union(*homes))
    return is_on_gpus and all(len(home) == 1 for home in homes) and len(set.union(*homes)) == len(homes)


class Batch(NamedTuple):
    """A batch that was cut: the arguments of the call, along which dimension, and the rows of each chunk."""

    args: Any = ()
    kwargs: Any = {}  # noqa: RUF012 - never written to
    dim: int = 0
    rows: tuple[int, ...] = ()

    @property
    def shares(self) -> tuple[int, ...]:
        """The rows of each chunk, where they are not those that DataParallel makes."""
        usual = split_batch(sum(self.rows), len(self.rows)).sizes() if self.rows else ()
        return () if tuple(usual) == self.rows else self.rows


class _Chunk(NamedTuple):
    """A chunk: of which tensor, along which dimension, and its number among them."""

    source: torch.Tensor
    dim: int
    number: int


class Cuts:
    """Remembers which tensors were cut into which chunks, while the chunks live.

    Every way to scatter goes through `Scatter.apply`, which programs with a DataParallel of their own call
    with sizes of their choice, as CornerNet and CenterNet do.
    """

    def __init__(self) -> None:
        self._chunks: Any = WeakTensorKeyDictionary()

    def note(self, source: torch.Tensor, chunks: Sequence[torch.Tensor], dim: int) -> None:
        """Note the chunks of a tensor."""
        for number, chunk in enumerate(chunks):
            self._chunks[chunk] = _Chunk(source, dim, number)

    def joined(self, delivered: Sequence[tuple[Any, Any]]) -> Batch | None:
        """Put the batch together from what each replica gets; None where that is not made of its chunks."""
        of_each = [[self._chunks.get(leaf) for leaf in tensors_in(pair)] for pair in delivered]
        if not of_each or not of_each[0]:
            return None
        if any(
            chunk is None or chunk.number != index for index, each in enumerate(of_each) for chunk in each
        ):
            return None
        sources, dims = [chunk.source for chunk in of_each[0]], {chunk.dim for chunk in of_each[0]}
        if len(dims) > 1 or any(
            [id(chunk.source) for chunk in each] != list(map(id, sources)) for each in of_each
        ):
            return None
        dim, left = dims.pop(), iter(sources)
        args, kwargs = rebuild(
            delivered[0], lambda leaf: next(left) if isinstance(leaf, torch.Tensor) else leaf
        )
        rows = tuple(next(leaf.size(dim) for leaf in tensors_in(pair)) for pair in delivered)
        return Batch(args, kwargs, dim, rows)


@dataclass
class HandSteps:
    """What a thread has scattered and replicated without a wrapper."""

    cuts: Cuts = field(default_factory=Cuts)
    replicated: tuple[nn.Module, list[int], Any] | None = None


def draft_by_hand(
    made: HandSteps, modules: Sequence[Any], inputs: Any, kwargs_tup: Any, devices: Any
) -> Draft | None:
    """Put a call together from what was cut and replicated by hand in this thread.

    Of functions there is none: PyTorch only calls them, and they are no replicas of a module.
    """
    if not modules or not all(isinstance(module, nn.Module) for module in modules):
        return None
    gap = ""
    known = made.replicated
    if known is not None and any(modules[0] is replica for replica in known[2]):
        module, ids, _ = known
    else:
        module, ids = modules[0], list(map(index_of, devices or range(len(modules))))
        gap = "its replicas were not made by replicate"
    batch = made.cuts.joined(of_each_replica(inputs, kwargs_tup))
    if batch is None:
        gap = gap or "its chunks were not made by scatter"
        batch = Batch()
    made.cuts, made.replicated = Cuts(), None
    splitter = Splitter(module, ids, (*ids, 0)[0], batch.dim, batch.shares)
    return Draft(splitter, tuple(batch.args), batch.kwargs, callers_state=threads_state(), gap=gap)
