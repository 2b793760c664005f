"""A printed repair, put in the place of what it repairs, makes the check silent."""

import ast
import re
import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch
from cases import TRIGGERS
from casetable import TRIGGERS as ALL
from casetable import TWINS
from test_rules import report_on

from dpdemo.checking import check
from dpdemo.models.inputs import as_arguments

LEAST = {"statement": 70, "call": 14, "wrapper": 3, "loader": 3}
"""So many triggers have a repair of each kind: of a statement, of the call, of the wrapper, of the loader."""


def repaired_statement(case, finding):
    """Put a repaired statement, of one line or more, in its place; None where the case has none."""
    place = finding.place
    if (
        place is None
        or place.file != case.factory.__code__.co_filename
        or not _is_statement(finding.own_after)
    ):
        return None
    lines = Path(place.file).read_text().splitlines(keepends=True)
    height = finding.own_before.count("\n") + 1
    block = "".join(lines[place.line - 1 : place.line - 1 + height])
    margin = block[: len(block) - len(block.lstrip())]
    if finding.own_before not in textwrap.dedent(block):
        return None
    new = textwrap.indent(textwrap.dedent(block).replace(finding.own_before, finding.own_after), margin)
    lines[place.line - 1 : place.line - 1 + height] = [new]
    return check(_factory_of(case, place.file, "".join(lines)), **case.options)


def _is_statement(code):
    """Whether it stands by itself: written out, without `model` from outside or a second line elsewhere."""
    without_comments = re.sub(r"#.*", "", code)
    if "..." in code or "model" in without_comments or "__init__" in code:
        return False
    try:
        return bool(ast.parse(code).body)
    except SyntaxError:
        return False


def _factory_of(case, file, source):
    """Run the file of the cases anew with a statement changed, and take the trigger out of it."""
    known = len(ALL), len(TWINS)
    name = f"repaired_{Path(file).stem}"
    module = sys.modules[name] = types.ModuleType(name)
    try:
        exec(compile(source, file, "exec"), vars(module))  # noqa: S102 - our own tests
    finally:
        del ALL[known[0] :], TWINS[known[1] :], sys.modules[name]
    return vars(module)[case.factory.__name__]


def repaired_call(case, finding):
    """Make the call as it is repaired: with other arguments, or after a line that changes one of them."""
    code = finding.own_after.partition("   #")[0]
    if (
        not finding.own_before.startswith("model(")
        or "..." in code
        or re.search("looked up|forward", finding.own_after)
    ):
        return None
    if not re.match(r"model\(|\w+\[.*\] = ", code):
        return None

    def factory():
        model, inputs = case.factory()
        args, kwargs = as_arguments(inputs(8) if callable(inputs) else inputs)
        names = re.findall(r"\w+", finding.own_before[len("model(") : finding.own_before.index(")")])
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        given["torch"] = torch
        given["model"] = lambda *args, **kwargs: (args, kwargs)
        if " = " in code and not code.startswith("model("):
            exec(code, given)  # noqa: S102 - our own tests
            return model, eval(finding.own_before.partition("   #")[0], given)  # noqa: S307 - our own tests
        return model, eval(code, given)  # noqa: S307 - our own tests

    return check(factory, **case.options)


def repaired_wrapper(case, finding):
    """Cut along the dimension that the repaired wrapper names."""
    found = re.fullmatch(r"nn\.DataParallel\(model, dim=(\d)\)", finding.own_after)
    return check(case.factory, **case.options | {"dim": int(found[1])}) if found else None


def repaired_loader(case, finding):
    """Load batches of the size that the repaired loader names, the last one left out."""
    found = re.fullmatch(r"DataLoader\(data, batch_size=(\d+)(, drop_last=True)?\)", finding.own_after)
    return (
        check(case.factory, **case.options | {"batch_size": int(found[1]), "drop_last": True})
        if found
        else None
    )


KINDS = {
    "statement": repaired_statement,
    "call": repaired_call,
    "wrapper": repaired_wrapper,
    "loader": repaired_loader,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_repaired_as_printed_is_found_no_more(kind):
    left, applied = [], []
    for case in list(TRIGGERS):
        own = [one for one in report_on(case).findings if one.code == case.code and not one.is_example]
        for finding in own[:1]:
            report = KINDS[kind](case, finding)
            if report is not None:
                applied.append(str(case))
                left += [
                    (str(case), finding.own_after, one.message)
                    for one in report.findings
                    if one.code == case.code
                ]
    assert left == []
    assert len(applied) >= LEAST[kind], applied


def test_a_repair_is_in_the_users_own_names_or_is_called_an_example():
    """Nobody is shown a mask that is not theirs."""
    shown = {}
    for case in TRIGGERS:
        for finding in report_on(case).findings:
            if finding.code == case.code and finding.severity != "info":
                shown[str(case)] = finding.is_example
    own = [name for name, is_example in shown.items() if not is_example]
    assert len(own) >= 0.8 * len(shown), sorted(name for name in shown if shown[name])
