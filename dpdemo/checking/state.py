"""Snapshots of everything that a model holds, and what changed between two of them."""

import collections
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import torch
from torch import nn

from dpdemo.checking.closeness import copy_of, same_numbers
from dpdemo.checking.evidence import Kind, StateChange
from dpdemo.checking.holders import attributes, is_changeable, is_code, is_of_users
from dpdemo.checking.places import place_of_attribute
from dpdemo.checking.source import names_in
from dpdemo.checking.writes import writing

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOOKS = "hooks"
_CONTAINERS = (list, dict, set, tuple, collections.deque)
_PLAIN = (int, float, complex, bool, type(None))
_MAX_PARTS = 200
_MAX_DEPTH = 2
"""So deep objects are opened; those of the user's own classes twice as deep."""
_ABSENT = "(absent)"


@dataclass(frozen=True, eq=False)
class Held:
    """One piece of state as it was: a copy that later changes cannot reach."""

    kind: Kind
    value: Any
    owner: type


Snapshot = dict[str, Held]


def snapshot(model: nn.Module) -> Snapshot:
    """Copy what a model's modules hold: parameters, buffers, gradients, modes and all other attributes."""
    found: Snapshot = {}
    for prefix, module in model.named_modules():
        dot = f"{prefix}." if prefix else ""
        owner = type(module)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found[dot + name] = Held("parameter", frozen(parameter), owner)
                gradient = None if parameter.grad is None else frozen(parameter.grad)
                found[f"{dot}{name}.grad"] = Held("gradient", gradient, owner)
        for name, buffer in module._buffers.items():
            found[dot + name] = Held("buffer", frozen(buffer), owner)
        for name, child in module._modules.items():
            found[dot + name] = Held("module", None if child is None else _Identity(child), owner)
        hooks = sum(len(getattr(module, registry, ())) for registry in HOOKS)
        found[f"{dot}{_HOOKS}"] = Held("hooks", hooks, owner)
        for name, value in vars(module).items():
            if name not in INTERNAL and not is_pytorchs(name, module):
                found[dot + name] = Held(_kind(name, value), frozen(value), owner)
    return found


def buffers_of(model: nn.Module) -> Snapshot:
    """Copy a model's buffers."""
    return {
        f"{prefix}.{name}" if prefix else name: Held("buffer", frozen(buffer), type(module))
        for prefix, module in model.named_modules()
        for name, buffer in module._buffers.items()
    }


def buffers_in(shot: Snapshot) -> Snapshot:
    """Take the buffers out of a snapshot."""
    return {path: held for path, held in shot.items() if held.kind == "buffer"}


def is_pytorchs(name: str, module: nn.Module) -> bool:
    """Return whether an attribute belongs to PyTorch's own machinery, which knows of replicas."""
    if name in ("_flat_weights", "_flat_weight_refs"):
        return isinstance(module, nn.RNNBase)
    return (
        f"{name}_orig" in module._parameters or f"{name}_g" in module._parameters
    )  # weight and spectral norm


def changeable_parts(model: nn.Module) -> Iterator[tuple[str, object]]:
    """List the containers and the user's objects that modules hold as attributes, with their paths."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            is_ours = name not in INTERNAL and not is_pytorchs(name, module)
            is_ours = is_ours and not isinstance(module, nn.DataParallel)
            if is_ours and not isinstance(value, nn.Module) and is_changeable(value):
                yield f"{path}.{name}" if path else name, value


def _kind(name: str, value: object) -> Kind:
    if name == "training":
        return "mode"
    return "container" if is_shared(value) else "attribute"


def is_shared(value: object) -> bool:
    """Return whether an attribute's value is one that can be written to: all replicas share the very same."""
    if isinstance(value, _CONTAINERS):
        return not isinstance(value, tuple)
    is_plain = isinstance(value, (torch.Tensor, nn.Module, type, str, bytes, *_PLAIN)) or is_code(value)
    return not is_plain and (hasattr(value, "__dict__") or bool(attributes(value)))


def frozen(value: Any, depth: int = 0) -> Any:
    """Copy a value as far as a change in it could matter."""
    if isinstance(value, torch.Tensor):
        return copy_of(value)
    if isinstance(value, (nn.Module, type)) or is_code(value):
        return _Identity(value)
    if isinstance(value, dict):
        parts = [(str(key), frozen(part, depth + 1)) for key, part in list(value.items())[:_MAX_PARTS]]
        return (type(value).__name__, len(value), tuple(parts))
    if isinstance(value, _CONTAINERS):
        inside = tuple(frozen(part, depth + 1) for part in list(value)[:_MAX_PARTS])
        return (type(value).__name__, len(value), inside)
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        return value
    is_opened = depth < _MAX_DEPTH or (depth < 2 * _MAX_DEPTH and is_of_users(value))
    parts_of_it = attributes(value) if is_opened else {}
    held = tuple((name, frozen(part, depth + 2)) for name, part in parts_of_it.items())
    return _Object(type(value).__name__, _Identity(value), held)


