"""A repair as a program would have it: the changed file run anew, and the lines around the call run too."""

import ast
import builtins
import copy
import inspect
import itertools
import re
import sys
import tempfile
import textwrap
import types
from functools import partial
from pathlib import Path

import torch
from casetable import TRIGGERS, TWINS
from torch import nn

from dpdemo.checking import state
from dpdemo.checking.freezing import frozen, same
from dpdemo.models.inputs import as_arguments
from dpdemo.observation.tree import rebuild, tensors_in
from dpdemo.reports.check import Change
from dpdemo.virtual import virtual_gpus

_FOLDER = tempfile.TemporaryDirectory()
_NUMBERS = itertools.count()
_ROWS, _FEW = 8, 3
"""The rows of a full batch, and of one that leaves a GPU without any: nothing of the full one may stay."""
READ_LATE = "# forward reads it as the last batch left it"


def repaired_factory(factory, finding):
    """Make every change of a repair that is in the factory's file; None where its code is not found there.

    A change of the call is made to the arguments.
    """
    is_of_call = finding.own_before.startswith("model(")
    first = Change(None if is_of_call else finding.place, finding.own_before, finding.own_after)
    changes = [first, *finding.also]
    file = factory.__code__.co_filename
    within = [one for one in changes if one.place is not None]
    if any(one.place.file != file for one in within):
        return None
    lines = Path(file).read_text().splitlines(keepends=True)
    for change in sorted(within, key=lambda one: one.place.line, reverse=True):
        if not _change_lines(lines, change):
            return None
    made = run_anew(factory, file, "".join(lines))
    for call in (one for one in changes if one.place is None):
        if not re.search(r"\bmodel\(", call.before):
            return None
        made = partial(_called_as_repaired, made, call.before, call.after.partition("   #")[0])
    return made


def _change_lines(lines, change):
    """Make one change; return whether its code was there."""
    first = change.place.line - 1
    height = change.before.count("\n") + 1
    block = "".join(lines[first : first + height])
    margin = block[: len(block) - len(block.lstrip())]
    if change.before not in textwrap.dedent(block):
        return False
    new = textwrap.indent(textwrap.dedent(block).replace(change.before, change.after), margin)
    lines[first : first + height] = [new, *[""] * (height - 1)]
    return True


def run_anew(factory, file, source):
    """Run the factory's file anew with a statement changed, and take the factory out of it.

    It is written to a file of its own: the check reads what is there.
    """
    known = len(TRIGGERS), len(TWINS)
    name = f"repaired_{next(_NUMBERS)}_{Path(file).stem}"
    path = Path(_FOLDER.name) / f"{name}.py"
    path.write_text(source)
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = str(path)
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 - our own tests
    finally:
        del TRIGGERS[known[0] :], TWINS[known[1] :]
    return vars(module)[factory.__name__]


def _called_as_repaired(factory, before, code):
    """Build a model, with the arguments that the repaired call hands over."""
    model, inputs = factory()
    args, kwargs = as_arguments(inputs(8) if callable(inputs) else inputs)
    (call,) = _calls(before)
    names = [ast.unparse(one) for one in (*call.args, *(one.value for one in call.keywords))]
    given = {**factory_of(factory).__globals__, **dict(zip(names, args, strict=False)), **kwargs}
    given |= {"torch": torch, "nn": nn, "model": _Recorder(model)}
    for statement in ast.parse(code).body:
        found = _calls(ast.unparse(statement))
        if found:
            return model, eval(ast.unparse(found[0]), given)  # noqa: S307 - our own tests
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        is_of_arguments = targets and all(ast.unparse(one).partition("[")[0] in names for one in targets)
        read = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and one.id not in names}
        is_known = read <= {*given, *vars(builtins), *(ast.unparse(one) for one in targets)}
        is_set_before = re.match(r"model\.module\.\w+ = (?!.*model)", ast.unparse(statement))
        if is_of_arguments or is_set_before or (is_known and "model.module" not in ast.unparse(statement)):
            exec(ast.unparse(statement), given)  # noqa: S102 - our own tests
    return model, eval(ast.unparse(call), given)  # noqa: S307 - our own tests


def factory_of(made):
    """Take the factory out of what calls it as a repair has it."""
    while isinstance(made, partial):
        made = made.args[0]
    return made


def _around(model):
    """List the names that a model's forward and its hooks have around them."""
    hooks = [one for module in model.modules() for one in module._forward_hooks.values()]
    functions = [*(getattr(one, "func", one) for one in hooks), model.forward]
    functions = [one for one in functions if inspect.isroutine(one)]
    return {k: v for one in functions for k, v in inspect.getclosurevars(one).nonlocals.items()}


