"""A prediction does without PyTorch's compiler, which loads slowly; user code that compiles still gets it."""

import sys

import pytest
from fastpart import mostly_slow
from processes import run

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
    return dpdemo.predict_memory(model="__main__:Net", inputs=["8x4"], gpus=2).gpus[1].peak_bytes
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
    "use", mostly_slow(["", " * bool(__import__('inspect').getmodule(sys._getframe()) is not torch)"], 2)
)
def test_the_compiler_is_not_loaded_and_is_itself_afterwards(use):
    program = (
        PREDICTS.format(use=use) + 'assert predict() > 0\nassert "torch._dynamo" not in sys.modules\n' + KEPT
    )
    run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "use", [" * torch._dynamo.config.cache_size_limit", " * bool(__import__('torch._dynamo.utils').__file__)"]
)
def test_a_model_that_asks_for_the_compiler_gets_it(use):
    program = PREDICTS.format(use=use) + "assert predict() > 0\n" + KEPT
    run([sys.executable, "-c", program], check=True)
