"""Note forward and backward passes: the rows, the graph of the loss, gradients before ranks average them."""

from __future__ import annotations

import functools
import sys
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from dpdemo.ranks.against.frozen import meet
from dpdemo.ranks.against.numbers import flat, picked, projected
from dpdemo.ranks.against.shards import shard_of
from dpdemo.ranks.against.steps import set_parameters
from dpdemo.ranks.against.store import Backward, Node
from dpdemo.ranks.events import HOOK, NotedPass
from dpdemo.ranks.observe.losses import _reductions, inputs_of, past_sink
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import around, never_raises, users_line, users_lines
from dpdemo.ranks.observe.numbers import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dpdemo.ranks.against.state import State

_MAX_NODES, _MAX_PASSES, _MAX_LEAVES, _MAX_INPUTS = 400, 64, 8, 64
_MAX_DIMS = 3
_COMPRESSES = {"fp16_compress_hook": "float16", "bf16_compress_hook": "bfloat16"}
_WRAPPERS = {"module", "_forward_module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"}
_LOW = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


class Passes:
    """Notes the passes of this process."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.gradients: dict[int, torch.Tensor] = {}
        """By `id` of a parameter: the gradient of the pass under way, before it is averaged."""
        self.hooked: set[int] = set()
        self.is_set = False

    @never_raises
    def begin_forward(self, module: Any, args: Any, kwargs: Any) -> None:
        """Note the rows of a training call."""
        state = self.state
        state.renew_window()
        for hook, _ in getattr(module, "_comm_hooks", None) or ():
            low = _COMPRESSES.get(getattr(hook, "__name__", ""))
            state.dtype = low or state.dtype
            if low is None:
                state.remark(HOOK)
        file = getattr(sys.modules.get(type(module).__module__), "__file__", None)
        state.window.files.append(f"{file or ''}:0")
        leaves = [each for each in torch.utils._pytree.tree_leaves((args, kwargs)) if _has_rows(each)]
        state.window.rows.append(leaves[0].shape[0] if leaves else 0)
        state.window.calls.append(tuple(leaves[0].shape[:2]) if leaves else ())
        state.window.first_leaf = len(state.window.inputs)
        if len(state.window.inputs) < _MAX_INPUTS:
            state.window.inputs += [_projected(each) for each in leaves[:_MAX_LEAVES]]
        named = dict(module.named_parameters())
        for short, each in zip(without_wrappers(named), named.values(), strict=True):
            state.names.setdefault(id(each), short)
        if state.settings.is_replay and not self.is_set:
            self.is_set = True
            for number in range(len(state.optimizers)):
                set_parameters(state, number, 1)
        for optimizer in state.optimizers:
            for each in parameters_of(optimizer):
                if id(each) not in self.hooked and each.requires_grad and shard_of(each) is None:
                    self.hooked.add(id(each))
                    each.register_hook(functools.partial(self.note_gradient, id(each)))

    @never_raises
    def note_gradient(self, which: int, gradient: torch.Tensor) -> None:
        """Keep some numbers of a gradient before ranks average it."""
        if self.state.is_done or len(self.state.window.backward) > _MAX_PASSES:
            return
        part = torch.frombuffer(bytearray(picked(flat(gradient), (gradient.numel(),))), dtype=torch.float32)
        with torch._C._DisableTorchDispatch():
            before = self.gradients.get(which)
            self.gradients[which] = part if before is None else before + part

    @never_raises
    def begin_backward(self, tensors: Any) -> None:
        """Look at the graph of a loss before it is freed."""
        state = self.state
        state.counts["backward"] += 1
        state.first_trained = state.first_trained or state.pass_
        for this in state.drawn:
            if not this.is_trained:
                this.is_trained = True
                state.notes.write(NotedPass(this.at, this.number, this.made, this.length))
        state.drawn.clear()
        self.gradients = {}
        if state.is_done:
            return
        state.renew_window()
        noted = Backward(users_line(), number=state.counts["backward"])
        state.window.backward.append(noted)
        state.window.before_clip = {}
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) else tensors
        state.window.backward[-1] = self.looked_at(noted, loss)

    def looked_at(self, noted: Backward, loss: torch.Tensor) -> Backward:
        """Follow the graph of a loss: what its reductions average, its factors, the shapes on the way."""
        noted = replace(noted, lines=(*tuple(users_lines())[:16], *dict.fromkeys(self.state.window.files)))
        if loss.grad_fn is None:
            return noted
        root = past_sink(loss.grad_fn, loss.output_nr)
        found = list(_reductions(root))
        _scale_terms([node for node, *_ in found], self.state.settings.terms.get(str(noted.number), ()))
        nodes = tuple(_nodes(root))
        for node in _walk(root):
            for each in node._input_metadata or ():
                self.state.dtype = _LOW.get(each.dtype, self.state.dtype)
        number = value(loss) if loss.numel() == 1 else 0.0
        return replace(
            noted,
            loss=number,
            averaged=tuple(averaged for _, averaged, _ in found),
            divisors=tuple(divisor for *_, divisor in found),
            over=tuple(_reduced(node) for node, *_ in found),
            nodes=nodes,
        )

    @never_raises
    def end_backward(self) -> None:
        """Keep the gradients of the pass."""
        window = self.state.window
        if self.state.is_done or not window.backward:
            return
        scale = self.state.scale
        given = [each for optimizer in self.state.optimizers for each in parameters_of(optimizer)]
        with torch._C._DisableTorchDispatch():
            found = {key: (part / scale) for key, part in self.gradients.items()}
        window.backward[-1] = replace(window.backward[-1], gradients=(found, [id(each) for each in given]))  # type: ignore[arg-type]


def _scale_terms(nodes: Sequence[Any], terms: Sequence[Sequence[tuple[int, float]]]) -> None:
    """Multiply what the terms of a loss get as gradients; a term that counts twice is left alone."""
    if len({*nodes}) != len(terms):
        return
    for node, parts in zip(nodes, terms, strict=True):
        factors = {factor for _, factor in parts}
        if len(factors) > 1:
            node.register_hook(functools.partial(_times_by_rows, parts))
        elif factors != {1.0}:
            node.register_prehook(functools.partial(_times, factors.pop()))


def _times(factor: float, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if each is None else each * factor for each in gradients)


def _times_by_rows(parts: Sequence[tuple[int, float]], gradients: tuple[Any, ...], _: Any) -> Any:
    first, *others = gradients
    weights = [factor for rows, factor in parts for _ in range(rows)]
    if first is None or len(first) != len(weights):
        return gradients
    return first * first.new_tensor(weights).reshape(-1, *[1] * (first.ndim - 1)), *others


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and type(leaf) is torch.Tensor


def _projected(leaf: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    """Return a number for each row, and for each column where rows may be columns: [time, batch, …]."""
    has_columns = 1 < leaf.ndim <= _MAX_DIMS
    return projected(leaf), projected(torch.Tensor.detach(leaf).transpose(0, 1)) if has_columns else ()


def _reduced(node: Any) -> tuple[int, ...]:
    """Return the shape that a reduction of the loss gets, without classes."""
    shape = _shape(node.next_functions[0][0])
    return shape[:1] if node.name().startswith("Nll") else shape


def without_wrappers(names: Iterable[str]) -> list[str]:
    """Return parameters' names without those of wrappers, which one process may leave out."""
    short = [".".join(part for part in name.split(".") if part not in _WRAPPERS) for name in names]
    count = Counter(short)
    return [own if count[own] == 1 else name for own, name in zip(short, names, strict=True)]


