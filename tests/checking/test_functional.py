"""Repairs for programs that make no DataParallel object name the line that they have."""

import torch
from torch import nn
from torch.nn.parallel import data_parallel

from dpdemo.checking.evidence import Call
from dpdemo.checking.repairs import Hit, change_call, repair_of
from dpdemo.programs.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean = self.mean * 0.9 + x.mean(0)
        return x - self.mean


def test_a_repair_of_a_program_without_a_wrapper_names_no_module():
    check = CallCheck(select=("DP305",))
    with virtual_gpus(2), check.watching():
        data_parallel(Averaged().cuda(), torch.ones(4, 3).cuda())
        (finding,) = check.report().findings
    assert "module" not in finding.code_after


def test_a_changed_call_is_one_of_the_function():
    call = Call(2, 0, (), argument_structures=(("x", "Tensor(2d)"), ("mask", "Tensor(1d)")))
    repair = repair_of(Hit("x", "y", advice=change_call(call, mask="mask[:8]")), function="data_parallel")
    assert repair.before == "data_parallel(model, (x, mask))"
    assert repair.after == 'data_parallel(model, x, module_kwargs={"mask": mask[:8]})'
