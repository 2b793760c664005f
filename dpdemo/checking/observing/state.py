"""Snapshots of everything that a model holds, and what changed between two of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from dpdemo.checking.evidence import Kind, StateChange, WriteStatement
from dpdemo.checking.observing.closeness import same_update
from dpdemo.checking.observing.freezing import ABSENT, ValueCopy, frozen, is_shared, same, values_apart
from dpdemo.checking.observing.holders import is_changeable
from dpdemo.checking.source import place_of_attribute, place_of_part, reads_in_forward, writing
from dpdemo.results.findings import Place

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, eq=False)
class StateCopy:
    """One piece of state as it was: a copy that later changes cannot reach."""

    kind: Kind
    value: ValueCopy
    owner: type


Snapshot = dict[str, StateCopy]


def snapshot(model: nn.Module, *kinds: Kind) -> Snapshot:
    """Copy what a model's modules hold, of some kinds or of all."""
    return {
        path: StateCopy(kind, frozen(value), owner)
        for path, kind, value, owner in _held_in(model)
        if not kinds or kind in kinds
    }


def _held_in(model: nn.Module) -> Iterator[tuple[str, Kind, object, type]]:
    """List parameters, gradients, buffers, modules, modes, the number of hooks and all other attributes."""
    for prefix, module in model.named_modules():
        dot, owner = f"{prefix}." if prefix else "", type(module)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield dot + name, "parameter", parameter, owner
                yield f"{dot}{name}.grad", "gradient", parameter.grad, owner
        for name, buffer in module._buffers.items():
            yield dot + name, "buffer", buffer, owner
        for name, child in module._modules.items():
            yield dot + name, "module", child, owner
        yield f"{dot}hooks", "hooks", sum(len(getattr(module, registry, ())) for registry in HOOKS), owner
        for name, value in attributes_of(module):
            is_mode, is_container = name == "training", is_shared(value)
            kind: Kind = "mode" if is_mode else "container" if is_container else "attribute"
            yield dot + name, kind, value, owner


def buffers_in(shot: Snapshot) -> Snapshot:
    """Take the buffers out of a snapshot."""
    return {path: held for path, held in shot.items() if held.kind == "buffer"}


def attributes_of(module: nn.Module) -> Iterator[tuple[str, object]]:
    """List a module's attributes, but for those of PyTorch's own machinery, which knows of replicas."""
    parameters, is_rnn = module._parameters, isinstance(module, nn.RNNBase)
    for name, value in vars(module).items():
        if name in INTERNAL or (is_rnn and name in {"_flat_weights", "_flat_weight_refs"}):
            continue
        if f"{name}_orig" not in parameters and f"{name}_g" not in parameters:  # spectral and weight norm
            yield name, value


def changeable_parts(model: nn.Module) -> list[tuple[object, list[str]]]:
    """List the containers and the user's objects that modules hold as attributes, each with its paths."""
    found: dict[int, tuple[object, list[str]]] = {}
    for path, module in model.named_modules():
        for name, value in attributes_of(module) if not isinstance(module, nn.DataParallel) else ():
            if not isinstance(value, nn.Module) and is_changeable(value):
                found.setdefault(id(value), (value, []))[1].append(f"{path}.{name}" if path else name)
    return list(found.values())


def same_at(path: str, first: Snapshot, other: Snapshot) -> bool:
    """Return whether a piece of state is the same in two snapshots of one model."""
    if path not in first or path not in other:
        return path not in first and path not in other
    return same(first[path].value, other[path].value, of_one_model=True)


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
    was = before[path].value if path in before else ABSENT
    is_left_alone = same(was, parallel[path].value, of_one_model=False)
    if is_left_alone and (was.length is not None or not same(was, single[path].value, of_one_model=True)):
        return False  # no replica wrote to it
    return _differs_by_more(was, single[path].value, parallel[path].value, num_replicas)


