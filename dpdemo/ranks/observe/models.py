"""The models that ranks train together: under DistributedDataParallel or FSDP, or under none."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from dpdemo.ranks.observe.notes import NOWHERE
from dpdemo.ranks.observe.numbers import values
from dpdemo.ranks.observe.steps import GradientProbe, StepNotes

_MAX_CHANNELS, _MAX_BUFFERS = 16, 64


class Model:
    """One of them."""

    managed: frozenset[int] = frozenset()  # the parameters that were trained when the model was wrapped

    def __init__(self, name: str, ranks: list[int], parameters: list[Any]) -> None:
        self.name, self.ranks = name, ranks
        self.parameters = {id(each): weakref.ref(each, self._forget) for each in parameters}
        self.names: dict[int, str] = {}  # of parameters that have one, by `id`
        self.forwards = self.trains = self.steps = self.skipped = self.averaged = 0
        self.pass_seen = self.passes = 0
        self.reached: int | None = None
        """The number of the last backward pass that came to an output; None if no output has a history."""
        self.bypass = NOWHERE
        self.clock = self.reached_at = self.reduced_at = 0
        """Counts backward passes that came to an output, and reductions; when each was the last time."""
        self.stepped_at = self.called_at = 0
        self.line = NOWHERE  # the line of the last call in training
        self.num_skipped = self.num_modes = 0
        self.is_train = True
        self.batch: tuple[int, int] | None = None
        """The epoch and the batch that were drawn before the last call in training."""
        self.is_late_noted = self.is_gone_noted = self.is_unsynced_noted = False
        self.probe = GradientProbe()
        self.ledger: StepNotes | None = None
        self.shapes: dict[str, int] = {}

    def _forget(self, gone: weakref.ref[Any]) -> None:
        """Forget a freed parameter: one of another model may get its `id`."""
        self.parameters = {key: each for key, each in self.parameters.items() if each is not gone}

    def tick(self) -> int:
        """Return a number that grows with each call."""
        self.clock += 1
        return self.clock

    def is_synced(self) -> bool:
        """Return whether the last backward pass was averaged: a reduction followed its way into the model."""
        return self.reduced_at > self.reached_at if self.reached_at else bool(self.averaged)

    def has_new_pass(self) -> bool:
        """Return whether a backward pass came to the model since the last step."""
        return self.reached_at > self.stepped_at or not self.reached_at

    def expect_backward(self, outputs: Iterator[torch.Tensor], reached: "Callable[[Model], None]") -> None:
        """Notice which backward passes come to these outputs: with two models, a reduction is of one."""

        def reach(_: torch.Tensor) -> None:
            self.reached, self.reached_at = torch._C._current_graph_task_id(), self.tick()
            reached(self)

        for each in outputs:
            if each.grad_fn is not None:  # a parameter would gather a hook with each call
                each.register_hook(reach)  # type: ignore[no-untyped-call]
                self.reached = -1 if self.reached is None else self.reached

    def living(self) -> Iterator[Any]:
        """Yield the parameters that the model had when it was made, and that are still there."""
        yield from (each for each in (ref() for ref in list(self.parameters.values())) if each is not None)

    def compared(self) -> list[Any]:
        """Return the parameters that must be equal on all ranks."""
        return []

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yield the trained parameters that the model had when it was made, with their names."""
        for key, ref in list(self.parameters.items()):
            parameter = ref()
            if parameter is not None and parameter.requires_grad:
                yield self.names.get(key, ""), parameter

    def late(self) -> list[str]:
        """Name the parameters that have a gradient, and needed none when the model was wrapped."""
        return []

    def unused(self) -> list[str]:
        """Name the parameters without a gradient, if others have one."""
        wanted = [(name, each.grad is None) for name, each in self.trained()]
        return [name for name, is_none in wanted if is_none] if not all(none for _, none in wanted) else []

    def added(self) -> list[str]:
        """Name the parameters that are trained, but were not when the model was wrapped."""
        return [name for name, each in self.trained() if id(each) not in self.managed]

    def trained(self) -> Iterator[tuple[str, Any]]:
        """Yield the parameters that PyTorch averages, with their names."""
        yield from ()

    def norms(self) -> Iterator[tuple[str, Any]]:
        """Yield each BatchNorm that is not synced, with its name."""
        yield from ()

    def statistics(self) -> dict[str, tuple[float, ...]]:
        """Return the running statistics of each BatchNorm that is trained."""
        return {
            name: (*values(norm.running_mean, _MAX_CHANNELS), *values(norm.running_var, _MAX_CHANNELS))
            for name, norm in self.norms()
            if norm.training and norm.running_mean is not None and norm.running_var is not None
        }


