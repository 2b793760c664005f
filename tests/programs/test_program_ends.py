"""The exception that ends a program is read; and nothing is compared while PyTorch records operators."""

import contextlib

import pytest
import torch
from casetable import Linear, Net, x
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.jit._builtins import _find_builtin

from dpdemo.checking.recording.inside import ready_to_watch
from dpdemo.programs.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus


def ended(script):
    """Run a script that fails, and check it with the exception that ended it."""
    with virtual_gpus(2):
        check, error = CallCheck(), None
        with check.watching():
            try:
                script(nn.DataParallel(Linear().cuda()))
            except Exception as raised:
                error = raised
        assert error is not None
        return check.report(error)


def called_before(script):
    """The same, once the wrapper was called."""
    return lambda wrapped: (wrapped(x().cuda()), script(wrapped))


@pytest.mark.parametrize(
    "script",
    [len, lambda wrapped: wrapped[0], list, lambda wrapped: wrapped.predict(x()), lambda wrapped: wrapped.fc],
)
@pytest.mark.parametrize("before", [called_before, lambda script: script])
def test_a_wrapper_that_is_used_as_the_model_is_told_at_the_end(script, before):
    report = ended(before(script))
    assert [(finding.code, finding.severity) for finding in report.findings] == [("DP101", "error")]
    assert report.findings[0].place.file == __file__


def test_a_loss_for_each_gpu_that_ends_a_program_is_told():
    assert (
        "DP401"
        in ended(lambda wrapped: wrapped(x().cuda()).mean(1).sum(0, keepdim=True).expand(2).backward()).codes
    )


@pytest.mark.parametrize("error", [ValueError("no such colour"), KeyError("fc"), RuntimeError()])
def test_an_error_that_dataparallel_has_no_part_in_is_no_finding(error):
    def script(wrapped):
        wrapped(x().cuda())
        raise error

    assert ended(script).findings == ()


def test_a_check_of_which_rules_were_left_out_tells_nothing_of_them():
    with virtual_gpus(2):
        with pytest.raises(TypeError) as raised:
            len(nn.DataParallel(Linear().cuda()))
        assert CallCheck(ignore=("DP101",)).report(raised.value).findings == ()


@pytest.mark.filterwarnings("ignore")
def test_a_call_that_is_traced_is_not_rehearsed():
    def script(wrapped):
        torch.jit.trace(wrapped, x().cuda())

    report = ended(script)
    assert report.codes == ("DP107",)


def test_a_call_on_fake_tensors_is_not_rehearsed():
    rehearsed = []

    class Counting(Net):
        def forward(self, x):
            rehearsed.append(len(x))
            return self.fc(x)

    with virtual_gpus(2):
        check, wrapped = CallCheck(), nn.DataParallel(Counting().cuda())
        given = x().cuda()
        with check.watching(), FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(Exception):
            wrapped(given)
        assert len(rehearsed) <= 2
        assert check.report().findings == ()


def test_scripts_know_what_stands_in_for_an_operator():
    genuine = torch.zeros_like
    with virtual_gpus(2), ready_to_watch():
        assert torch.zeros_like is not genuine
        assert _find_builtin(torch.zeros_like) == _find_builtin(genuine) == "aten::zeros_like"
