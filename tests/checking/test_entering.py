"""What a plain call had in the user's functions, and what it needs to be on the GPU."""

import sys

import pytest
import torch
from casetable import Net, x
from torch import nn

from dpdemo.checking import check
from dpdemo.checking.copying import ModelSource
from dpdemo.checking.entering import entered_functions
from dpdemo.checking.runs import Runner
from dpdemo.virtual import virtual_gpus


def scaled(length, rows, by, *, table):
    return by(rows[0]) * length + table["a"]


class Model(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.ones(3))

    def twice(self, value):
        return value + value

    def never(self, y):
        return y

    def forward(self, x):
        y = scaled(self.twice(2), [self.fc(x)], torch.relu, table={"a": self.shift})
        return self.twice(y)


@pytest.fixture
def entered():
    with virtual_gpus(2):
        runner = Runner(ModelSource(Model()), (0, 1))
        found = entered_functions(runner, "train", ((x(),), {}))
    codes = {
        one.__code__.co_firstlineno: one.__name__ for one in (scaled, Model.twice, Model.never, Model.forward)
    }
    return {codes[one.line]: one for one in found}


def test_functions_that_a_call_does_not_reach_are_not_listed(entered):
    assert set(entered) == {"scaled", "twice", "forward"}


def test_tensors_are_told_from_what_else_is_given(entered):
    assert entered["scaled"].tensors == ("rows[0]", "table['a']")
    assert entered["scaled"].numbers == ("length",)


def test_an_argument_is_a_tensor_only_if_it_is_one_in_each_call(entered):
    assert entered["twice"].tensors == ("self.fc.weight",)
    assert entered["twice"].numbers == ()


def test_a_method_has_the_parameters_of_its_module(entered):
    assert entered["forward"].tensors == ("x", "self.fc.weight")


def test_a_profiler_of_the_users_stays_on():
    seen = []
    sys.setprofile(lambda *event: seen.append(event))
    try:
        with virtual_gpus(2):
            runner = Runner(ModelSource(Model()), (0, 1))
            assert entered_functions(runner, "train", ((x(),), {})) == ()
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert seen


class Masked(Net):
    """Runs on the CPU, and on no GPU: its mask stays where it was made."""

    def __init__(self, size=3):
        super().__init__()
        self.mask = torch.ones(size)

    def forward(self, x):
        return self.fc(x) * self.mask


def test_what_stays_on_the_cpu_is_put_on_the_gpu_and_that_is_said():
    model = Masked()
    report = check(model, x(), gpus=2)
    assert [one.code for one in report.findings if one.severity == "error"] == ["DP302"]
    assert "run with `mask` on the first GPU" in report.assumed[0]
    assert model.mask.device.type == "cpu"


def test_a_model_that_fails_even_so_is_refused():
    with pytest.raises(ValueError, match="expected Masked to run with these inputs on one GPU"):
        check(Masked(2), x(), gpus=2)


def test_a_tensor_on_the_cpu_that_is_moved_where_it_is_used_stays_there():
    class Moving(Masked):
        def forward(self, x):
            assert self.mask.device.type == "cpu"
            return self.fc(x) * self.mask.to(x.device)

    report = check(Moving(), x(), gpus=2)
    assert (report.findings, report.assumed) == ((), ())


def test_tensors_in_objects_with_slots_are_brought_along():
    class Scale:
        __slots__ = ("value",)

        def __init__(self):
            self.value = torch.ones(3)

    class Holding(Net):
        def __init__(self):
            super().__init__()
            self.held = {"scale": [Scale()]}

        def forward(self, x):
            return self.fc(x) * self.held["scale"][0].value

    report = check(Holding, x(), gpus=2)
    assert [one.code for one in report.findings if one.severity == "error"] == ["DP302"]


def test_a_tensor_beside_a_module_in_an_object_is_brought_along():
    class Friend:
        def __init__(self, layer):
            self.layer, self.bias = layer, torch.ones(3)

    class Befriended(Net):
        def __init__(self):
            super().__init__()
            self.friend = Friend(nn.Linear(3, 3))

        def forward(self, x):
            return self.fc(x) + self.friend.bias

    report = check(Befriended, x(), gpus=2)
    assert "run with `friend` on the first GPU" in report.assumed[0]
    assert [one.code for one in report.findings if one.severity == "error"] == ["DP302"]