class _Identity:
    """A thing that is only compared by which one it is; the weak form of equality that copies share."""

    def __init__(self, value: object) -> None:
        self.type = type(value).__name__
        self.id = id(value)


class _Object(NamedTuple):
    """An object, with what its attributes held; nothing where it was not opened."""

    type: str
    identity: _Identity
    parts: tuple[tuple[str, Any], ...]


def same(one: object, other: object, *, of_one_model: bool) -> bool:
    """Compare two frozen values; things known only by identity are not compared between two models."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return same_numbers(one, other)
    if isinstance(one, _Identity) and isinstance(other, _Identity):
        return one.id == other.id or (not of_one_model and one.type == other.type)
    if isinstance(one, _Object) and isinstance(other, _Object) and one.parts and other.parts:
        alike = same(one.parts, other.parts, of_one_model=of_one_model)
        return one.type == other.type and alike  # be it another object
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            same(left, right, of_one_model=of_one_model) for left, right in zip(one, other, strict=True)
        )
    if type(one) is not type(other):
        return False
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN


def same_at(path: str, one: Snapshot, other: Snapshot) -> bool:
    """Return whether a piece of state is the same in two snapshots of one model."""
    if path not in one or path not in other:
        return path not in one and path not in other
    return same(one[path].value, other[path].value, of_one_model=True)


def is_contested(
    path: str, before: Snapshot, single: Snapshot, parallel: Snapshot, num_replicas: int
) -> bool:
    """Return whether replicas wrote to one place of a shared container, one over the other.

    A cache whose keys name the device has n times as many; one whose values do not depend on the chunk has
    the same. An object that a plain call leaves alone is there for replicas to meet at, as in a synchronised
    batch norm.
    """
    if path not in single or path not in parallel or parallel[path].kind != "container":
        return False
    was = before[path].value if path in before else None
    is_left_alone = same(was, parallel[path].value, of_one_model=False)
    if is_left_alone and (_length(was) is not None or not same(was, single[path].value, of_one_model=True)):
        return False  # no replica wrote to it
    return _differs_by_more(was, single[path].value, parallel[path].value, num_replicas)


def _differs_by_more(was: object, alone: object, shared: object, times: int) -> bool:
    """Whether a container, or one in an object, is neither the same in both nor so many times as long."""
    if same(alone, shared, of_one_model=False):
        return False
    length = _length(alone)
    if length is not None:
        return _length(shared) != times * length
    if same(was, alone, of_one_model=True):
        return False
    parts = [_parts(one) for one in (was, alone, shared)]
    if any(part is None for part in parts):
        return True
    held_before, held, held_shared = (part or {} for part in parts)
    return held.keys() != held_shared.keys() or any(
        _differs_by_more(held_before.get(name), held[name], held_shared[name], times) for name in held
    )


def _parts(value: object) -> dict[str, Any] | None:
    """Return the attributes of a frozen object; None of anything else."""
    return dict(value.parts) if isinstance(value, _Object) else None


def _length(value: Any) -> int | None:
    """Return how long a frozen container is; None for an object and for any other value."""
    is_container = isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], int)
    return value[1] if is_container else None


def changes(
    before: Snapshot, single: Snapshot | None, parallel: Snapshot, before_parallel: Snapshot
) -> tuple[StateChange, ...]:
    """List what one device's forward changed, or DataParallel's."""
    found: list[StateChange] = []
    for path in dict.fromkeys((*before, *(single or {}), *parallel)):
        known = [shot[path] for shot in (before, single or {}, parallel) if path in shot]
        absent = Held(known[0].kind, _ABSENT, known[0].owner)
        was, alone, split = (shot.get(path, absent) for shot in (before, single or before, parallel))
        was_parallel = before_parallel.get(path, absent)
        single_changed = not same(was.value, alone.value, of_one_model=True)
        parallel_changed = not same(was_parallel.value, split.value, of_one_model=True)
        if (single_changed or parallel_changed) and not _is_inside_new(path, found):
            told = show_apart(was.value, alone.value, split.value)
            name = path.rpartition(".")[2] if known[-1].kind != "gradient" else path.split(".")[-2]
            found.append(
                StateChange(
                    path, _kind_of_all(known), *told,
                    single_changed, parallel_changed, same(alone.value, split.value, of_one_model=False),
                    place_of_attribute(known[-1].owner, name), known[-1].owner.__name__,
                    **_statement(known[-1], path if known[-1].kind == "parameter" else name, path, before),
                    rows=_rows(alone.value),
                )
            )  # fmt: skip
    return tuple(found)


def _rows(value: object) -> int:
    """Return the first size of a frozen tensor, or of all those in a list; 0 where there is not just one."""
    parts = value[2] if _length(value) is not None and isinstance(value, tuple) else (value,)
    sizes = {one.shape[0] if isinstance(one, torch.Tensor) and one.dim() else 0 for one in parts}
    return sizes.pop() if len(sizes) == 1 else 0


def _kind_of_all(known: list[Held]) -> Kind:
    """Say what kind of state it is; where a module takes the place of None, it is a module."""
    return "module" if any(one.kind == "module" for one in known) else known[-1].kind


def _is_inside_new(path: str, found: list[StateChange]) -> bool:
    """Return whether it belongs to a module that is new itself."""
    return any(one.kind == "module" and path.startswith(f"{one.path}.") for one in found)


class _Statement(TypedDict):
    written: str
    needs_self_only: bool
    owner: str


def _statement(held: Held, name: str, path: str, shot: Snapshot) -> _Statement:
    """Say which statement of a class writes to an attribute, and whether it can stand outside of forward.

    What a layer has, such as a parameter or a dropout's `p`, a module around the layer may write to.
    """
    prefix = path.rpartition(".")[0]
    around = [(prefix, held.owner, name.rpartition(".")[2])]
    while held.kind in ("parameter", "attribute", "buffer") and prefix:
        prefix = prefix.rpartition(".")[0]
        dot = f"{prefix}." if prefix else ""
        if f"{dot}training" in shot:
            around.append((prefix, shot[f"{dot}training"].owner, path.removeprefix(dot)))
    for owner, kind, inner in around:
        found = writing(kind, inner)
        if found is not None:
            method, statement = found
            alone = names_in(statement) <= {"self"}
            return {"written": method.text(statement), "needs_self_only": alone, "owner": owner}
    return {"written": "", "needs_self_only": False, "owner": path.rpartition(".")[0]}


def show(value: object) -> str:
    """Write a frozen value in a few words."""
    if isinstance(value, torch.Tensor):
        return f"{value.item():.4g}" if value.numel() == 1 else f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, _Identity):
        return value.type
    if isinstance(value, tuple):
        return _show_parts(value)
    return repr(value)[:40] if value != _ABSENT else "absent"


def show_apart(was: object, alone: object, shared: object) -> tuple[str, str, str]:
    """Write three frozen values, of objects what is not the same in them."""
    three = (was, alone, shared)
    opened = [_parts(one) for one in three]
    names = list(dict.fromkeys(_apart(*(one or {} for one in opened)))) if all(opened) else []
    if not names:
        return show(was), show(alone), show(shared)
    texts = [", ".join(f"{name}={show(_at(one, name))}" for name in names[:2]) for one in three]
    types = [one[0] if isinstance(one, tuple) else "" for one in three]
    first, second, third = (
        f"{_with_article(kind)} ({text})" for kind, text in zip(types, texts, strict=True)
    )
    return first, second, third


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind.lower().startswith(("a", "e", "i", "o", "u")) else f"a {kind}"


def _apart(was: dict[str, Any], alone: dict[str, Any], shared: dict[str, Any]) -> Iterator[str]:
    """List the attributes, and those of what is in them, that three objects do not have alike."""
    for name in alone:
        three = [one.get(name, _ABSENT) for one in (was, alone, shared)]
        if all(same(one, three[0], of_one_model=False) for one in three[1:]):
            continue
        opened = [_parts(one) for one in three]
        inner = list(_apart(*(one or {} for one in opened))) if all(opened) else []
        yield from (f"{name}.{one}" for one in inner) if inner else [name]


def _at(value: object, path: str) -> object:
    for name in path.split("."):
        value = (_parts(value) or {}).get(name, _ABSENT)
    return value


def _show_parts(value: tuple[Any, ...]) -> str:
    """Write a container with its length, and an object with some of its numbers."""
    if (length := _length(value)) is not None:
        return f"{_with_article(value[0])} of {length}"
    inside = [
        f"{name}={part!r}"
        for name, part in (value[2] if len(value) == 3 else ())
        if isinstance(part, (int, float, str))
    ]
    return _with_article(value[0]) + (f" ({', '.join(inside[:2])})"[:60] if inside else "")
