"""A prediction does without PyTorch's compiler and sympy, which load slowly; who asks for them gets them."""

import importlib
import sys

import pytest
import torch
from fastpart import mostly_slow
from processes import run

from dpdemo.memory.uncompiled import _FUNCTIONS, _SHAPES, _Functions, _shapes

PREDICTS = """
import sys
import torch
from torch import nn
import dpdemo

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x){use}

def predict():
    return dpdemo.predict_memory(model="__main__:Net", inputs=["8x4"], gpus=2{more}).gpus[1].peak_bytes
"""
UNUSED = """
assert predict() > 0
slow = {"torch._dynamo", "sympy", "torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor"}
assert not slow & {*sys.modules}
"""
KEPT = """
from torch._dynamo import eval_frame
assert sys.modules["torch._dynamo"] is torch._dynamo and torch._dynamo.__spec__ is not None
torch.optim.SGD([nn.Parameter(torch.ones(1))]).zero_grad()  # which asks the compiler now
bare = torch.optim.Optimizer.zero_grad.__wrapped__
assert bare.__dynamo_disable is not bare
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "more"),
    mostly_slow(
        [
            ("", ', strategy="ddp", training=dpdemo.Training(amp=True)'),
            (" * bool(__import__('inspect').getmodule(sys._getframe()) is not torch)", ""),
        ],
        2,
    ),
)
def test_the_compiler_is_not_loaded_and_is_itself_afterwards(use, more):
    program = PREDICTS.format(use=use, more=more) + UNUSED + KEPT
    run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "use", [" * torch._dynamo.config.cache_size_limit", " * bool(__import__('torch._dynamo.utils').__file__)"]
)
def test_a_model_that_asks_for_the_compiler_gets_it(use):
    program = PREDICTS.format(use=use, more="") + "assert predict() > 0\n" + KEPT
    run([sys.executable, "-c", program], check=True)


@pytest.fixture
def shapes():
    """The stand-in for `symbolic_shapes`, whatever is loaded in this process."""
    before = sys.modules.pop(_SHAPES, None)
    found = sys.modules[_SHAPES] = _shapes()
    yield found
    found.give_way()
    if before is not None:
        sys.modules[_SHAPES] = before


@pytest.mark.filterwarnings("ignore")  # some are deprecated
def test_plain_numbers_are_answered_as_pytorch_does():
    real = importlib.import_module(_SHAPES)
    stand_in = _shapes()
    asked = {
        "guard_or_false": [(True,), (False,)], "guard_or_true": [(True,)], "sym_or": [(False, True)],
        "sym_and": [(False, True), (True, True)], "sym_eq": [((2, 3), [2, 3]), ((2,), (3,)), (4, 4)],
        "is_nested_int": [(3,)], "statically_known_true": [(True,)], "has_guarding_hint": [(3,)],
        "guarding_hint_or_throw": [(3,)], "free_unbacked_symbols": [(torch.ones(2, 3),)], "guard_int": [(3,)],
        "expect_true": [(True,)], "guard_size_oblivious": [(True,)],
    }  # fmt: skip
    sys.modules[_SHAPES] = stand_in
    try:
        for name, calls in asked.items():
            if not hasattr(real, name):
                continue  # another release
            answers = [getattr(stand_in, name)(*args) for args in calls]
            assert sys.modules[_SHAPES] is stand_in, name
            assert answers == [getattr(real, name)(*args) for args in calls], name
    finally:
        sys.modules[_SHAPES] = real


def test_a_function_that_somebody_kept_hands_on_to_the_module(shapes):
    kept = shapes.guard_or_false
    shapes.give_way()
    assert sys.modules.get(_SHAPES) is not shapes
    assert kept(True) is True
    assert sys.modules[_SHAPES].guard_or_false is not kept


def test_a_question_about_a_symbol_goes_to_the_module(shapes):
    with pytest.raises(AssertionError, match="sym_eq"):
        shapes.sym_eq("a", "b")
    assert sys.modules[_SHAPES] is not shapes


def test_the_kernel_that_imports_a_function_and_does_not_use_it_loads_nothing(monkeypatch):
    stand_in = _Functions(_FUNCTIONS)
    monkeypatch.setitem(sys.modules, _FUNCTIONS, stand_in)
    assert torch._prims_common.is_non_overlapping_and_dense_or_false(torch.ones(2, 3))
    assert sys.modules[_FUNCTIONS] is stand_in
    from torch.utils._sympy.functions import Max

    assert sys.modules[_FUNCTIONS] is not stand_in
    assert Max is sys.modules[_FUNCTIONS].Max


@pytest.mark.slow
def test_a_model_that_asks_for_sympy_gets_it():
    use = " * int(__import__('sympy').Integer(1)) + isinstance(x, __import__('sympy').Basic)"
    program = (
        PREDICTS.format(use=use, more="")
        + 'assert predict() > 0\nassert sys.modules["sympy"].Basic.__mro__[1:]\n'
    )
    run([sys.executable, "-c", program], check=True)
