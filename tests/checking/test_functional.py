"""Repairs for programs that make no DataParallel object name the line that they have."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import data_parallel

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
