"""One batch through scatter, replicate, parallel_apply and gather, as DataParallel itself calls them.

Listeners on DataParallel's steps (`watching/seam.py`) note the tensors of each step and the bytes copied
for it.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Unpack

import torch
from torch import nn

from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.config.fields import Config
from dpdemo.config.keys import Keys, showing_keys
from dpdemo.config.load import resolve
from dpdemo.errors import RunError
from dpdemo.explaining.movement import Meter, Moves, module_part, moved_by_tensors, part
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.modules import BuiltModel, build
from dpdemo.reports.devices import Devices
from dpdemo.reports.explanation import Explanation, ModuleSize, Part, PlainCall, Step, StepName
from dpdemo.reports.lessons import with_lessons
from dpdemo.running.dp import place
from dpdemo.running.epoch import make_loader, threads_for
from dpdemo.running.opening import opened
from dpdemo.splitting.weighted import WeightedDataParallel
from dpdemo.watching.seam import Around, around
from dpdemo.watching.tree import named_tensors, rebuild

_MOST_IDS = 8


@showing_keys
def explain(
    config: Config | str | os.PathLike[str] | None = None, *, virtual: bool = False, **overrides: Unpack[Keys]
) -> Explanation:
    """Call DataParallel on the first batch of an epoch and report each of its steps.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: use virtual GPUs, as many as `gpus` asks for, instead of real ones.
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Returns:
        Each step's tensors in and out with shapes, devices and bytes, and how far the result is from a plain
            call of the module.

    Raises:
        UsageError: if the config is not valid, or names a GPU that does not exist.
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


def _explain(
    built: BuiltModel, batch: torch.Tensor, config: Config, devices: Devices, meter: Meter
) -> Explanation:
    listener = _Listener(built, devices, meter)
    with _repeatable(built.model, config.seed), listener.listening():
        built.model(batch.to(built.input_device))
    with _repeatable(built.model, config.seed):
        args, kwargs = listener.arguments
        plain = built.split(*args, **kwargs)
    parameters, buffers = list(built.split.parameters()), list(built.split.buffers())
    explanation = Explanation(
        config=config,
        devices=devices,
        wrapped=config.wrapped,
        virtual=meter.is_ledger,
        batch_size=batch.shape[config.dim],
        module=ModuleSize(len(parameters), _num_bytes(parameters), len(buffers), _num_bytes(buffers)),
        steps=tuple(listener.steps),
        idle=_idle(devices, listener.steps[0]),
        bytes_from="ledger" if meter.is_ledger else "tensors",
        plain=compare_with_plain(listener.result, plain),
    )
    return with_lessons(explanation)


@contextmanager
def _repeatable(model: nn.Module, seed: int) -> Iterator[None]:
    """Start a call from the config's seed and restore the model's buffers after it."""
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield
    with torch.no_grad():
        for buffer, before in kept:
            buffer.copy_(before)


