"""Replicas that do what another does: stand-ins for them have sizes only.

Under DataParallel all replicas but the first make the same allocations if their chunks are alike. So one of
them is made and runs. Stand-ins return outputs of the same sizes in place of the others, and `Alike.lanes`
puts the events of the one that ran in the place of those on their GPUs. If anything shows that a GPU does
more than hold a replica, the step is made again without stand-ins.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from dpdemo.calls.seam import around, replaced
from dpdemo.calls.tree import flatten, rebuild
from dpdemo.memory.trace import Lane
from dpdemo.virtual import VirtualGpus
from dpdemo.virtual.accounts import ALLOCATED, Event
from dpdemo.virtual.kinds import in_backward
from dpdemo.virtual.ops.known import have_equal_numbers

T = TypeVar("T")
_PLAIN = (bool, int, float, str, type(None), dict, list, tuple)  # of the last three empty ones alone
_OF_WRAPPER = {"scatter", "replicate", "backward"}
"""The phases in which DataParallel itself allocates on the GPU of a replica."""


class _StandIn(torch.autograd.Function):
    """Returns outputs like those of a replica, and gradients for all that it was given."""

    @staticmethod
    def forward(ctx: Any, like: list[torch.Tensor], *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Make room for the outputs."""
        ctx.save_for_backward(*given)
        return tuple(_room(each, given[0].device) for each in like)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Make room for the gradients."""
        return None, *(torch.empty_like(each) for each in ctx.saved_tensors)


def _room(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)


class Alike:
    """Finds replicas that are alike in the calls of a step."""

    def __init__(self, gpus: VirtualGpus, log: list[Event], model: nn.Module) -> None:
        self._gpus, self._log, self._model = gpus, log, model
        self.is_off = False
        self._calls: set[tuple[int, frozenset[int]]] = set()  # the GPU of the one that ran, and of the others
        self._made: Counter[int] = Counter()  # outputs of stand-ins by GPU
        self._begun = 0
        self._is_apart = False  # an output has parts that are no tensors, or backward passes are nested
        self._devices: list[int] = []  # of the call that was scattered
        self._ran, self._others = 0, list[int]()  # of its replicas

    def tried(self, make: Callable[[], T]) -> T | None:
        """Make a step with stand-ins; return None if it must be made without."""
        if self.is_off:
            return None
        steps: dict[str, Callable[..., Any]] = {
            "scatter_kwargs": self._scatter,
            "replicate": self._replicate,
            "parallel_apply": self._apply,
        }
        with around(**steps), replaced(torch.autograd, "_engine_run_backward", self._noting_nested):
            try:
                made = make()
            except Exception:
                if not any(others for _, others in self._calls):
                    raise
                made = None
        self.is_off = made is None or not self._is_sound
        return None if self.is_off else made

    def _noting_nested(self, _: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Note a backward pass inside another: the first replica's depends on the others then."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._is_apart = self._is_apart or in_backward()
            return original(*args, **kwargs)

        return run

    def begin(self) -> None:
        """Forget the calls; the events that follow are those of a step."""
        self._calls, self._made, self._begun = set(), Counter(), len(self._log)
        self._is_apart = False

    @property
    def _is_sound(self) -> bool:
        """Whether all calls had the same stand-ins, for whole outputs, and their GPUs did nothing else."""
        others = {index for _, indices in self._calls for index in indices}
        found: Counter[int] = Counter()
        for event in self._log[self._begun :]:
            if event[0] == ALLOCATED and event[2] in others and event[5] not in _OF_WRAPPER:
                found[event[2]] += 1
        is_alike = len(self._calls) == 1 and not self._is_apart
        return not others or (is_alike and found == self._made)

    def lanes(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Return the lanes of all GPUs: those that had stand-ins have the events of the replica that ran."""
        ran, others = next(iter(self._calls), (0, frozenset()))
        return [lanes[ran] if index in others else lane for index, lane in enumerate(lanes)]

    def _scatter(
        self,
        proceed: Callable[..., Any],
        inputs: Any,
        kwargs: Any,
        devices: list[int],
        *args: Any,
        **given: Any,
    ) -> Any:
        chunks, named = proceed(inputs, kwargs, devices, *args, **given)
        self._devices = [*devices][: len(chunks)]
        self._ran, self._others = self._groups([*zip(chunks, named, strict=True)], self._devices)
        return chunks, named

    def _replicate(
        self,
        proceed: Callable[..., list[Any]],
        network: nn.Module,
        devices: list[int],
        *args: Any,
        **given: Any,
    ) -> list[Any]:
        """Make no replicas where there will be stand-ins."""
        if [*devices] != self._devices:
            self._others = []
        rest = [index for place, index in enumerate(devices) if place not in self._others]
        made = iter(proceed(network, rest, *args, **given))
        return [None if place in self._others else next(made) for place in range(len(devices))]

    def _apply(
        self,
        proceed: Callable[..., list[Any]],
        modules: list[Any],
        inputs: Any,
        kwargs: Any,
        devices: list[int],
    ) -> list[Any]:
        ran, others = self._ran, self._others
        self._devices, self._others = [], []
        self._calls.add((devices[ran], frozenset(devices[place] for place in others)))
        rest = [place for place in range(len(modules)) if place not in others]
        lists = (modules, inputs, kwargs, devices)
        outputs = proceed(*([each[place] for place in rest] for each in lists))
        found = dict(zip(rest, outputs, strict=True))
        if any(not isinstance(leaf, (torch.Tensor, *_PLAIN)) for _, leaf in flatten(found[ran])):
            self._is_apart = True
        for place in others:
            found[place] = self._stand_in(found[ran], devices[place], (inputs[place], kwargs[place]))
        return [found[place] for place in range(len(modules))]

    def _groups(self, chunks: list[Any], devices: list[int]) -> tuple[int, list[int]]:
        """Return the place of the replica that runs, and those of the ones that are like it."""
        apart = {
            index
            for module in self._model.modules()
            if isinstance(module, nn.DataParallel)
            for index in (module.output_device, module.device_ids[0])
        }
        places = [place for place, index in enumerate(devices) if index not in apart]
        if self.is_off or len(places) < 2 or len(set(devices)) < len(devices):
            return 0, []
        ran, *others = places
        live = self._gpus.live_bytes
        return ran, [
            place
            for place in others
            if live(devices[place]) == live(devices[ran]) and _are_alike(chunks[place], chunks[ran])
        ]

    def _stand_in(self, output: Any, index: int, chunk: Any) -> Any:
        """Return what a replica on a GPU would, from the output of another."""
        device = torch.device("cuda", index)
        given = [leaf for _, leaf in flatten(chunk) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        given.append(torch.empty((), device=device, requires_grad=True))  # in place of the parameters
        self._made[index] += 1
        tensors = [leaf for _, leaf in flatten(output) if isinstance(leaf, torch.Tensor)]
        self._made[index] += len(tensors)
        with_graph = [each for each in tensors if each.requires_grad]
        made = iter(_StandIn.apply(with_graph, *given) if with_graph else ())  # type: ignore[no-untyped-call]

        def change(leaf: object) -> object:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return next(made) if leaf.requires_grad else _room(leaf, device)

        return rebuild(output, change)


def _are_alike(chunk: Any, other: Any) -> bool:
    pairs = zip(flatten(chunk), flatten(other), strict=False)
    return len(flatten(chunk)) == len(flatten(other)) and all(
        path == place and _are_equal(leaf, like) for (path, leaf), (place, like) in pairs
    )


def _are_equal(leaf: Any, other: Any) -> bool:
    """Return whether two leaves have the same effect on sizes: tensors without numbers, or equal ones."""
    if not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor):
        return leaf is other or (type(leaf) is type(other) and isinstance(leaf, _PLAIN) and leaf == other)
    facts = [(each.shape, each.stride(), each.dtype, each.requires_grad) for each in (leaf, other)]
    return facts[0] == facts[1] and have_equal_numbers(leaf, other)
