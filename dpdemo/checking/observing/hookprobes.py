"""Which of a model's hooks keep something of a call: seen by a plain call and one under DataParallel."""

from torch import nn

from dpdemo.checking.evidence import Kept
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.hooks import Reach, name_of
from dpdemo.checking.observing.scan import users_hooks
from dpdemo.checking.running.runs import Runner
from dpdemo.models.inputs import Arguments

Reaches = dict[tuple[str, str], Reach]
"""By module and function, what each hook can write to."""


def kept_by_hooks(runner: Runner, mode: str, given: Arguments) -> tuple[Kept, ...]:
    """List the hooks that keep something, but for an entry of each GPU's own in a dict."""
    if not any(users_hooks(module) for module in runner.source.prototype.modules()):
        return ()
    single, parallel = runner.single_model(mode), runner.parallel_model(mode)
    alone = _watched(single)  # what a function has around it may be shared with the other copy
    runner.called_aside(single, given)
    _look(alone)
    split = _watched(core_of(parallel))
    runner.called_aside(parallel, given)
    _look(split)
    each = len(runner.device_ids)
    return tuple(
        Kept(*key, reach.names)
        for key, reach in alone.items()
        if reach.changed and not _is_by_gpu(reach, split.get(key), each)
    )


def changed(reaches: Reaches) -> tuple[Kept, ...]:
    """List the hooks that have kept something of a call that is over."""
    _look(reaches)
    return tuple(Kept(*key, reach.names) for key, reach in reaches.items() if reach.changed)


def _look(reaches: Reaches) -> None:
    for reach in reaches.values():
        reach.look()


def _is_by_gpu(alone: Reach, split: Reach | None, each: int) -> bool:
    """Whether a hook leaves so many times as many entries under DataParallel."""
    number = alone.new_entries
    return number is not None and split is not None and split.new_entries == each * number


def reaches_of(model: nn.Module) -> Reaches:
    """Look at what each hook of the user's can write to, before a call."""
    return {
        (path or type(module).__name__, name_of(hook)): Reach(hook)
        for path, module in model.named_modules()
        for hook in users_hooks(module)
    }


def _watched(model: nn.Module) -> Reaches:
    """Look also just after the module that a hook is on has run: forward may take away what it keeps."""
    found = reaches_of(model)
    for path, module in model.named_modules():
        for hook in users_hooks(module):
            reach = found[path or type(module).__name__, name_of(hook)]
            module.register_forward_hook(lambda *_, reach=reach: reach.look())
    return found