class Wrapped(Model):
    """A module that PyTorch averages: `of` are the groups over which it does."""

    def __init__(self, name: str, ranks: list[int], module: Any, wrapper: str, of: list[Any]) -> None:
        super().__init__(name, ranks, list(module.parameters()))
        self.module = weakref.ref(module)
        self.wrapper = wrapper
        self.groups = {group.group_name for group in of}
        self.managed = frozenset(id(each) for each in module.parameters() if each.requires_grad)
        self.is_averaged_by_hand = self.keeps_gradients = False
        """Whether the program averages its parameters themselves, as local SGD does."""
        self.is_replicated = wrapper == "DistributedDataParallel"
        inner = module.module if self.is_replicated else module
        ignored = getattr(module, "parameters_to_ignore", ())
        self.names = {id(each): name for name, each in inner.named_parameters() if name not in ignored}

    def inner(self) -> Any:
        """Return the user's module, or None."""
        module = self.module()
        return module.module if module is not None and self.wrapper != "fully_shard" else module

    def compared(self) -> list[Any]:
        """Return the parameters that must be equal on all ranks, unless a hook may average in another way."""
        module = self.module()
        has_hook = bool(getattr(module, "_comm_hooks", None))
        return [] if has_hook else [each for _, each in self.trained()]

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yield the parameters that must be equal, unless a hook may average in another way."""
        module = self.module()
        if module is not None and self.is_replicated and not getattr(module, "_comm_hooks", None):
            yield from (pair for pair in super().named() if pair[0])
            yield from (pair for pair in self.trained() if id(pair[1]) not in self.parameters)

    def late(self) -> list[str]:
        """Name the parameters that have a gradient, and needed none when the model was wrapped."""
        frozen = self.parameters.keys() - self.managed
        found = [pair for pair in self.named() if id(pair[1]) in frozen] if frozen else []
        return [name for name, each in found if each.grad is not None]

    def trained(self) -> Iterator[tuple[str, Any]]:
        """Yield the parameters that DistributedDataParallel averages, without `parameters_to_ignore`."""
        module = self.module()
        if module is not None and self.wrapper == "DistributedDataParallel":
            for name, each in module.module.named_parameters():
                if each.requires_grad and name not in module.parameters_to_ignore:
                    yield name, each

    def norms(self) -> Iterator[tuple[str, Any]]:
        """Yield each BatchNorm that is not synced, with its name."""
        module = self.inner()
        for name, each in module.named_modules() if module is not None else ():
            if isinstance(each, _BatchNorm) and not isinstance(each, SyncBatchNorm):
                yield name.replace("_fsdp_wrapped_module.", ""), each

    def buffers(self) -> dict[str, tuple[float, ...]]:
        """Return the first numbers of each buffer of fractions, without those of BatchNorm."""
        module, norms = self.inner(), [each for _, each in self.norms()]
        if module is None:
            return {}
        counted = {id(each) for norm in norms for each in norm.buffers()}
        found = [
            (name, each)
            for name, each in module.named_buffers()
            if each.is_floating_point() and id(each) not in counted
        ][:_MAX_BUFFERS]
        return {name: tuple(values(each, _MAX_CHANNELS)) for name, each in found}


def ranks_of(groups: list[Any]) -> list[int]:
    """Return the ranks of some groups."""
    return sorted({rank for group in groups for rank in dist.get_process_group_ranks(group)})


def ranks_of_mesh(mesh: Any) -> list[int]:
    """Return the ranks of a DeviceMesh."""
    return sorted(int(rank) for rank in torch._C.TensorBase.tolist(mesh.mesh.flatten()))


def parameters_of(optimizer: Any) -> list[Any]:
    """Return an optimizer's parameters."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def whole_parameters(modules: list[Any]) -> set[int]:
    """Return the `id`s of the unsharded parameters that modules under fully_shard have for a forward pass."""
    found = {id(getattr(each, "_unsharded_param", None)) for module in modules for each in _sharded(module)}
    return found - {id(None)}


def has_unsharded_gradients(module: Any) -> bool:
    """Return whether a module under fully_shard keeps gradients that no backward pass has reduced yet."""
    return any(
        getattr(getattr(each, "_unsharded_param", None), "grad", None) is not None
        or getattr(each, "unsharded_accumulated_grad", None) is not None
        for each in _sharded(module)
    )


def _sharded(module: Any) -> Iterator[Any]:
    """Yield what fully_shard keeps for each parameter of a module."""
    for each in module.modules():
        state = each._get_fsdp_state() if hasattr(each, "_get_fsdp_state") else None
        group = getattr(state, "_fsdp_param_group", None)
        yield from group.fsdp_params if group is not None else ()


def groups_of_fsdp1(module: Any) -> list[Any]:
    """Return the groups of a FullyShardedDataParallel: its shards' and, if it has copies, theirs."""
    other = getattr(module, "_inter_node_pg", None)
    return [module.process_group, *([] if other is None else [other])]


def groups_of_fsdp2(module: Any) -> list[Any]:
    """Return the groups of a module under fully_shard, or of the first one inside that has parameters."""
    for each in module.modules():
        state = each._get_fsdp_state() if hasattr(each, "_get_fsdp_state") else None
        if state is not None and state._fsdp_param_group is not None:
            mesh = state._fsdp_param_group.mesh_info.mesh
            return [mesh.get_group(dim) for dim in range(mesh.ndim)]
    return []
