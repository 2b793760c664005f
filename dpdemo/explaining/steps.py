"""The steps of one call of DataParallel: the tensors in and out of each, and the bytes copied for it.

Bytes are those copied from one device to another, read off the tensors of a step. A test compares them with
the ledger of virtual GPUs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from dpdemo.calls.arguments import as_one, of_each_replica
from dpdemo.calls.seam import Around, around
from dpdemo.calls.tree import named_tensors, rebuild
from dpdemo.results.explanation import Move, Part, Step, StepName

_MOST_IDS = 8


class Listener:
    """Notes the steps of one call of a wrapper, by four listeners on the seam.

    On one GPU or none DataParallel makes no replicas and calls its module itself, which two hooks then note.
    """

    def __init__(self, wrapper: Any, module: nn.Module) -> None:
        self._wrapper, self._module = wrapper, module
        self._ids: list[int] = list(wrapper.device_ids)
        self._given: list[Part] = []
        self._replicas: tuple[nn.Module, ...] = ()
        self._targets: Sequence[int] = ()
        self._outputs: object = None
        self.steps: list[Step] = []
        self.arguments: tuple[Any, Any] = ((), {})
        self.result: object = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for the length of a `with` block."""
        with ExitStack() as closing:
            if len(self._ids) < 2:  # DataParallel then calls the module itself
                closing.callback(self._module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                closing.callback(self._module.register_forward_hook(self._leave).remove)
            steps = around(
                call=self._call,
                replicate=self._replicate,
                parallel_apply=self._parallel_apply,
                gather=self._gather,
            )
            closing.enter_context(steps)
            yield

    def _call(self, proceed: Around, wrapper: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if wrapper is not self._wrapper:
            return proceed(wrapper, *args, **kwargs)
        self.arguments = rebuild(args, _twin), rebuild(kwargs, _twin)  # a forward may write into its input
        self._given = [part("input", as_one(args, kwargs))]
        self.result = proceed(wrapper, *args, **kwargs)
        return self.result

    def _enter(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if self._ids:
            self._note_scatter([(args, kwargs)])

    def _leave(self, _: nn.Module, __: object, result: object) -> None:
        call = f"module({'chunk 0' if self._ids else 'input'})"
        self._note("plain call", call, self._given, [part("output", result)])

    def _replicate(self, proceed: Around, network: nn.Module, devices: Any, *args: Any) -> Any:
        if network is not self._module:
            return proceed(network, devices, *args)
        replicas = proceed(network, devices, *args)
        self._replicas, self._targets = tuple(replicas), devices
        return replicas

    def _parallel_apply(self, proceed: Around, replicas: Any, chunks: Any, *rest: Any) -> Any:
        if not any(replicas[0] is replica for replica in self._replicas):
            return proceed(replicas, chunks, *rest)
        options, devices = rest
        targets = self._targets
        self._note_scatter(of_each_replica(chunks, options))
        copies = [module_part(f"replica {i}", copy, self._module) for i, copy in enumerate(replicas)]
        call = f"replicate(module, {_listed(targets)})"
        self._note("replicate", call, [module_part("module", self._module, self._module)], copies)
        self._outputs = outputs = proceed(replicas, chunks, *rest)
        made = [part(f"output {i}", output) for i, output in enumerate(outputs)]
        call = f"parallel_apply(replicas, chunks, devices={_listed(devices)})"
        self._note("parallel_apply", call, self._given, made)
        return outputs

    def _gather(self, proceed: Around, outputs: Any, target: Any, dim: int = 0) -> Any:
        result = proceed(outputs, target, dim)
        if outputs is self._outputs:
            call = f"gather(outputs, {target}, dim={dim})"
            self._note("gather", call, self._given, [part("output", result)])
        return result

    def _note_scatter(self, chunks: Sequence[Any]) -> None:
        pieces = [part(f"chunk {i}", as_one(*chunk)) for i, chunk in enumerate(chunks)]
        call = f"scatter(input, {_listed(self._ids)}, dim={self._wrapper.dim})"
        self._note("scatter", call, self._given, pieces)

    def _note(self, name: StepName, call: str, given: list[Part], made: list[Part]) -> None:
        moved = _moved(name, given, made)
        self.steps.append(Step(name, call, tuple(given), tuple(made), moved))
        if name != "replicate":
            self._given = made


def part(label: str, value: object) -> Part:
    """Describe the tensors of a structure."""
    found = named_tensors(value)
    shapes = tuple((path, tuple(tensor.shape)) for path, tensor in found)
    return _part(label, [tensor for _, tensor in found], shapes)


def module_part(label: str, module: nn.Module, original: nn.Module) -> Part:
    """Count the parameters and buffers of a module, or of one of its replicas, each once.

    A replica's parameters are plain attributes (`replicate` in `torch/nn/parallel/replicate.py`), so it is
    the original that knows their names.
    """
    pairs = zip(module.modules(), original.modules(), strict=True)
    found = {
        id(tensor): tensor
        for copy, source in pairs
        for name in (*source._parameters, *source._buffers)  # noqa: SLF001 - as replicate.py reads them
        if (tensor := getattr(copy, name)) is not None
    }
    return _part(label, list(found.values()), ())


def _part(label: str, tensors: Sequence[torch.Tensor], shapes: Any) -> Part:
    devices = ", ".join(dict.fromkeys(str(tensor.device) for tensor in tensors))
    return Part(label, devices, shapes, len(tensors), sum(tensor.nbytes for tensor in tensors))


def _moved(name: StepName, given: Sequence[Part], made: Sequence[Part]) -> tuple[Move, ...]:
    """Read off what scatter and replicate sent out and gather brought together."""
    if name in {"scatter", "replicate"}:
        return _sums((given[0].device, piece.device, piece.num_bytes) for piece in made)
    return _sums((piece.device, made[0].device, piece.num_bytes) for piece in given if name == "gather")


def _sums(moves: Iterable[tuple[str, str, int]]) -> tuple[Move, ...]:
    """Add up the bytes between each pair of devices, in the order of their numbers."""
    sums: Counter[tuple[str, str]] = Counter()
    for source, target, num_bytes in moves:
        if source != target and num_bytes:
            sums[source, target] += num_bytes
    return tuple(Move(*pair, sums[pair]) for pair in sorted(sums, key=lambda pair: list(map(_order, pair))))


def _order(device: str) -> tuple[str, int]:
    kind, _, index = device.partition(":")
    return kind, int(index or 0)


def _twin(leaf: Any) -> Any:
    is_tensor = isinstance(leaf, torch.Tensor)
    return leaf.detach().clone().requires_grad_(leaf.requires_grad) if is_tensor else leaf


def _listed(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= _MOST_IDS else f"[{ids[0]}, {ids[1]}, ..., {ids[-1]}]"
