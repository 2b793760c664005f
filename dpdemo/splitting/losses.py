"""A loss inside forward that equals one GPU's for any split: sums and counts instead of means.

A mean over a chunk forgets how many samples, or valid tokens, it is a mean of; so the mean of the replicas'
means weighs those of a short chunk more. Sums and counts add up.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist


class LossParts(NamedTuple):
    """A loss as a sum and the number that it is to be divided by; gather joins those of all replicas.

    Attributes:
        total: the sum of the losses, of shape [1] from a forward and [replicas] once it is gathered.
        number: how many there are, or the sum of their weights, of the same shape.

    """

    total: torch.Tensor
    number: torch.Tensor

    def mean(self) -> torch.Tensor:
        """Return the mean over all replicas, of shape []: the loss of one GPU."""
        return self.total.sum() / self.number.sum()


def loss_parts(losses: torch.Tensor, where: torch.Tensor | None = None, dim: int = 0) -> LossParts:
    """Sum the losses of a chunk, for forward to return; `.mean()` of what comes back is the loss.

    `F.cross_entropy(logits, labels, reduction="none")` are such losses, with `where=labels != -100`.

    Args:
        losses: one for each sample or token, of any shape.
        where: which of them count (bool), or how much each counts; of the shape of `losses`, or one that
            broadcasts to it. All count alike if left out.
        dim: the wrapper's `dim`, along which the parts are gathered.

    Returns:
        The sum and the number of the chunk's losses, each of shape [1].

    """
    if where is None:
        total, number = losses.sum(), torch.tensor(losses.numel(), device=losses.device)
    elif where.dtype == torch.bool:
        total, number = losses.masked_fill(~where, 0).sum(), where.expand_as(losses).sum()
    else:
        total, number = (losses * where).sum(), where.expand_as(losses).sum()
    shape = (1,) * (dim + 1)
    return LossParts(total.reshape(shape), number.reshape(shape))


def mean_over_ranks(parts: LossParts, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Return the loss whose gradients DistributedDataParallel averages to those of one GPU.

    DDP divides the sum of the ranks' gradients by their number, which is right where all ranks have the same
    number of samples. This is local mean × ranks · nᵢ / n, with nᵢ samples or tokens here and n on all ranks
    (pytorch/pytorch#67253). Its mean over the ranks is the loss of the whole batch.

    Args:
        parts: this rank's own.
        group: the ranks; all of them if left out.

    Returns:
        The loss to call `.backward()` on, without dimensions.

    """
    number = parts.number.detach().sum()
    dist.all_reduce(number, group=group)
    return parts.total.sum() * dist.get_world_size(group) / number