def _differs_by_more(was: ValueCopy, alone: ValueCopy, shared: ValueCopy, times: int) -> bool:
    """Whether a container, or one in an object, is neither the same in both nor so many times as long."""
    if same(alone, shared, of_one_model=False):
        return False
    if alone.length is not None:
        return shared.length != times * alone.length
    if same(was, alone, of_one_model=True):
        return False
    if not (was.is_opened and alone.is_opened and shared.is_opened):
        return True
    return alone.parts.keys() != shared.parts.keys() or any(
        _differs_by_more(was.parts.get(name, ABSENT), part, shared.parts[name], times)
        for name, part in alone.parts.items()
    )


def changes(
    before: Snapshot, single: Snapshot | None, parallel: Snapshot, before_parallel: Snapshot
) -> tuple[StateChange, ...]:
    """List what one device's forward changed, or DataParallel's."""
    found: list[StateChange] = []
    owners = {held.owner for held in before.values()}
    for path in dict.fromkeys((*before, *(single or {}), *parallel)):
        known = [shot[path] for shot in (before, single or {}, parallel) if path in shot]
        absent = StateCopy(known[0].kind, ABSENT, known[0].owner)
        was, alone, split = (shot.get(path, absent) for shot in (before, single or before, parallel))
        was_parallel = before_parallel.get(path, absent)
        single_changed = not same(was.value, alone.value, of_one_model=True)
        parallel_changed = not same(was_parallel.value, split.value, of_one_model=True)
        is_inside_new = any(
            change.kind == "module" and path.startswith(f"{change.path}.") for change in found
        )
        if (single_changed or parallel_changed) and not is_inside_new:
            values = values_apart(was.value, alone.value, split.value)
            name = path.rpartition(".")[2] if known[-1].kind != "gradient" else path.split(".")[-2]
            is_same = _ends_alike(was, alone, split)
            whole = path if known[-1].kind == "parameter" else name
            found.append(
                StateChange(
                    path, _kind_of_all(known), *values, single_changed, parallel_changed, is_same,
                    place_of_attribute(known[-1].owner, name) or _made_at(path, before),
                    known[-1].owner.__name__,
                    written=_statement(known[-1], whole, path, before),
                    is_left=values[1].requires_grad and not reads_in_forward(owners, name),
                )
            )  # fmt: skip
    return tuple(found)


def _ends_alike(was: StateCopy, alone: StateCopy, split: StateCopy) -> bool:
    """Return whether two runs leave the same, but for rounding, and have added the same to a buffer."""
    if not same(alone.value, split.value, of_one_model=False):
        return False
    values = was.value.value, alone.value.value, split.value.value
    is_buffer = was.kind == "buffer" and all(isinstance(value, torch.Tensor) for value in values)
    return not is_buffer or same_update(*values)


def _made_at(path: str, shot: Snapshot) -> Place | None:
    """Find the line of the user's that makes the module around a piece of state, as one of a library."""
    owners = {name.rpartition(".")[0]: held.owner for name, held in shot.items() if held.kind == "mode"}
    return place_of_part(path.rpartition(".")[0], owners.get)


def _kind_of_all(known: list[StateCopy]) -> Kind:
    """Say what kind of state it is: where a module or a parameter takes the place of None, it is one."""
    return next((held.kind for held in known if held.kind in {"module", "parameter"}), known[-1].kind)


def _statement(held: StateCopy, name: str, path: str, shot: Snapshot) -> WriteStatement:
    """Find the statement of a class that writes to an attribute.

    What a layer has, such as a parameter or a dropout's `p`, a module around the layer may write to.
    """
    prefix = path.rpartition(".")[0]
    around = [(prefix, held.owner, name.rpartition(".")[2])]
    while held.kind in {"parameter", "attribute", "buffer"} and prefix:
        prefix = prefix.rpartition(".")[0]
        dot = f"{prefix}." if prefix else ""
        if f"{dot}training" in shot:
            around.append((prefix, shot[f"{dot}training"].owner, path.removeprefix(dot)))
    for owner, kind, inner in around:
        found = writing(kind, inner)
        if found is not None:
            return replace(found, stands_alone=found.stands_alone and not owner)
    return WriteStatement()
