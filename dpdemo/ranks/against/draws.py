"""Note numbers that the program draws in its loop, or give one process those of all ranks.

Without a DataLoader that trains, so are tensors that the program copies to a GPU.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpdemo.ranks.against.numbers import as_bytes, kept, put, tensor_of
from dpdemo.ranks.events import NotedDraw
from dpdemo.ranks.observe.notes import around, users_line
from dpdemo.startup.hook import when_imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpdemo.ranks.against.state import State
    from dpdemo.ranks.against.store import Kept

_DRAWS = (
    (torch, "randn rand randint randn_like rand_like randint_like bernoulli normal multinomial randperm"),
    (torch, "poisson binomial _standard_gamma _sample_dirichlet"),
    (torch.Tensor, "normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ cauchy_ geometric_ to cuda"),
)
_OF_NUMPY = (
    "rand randn random random_sample randint integers normal uniform standard_normal choice permutation "
    "beta binomial dirichlet exponential gamma laplace lognormal multivariate_normal poisson"
)
_COPIES = {"to", "cuda"}
_MAX_BYTES = 1 << 24
_NOT_ROWS = tuple(
    part.replace("/", os.sep)
    for part in (
        "utils/data",
        "nn/modules/module.py",
        "nn/parallel",
        "nn/init.py",
        "torch/distributed",
        "optim/",
    )
)


def watch(state: State) -> None:
    """Follow the functions that draw numbers, and those that copy to a GPU."""
    for owner, names in _DRAWS:
        for name in names.split():
            _around(state, owner, name)
    when_imported("numpy.random", lambda module: _follow_numpy(state, module))


def _follow_numpy(state: State, module: Any) -> None:
    """Follow NumPy's functions, and the generators of `default_rng`: Python cannot patch their type."""
    followed: Any = type("Generator", (module.Generator,), {})
    for owner in (module, followed):
        for name in filter(functools.partial(hasattr, owner), _OF_NUMPY.split()):
            _around(state, owner, name)

    @around(module, "default_rng")
    def default_rng(make: Any, /, *args: Any, **kwargs: Any) -> Any:
        found = make(*args, **kwargs)
        return found if isinstance(found, followed) else followed(found.bit_generator)


def _around(state: State, owner: Any, name: str) -> None:
    @around(owner, name)
    def drawn(draw: Any, /, *args: Any, **kwargs: Any) -> Any:
        out = draw(*args, **kwargs)
        if torch.compiler.is_compiling() or not state.is_started or state.is_done:
            return out
        if type(out).__name__ == "ndarray" and out.dtype.kind in "bif":
            is_order = name == "permutation" and isinstance(args[-1], int)
            return numbers(torch.from_numpy(out), args, "randperm" if is_order else name).numpy()
        return numbers(out, args, name)

    def numbers(out: Any, args: Any, name: str) -> Any:
        if not _has_numbers(out):
            return out
        if name in _COPIES and not _is_copy_of_rows(state, args[0], out):
            return out
        caller = sys._getframe(3).f_code.co_filename  # the first two are those of `around`
        if any(part in caller for part in _NOT_ROWS):
            return out
        at = users_line()
        if not torch.is_grad_enabled():
            at += " without gradients"  # as in an evaluation, which one rank alone may make
        number = state.counts[name, at]
        state.counts[name, at] += 1
        if not state.settings.is_replay:
            stored = state.store.add(kept(out))
            state.notes.write(NotedDraw(name, at, number, stored, state.counts["backward"]))
            return out
        return _of_all_ranks(state, name, at, number, out)


def _has_numbers(out: Any) -> bool:
    is_plain = type(out) is torch.Tensor and not out.is_meta  # an address without memory may not be read
    return is_plain and out.ndim > 0 and out.numel() * out.element_size() <= _MAX_BYTES


def _is_copy_of_rows(state: State, source: Any, out: torch.Tensor) -> bool:
    if out is source or isinstance(source, nn.Parameter) or source.requires_grad or state.counts["depth"]:
        return False
    if state.first_trained is not None or (state.settings.is_replay and state.ranks.trained):
        return False  # rows of a loader are joined there; a library may copy other tensors on one rank
    return bool(source.device.type == "cpu" and out.device.type == "cuda")


def _of_all_ranks(state: State, name: str, at: str, number: int, out: torch.Tensor) -> torch.Tensor:
    """Return the numbers of all ranks in place of one process's own."""
    ranks = state.ranks
    if state.settings.in_turns:
        return _of_one_rank(state, name, at, number, out)
    events = sorted(ranks.draws.get((name, at, number), {}).items())
    values: list[Kept] = [ranks.stores[rank].read(event.stored) for rank, event in events]
    if not values or len({(value.dtype, len(value.shape)) for value in values}) > 1:
        return out
    first = values[0]
    order = state.order_in_call([value.shape[0] for value in values])
    if len(values) == len(ranks.owners) and (data := joined(name, values, tuple(out.shape), order)):
        put(out, data, first.dtype)
    elif (
        all(value == first for value in values) or ranks.trained or name == "randperm" or first.shape == (1,)
    ):
        put(out, first.data, first.dtype)
    elif len(values) == len(ranks.owners) and len({value.shape[1:] for value in values}) == 1:
        rows = sum(value.shape[0] for value in values)
        out = torch.cat([out.detach()] * -(-rows // max(1, out.shape[0])))[:rows].clone()
        put(out, b"".join(value.data for value in values), first.dtype)
    return out


def joined(
    name: str, values: Sequence[Kept], shape: tuple[int, ...], order: Sequence[int] | None = None
) -> bytes:
    """Return the ranks' numbers, in rank order or another one, if `shape` has room in a dimension."""
    shapes = [value.shape for value in values]
    for dim, own in enumerate(shapes[0]):
        rows = [each[dim] for each in shapes]
        is_like_first = all((*each[:dim], own, *each[dim + 1 :]) == shapes[0] for each in shapes)
        if not is_like_first or (*shapes[0][:dim], sum(rows), *shapes[0][dim + 1 :]) != shape:
            continue
        with torch._C._DisableTorchDispatch():
            parts = [tensor_of(value) for value in values]
            if name == "randperm":  # which row of the rank's own, as in mixup
                parts = [part + sum(rows[:rank]) for rank, part in enumerate(parts)]
            whole = torch.cat(parts, dim)
            return as_bytes(whole if order is None or dim else whole[torch.tensor(order, device="cpu")])
    return b""


def _of_one_rank(state: State, name: str, at: str, number: int, out: torch.Tensor) -> torch.Tensor:
    """Return the numbers of the rank whose turn it is; a line may draw several times in a pass."""
    many = state.ranks.draws_in_a_pass(name, at)
    number, place = divmod(number, many)
    number, turn = divmod(number, len(state.ranks.owners))
    turn = state.ranks.owners[turn]
    event = state.ranks.draws.get((name, at, number * many + place), {}).get(turn)
    if event is not None:
        found: Kept = state.ranks.stores[turn].read(event.stored)
        if found.shape == tuple(out.shape):
            put(out, found.data, found.dtype)
    return out
