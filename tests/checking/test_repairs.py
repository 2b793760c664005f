"""Repairs: the user's own line where its form is known; else a short example, labelled as one."""

import ast
from dataclasses import replace

import pytest
import torch
from casetable import Net, x
from torch import nn
from torch.ao.quantization import MinMaxObserver

from dpdemo.checking import check
from dpdemo.checking.evidence import Call, Leaf, Probe, Single
from dpdemo.checking.fills import (
    after_the_call,
    as_buffer,
    as_modules,
    bracketed,
    on_inputs_device,
    returned,
    swapped,
)
from dpdemo.checking.repairs import Hit, advise, change_call, repair_of
from dpdemo.results.findings import Place

CALL = Call(
    2, 0, (Leaf("x", "Tensor", (8, 4)),), argument_structures=(("x", "Tensor(2d)"), ("mask", "Tensor(2d)"))
)
PROBE = Probe(8, "train", is_real=True, single=Single(), calls=(CALL,))


def repaired(fill, line, function="forward", **names):
    """The repair of a line of this function, by a fill; or else an example."""
    place = Place("net.py", 3, function, line)
    return repair_of(Hit("", "", place, PROBE, advice=advise("an example", fill=fill, **names)))


KEYS = "   # state_dict() has its keys from now on"
BRACKETED = returned(lambda code, names: f"{bracketed(code)}.to({names['x']}.device)", "   # outside")
FILLED = [
    (as_buffer, "__init__", {"name": "scale"},
     'self.scale = torch.ones(3, device="cuda:0")',
     'self.register_buffer("scale", torch.ones(3), persistent=False)'),
    (as_buffer, "__init__", {"name": "scale"},
     "self.scale = torch.ones(3).cuda() * 2",
     'self.register_buffer("scale", torch.ones(3) * 2, persistent=False)'),
    (as_modules, "__init__", {},
     "self.layers = [nn.Linear(4, 4) for _ in range(3)]",
     "self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])" + KEYS),
    (as_modules, "__init__", {},
     'self.heads = {"a": nn.Linear(4, 4)}',
     'self.heads = nn.ModuleDict({"a": nn.Linear(4, 4)})' + KEYS),
    (on_inputs_device, "forward", {},
     'mask = torch.zeros(n, device="cuda:0")', "mask = torch.zeros(n, device=x.device)"),
    (on_inputs_device, "forward", {}, "y = y.cuda(0)", "y = y.to(x.device)"),
    (on_inputs_device, "forward", {}, "mask = mask.to(self.device)", "mask = mask.to(x.device)"),
    (after_the_call, "forward", {"path": "steps"},
     "self.steps += 1", "y = model(x, mask)\nmodel.module.steps += 1   # after the call, not in forward"),
    (BRACKETED, "forward", {"result": "[1]"}, "return y, 3", "return y, (3).to(x.device)   # outside"),
    (BRACKETED, "forward", {"result": "['n']"},
     'return {"y": y, "n": n}', 'return {"y": y, "n": n.to(x.device)}   # outside'),
    (BRACKETED, "forward", {}, "return a + b", "return (a + b).to(x.device)   # outside"),
    (swapped(r"\.{name}\b", ".module.{name}"), "train", {"name": "fc"},
     "print(dp.fc.weight)", "print(dp.module.fc.weight)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fill", "function", "names", "line", "after"), FILLED, ids=[case[3] for case in FILLED]
)
def test_a_line_of_a_known_form_is_rewritten(fill, function, names, line, after):
    assert repaired(fill, line, function, **names) == (line, after, False)
    ast.parse(after.replace("return", "yield"))


OTHER_FORMS = [
    (as_buffer, "forward", {"name": "scale"}, "self.scale = torch.ones(3)"),  # made in forward
    (as_buffer, "__init__", {"name": "scale"}, "self.scale, self.shift = make()"),
    (as_buffer, "__init__", {"name": "scale"}, "self.scale = torch.ones("),  # the first of several lines
    (as_modules, "__init__", {}, "self.layers = make()"),
    (on_inputs_device, "helper", {}, 'mask = torch.zeros(n, device="cuda:0")'),  # has no x
    (on_inputs_device, "forward", {}, "y = x + self.table"),
    (after_the_call, "forward", {"path": "steps"}, "if self.training: self.steps += 1"),
    (BRACKETED, "forward", {"result": "[2]"}, "return y, 3"),
    (BRACKETED, "forward", {"result": "[1]"}, "return out"),
    (swapped(r"\.{name}\b", ".module.{name}"), "train", {"name": "fc"}, "print(dp.fc, dp.fc)"),
]


@pytest.mark.parametrize(("fill", "function", "names", "line"), OTHER_FORMS)
def test_a_line_of_another_form_gets_an_example_that_is_labelled_as_one(fill, function, names, line):
    assert repaired(fill, line, function, **names) == (line, "an example", True)


def test_the_example_of_a_page_has_the_users_first_tensor_for_x():
    found = Hit("", "", Place("net.py", 3, "forward", "y = f(rows)"), PROBE, advice=advise())
    named = replace(
        found, probe=replace(PROBE, calls=(replace(CALL, arguments=(Leaf("rows", "Tensor", (8,)),)),))
    )
    assert repair_of(named, "y = f(x.max(), x)") == ("y = f(rows)", "y = f(rows.max(), rows)", True)
    assert repair_of(replace(found, advice=None), "y = f(x)") == ("", "", True)


def test_a_call_is_written_with_the_users_own_names():
    advice = change_call(CALL, mask="mask.expand(len(x), -1)")
    repair = repair_of(Hit("", "", None, PROBE, advice=advice))
    assert repair == ("model(x, mask)", "model(x, mask=mask.expand(len(x), -1))", False)


class Shortened(nn.Module):
    """The rows of an embedding are shortened in forward (pytorch/pytorch#37246)."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 3, max_norm=1.0)

    def forward(self, ids):
        return self.table(ids)


class Observed(Net):
    """An observer of quantisation keeps the extremes of what it sees (pytorch/pytorch#37032)."""

    def __init__(self):
        super().__init__()
        self.seen = MinMaxObserver()

    def forward(self, x):
        return self.fc(self.seen(x))


@pytest.mark.parametrize(
    ("model", "batch", "code", "words"),
    [
        (Shortened, torch.arange(8), "DP313", "model.module.table.weight.data.renorm_(2, 0, max_norm)"),
        (Observed, x(), "DP305", "model(x)   # while it observes: the module itself, on one GPU"),
    ],
)
def test_modules_of_pytorch_that_write_in_forward_have_a_way_around(model, batch, code, words):
    findings = check(lambda: (model(), batch)).findings
    assert {finding.code for finding in findings} == {code}
    assert all(words in finding.after for finding in findings)


class Unnamed(Net):
    def forward(self, *given):
        weight, bias = self.fc.parameters()
        return nn.functional.linear(given[0], weight, bias)


def test_an_argument_without_a_name_has_one_that_code_can_have():
    (finding,) = check(lambda: (Unnamed(), x())).findings
    assert "x1.device" in finding.after