class _Listener:
    """Notes the steps of one call of a DataParallel object."""

    def __init__(self, built: BuiltModel, devices: Devices, meter: Meter) -> None:
        self._module = built.split
        self._wrapper: Any = built.wrapper
        self._ids = list(devices.ordinals) if devices.kind == "cuda" else []
        self._meter = meter
        self._given: list[Part] = []
        self._replicas: list[nn.Module] = []
        self._copied: tuple[list[int], Moves, Moves] = ([], None, None)
        self._outputs: object = None
        self.steps: list[Step] = []
        self.arguments: tuple[Any, Any] = ((), {})
        self.result: object = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for the length of a `with` block."""
        hooks: list[Any] = [
            self._wrapper.register_forward_pre_hook(self._enter, with_kwargs=True),
            self._wrapper.register_forward_hook(self._leave),
        ]
        if len(self._ids) < 2:  # DataParallel then calls the module itself
            hooks.append(self._module.register_forward_pre_hook(self._enter_module, with_kwargs=True))
            hooks.append(self._module.register_forward_hook(self._leave_module))
        steps: dict[str, Around] = {
            "replicate": self._replicate,
            "parallel_apply": self._parallel_apply,
            "gather": self._gather,
        }
        with ExitStack() as closing:
            for hook in hooks:
                closing.callback(hook.remove)
            closing.enter_context(around(**steps))
            yield

    def _enter(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        self.arguments = rebuild(args, _twin), rebuild(kwargs, _twin)  # a forward may write into its input
        self._given = [part("input", _lone(args, kwargs))]
        self._meter.take()

    def _leave(self, _: nn.Module, __: object, result: object) -> None:
        self.result = result

    def _enter_module(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if self._ids:
            self._note_scatter([(args, kwargs)], self._ids, self._meter.take())

    def _leave_module(self, _: nn.Module, __: object, result: object) -> None:
        call = f"module({'chunk 0' if self._ids else 'input'})"
        self._note("plain call", call, self._given, [part("output", result)], self._meter.take())

    def _replicate(self, proceed: Around, network: nn.Module, devices: Any, *args: Any) -> Any:
        if network is not self._module:
            return proceed(network, devices, *args)
        scattered = self._meter.take()
        self._replicas = proceed(network, devices, *args)
        self._copied = list(devices), scattered, self._meter.take()
        return self._replicas

    def _parallel_apply(self, proceed: Around, replicas: Any, chunks: Any, options: Any, devices: Any) -> Any:
        if not any(replicas[0] is replica for replica in self._replicas):
            return proceed(replicas, chunks, options, devices)
        targets, scattered, replicated = self._copied
        self._note_scatter(list(zip(chunks, options, strict=True)), list(devices), scattered)
        copies = [module_part(f"replica {i}", copy, self._module) for i, copy in enumerate(replicas)]
        # WeightedDataParallel copies from the first GPU, and drops that replica where it has no rows
        call = f"replicate(module, {_listed(targets)}){'[1:]' * (len(targets) - len(replicas))}"
        self._note("replicate", call, [module_part("module", self._module, self._module)], copies, replicated)
        self._outputs = outputs = proceed(replicas, chunks, options, devices)
        made = [part(f"output {i}", output) for i, output in enumerate(outputs)]
        call = f"parallel_apply(replicas, chunks, devices={_listed(list(devices))})"
        self._note("parallel_apply", call, self._given, made, self._meter.take())
        return outputs

    def _gather(self, proceed: Around, outputs: Any, target: Any, dim: int = 0) -> Any:
        result = proceed(outputs, target, dim)
        if outputs is self._outputs:
            call = f"gather(outputs, {target}, dim={dim})"
            self._note("gather", call, self._given, [part("output", result)], self._meter.take())
        return result

    def _note_scatter(self, chunks: Sequence[Any], used: list[int], moved: Moves) -> None:
        dim = self._wrapper.dim
        pieces = [part(f"chunk {i}", _lone(*chunk)) for i, chunk in enumerate(chunks)]
        call = f"scatter(input, {_listed(self._ids)}, dim={dim})"
        if isinstance(self._wrapper, WeightedDataParallel) and len(self._ids) > 1:
            rows = [piece.shapes[0][1][dim] for piece in pieces]
            call = f"Scatter.apply({_listed(used)}, {_listed(rows)}, {dim}, input)"
        self._note("scatter", call, self._given, pieces, moved)

    def _note(self, name: StepName, call: str, given: list[Part], made: list[Part], moved: Moves) -> None:
        if moved is None:
            moved = moved_by_tensors(name, given, made)
        self.steps.append(Step(name, call, tuple(given), tuple(made), moved))
        if name != "replicate":
            self._given = made


def _idle(devices: Devices, scatter: Step) -> Devices:
    """Return the devices that no chunk went to."""
    if devices.kind != "cuda":
        return devices[1:]
    return devices.without([Devices.from_names([piece.device for piece in scatter.made])])


def _twin(leaf: Any) -> Any:
    is_tensor = isinstance(leaf, torch.Tensor)
    return leaf.detach().clone().requires_grad_(leaf.requires_grad) if is_tensor else leaf


def _lone(args: Any, kwargs: Any) -> object:
    """Leave a lone argument without a name; name several by their places and keywords."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {**{str(i): value for i, value in enumerate(args)}, **kwargs}


def _listed(ids: list[int]) -> str:
    return str(ids) if len(ids) <= _MOST_IDS else f"[{ids[0]}, {ids[1]}, ..., {ids[-1]}]"


def _num_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def compare_with_plain(result: object, plain: object) -> PlainCall:
    """Compare a result with that of a plain call, by the tensor that is furthest off for its type."""
    found, wanted = named_tensors(result), named_tensors(plain)
    is_alike = [(path, x.shape) for path, x in found] == [(path, x.shape) for path, x in wanted]
    device = str(wanted[0][1].device) if wanted else ""
    calls = [
        PlainCall(
            _difference(found[index][1], tensor) if is_alike else None,
            _largest(tensor),
            str(tensor.dtype).removeprefix("torch."),
            device,
        )
        for index, (_, tensor) in enumerate(wanted)
    ]
    return max(calls, key=_share, default=PlainCall(0.0 if is_alike else None, 0.0, "", device))


def _share(call: PlainCall) -> float:
    """Return a difference as a share of what its type allows."""
    if not call.difference:
        return 0.0
    allowed = tolerance_of(call.dtype).allowed(call.scale)
    return call.difference / allowed if allowed and call.difference < math.inf else math.inf


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference, in the widest type of its kind, in which it is exact."""
    wide = torch.complex128 if one.is_complex() else torch.float64
    a, b = one.detach().cpu().to(wide), other.detach().cpu().to(wide)
    return _largest(torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), a - b))


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0