class _Plain:
    """Stands for a model in DataParallel that is not: its arguments reach it as they are."""

    def __init__(self, module):
        self.module = module

    def __call__(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class _Recorder:
    """Stands for the wrapped model, and returns what it is called with."""

    def __init__(self, module):
        self.module = module

    def __call__(self, *args, **kwargs):
        return args, kwargs

    def __getattr__(self, name):
        return getattr(self.module, name)


def _calls(code):
    return [
        one
        for one in ast.walk(ast.parse(code))
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "model"
    ]


def program_of(finding):
    """Return the change of the line that calls the model, with the name of its result; or None."""
    if is_of_result(finding):
        return Change(None, f"result = {finding.own_before}", f"result = {finding.own_after}")
    if finding.place is None and finding.own_before.startswith("loss = model("):
        return Change(None, finding.own_before, finding.own_after)
    found = [one for one in finding.also if one.place is None and " = model(" in one.before]
    return found[0] if found else None


def is_of_result(finding):
    """Whether a repair leaves the call as it is, and does something with its result."""
    before, after = finding.own_before, finding.own_after.partition("   #")[0]
    return before.startswith("model(") and after.startswith(f"{before}.")


def differences(factory, repaired, program, told=()):
    """Run a program as it was on one GPU, and as it is repaired on four: list what is not the same.

    `told` are the paths of the state that the finding is about; nothing else is compared where there are any.
    Where forward reads its state late, which the repair says, one call leaves the same.
    """
    is_late = READ_LATE in program.after
    repaired = factory_of(repaired)
    with virtual_gpus(4):
        sizes = (_ROWS,) if is_late else _sizes(factory, program)
        expected, state_before = run(factory, program.before, program.before, 1, sizes)
        result, state_after = run(repaired, program.after, program.before, 4, sizes, factory)
        found = [] if is_late or alike(expected, result) else ["result"]
        found += [
            path
            for path, held in state_before.items()
            if held.kind not in ("parameter", "gradient", "mode", "hooks", "module")
            and (path in told or not set(told) & set(state_before))
            and (path not in state_after or not _close(held.value, state_after[path].value))
        ]
    return found


def _sizes(factory, program):
    """Say how many rows two calls have: few in the second, unless a row is kept for each of the first."""
    try:
        run(factory, program.before, program.before, 1, (_ROWS, _FEW))
    except RuntimeError:
        return _ROWS, _ROWS
    return _ROWS, _FEW


def run(factory, code, before, gpus, sizes, *others):
    """Run lines around calls of these sizes of a model in DataParallel; return the last result and the state.

    The lines may name what `factory` and the models of others have around them.
    """
    torch.manual_seed(0)
    model, inputs = factory()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    args, kwargs = rebuild(
        as_arguments(copy.deepcopy(inputs(_ROWS) if callable(inputs) else inputs)),
        lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf,
    )
    (call,) = _calls(before)
    names = [ast.unparse(one) for one in (*call.args, *(one.value for one in call.keywords))]
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    model = model.cuda()
    home = factory.__globals__
    known = dict(home)
    for other in (model, *(other()[0] for other in others)):  # its own are the last that count
        home |= {**_around(other), **_around(model)}
    home |= bound | {"torch": torch, "nn": nn}
    home["model"] = nn.DataParallel(model, device_ids=list(range(gpus))) if gpus > 1 else _Plain(model)
    try:
        for size in sizes:
            home |= {name: _first(size, value) for name, value in bound.items()}
            exec(code, home)  # noqa: S102 - our own tests
        target = ast.parse(before).body[0].targets[0]
        result = eval(ast.unparse(target), home)  # noqa: S307 - our own tests
    finally:
        home.clear()
        home |= known
    found = state.snapshot(model)
    kept = {name: state.Held("argument", frozen(one), object) for name, one in bound.items()}
    return result, {**found, **kept}


def _first(size, value):
    """Take so many rows of an argument that has a batch; all else is as it is."""
    is_batch = isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == _ROWS
    return value[:size] if is_batch and size < _ROWS else value


def _close(one, other):
    """Whether two pieces of state are the same, but for rounding."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-5 * max(1.0, abs(one))
    return same(one, other, of_one_model=False)


def alike(one, other):
    """Whether two results hold the same tensors, and the same of all else."""
    pairs = list(zip(tensors_in(one), tensors_in(other), strict=False))
    same = all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
    return same and _close(_shape(one), _shape(other))


def _shape(value):
    """Write a result with its tensors left out."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, dict):
        return tuple((str(key), _shape(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_shape, value))
    return value if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__
