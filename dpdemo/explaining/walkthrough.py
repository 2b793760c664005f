"""One batch through scatter, replicate, parallel_apply and gather, one public primitive of torch at a time.

The four calls are those of `DataParallel.forward` (`torch/nn/parallel/data_parallel.py`), on the same module
with the same arguments; between them everything is looked at. To prove that the steps are DataParallel's, the
genuine one gets the same batch, and so does the module alone on one device.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Unpack

import torch
from torch import nn
from torch.nn.parallel import gather, parallel_apply, replicate
from torch.nn.parallel.scatter_gather import scatter_kwargs

from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.config.fields import Config
from dpdemo.config.keys import Keys, showing_keys
from dpdemo.config.load import resolve
from dpdemo.errors import RunError
from dpdemo.explaining.movement import Meter, module_part, part
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.modules import BuiltModel, build
from dpdemo.observation.tree import named_tensors, rebuild
from dpdemo.reports.devices import Devices
from dpdemo.reports.explanation import Explanation, ModuleSize, Part, Proof, Step, StepName
from dpdemo.reports.lessons import with_lessons
from dpdemo.running.dp import place
from dpdemo.running.epoch import make_loader, threads_for
from dpdemo.running.opening import opened
from dpdemo.weighting import WeightedDataParallel
from dpdemo.weighting.cutting import scatter_by


@showing_keys
def explain(
    config: Config | str | os.PathLike[str] | None = None, *, virtual: bool = False, **overrides: Unpack[Keys]
) -> Explanation:
    """Take the first batch of an epoch through DataParallel one step at a time and report each step.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: use virtual GPUs, as many as `gpus` asks for, instead of real ones.
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Returns:
        Each step's tensors in and out with shapes, devices and bytes, and the proof that they are
            DataParallel's.

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
            with threads_for(loader), users_model():
                return _explain(built, batch, checked, devices, Meter(gpus))
        except Exception as error:
            raise RunError(
                f"expected the model `{checked.model}` to take its first batch, got {take_apart(error)}"
            ) from error


class Call(NamedTuple):
    """What the wrapped module was called with, and what came back."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    result: object

    def arguments(self) -> tuple[tuple[object, ...], dict[str, object]]:
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
    explanation = Explanation(
        config=config,
        devices=devices,
        wrapped=config.wrapped,
        virtual=meter.is_ledger,
        batch_size=batch.shape[config.dim],
        module=_size(built.split),
        steps=steps,
        idle=_idle(devices, steps[0]),
        bytes_from="ledger" if meter.is_ledger else "tensors",
        proof=_prove(result, genuine.result, plain),
    )
    return with_lessons(explanation)


def _idle(devices: Devices, scatter: Step) -> Devices:
    """Name the devices that no chunk went to."""
    if devices.kind != "cuda":
        return devices[1:]
    return devices.without([Devices.from_names([piece.device for piece in scatter.made])])


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

    def before(_: nn.Module, args: object, kwargs: object) -> None:
        calls.append(Call(_copied(args), _copied(kwargs), None))

    def after(_: nn.Module, args: object, kwargs: object, result: object) -> None:
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


def _copied(value: object) -> Any:
    return rebuild(value, _twin)


def _twin(leaf: Any) -> Any:
    is_tensor = isinstance(leaf, torch.Tensor)
    return leaf.detach().clone().requires_grad_(leaf.requires_grad) if is_tensor else leaf


class _Walk:
    """Does what `DataParallel.forward` does, and notes each step."""

    def __init__(self, built: BuiltModel, devices: Devices, meter: Meter) -> None:
        self._module = built.split
        self._wrapper: Any = built.wrapper
        self._ids = list(devices.ordinals) if devices.kind == "cuda" else []
        self._meter = meter
        self._steps: list[Step] = []

    def take(self, call: Call) -> tuple[tuple[Step, ...], object]:
        """Take all steps; give them and the result."""
        args, kwargs = call.arguments()
        self._meter.start()
        result = self._forward(args, kwargs)
        return tuple(self._steps), result

    def _forward(self, args: object, kwargs: object) -> object:
        whole = [part("input", _lone(args, kwargs))]
        if not self._ids:
            return self._call_plainly("module(input)", args, kwargs, whole)
        used, chunks, options = self._scatter(args, kwargs)
        pieces = [
            part(f"chunk {i}", _lone(*pair)) for i, pair in enumerate(zip(chunks, options, strict=True))
        ]
        self._note("scatter", self._scatter_call(used, chunks, options), whole, pieces)
        if len(self._ids) == 1:
            return self._call_plainly("module(chunk 0)", chunks[0], options[0], pieces)
        replicas = self._replicate(used)
        outputs = parallel_apply(replicas, chunks, options, used)
        made = [part(f"output {i}", output) for i, output in enumerate(outputs)]
        self._note(
            "parallel_apply", f"parallel_apply(replicas, chunks, devices={_listed(used)})", pieces, made
        )
        return self._gather(outputs, made)

    def _scatter(self, args: Any, kwargs: Any) -> tuple[list[int], Any, Any]:
        """Cut the arguments as the wrapper does, and return which GPUs get a chunk."""
        wrapper = self._wrapper
        if isinstance(wrapper, WeightedDataParallel):
            found = scatter_by(wrapper.split, args, kwargs, self._ids, wrapper.dim)
            return list(found.device_ids), found.args, found.kwargs
        chunks, options = scatter_kwargs(args, kwargs, self._ids, wrapper.dim)
        return self._ids[: len(chunks)], chunks, options

    def _scatter_call(self, used: list[int], chunks: Any, options: Any) -> str:
        """Write the call that cuts: with weights it is Scatter's own, with the rows of each chunk."""
        dim = self._wrapper.dim
        if not isinstance(self._wrapper, WeightedDataParallel):
            return f"scatter(input, {_listed(self._ids)}, dim={dim})"
        rows = [named_tensors(pair)[0][1].shape[dim] for pair in zip(chunks, options, strict=True)]
        return f"Scatter.apply({_listed(used)}, {_listed(rows)}, {dim}, input)"

    def _call_plainly(self, say: str, args: Any, kwargs: Any, given: list[Part]) -> object:
        result = self._module(*args, **kwargs)
        self._note("plain call", say, given, [part("output", result)])
        return result

    def _replicate(self, used: list[int]) -> list[nn.Module]:
        # the parameters are copied from the first GPU, which may have no rows itself
        source = self._ids[:1] if used[0] != self._ids[0] else []
        replicas = replicate(self._module, [*source, *used])[len(source) :]
        module = [module_part("module", self._module, self._module)]
        copies = [module_part(f"replica {i}", copy, self._module) for i, copy in enumerate(replicas)]
        call = f"replicate(module, {_listed([*source, *used])}){'[1:]' * len(source)}"
        self._note("replicate", call, module, copies)
        return replicas

    def _gather(self, outputs: list[object], made: list[Part]) -> object:
        target, dim = self._wrapper.output_device, self._wrapper.dim
        result = gather(outputs, target, dim)
        self._note("gather", f"gather(outputs, {target}, dim={dim})", made, [part("output", result)])
        return result

    def _note(self, name: StepName, call: str, given: list[Part], made: list[Part]) -> None:
        self._steps.append(self._meter.step(name, call, given, made))


