"""A printed repair, put in the place of what it repairs, makes the check silent."""

import ast
import inspect
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
from torch import nn

from dpdemo.checking import check
from dpdemo.models.inputs import as_arguments
from dpdemo.observation.tree import rebuild, tensors_in
from dpdemo.virtual import virtual_gpus

LEAST = {"statement": 120, "call": 14, "wrapper": 3, "loader": 3}
"""So many triggers have a repair of each kind: of a statement, of the call, of the wrapper, of the loader."""
LEADS_ON = {
    "DP202-a_starved_replica_runs_without_a_mask": {"DP201"},  # the mask has fewer rows than the batch
    "DP402-a_field_of_a_result_is_a_number": {"DP502"},  # it counts the samples of a chunk
    "DP402-numbers_are_taken_out_for_a_log": {"DP501", "DP401"},  # now it is a loss
}
"""What a repair brings to light, which was there before."""
LEAST_OUTSIDE = 20
"""And so many one that puts forward's end outside."""


def repaired_statement(case, finding):
    """Put a repaired statement, of one line or more, in its place; None where the case has none."""
    if not _is_statement(finding.own_after):
        return None
    factory = repaired_factory(case, finding)
    return check(factory, **case.options) if factory is not None else None


def repaired_factory(case, finding):
    """Put a repaired statement in its place in the file of the cases; None where it is not found there."""
    place = finding.place
    if place is None or place.file != case.factory.__code__.co_filename:
        return None
    lines = Path(place.file).read_text().splitlines(keepends=True)
    height = finding.own_before.count("\n") + 1
    block = "".join(lines[place.line - 1 : place.line - 1 + height])
    margin = block[: len(block) - len(block.lstrip())]
    if finding.own_before not in textwrap.dedent(block):
        return None
    new = textwrap.indent(textwrap.dedent(block).replace(finding.own_before, finding.own_after), margin)
    lines[place.line - 1 : place.line - 1 + height] = [new]
    return _factory_of(case, place.file, "".join(lines))


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
        known = {one.code for one in report_on(case).findings}
        own = [one for one in report_on(case).findings if one.code == case.code and not one.is_example]
        for finding in own[:1]:
            report = KINDS[kind](case, finding)
            if report is not None:
                applied.append(str(case))
                left += [
                    (str(case), finding.own_after, one.message)
                    for one in report.findings
                    if one.severity in ("error", "warning", finding.severity)
                    and (one.code == case.code or one.code not in known | LEADS_ON.get(str(case), set()))
                ]
    assert left == []
    assert len(applied) >= LEAST[kind], applied


HEADING = "# outside, on what is gathered"


@pytest.mark.filterwarnings("ignore")
def test_what_is_written_outside_gives_the_numbers_of_one_gpu():
    """The lines in comments are run, behind genuine DataParallel around the model that ends before them."""
    wrong, compared = [], []
    for case in list(TRIGGERS):
        for finding in report_on(case).findings:
            if finding.code == case.code and HEADING in finding.own_after:
                factory = repaired_factory(case, finding)
                if factory is not None and not case.options:
                    compared.append(str(case))
                    wrong += [] if is_as_on_one_gpu(case.factory, factory, finding.own_after) else [str(case)]
    assert wrong == []
    assert len(compared) >= LEAST_OUTSIDE, compared


def is_as_on_one_gpu(factory, repaired, after):
    """Run the lines outside of a repaired forward, and compare what they end with to one GPU's result."""
    lines = after.partition(HEADING)[2].splitlines()[1:]
    code = "\n".join(re.sub(r"^ *# ", "", line) for line in lines)
    with virtual_gpus(4):
        single, parallel = (_built(one) for one in (factory, repaired))
        expected = single[0](*single[1], **single[2])
        args = parallel[1], parallel[2]
        forward = parallel[0].forward
        given = inspect.signature(forward).bind(*args[0], **args[1]).arguments
        closure = inspect.getclosurevars(single[0].forward).nonlocals
        names = repaired.__globals__ | closure | given
        names["model"] = nn.DataParallel(parallel[0]).eval()
        exec(code, names)  # noqa: S102 - our own tests
        last = [one for one in ast.parse(code).body if isinstance(one, ast.Assign)][-1].targets[0]
        result = eval(ast.unparse(last), names)  # noqa: S307 - our own tests
        alike = list(zip(tensors_in(expected), tensors_in(result), strict=True))
        return bool(alike) and all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in alike)


def _built(factory):
    torch.manual_seed(0)
    model, inputs = factory()
    args, kwargs = rebuild(
        as_arguments(inputs(8) if callable(inputs) else inputs),
        lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf,
    )
    return model.cuda().eval(), args, kwargs


def test_a_repair_is_in_the_users_own_names_or_is_called_an_example():
    """Nobody is shown a mask that is not theirs."""
    shown = {}
    for case in TRIGGERS:
        for finding in report_on(case).findings:
            if finding.code == case.code and finding.severity != "info":
                shown[str(case)] = finding.is_example
    own = [name for name, is_example in shown.items() if not is_example]
    assert len(own) >= 0.8 * len(shown), sorted(name for name in shown if shown[name])
