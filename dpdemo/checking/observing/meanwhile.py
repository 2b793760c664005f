"""Values that forward and hooks keep during a call: two extra calls show them, plain and DataParallel's.

A stack that an encoder fills and a decoder empties, or an object that a mask is put on and taken off again,
is one and the same for all replicas, and nothing shows it after. It is looked at before each line of a
forward, and each time that a module begins or ends.
"""

import torch

from dpdemo.checking.evidence import KeepingHook
from dpdemo.checking.observing.holders import core_of, names_a_gpu, walk
from dpdemo.checking.observing.hooks import changed, reaches_of, users_hooks
from dpdemo.checking.observing.mixing import tracing
from dpdemo.checking.observing.state import changeable_parts
from dpdemo.checking.running.runs import Runner
from dpdemo.checking.source import code_of
from dpdemo.models.inputs import Arguments


def used_meanwhile(runner: Runner, mode: str, given: Arguments) -> tuple[tuple[str, ...], ...]:
    """Run a plain call, and list the containers and objects of modules that are changed only meanwhile.

    Returns:
        For each the paths by which modules hold it. One whose keys are GPUs is left out.

    """
    if not changeable_parts(runner.source.prototype):
        return ()
    model = runner.single_model(mode)
    held = [(value, paths, _tensors(value)) for value, paths in changeable_parts(model)]
    seen: dict[int, bool] = {}

    def look(*_: object) -> None:
        for at, (value, _paths, before) in enumerate(held):
            if at not in seen and _tensors(value) - before:
                seen[at] = names_a_gpu(walk(value))

    for module in model.modules():
        module.register_forward_pre_hook(look)
        module.register_forward_hook(look)
    codes = {code for module in model.modules() if (code := code_of(module.forward)) is not None}
    with tracing(codes, lambda _frame, event, _value: look() if event == "line" else None):
        if runner.called_aside(model, given) is None:
            return ()
    used = [held[at] for at, is_by_gpu in seen.items() if not is_by_gpu]
    return tuple(tuple(paths) for value, paths, before in used if _tensors(value) <= before)


def _tensors(value: object) -> set[int]:
    """List the tensors that a value holds, by their identity."""
    return {id(part.value) for part in walk(value) if isinstance(part.value, torch.Tensor)}


def kept_by_hooks(runner: Runner, mode: str, given: Arguments) -> tuple[KeepingHook, ...]:
    """List the hooks that keep something, but for an entry of each GPU's own in a dict."""
    if not any(map(users_hooks, runner.source.prototype.modules())):
        return ()
    seen = []
    for model in (runner.single_model(mode), runner.parallel_model(mode)):
        reaches = reaches_of(core_of(model), looks_within=True)  # after the other call: copies may share it
        runner.called_aside(model, given)
        seen.append((changed(reaches), {key: reach.new_entries for key, reach in reaches.items()}))
    (kept, alone), (_, split) = seen
    each = len(runner.device_ids)
    by_gpu = {key for key, number in alone.items() if number is not None and split.get(key) == each * number}
    return tuple(write for write in kept if (write.path, write.function) not in by_gpu)
