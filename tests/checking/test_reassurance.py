"""`no pitfalls` is said only where results were compared, and nothing went wrong that no rule knows."""

import pytest
import torch
from torch import nn

from dpdemo.checking import check
from dpdemo.checking.doctor import diagnose
from dpdemo.programs.callcheck import CallCheck
from dpdemo.results.check import CheckReport
from dpdemo.virtual import virtual_gpus


def report_on(script, gpus=2):
    """Check a script's calls, with the exception that ends it."""
    calls, error = CallCheck(), None
    with virtual_gpus(gpus), calls.watching():
        try:
            script()
        except BaseException as raised:
            error = raised
        return calls.report(error)


def run(rows=8):
    nn.DataParallel(nn.Linear(4, 2).cuda())(torch.ones(rows, 4).cuda())


def run_and(error):
    def script():
        run()
        raise error

    return script


def test_a_program_that_was_compared_and_ends_well_is_clean():
    report = report_on(run)
    assert (report.nothing_found, report.is_clean) == ("no pitfalls", True)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("lr"), "the program ended with KeyError: 'lr', which no rule knows"),
        (KeyboardInterrupt(), "the program was interrupted"),
    ],
)
def test_an_end_that_no_rule_knows_is_said(error, says):
    report = report_on(run_and(error))
    assert (report.findings, report.nothing_found, report.is_clean) == ((), says, False)


def test_an_end_that_a_rule_knows_is_a_finding():
    error = AttributeError("'DataParallel' object has no attribute 'fc'")
    report = report_on(run_and(error))
    assert (report.codes, report.ended_by) == (("DP101",), "")


def test_beside_findings_an_end_that_no_rule_knows_is_a_note():
    class Counting(nn.Module):
        steps = 0

        def forward(self, x):
            self.steps += 1
            return x * 2

    def script():
        nn.DataParallel(Counting())(torch.ones(8, 4).cuda())
        raise KeyError("lr")

    report = report_on(script)
    assert report.codes == ("DP301",)
    assert report.notes == ("the program ended with KeyError: 'lr', which no rule knows",)


@pytest.mark.parametrize(("rows", "gpus"), [(8, 1), (1, 2)])
def test_a_call_in_one_chunk_compares_nothing(rows, gpus):
    report = report_on(lambda: run(rows), gpus)
    assert not report.compared
    assert not report.is_clean


def test_a_check_that_compares_nothing_says_so():
    assert check(nn.Linear(4, 2), ["8x4"], gpus=2).compared
    assert not check(nn.Linear(4, 2), ["1x4"], gpus=2).compared


def test_nothing_is_said_of_a_traceback_but_what_is_known():
    assert diagnose("ValueError: x").nothing_found == "no rule of check is about this error"
    assert CheckReport("Net", 2, (), compared=False).nothing_found == "nothing was compared"
