"""`WeightedDataParallel`: torch's DataParallel with chunks of unequal sizes.

Forward, replicas, threads and gather are those of `torch/nn/parallel/data_parallel.py`; only scatter cuts
otherwise. Where a GPU that is not among the last ones gets no row, the two steps after scatter
leave it out, since DataParallel itself takes the first GPUs for as many chunks as there are.
"""

import copy
import threading
import warnings
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from dpdemo.arithmetic.chunk import Split
from dpdemo.arithmetic.weights import Weight, split_by_chunks, split_by_weights
from dpdemo.splitting.scatter import scatter_by

Module = TypeVar("Module", bound=nn.Module)
Device = int | torch.device


class _Call(threading.local):
    """The GPUs that scatter gave a chunk in the forward under way in this thread; None outside of one."""

    used: list[int] | None = None


_call = _Call()


class WeightedDataParallel(nn.DataParallel[Module]):
    """A drop-in `nn.DataParallel` that gives each GPU its own share of the batch.

    With `weights` each GPU gets rows in proportion to its weight, whatever the size of the batch: the whole
    part of its due, and the rows that are left go to the largest fractions, of equal ones to the lower GPU
    (`dpdemo/arithmetic/weights.py`). With `chunks` a full batch is cut into exactly these sizes, and a short
    one in their proportions, so that no GPU ever gets more than its chunk. A GPU may get 0 rows: then it has
    no replica. State dicts are those of `nn.DataParallel`.

    What is equal to one GPU for any split: a loss of the gathered outputs. What is not: a mean taken inside
    forward (see `loss_parts`), and BatchNorm, whose statistics are those of each chunk.

    Args:
        module: the module to split; its parameters and buffers lie on the first of `device_ids`.
        device_ids: the GPUs; all visible ones if left out.
        output_device: the GPU that gathers the outputs; the first of `device_ids` if left out.
        dim: the dimension of inputs and outputs that holds the batch.
        weights: a number of 0 or more for each GPU, not all of them 0, such as (1, 2, 2).
        chunks: the rows of each GPU in a full batch, such as (4, 13, 13).

    Raises:
        ValueError: unless there are weights or chunks, a valid one for each GPU.

    Without a GPU it calls the module, as `nn.DataParallel` does.

    """

    def __init__(  # noqa: PLR0913 - DataParallel's own, and how to cut
        self,
        module: Module,
        device_ids: Sequence[Device] | None = None,
        output_device: Device | None = None,
        dim: int = 0,
        *,
        weights: Sequence[Weight] | None = None,
        chunks: Sequence[int] | None = None,
    ) -> None:
        given = _expect_one(weights, chunks)
        super().__init__(module, device_ids, output_device, dim)
        self.weights = None if weights is None else tuple(weights)
        self.chunks = None if chunks is None else tuple(chunks)
        if self.device_ids and len(self.device_ids) != len(given):
            name = "weights" if chunks is None else "chunks"
            raise ValueError(
                f"expected one of `{name}` for each of the {len(self.device_ids)} GPUs "
                f"{self.device_ids}, got {len(given)}: {list(given)}"
            )

    def split(self, batch_size: int) -> Split:
        """Return the split of a batch of so many rows.

        Raises:
            ValueError: if it has more rows than `chunks` have.

        """
        if self.weights is not None:
            return split_by_weights(batch_size, self.weights)
        assert self.chunks is not None  # noqa: S101 - one of them is given
        return split_by_chunks(batch_size, self.chunks)

    def extra_repr(self) -> str:
        """Write how the batch is cut, for `print(model)`."""
        return f"weights={self.weights}" if self.chunks is None else f"chunks={self.chunks}"

    def forward(self, *inputs: object, **kwargs: object) -> object:
        """Call DataParallel's forward, with steps that know which GPUs have a chunk."""
        outer, _call.used = _call.used, []
        try:
            return super().forward(*inputs, **kwargs)
        finally:
            _call.used = outer

    def scatter(
        self, inputs: tuple[object, ...], kwargs: dict[str, object] | None, device_ids: Sequence[Device]
    ) -> object:
        """Cut the arguments, and send each chunk to its GPU; a lone one gets all, as in DataParallel."""
        if len(device_ids) < 2:
            return super().scatter(inputs, kwargs or {}, device_ids)
        ids = [_ordinal(device) for device in device_ids]
        found = scatter_by(self.split, inputs, kwargs or {}, ids, self.dim)
        if _call.used is not None:
            _call.used = list(found.device_ids)
        return found.args, found.kwargs

    def replicate(self, module: Module, device_ids: Sequence[Device]) -> list[Module]:
        """Copy the module to each GPU that has a chunk."""
        used, first = _call.used, self.device_ids[0]
        if not used:
            return super().replicate(module, device_ids)
        if used[0] == first:
            return super().replicate(module, used)
        if module.training and any(True for _ in module.buffers()):
            warnings.warn(
                f"cuda:{first} gets no row of this batch, and the buffers of its replica are the module's: "
                "what forward does to them in training, as BatchNorm to its running mean, is lost",
                stacklevel=2,
            )
        # The parameters are copied from the first GPU, where they lie; its own replica is free of charge
        return super().replicate(module, [first, *used])[1:]

    def parallel_apply(
        self, replicas: Sequence[Module], inputs: Sequence[object], kwargs: object
    ) -> list[object]:
        """Run each replica on its GPU."""
        used = _call.used
        if not used or used == self.device_ids[: len(replicas)]:
            return super().parallel_apply(replicas, inputs, kwargs)
        view = copy.copy(self)
        view.device_ids = used
        return nn.DataParallel.parallel_apply(view, replicas, inputs, kwargs)


def _expect_one(weights: Sequence[Weight] | None, chunks: Sequence[int] | None) -> Sequence[Weight]:
    """Check how to cut, before anything is built."""
    if (weights is None) == (chunks is None):
        raise ValueError(
            f"expected `weights` or `chunks`, got {'none' if weights is None else 'both'}: "
            "weights=(1, 2, 2) are proportions for any batch, chunks=(4, 13, 13) exact sizes of a full one"
        )
    if chunks is not None and not all(isinstance(chunk, int) for chunk in chunks):
        raise ValueError(f"expected whole numbers as `chunks`, got {list(chunks)}")
    given = chunks if weights is None else weights
    assert given is not None  # noqa: S101 - one of them is
    split_by_weights(0, given)  # checks each
    return given


def _ordinal(device: Device) -> int:
    ordinal = device if isinstance(device, int) else device.index
    assert ordinal is not None  # noqa: S101 - DataParallel has resolved them
    return ordinal
