"""The steps of one call of DataParallel: the tensors in and out of each, and the bytes copied for it.

Bytes are those copied from one device to another, as the ledger of virtual GPUs counts them. Real GPUs keep
no ledger; there the same bytes are read off the tensors of a step. A test compares the two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpdemo.results.explanation import Move, Part, Step, StepName
from dpdemo.splitting.weighted import WeightedDataParallel
from dpdemo.watching.seam import Around, around
from dpdemo.watching.trace import num_rows
from dpdemo.watching.tree import named_tensors, rebuild

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus

_MOST_IDS = 8
Moves = tuple[Move, ...] | None


class Meter:
    """Reads the ledger of virtual GPUs between two steps; real GPUs have none."""

    def __init__(self, gpus: "VirtualGpus | None") -> None:
        self._gpus = gpus
        self._before: dict[tuple[int | None, int | None], int] = {}

    @property
    def is_ledger(self) -> bool:
        """Whether there is a ledger."""
        return self._gpus is not None

    def take(self) -> Moves:
        """Return the bytes copied since the last call, or None without a ledger."""
        if self._gpus is None:
            return None
        before, self._before = self._before, dict(self._gpus.bytes_moved_between)
        return _sums(
            (_name(source), _name(target), total - before.get((source, target), 0))
            for (source, target), total in self._before.items()
        )


class Listener:
    """Notes the steps of one call of a wrapper, by four listeners on the seam.

    On one GPU or none DataParallel makes no replicas and calls its module itself, which two hooks then note.
    """

    def __init__(self, wrapper: Any, module: nn.Module, meter: Meter) -> None:
        self._wrapper, self._module, self._meter = wrapper, module, meter
        self._ids: list[int] = list(wrapper.device_ids)
        self._given: list[Part] = []
        self._replicas: tuple[nn.Module, ...] = ()
        self._copied: tuple[Sequence[int], Moves, Moves] = ((), None, None)
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
        self._given = [part("input", _lone(args, kwargs))]
        self._meter.take()
        self.result = proceed(wrapper, *args, **kwargs)
        return self.result

    def _enter(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if self._ids:
            self._note_scatter([(args, kwargs)], self._ids, self._meter.take())

    def _leave(self, _: nn.Module, __: object, result: object) -> None:
        call = f"module({'chunk 0' if self._ids else 'input'})"
        self._note("plain call", call, self._given, [part("output", result)], self._meter.take())

    def _replicate(self, proceed: Around, network: nn.Module, devices: Any, *args: Any) -> Any:
        if network is not self._module:
            return proceed(network, devices, *args)
        scattered = self._meter.take()
        replicas = proceed(network, devices, *args)
        self._replicas, self._copied = tuple(replicas), (devices, scattered, self._meter.take())
        return replicas

    def _parallel_apply(self, proceed: Around, replicas: Any, chunks: Any, *rest: Any) -> Any:
        if not any(replicas[0] is replica for replica in self._replicas):
            return proceed(replicas, chunks, *rest)
        options, devices = rest
        targets, scattered, replicated = self._copied
        self._note_scatter(list(zip(chunks, options, strict=True)), list(devices), scattered)
        copies = [module_part(f"replica {i}", copy, self._module) for i, copy in enumerate(replicas)]
        # WeightedDataParallel copies from the first GPU, and drops that replica where it has no rows
        call = f"replicate(module, {_listed(targets)}){'[1:]' * (len(targets) - len(replicas))}"
        self._note("replicate", call, [module_part("module", self._module, self._module)], copies, replicated)
        self._outputs = outputs = proceed(replicas, chunks, *rest)
        made = [part(f"output {i}", output) for i, output in enumerate(outputs)]
        call = f"parallel_apply(replicas, chunks, devices={_listed(devices)})"
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
            rows = [num_rows(piece.shapes, dim) for piece in pieces]
            call = f"Scatter.apply({_listed(used)}, {_listed(rows)}, {dim}, input)"
        self._note("scatter", call, self._given, pieces, moved)

    def _note(self, name: StepName, call: str, given: list[Part], made: list[Part], moved: Moves) -> None:
        if moved is None:
            moved = moved_by_tensors(name, given, made)
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


def moved_by_tensors(name: StepName, given: Sequence[Part], made: Sequence[Part]) -> tuple[Move, ...]:
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


def _name(index: int | None) -> str:
    return "cpu" if index is None else f"cuda:{index}"


def _order(device: str) -> tuple[str, int]:
    kind, _, index = device.partition(":")
    return kind, int(index or 0)


def _twin(leaf: Any) -> Any:
    is_tensor = isinstance(leaf, torch.Tensor)
    return leaf.detach().clone().requires_grad_(leaf.requires_grad) if is_tensor else leaf


def _lone(args: Any, kwargs: Any) -> object:
    """Leave a lone argument without a name; name several by their places and keywords."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {**{str(i): value for i, value in enumerate(args)}, **kwargs}


def _listed(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= _MOST_IDS else f"[{ids[0]}, {ids[1]}, ..., {ids[-1]}]"