def _walk(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, nearest to the loss first."""
    left, seen = deque([root]), {root}
    while left and len(seen) < _MAX_NODES:
        node = left.popleft()
        yield node
        for each in inputs_of(node):
            if each not in seen:
                seen.add(each)
                left.append(each)


def _nodes(root: Any) -> Iterator[Node]:
    for node in _walk(root):
        nodes = inputs_of(node)
        inputs, of = tuple(map(_shape, nodes)), tuple(each.name() for each in nodes)
        yield Node(node.name(), _shape(node), inputs, of)


def _shape(node: Any) -> tuple[int, ...]:
    metadata = node and node._input_metadata
    return tuple(metadata[0].shape) if metadata else ()


def watch(state: State) -> None:
    """Follow the modules and the backward passes of this process."""
    found = Passes(state)

    @around(nn.Module, "__call__")
    def called(call: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        first = next(self.parameters(), None)
        is_model = state.counts["depth"] or not (first is None or first.is_meta)
        if torch.compiler.is_compiling() or not is_model:  # a transform of the data, a loss, or shapes alone
            return call(self, *args, **kwargs)
        if not state.counts["depth"] and state.is_started and not state.is_done:
            meet(state, self)
            if torch.is_grad_enabled():
                found.begin_forward(self, args, kwargs)
        state.counts["depth"] += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            state.counts["depth"] -= 1

    @around(torch.autograd, "backward")
    def backward(run: Any, /, tensors: Any, *args: Any, **kwargs: Any) -> None:
        found.begin_backward(tensors)
        run(tensors, *args, **kwargs)
        found.end_backward()

    _follow_norms(state)


def _follow_norms(state: State) -> None:
    @around(_BatchNorm, "forward")
    def normalized(normalize: Any, /, self: Any, input: Any) -> Any:  # noqa: A002 - PyTorch's name
        if not self.training or isinstance(self, SyncBatchNorm) or state.is_done:
            return normalize(self, input)
        state.renew_window()
        number = len(state.window.norms)
        state.window.norms.append(input.shape[0])
        if state.settings.has_own_norms:
            events = state.coming()
            sizes = [event.norms[number] for event in events if number < len(event.norms)]
            if sizes and sum(sizes) == input.shape[0]:
                return torch.cat([normalize(self, part) for part in input.split(sizes)])
        return normalize(self, input)
