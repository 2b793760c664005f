"""Repairs for programs that make no DataParallel object name the line that they have."""

import re

import pytest
import torch
from torch import nn
from torch.nn.parallel import data_parallel

from dpdemo.checking.evidence import Call
from dpdemo.checking.registry import rules
from dpdemo.checking.repairs import Found, Repair, change_call, repair_of, spelled
from dpdemo.checking.templates import TEMPLATES
from dpdemo.executing.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.later = nn.LazyLinear(2)

    def forward(self, x):
        return self.later(x)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (data_parallel, "result = data_parallel(model, x)"),
        (lambda model, x: nn.DataParallel(model)(x), "model = nn.DataParallel(model)"),
    ],
)
def test_a_repair_before_the_split_quotes_the_line_that_splits(call, line):
    check = CallCheck(select=("DP108",))
    with virtual_gpus(2), check.watching():
        with pytest.raises(ValueError, match="uninitialized parameter"):
            call(Lazy().cuda(), torch.ones(4, 3).cuda())
        (finding,) = check.report().findings
    assert finding.own_before == line
    assert finding.own_after.splitlines()[-1] == line
    assert finding.own_after.startswith("model(x)")


FUNCTIONS = ("data_parallel", "parallel_apply")
_OF_A_WRAPPER = re.compile(r"(?<![A-Za-z])DataParallel\(|\bdp\b|\b(model|dp)\.module\b")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("known", rules(), ids=lambda known: known.code)
def test_no_page_quotes_a_wrapper_where_there_is_none(known, function):
    page = Repair(known.section("Before"), known.section("After"))
    repair = repair_of(Found("x", "y"), page, function)
    text = "\n".join([repair.before or page.before, repair.after or page.after])
    assert not _OF_A_WRAPPER.search(text)
    assert not re.search(r"(?<!\w)model\(", text)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_example_quotes_a_wrapper_where_there_is_none(name, function):
    class Names(dict):
        def __missing__(self, key):
            return {"dim": "", "better": ", dim=1", "ids": "[0, 0]", "once": "[0]"}.get(key, "h")

    template = TEMPLATES[name]
    text = "\n".join(spelled(one.format_map(Names()), function) for one in (template.before, template.after))
    assert not _OF_A_WRAPPER.search(text)


def test_a_changed_call_is_one_of_the_function():
    call = Call(2, 0, (), argument_structures=(("x", "Tensor(2d)"), ("mask", "Tensor(1d)")))
    repair = repair_of(Found("x", "y", advice=change_call(call, mask="mask[:8]")), None, "data_parallel")
    assert repair.before == "data_parallel(model, (x, mask))"
    assert repair.after == 'data_parallel(model, x, module_kwargs={"mask": mask[:8]})'
    dim = spelled("nn.DataParallel(model, dim=1)", "data_parallel")
    assert dim == "data_parallel(model, x, dim=1)"
