"""One batch through scatter, replicate, parallel_apply and gather, one public primitive of torch at a time.

The four calls are those of `DataParallel.forward` (`torch/nn/parallel/data_parallel.py`), on the same module
with the same arguments; between them everything is looked at. That the steps are DataParallel is then not
claimed but shown: the genuine one gets the same batch, and so does the module alone on one device.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import gather, parallel_apply, replicate
from torch.nn.parallel.scatter_gather import scatter_kwargs

from dpdemo.catalogue import MODELS
from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.errors import RunError
from dpdemo.explanation import Explanation, ModuleSize, Part, Proof, Step, StepName
from dpdemo.failure import take_apart
from dpdemo.models import BuiltModel, build
from dpdemo.movement import Meter, module_part, part
from dpdemo.observer import named_tensors
from dpdemo.prediction import resolve
from dpdemo.runner.dp import place
from dpdemo.runner.epoch import make_loader, threads_for
from dpdemo.runner.place import opened


def explain(
    config: Config | str | os.PathLike[str] | None = None, *, virtual: bool = False, **overrides: Any
) -> Explanation:
    """Take the first batch of an epoch through DataParallel one step at a time and report each step.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: use virtual GPUs, as many as `gpus` asks for, instead of real ones.
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Raises:
        UsageError: if the config is not valid, or names a GPU that is not there.
        RunError: if the model fails; its message holds the replica and the user's own frames.

    """
    checked = resolve(config, overrides)
    with opened(checked, virtual=virtual) as (devices, gpus):
        built = build(checked, place(checked, devices))
        loader = make_loader(checked)
        batch = next(iter(loader))
        try:
            with threads_for(loader):
                return _explain(built, batch, checked, devices, Meter(gpus))
        except Exception as error:
            raise RunError(
                f"expected the model `{checked.model}` to take its first batch, got {take_apart(error)}"
            ) from error


class Call(NamedTuple):
    """What the wrapped module was called with, and what came back."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments as they were: a forward may write into its input, so each call gets a copy."""
        return _copied(self.args), _copied(self.kwargs)


def _explain(
    built: BuiltModel, batch: torch.Tensor, config: Config, devices: Devices, meter: Meter
) -> Explanation:
    with _repeatable(built.model, config.seed):
        genuine = _call_genuine(built, batch.to(built.input_device))
    with _repeatable(built.model, config.seed):
        steps, result = _Walk(built, devices, meter).take(genuine)
    with _repeatable(built.model, config.seed):
        args, kwargs = genuine.arguments()
        plain = built.split(*args, **kwargs)
    num_used = len(steps[0].made) if devices.kind == "cuda" else 1
    return Explanation(
        config=config,
        devices=devices,
        wrapped=MODELS[config.model].wrapped if config.is_builtin else "",
        virtual=meter.is_ledger,
        batch_size=batch.shape[config.dim],
        module=_size(built.split),
        steps=steps,
        idle=devices[num_used:],
        bytes_from="ledger" if meter.is_ledger else "tensors",
        proof=_prove(result, genuine.result, plain),
    )


@contextmanager
def _repeatable(model: nn.Module, seed: int) -> Iterator[None]:
    """Let each call start from the same random numbers and the same buffers, such as BatchNorm's."""
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield
    with torch.no_grad():
        for buffer, before in kept:
            buffer.copy_(before)


