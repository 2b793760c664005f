"""Follow the wrappers that average gradients: DistributedDataParallel and both kinds of FSDP."""

import sys
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from dpdemo.models.frames import is_users
from dpdemo.ranks.observe.models import groups_of_fsdp1, groups_of_fsdp2
from dpdemo.ranks.observe.notes import users_line
from dpdemo.ranks.observe.numbers import is_checked
from dpdemo.ranks.observe.training import TrainingNotes

_FSDP = "torch.distributed.fsdp"


def watch(found: TrainingNotes) -> None:
    """Follow the modules that this process wraps."""
    _follow_ddp(found)
    when_imported = found.notes.when_imported
    when_imported(
        f"{_FSDP}.fully_sharded_data_parallel",
        lambda module: _follow_fsdp1(found, module),
    )
    when_imported(
        f"{_FSDP}._fully_shard._fully_shard",
        lambda module: _note_no_sync(found, module.FSDPModule, "set_requires_gradient_sync"),
    )
    when_imported(f"{_FSDP}._fully_shard._fsdp_state", lambda module: _follow_fsdp2(found, module))


def _follow_ddp(found: TrainingNotes) -> None:
    kind = DistributedDataParallel

    @found.notes.around(kind, "__init__", why="a model is wrapped")
    def made(init: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        found.made(self, "DistributedDataParallel", [self.process_group])

    @found.notes.around(kind, "__getattr__", why="a call of `.module` goes past the wrapper")
    def attribute(get: Any, /, self: Any, name: str) -> Any:
        if name == "module" and torch.is_grad_enabled():
            caller = sys._getframe(2)  # the first one is that of the patch
            if is_users(caller.f_code.co_filename):
                model = found.by_module.get(self)
                if model is not None:
                    model.bypass = users_line(caller)
        return get(self, name)

    _note_no_sync(found, kind, "no_sync")
    _note_calls(found, kind)


def _note_no_sync(found: TrainingNotes, kind: Any, name: str) -> None:
    """Note the line that tells a wrapper not to average."""

    @found.notes.around(kind, name, why="gradients are not averaged for a while")
    def asked(ask: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (args and args[0]):
            found.no_sync = users_line()
        return ask(self, *args, **kwargs)


def _note_calls(found: TrainingNotes, kind: Any) -> None:
    """Note the calls of a wrapper's forward."""

    @found.notes.around(kind, "forward", why="rows enter the model")
    def call(forward: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        model = found.by_module.get(self)
        inner = getattr(self, "module", self)  # Lightning leaves the wrapper itself in evaluation mode
        is_training = torch.is_grad_enabled() and inner.training
        if model is not None and is_training and is_checked(model.trains):
            found.compare(model, users_line())
        result = forward(self, *args, **kwargs)
        model = model or found.by_module.get(self)
        if model is not None:
            found.forward(model, (args, kwargs), result, is_training=is_training)
        return result


def _follow_fsdp1(found: TrainingNotes, fsdp: Any) -> None:
    """Follow the outermost FullyShardedDataParallel, which is known once its first call begins."""

    @found.notes.around(fsdp, "_root_pre_forward", why="the outermost wrapper is known by then")
    def root_pre_forward(prepare: Any, /, state: Any, module: Any, args: Any, kwargs: Any) -> Any:
        result = prepare(state, module, args, kwargs)
        if state._is_root and state not in found.by_module:
            found.made(state, "FullyShardedDataParallel", groups_of_fsdp1(state))
        return result

    _note_no_sync(found, fsdp.FullyShardedDataParallel, "no_sync")
    _note_calls(found, fsdp.FullyShardedDataParallel)


def _follow_fsdp2(found: TrainingNotes, fsdp: Any) -> None:
    """Follow the outermost module under fully_shard, which is known once its first call begins."""
    state = fsdp.FSDPState
    inputs: dict[int, Any] = {}

    @found.notes.around(state, "_pre_forward", why="the outermost module is known by then")
    def pre_forward(before: Any, /, self: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if self._is_root is None:  # those inside it know by now that they are not
            found.made(module, "fully_shard", groups_of_fsdp2(module))
        if self._is_root is not False:
            inputs[id(module)] = args, kwargs
        return before(self, module, args, kwargs)

    @found.notes.around(state, "_post_forward", why="rows have left the model")
    def post_forward(after: Any, /, self: Any, module: Any, input: Any, output: Any) -> Any:  # noqa: A002
        model = found.by_module.get(module)
        if model is not None and id(module) in inputs:
            is_training = torch.is_grad_enabled() and module.training
            found.forward(model, inputs.pop(id(module)), output, is_training=is_training)
        return after(self, module, input, output)