def _lone(args: Any, kwargs: Any) -> object:
    """Leave a lone argument without a name; name several by their places and keywords."""
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


def _prove(result: object, genuine: object, plain: object) -> Proof:
    differences, single = _differences(result, genuine), [tensor for _, tensor in named_tensors(plain)]
    far = None if differences is None else max(differences, default=0.0)
    gap = _widest_gap(_differences(result, plain), single)
    return Proof(
        equals_data_parallel=far == 0 and _devices(result) == _devices(genuine),
        data_parallel_difference=far,
        plain_difference=gap.difference,
        plain_scale=gap.scale,
        plain_dtype=gap.dtype,
        plain_device=str(single[0].device) if single else "",
    )


class _Gap(NamedTuple):
    """How far apart two tensors are at most, the largest number of the second, and the type of both."""

    difference: float | None
    scale: float
    dtype: str

    @property
    def share(self) -> float:
        """The difference as a share of what its type allows."""
        if not self.difference:
            return 0.0
        allowed = tolerance_of(self.dtype).allowed(self.scale)
        return self.difference / allowed if allowed and self.difference < math.inf else math.inf


def _widest_gap(differences: list[float] | None, single: list[torch.Tensor]) -> _Gap:
    """Find the tensor that is the farthest off for its type: a result may hold numbers of several."""
    known = differences if differences is not None else [None] * len(single)
    gaps = [
        _Gap(difference, _largest(tensor), str(tensor.dtype).removeprefix("torch."))
        for difference, tensor in zip(known, single, strict=True)
    ]
    return max(gaps, key=lambda gap: gap.share, default=_Gap(None if differences is None else 0.0, 0.0, ""))


def _devices(value: object) -> list[torch.device]:
    return [tensor.device for _, tensor in named_tensors(value)]


def _differences(one: object, other: object) -> list[float] | None:
    """Give the largest difference of each tensor of two results, None where structures or shapes differ."""
    left, right = named_tensors(one), named_tensors(other)
    if [(path, tensor.shape) for path, tensor in left] != [(path, tensor.shape) for path, tensor in right]:
        return None
    return [_largest(_apart(a, b)) for (_, a), (_, b) in zip(left, right, strict=True)]


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