def _call_genuine(built: BuiltModel, batch: torch.Tensor) -> Call:
    """Call the whole model, and note what went into DataParallel and came out of it."""
    calls: list[Call] = []

    def before(_: nn.Module, args: Any, kwargs: Any) -> None:
        calls.append(Call(_copied(args), _copied(kwargs), None))

    def after(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        del args, kwargs
        calls.append(calls.pop()._replace(result=result))

    hooks = [
        built.wrapper.register_forward_pre_hook(before, with_kwargs=True),
        built.wrapper.register_forward_hook(after, with_kwargs=True),
    ]
    try:
        built.model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return calls[0]


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


class _Walk:
    """Does what `DataParallel.forward` does, and notes each step."""

    def __init__(self, built: BuiltModel, devices: Devices, meter: Meter) -> None:
        self._module = built.split
        self._wrapper: Any = built.wrapper
        self._ids = list(devices.ordinals) if devices.kind == "cuda" else []
        self._meter = meter
        self._steps: list[Step] = []

    def take(self, call: Call) -> tuple[tuple[Step, ...], Any]:
        """Take all steps; give them and the result."""
        args, kwargs = call.arguments()
        self._meter.start()
        result = self._forward(args, kwargs)
        return tuple(self._steps), result

    def _forward(self, args: Any, kwargs: Any) -> Any:
        whole = [part("input", _lone(args, kwargs))]
        if not self._ids:
            return self._call_plainly("module(input)", args, kwargs, whole)
        chunks, options = scatter_kwargs(args, kwargs, self._ids, self._wrapper.dim)
        pieces = [
            part(f"chunk {i}", _lone(*pair)) for i, pair in enumerate(zip(chunks, options, strict=True))
        ]
        self._note("scatter", f"scatter(input, {_listed(self._ids)}, dim={self._wrapper.dim})", whole, pieces)
        if len(self._ids) == 1:
            return self._call_plainly("module(chunk 0)", chunks[0], options[0], pieces)
        used = self._ids[: len(chunks)]
        replicas = self._replicate(used)
        outputs = parallel_apply(replicas, chunks, options, used)
        made = [part(f"output {i}", output) for i, output in enumerate(outputs)]
        self._note(
            "parallel_apply", f"parallel_apply(replicas, chunks, devices={_listed(used)})", pieces, made
        )
        return self._gather(outputs, made)

    def _call_plainly(self, say: str, args: Any, kwargs: Any, given: list[Part]) -> Any:
        result = self._module(*args, **kwargs)
        self._note("plain call", say, given, [part("output", result)])
        return result

    def _replicate(self, used: list[int]) -> list[nn.Module]:
        replicas = replicate(self._module, used)
        module = [module_part("module", self._module, self._module)]
        copies = [module_part(f"replica {i}", copy, self._module) for i, copy in enumerate(replicas)]
        self._note("replicate", f"replicate(module, {_listed(used)})", module, copies)
        return replicas

    def _gather(self, outputs: list[Any], made: list[Part]) -> Any:
        target, dim = self._wrapper.output_device, self._wrapper.dim
        result = gather(outputs, target, dim)
        self._note("gather", f"gather(outputs, {target}, dim={dim})", made, [part("output", result)])
        return result

    def _note(self, name: StepName, call: str, given: list[Part], made: list[Part]) -> None:
        self._steps.append(self._meter.step(name, call, given, made))


def _lone(args: Any, kwargs: Any) -> Any:
    """Name a lone argument by nothing, several by their places and keywords."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {**{str(i): value for i, value in enumerate(args)}, **kwargs}


def _listed(ids: list[int]) -> str:
    return str(ids) if len(ids) <= _MOST_IDS else f"[{ids[0]}, {ids[1]}, ..., {ids[-1]}]"


_MOST_IDS = 8


def _size(module: nn.Module) -> ModuleSize:
    parameters, buffers = list(module.parameters()), list(module.buffers())
    return ModuleSize(
        len(parameters),
        sum(tensor.nbytes for tensor in parameters),
        len(buffers),
        sum(tensor.nbytes for tensor in buffers),
    )


def _prove(result: Any, genuine: Any, plain: Any) -> Proof:
    single = [tensor for _, tensor in named_tensors(plain)]
    return Proof(
        equals_data_parallel=_difference(result, genuine) == 0 and _devices(result) == _devices(genuine),
        data_parallel_difference=_difference(result, genuine),
        plain_difference=_difference(result, plain),
        plain_scale=max((_largest(tensor) for tensor in single), default=0.0),
        plain_dtype=str(single[0].dtype).removeprefix("torch.") if single else "",
        plain_device=str(single[0].device) if single else "",
    )


def _devices(value: Any) -> list[torch.device]:
    return [tensor.device for _, tensor in named_tensors(value)]


def _difference(one: Any, other: Any) -> float | None:
    """Give the largest difference of two results, None where their structures or shapes differ."""
    left, right = named_tensors(one), named_tensors(other)
    if [(path, tensor.shape) for path, tensor in left] != [(path, tensor.shape) for path, tensor in right]:
        return None
    pairs = zip(left, right, strict=True)
    return max((_largest(_apart(a, b)) for (_, a), (_, b) in pairs), default=0.0)


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    a, b = _wide(one), _wide(other)
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, torch.zeros_like(a), a - b)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Bring a tensor to the CPU in the widest type of its kind, in which a difference is exact."""
    found = tensor.detach().cpu()
    return found.to(torch.complex128 if found.is_complex() else torch.float64)


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0
