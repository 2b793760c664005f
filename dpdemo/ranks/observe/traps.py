"""Observe calls that give wrong numbers on several ranks, by their arguments alone."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm, _NormBase
from torch.utils._pytree import tree_leaves

from dpdemo.ranks.events import CUT_OFF, Trap
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import total
from dpdemo.virtual.applying import Patch
from dpdemo.virtual.ops import listening

aten = torch.ops.aten
_LOSSES = {
    aten.mse_loss.default: "mse_loss",
    aten.huber_loss.default: "huber_loss",
    aten.smooth_l1_loss.default: "smooth_l1_loss",
    aten.binary_cross_entropy.default: "binary_cross_entropy",
    aten.soft_margin_loss.default: "soft_margin_loss",
}
_MEAN, _LINEAR = 1, {dist.ReduceOp.SUM, dist.ReduceOp.AVG}


class TrapNotes:
    """Notes each kind of call once for a line."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.seen: set[tuple[str, str]] = set()

    def note(self, kind: str, detail: str = "") -> None:
        """Note a call of the line that is under way."""
        at = users_line()
        if (kind, at) not in self.seen:
            self.seen.add((kind, at))
            self.notes.write(Trap(kind, at, detail))

    def loss(self, name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
        """Return what notes a mean loss of sharded DTensors."""

        @never_raises
        def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensors = [each for each in args if hasattr(each, "placements")]
            reduction = kwargs.get("reduction", args[3 if name == "binary_cross_entropy" else 2 : 4])
            reduction = next(iter(reduction), _MEAN) if isinstance(reduction, tuple) else reduction
            is_sharded = any(place.is_shard() for each in tensors for place in each.placements)
            if is_sharded and reduction == _MEAN and any(each.requires_grad for each in tensors):
                self.note("sharded-loss", name)

        return look

    @never_raises
    def convolution(self, args: tuple[Any, ...], _: dict[str, Any]) -> None:
        """Note a convolution whose rows or columns are sharded."""
        dims = {place.dim for place in getattr(args[0], "placements", ()) if place.is_shard()}
        if any(dim % args[0].dim() >= 2 for dim in dims) and any(size > 1 for size in args[1].shape[2:]):
            self.note("sharded-convolution")

    @never_raises
    def fill(self, args: tuple[Any, ...], _: dict[str, Any]) -> None:
        """Note that a pending sum is filled on each rank."""
        if any(place.is_partial("sum") for place in getattr(args[0], "placements", ())):
            value = args[1] if len(args) > 1 else 0
            if not isinstance(value, (int, float)) or value:
                self.note("filled-sum")


def watch(notes: Notes) -> None:
    """Look at such calls."""
    found = TrapNotes(notes)
    asked = {operator: found.loss(name) for operator, name in _LOSSES.items()}
    asked[aten.convolution.default] = found.convolution
    asked[aten.fill_.Scalar] = asked[aten.fill_.Tensor] = found.fill
    for operator, look in asked.items():
        notes.patches.apply(Patch(listening.wrapped, id(operator), look, "DTensor runs it in parts"))
    _converting(found)
    notes.when_imported("accelerate.accelerator", lambda module: _gathering(found, module))
    notes.when_imported("torch.distributed.device_mesh", lambda module: _meshes(found, module))
    notes.when_imported("torch.distributed.nn.functional", lambda module: _functional(found, module))
    notes.when_imported("torch.distributed.pipelining.schedules", lambda module: _pipelines(found, module))
    notes.when_imported("torch.distributed.pipelining.stage", lambda module: _stages(found, module))
    notes.when_imported(
        "torch.distributed.optim.zero_redundancy_optimizer", lambda module: _zero(found, module)
    )


def _gathering(found: TrapNotes, module: Any) -> None:
    """Look whether accelerate can cut the padding off what it gathers: not from one number for a batch."""

    @never_raises
    def look(accelerator: Any, data: Any) -> None:
        state = accelerator.gradient_state
        if state.end_of_dataloader and state.remainder > 0:
            tensors = [each for each in tree_leaves(data) if isinstance(each, torch.Tensor)]
            is_reduced = any(not each.dim() for each in tensors)
            found.note("reduced-before-gathering" if is_reduced else CUT_OFF)

    @found.notes.around(module.Accelerator, "gather_for_metrics", why="it cuts padding off")
    def gather(run: Any, /, self: Any, input_data: Any, *args: Any, **kwargs: Any) -> Any:
        look(self, input_data)
        return run(self, input_data, *args, **kwargs)


def _meshes(found: TrapNotes, module: Any) -> None:
    """Look at meshes whose ranks are not in ascending order along a dimension."""

    @never_raises
    def look(mesh: Any) -> None:
        ranks = mesh.mesh
        is_mixed = any(bool((ranks.diff(dim=dim) < 0).any()) for dim in range(ranks.dim()))
        if is_mixed and not getattr(mesh, "_preserve_rank_order", False):
            found.note("unsorted-mesh", str(ranks.tolist()))

    @found.notes.around(module.DeviceMesh, "__init__", why="its ranks may be out of order")
    def made(make: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if not kwargs.get("preserve_rank_order"):
            look(self)


def _functional(found: TrapNotes, module: Any) -> None:
    """Look at differentiable reductions whose gradient is not that of a sum."""

    @found.notes.around(module._AllReduce, "forward", why="its backward is that of a sum")
    def reduced(forward: Any, /, ctx: Any, op: Any, group: Any, tensor: Any) -> Any:
        if op not in _LINEAR and any(ctx.needs_input_grad):
            found.note("reduced-by", str(op).rpartition(".")[2])
        return forward(ctx, op, group, tensor)


def _pipelines(found: TrapNotes, module: Any) -> None:
    """Look at batches that cannot be cut into equal micro-batches."""

    @never_raises
    def look(schedule: Any, args: Any) -> None:
        rows = next((len(each) for each in args or () if isinstance(each, torch.Tensor) and each.dim()), None)
        count = schedule._n_microbatches
        if rows is not None and rows % count:
            found.note("uneven-microbatches", f"{rows} rows in {count} micro-batches")

    @never_raises
    def look_at_gradients(schedule: Any) -> None:
        if not (schedule.scale_grads and schedule._n_microbatches > 1 and torch.is_grad_enabled()):
            return
        stages = [schedule._stage] if hasattr(schedule, "_stage") else schedule._stages
        gradients = [each.grad for stage in stages for each in stage.submod.parameters()]
        if any(each is not None and total(each) for each in gradients):
            found.note("rescaled-gradients", str(schedule._n_microbatches))

    @found.notes.around(module._PipelineSchedule, "_split_inputs", why="micro-batches may be unequal")
    def split(run: Any, /, self: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        look(self, args)
        look_at_gradients(self)
        return run(self, args, *rest, **kwargs)


def _stages(found: TrapNotes, module: Any) -> None:
    """Look whether the search for the shapes between stages changes the statistics of a BatchNorm."""
    before: dict[int, list[int]] = {}

    @never_raises
    def remember(stage: Any) -> None:
        before[id(stage)] = _statistics(stage.submod)

    @never_raises
    def look(stage: Any) -> None:
        if before.pop(id(stage), []) != _statistics(stage.submod):
            found.note("statistics-of-shapes")

    @found.notes.around(module.PipelineStage, "_prepare_forward_infra", why="it may call the stage")
    def prepare(run: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        remember(self)
        result = run(self, *args, **kwargs)
        look(self)
        return result


def _statistics(module: Any) -> list[int]:
    norms = [each for each in module.modules() if isinstance(each, _NormBase) and each.training]
    return [total(each) for norm in norms for each in norm.buffers()]


def _converting(found: TrapNotes) -> None:
    """Look whether SyncBatchNorm takes the place of a norm that does more than to normalise."""

    @never_raises
    def look(module: Any) -> None:
        is_own = isinstance(module, _BatchNorm) and type(module).forward is not _BatchNorm.forward
        if is_own and not isinstance(module, SyncBatchNorm):
            found.note("converted-norm", type(module).__name__)

    @found.notes.around(SyncBatchNorm, "convert_sync_batchnorm", why="it replaces subclasses by their base")
    def convert(run: Any, /, module: Any, *args: Any, **kwargs: Any) -> Any:
        for each in module.modules():
            look(each)
        return run(module, *args, **kwargs)


def _zero(found: TrapNotes, module: Any) -> None:
    """Look whether ZeroRedundancyOptimizer left a group of parameters empty."""

    @never_raises
    def look(optimizer: Any) -> None:
        number = sum(not group["params"] for group in optimizer.param_groups)
        if number:
            found.note("empty-group", str(number))

    @found.notes.around(module.ZeroRedundancyOptimizer, "__init__", why="it reads generators twice")
    def made(make: Any, /, self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        groups = [each for each in params if isinstance(each, dict)] if isinstance(params, list) else []
        is_read_twice = any(isinstance(each.get("params"), Iterator) for each in groups)
        make(self, params, *args, **kwargs)
        if is_read_twice:
            look(self)
