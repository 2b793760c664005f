"""Printed repairs, put into the file of a case: the model as its user would have it then."""

import ast
import importlib.util
import inspect
import re
import sys
import textwrap
from pathlib import Path

import casetable
import torch
from torch import nn

from dpdemo.virtual import virtual_gpus


def is_after_the_call(finding):
    return finding.after.startswith("y = ")


def repaired(case, finding, folder, monkeypatch):
    """Return the factory of a case with the repair of a finding put in."""
    if finding.place is None or finding.before != finding.place.code:
        return lambda: _called_otherwise(case, finding)
    code = "pass" if is_after_the_call(finding) else finding.after
    home = Path(inspect.getsourcefile(case.factory))
    if case.factory.__module__ == "casetable":  # a class, of which casetable makes a factory
        home = Path(inspect.getsourcefile(inspect.getclosurevars(case.factory).nonlocals["made"]))
    monkeypatch.setattr(casetable, "TRIGGERS", [])
    changed = Path(finding.place.file)
    for path in dict.fromkeys((changed, home)):
        text = path.read_text()
        _load(path, _with(text, finding.place.line, code) if path == changed else text, folder, monkeypatch)
    (found,) = (other for other in sys.modules["casetable"].TRIGGERS if str(other) == str(case))
    return found.factory


def _with(text, number, code):
    """A file with other code in a line."""
    lines = text.splitlines()
    old = lines[number - 1]
    lines[number - 1] = textwrap.indent(code, old[: len(old) - len(old.lstrip())])
    return "\n".join(lines) + "\n"


def _load(path, text, folder, monkeypatch):
    copy = folder / path.name
    copy.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, copy)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    with virtual_gpus(4):
        spec.loader.exec_module(module)


def _called_otherwise(case, finding):
    """The model of a case, and the arguments of the printed call."""
    model, given = case.factory()
    given = given(8) if callable(given) else given
    match given:
        case (tuple(args), dict(named)):
            given = (*args, *named.values())
        case torch.Tensor():
            given = (given,)
    old, new = (ast.parse(code, mode="eval").body for code in (finding.before, finding.after))
    names = given if type(given) is dict else dict(zip(map(ast.unparse, old.args), given, strict=True))
    value = lambda node: eval(ast.unparse(node), {**names})  # noqa: E731, S307 - what dpdemo has printed
    args = tuple(value(node) for node in new.args)
    return model, (args, {node.arg: value(node.value) for node in new.keywords})


def after_the_call(case, finding):
    """State of the model after the printed statement, and after a plain call."""
    path = re.search(r"model\.module\.([\w.]+)", finding.after)[1].rstrip(".")
    with virtual_gpus(4):
        alone, given = case.factory()
        alone(given)
        model, _ = case.factory()
        model = nn.DataParallel(model.cuda())
        before = len(finding.after.splitlines()[0])
        exec(finding.after[before:], {"model": model})  # noqa: S102 - what dpdemo has printed
        return [_at(module, path) for module in (model.module, alone)]


def _at(module, path):
    *owners, name = path.split(".")
    return getattr(module.get_submodule(".".join(owners)), name)
