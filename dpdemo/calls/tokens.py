"""The tokens of a replica's arguments, where these tell them from padding themselves.

They do in two ways: an argument `attention_mask` of zeros and ones beside ids of its shape; or a lone tensor
of ids before a module whose only embedding has a `padding_idx`. Everything else would be a guess, and is not
counted. The numbers are read past the dispatch modes, so that no memory and no copy of a GPU is counted.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.arithmetic.tokens import Batch, Sharing, Tally
from dpdemo.results.tokens import SeenTokens


class TokenCount(NamedTuple):
    """Rows of one replica's ids, their tokens and those with padding, and what told them apart."""

    rows: int
    tokens: int
    padded: int
    by: str


class TokenTally:
    """Sums up the tokens of the calls of one DataParallel object."""

    def __init__(self, num_devices: int) -> None:
        self._num_devices = num_devices
        self._tally = Tally(num_devices)
        self._num_calls = 0
        self._by: dict[str, None] = {}

    def add(self, number: int, told: Sequence[TokenCount]) -> None:
        """Add what the replicas of a call told, if they did."""
        if not 0 < len(told) <= self._num_devices:
            return
        self._num_calls += 1
        self._by |= dict.fromkeys(counted.by for counted in told)
        sharing = Sharing(1, tuple(counted.rows for counted in told), tuple(range(len(told))))
        tokens = [counted.tokens for counted in told]
        self._tally.add(Batch(number, sharing, tokens, [counted.padded for counted in told], tokens))

    def seen(self, devices: tuple[str, ...]) -> SeenTokens | None:
        """Report the tokens by device, or None where no call told them."""
        if not self._num_calls:
            return None
        return SeenTokens(
            devices=devices,
            summary=self._tally.summary(),
            told_by=" and ".join(self._by),
            num_calls=self._num_calls,
        )


def tell_tokens(
    module: object, arguments: Sequence[object], named: Mapping[str, object]
) -> TokenCount | None:
    """Count the tokens that one replica gets, or return None where its arguments do not tell."""
    given = _by_name(module, arguments, named)
    tensors = [value for value in given.values() if type(value) is torch.Tensor]
    ids = [tensor for tensor in tensors if _is_ids(tensor)]
    mask = given.get("attention_mask")
    try:
        if type(mask) is torch.Tensor:
            is_beside_ids = any(tensor is not mask and tensor.shape == mask.shape for tensor in ids)
            return _by_mask(mask.detach()) if is_beside_ids else None
        padding = _padding_of(module) if len(ids) == 1 else None
        return None if padding is None else _by_padding(ids[0], padding)
    except RuntimeError:  # a tensor whose numbers cannot be read, such as one inside torch.func
        return None


def _by_name(
    module: object, arguments: Sequence[object], named: Mapping[str, object]
) -> dict[object, object]:
    """Name the arguments as forward does; the entries of a dict, such as a tokenizer's batch, by key."""
    names = _parameters(type(module))
    given: dict[object, object] = {}
    for index, value in enumerate(arguments):
        if isinstance(value, Mapping):
            given.update(value)
        else:
            given[names[index] if index < len(names) else index] = value
    return given | dict(named)


def _parameters(kind: Any) -> tuple[str, ...]:
    """List the names of the arguments of a class's forward, without `self`."""
    try:
        return tuple(inspect.signature(kind.forward).parameters)[1:]
    except (AttributeError, TypeError, ValueError):  # a function in place of a module
        return ()


def _is_ids(tensor: torch.Tensor) -> bool:
    return tensor.ndim == 2 and tensor.dtype in {torch.int64, torch.int32} and tensor.numel() > 0


def _by_mask(mask: torch.Tensor) -> TokenCount | None:
    """Count by a mask; one of other numbers than 0 and 1, such as a bias, tells no tokens."""
    with torch._C._DisableTorchDispatch():
        is_zero_or_one = bool(((mask == 0) | (mask == 1)).all())
        return (
            TokenCount(len(mask), int(mask.sum()), mask.numel(), "attention_mask") if is_zero_or_one else None
        )


def _by_padding(ids: torch.Tensor, padding: int) -> TokenCount:
    with torch._C._DisableTorchDispatch():
        return TokenCount(len(ids), int((ids != padding).sum()), ids.numel(), f"padding_idx {padding}")


def _padding_of(module: object) -> int | None:
    """Return the padding_idx of a module's embedding, if it has no other embedding."""
    if not isinstance(module, nn.Module):
        return None
    found = [part for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)]
    return found[0].padding_idx if len(found) == 1 else None
