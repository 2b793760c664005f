"""An error of a DataParallel run is explained from its text, for whatever the rules' own triggers raise."""

import contextlib
import traceback

import pytest
import torch
from cases import TRIGGERS
from torch import nn

from dpdemo.checking.doctor import diagnose
from dpdemo.checking.errors import PATTERNS
from dpdemo.checking.registry import rule_of
from dpdemo.checking.running.batches import on_device
from dpdemo.errors import UsageError
from dpdemo.models.inputs import Batches
from dpdemo.virtual import virtual_gpus


def raised_by(case):
    """Give the traceback of what a training step of a trigger raises, as Python prints it."""
    try:
        model, inputs = case.factory()
        dim = case.options.get("dim", 0)
        batches = Batches.of(inputs, None, 8, dim)
        if not any(isinstance(module, nn.DataParallel) for module in model.modules()):
            model = nn.DataParallel(model.to("cuda:0"), dim=dim)
        model = model.to("cuda:0") if case.code in ("DP401", "DP409", "DP501") else model
        for size in (batches.size, 5):
            args, kwargs = on_device(batches.arguments(size), torch.device("cuda:0"))
            result = model.train()(*args, **kwargs)
            if isinstance(result, torch.Tensor) and case.code == "DP501":
                result.backward()
    except Exception:
        return traceback.format_exc()
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for case in TRIGGERS if case.raises], ids=str)
def test_an_error_of_a_trigger_is_explained_by_its_rule(case):
    with virtual_gpus(case.options.get("gpus", 4)):
        text = raised_by(case)
    assert text is not None
    (finding,) = diagnose(text).findings
    assert finding.code == case.code, text


@pytest.mark.parametrize(
    "message",
    [
        "TypeError: object of type 'DataParallel' has no len()",
        "AttributeError: 'DataParallel' object has no attribute 'predict'",
        "TypeError: 'DataParallel' object is not subscriptable",
        "TypeError: 'DataParallel' object is not iterable",
        "AttributeError: 'BalancedDataParallel' object has no attribute 'fc'",
        "TypeError: expected a Sequential, got DataParallel",
    ],
)
def test_every_error_that_names_the_wrapper_is_told(message):
    text = f'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f(dp)\n{message}\n'
    (finding,) = diagnose(text).findings
    assert (finding.code, str(finding.place)) == ("DP101", "a.py:3")


def test_every_pattern_is_of_a_rule():
    assert all(rule_of(pattern.code) for pattern in PATTERNS)


def test_the_users_own_line_is_named():
    text = """Traceback (most recent call last):
  File "/home/me/train.py", line 7, in <module>
    loss = model(x)
  File "/usr/lib/python3.11/site-packages/torch/nn/parallel/data_parallel.py", line 193, in forward
    outputs = self.parallel_apply(replicas, inputs, module_kwargs)
StopIteration: Caught StopIteration in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/nn/parallel/parallel_apply.py", line 97, in _worker
    output = module(*input, **kwargs)
  File "/home/me/net.py", line 31, in forward
    device = next(self.parameters()).device
StopIteration
"""
    (finding,) = diagnose(text).findings
    assert (finding.code, str(finding.place)) == ("DP308", "/home/me/net.py:31")
    assert "replica 0" in finding.message


def test_an_error_that_is_not_dataparallels_is_said_to_be_that():
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no such colour\n'
    )
    report = diagnose(text)
    assert report.findings == ()
    assert "no rule knows this message" in report.notes[0]


def test_a_text_without_an_exception_is_refused():
    with pytest.raises(UsageError, match="got a text without one"), contextlib.nullcontext():
        diagnose("all is well\n")
