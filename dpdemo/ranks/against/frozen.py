"""Copy what no optimizer changes, buffers and frozen parameters, from rank 0's models to the one process.

A program without a seed makes others in each run, such as the queue and the teacher of a contrastive model.
They are set once: what the program makes of them afterwards, as a teacher that follows, is its own.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from dpdemo.ranks.against.numbers import kept, put
from dpdemo.ranks.against.shards import shard_of
from dpdemo.ranks.events import NotedFrozen
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import never_raises

if TYPE_CHECKING:
    from dpdemo.ranks.against.state import State

_MAX_BYTES = 1 << 28


@never_raises
def meet(state: State, module: Any) -> None:
    """Note what rank 0's model has at its first call, or set the one process's model to that."""
    if module in state.met:
        return
    state.met.add(module)
    kind = type(module).__name__
    state.counts["met", kind] += 1
    key, found = (kind, state.counts["met", kind]), _frozen(state, module)
    if state.settings.is_replay:
        values = state.ranks.frozen(key)
        if [each.shape for each in values] == [tuple(each.shape) for each in found]:
            for each, value in zip(found, values, strict=True):
                put(each, value.data, value.dtype)
    elif found and dist.is_initialized() and dist.get_rank() == 0:
        state.notes.write(NotedFrozen(*key, state.store.add([kept(each) for each in found])))


def _frozen(state: State, module: Any) -> list[Any]:
    given = (each for optimizer in state.optimizers for each in parameters_of(optimizer))
    trained = {id(each) for each in given if each.requires_grad}
    every = itertools.chain(module.parameters(), module.buffers())
    found = [each for each in every if id(each) not in trained and shard_of(each) is None]
    return found if sum(each.numel() * each.element_size() for each in found) <= _MAX_BYTES else []
