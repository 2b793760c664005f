"""A check changes nothing of what a program does, whichever of its own parts fails."""

import functools
import warnings

import pytest
import torch
from fastpart import mostly_slow
from torch import nn
from torch.nn.parallel import data_parallel, gather, parallel_apply, replicate, scatter
from torch.nn.parallel._functions import Scatter
from torch.nn.parallel.scatter_gather import scatter_kwargs

from dpdemo.calls import live
from dpdemo.checking.recording import by_hand as begun
from dpdemo.checking.recording import drafts, inside, steps
from dpdemo.checking.running import building
from dpdemo.programs import callcheck
from dpdemo.programs.callcheck import CallCheck
from dpdemo.programs.subjects import Subject
from dpdemo.virtual import virtual_gpus


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x, fails=False):
        if fails:
            raise KeyError("the model's own")
        self.seen = x.new_ones(1).to("cuda:0")
        warnings.warn("of the model", stacklevel=1)
        return self.fc(x)


def outcome(work):
    try:
        result = work()
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    return result.tolist()


def by_hand(model, x, fails=False):
    inputs, kwargs = scatter_kwargs((x,), {"fails": fails}, [0, 1])
    return gather(parallel_apply(replicate(model, [0, 1]), inputs, kwargs), 0)


def functions(x, *makers):
    return gather(parallel_apply([make(x) for make in makers], scatter(x, [0, 1])), 0)


class Loss(Model):
    def forward(self, x):
        return self.fc(x).square().mean()


def backward(x):
    wrapper = nn.DataParallel(Loss().cuda())
    wrapper(x).mean().backward()
    return wrapper.module.fc.weight.grad


def run_program():
    """Make calls of every kind, good and bad ones, and return what came of each."""
    torch.manual_seed(0)
    model = Model().cuda()
    warnings.simplefilter("ignore")
    model.load_state_dict(
        {f"module.{name}": value for name, value in model.state_dict().items()}, strict=False
    )
    x = torch.ones(4, 3).cuda()
    wrapper = nn.DataParallel(model)
    works = [
        lambda: wrapper(x),
        lambda: wrapper.forward(x),
        lambda: wrapper(x, fails=True),
        lambda: wrapper(torch.ones(4, 5).cuda()),
        lambda: data_parallel(model, x),
        lambda: data_parallel(model, x, module_kwargs={"fails": True}),
        lambda: by_hand(model, x),
        lambda: by_hand(model, x, fails=True),
        lambda: gather(parallel_apply(replicate(model, [0, 1]), scatter(x, [0, 1])), 0),
        lambda: gather([torch.ones(2, 3).cuda(), torch.ones(2, 4).cuda(1)], 0),
        lambda: functions(x, *[lambda _: torch.relu] * 2),
        lambda: functions(x, *[lambda _: functools.partial(torch.mul, other=2)] * 2),
        lambda: functions(x, *[lambda _: model.fc.bias.new_ones(1).mul] * 2),
        lambda: functions(x, *[lambda _: lambda _: 1 / 0] * 2),
        lambda: backward(x),
        lambda: gather(parallel_apply(replicate(model, [0, 1]), Scatter.apply([0, 1], [1, 3], 0, x)), 0),
        lambda: parallel_apply([torch.relu], [(x,), (x,)]),
        lambda: parallel_apply([], []),
    ]
    return [outcome(work) for work in works]


class Worse(Exception):  # noqa: N818 - an exception without a text
    def __str__(self):
        raise RuntimeError("no text")


PARTS = [
    *[(begun, name) for name in ("is_in_chunks", "threads_state", "of_each_replica")],
    (live, "index_of"),
    *[(begun, name) for name in ("Draft", "Splitter", "tensors_in")],
    *[
        (steps, name)
        for name in ("threads_state", "index_of", "of_each_replica", "draft_by_hand", "draft_of")
    ],
    *[(steps, name) for name in ("hide_ours", "being", "WatchedReplica")],
    *[(drafts, name) for name in ("raised", "being", "threads_state")],
    *[(begun.Cuts, "note"), (begun.Cuts, "joined")],
    *[(drafts.Draft, name) for name in ("freeze", "let_go", "device_of", "_replica")],
    *[(inside.ReplicaLog, "note"), (inside, "calling_place"), (inside, "_FunctionCall"), (building, "Event")],
    *[(drafts, name) for name in ("describe_all", "flatten_arguments", "structure", "named", "pictures_in")],
    *[(callcheck, name) for name in ("rehearse", "_kind", "scan", "_probes")],
    (Subject, "follow_losses"),
    *[(callcheck, name) for name in ("planned_call", "wrapped_or_not", "describe_all")],
]


@pytest.fixture(scope="module")
def expected():
    with virtual_gpus(2):
        return run_program()


def test_a_check_changes_nothing(expected):
    with virtual_gpus(2):
        check = CallCheck()
        with check.watching():
            assert run_program() == expected


@pytest.mark.parametrize(
    ("owner", "name"), mostly_slow(PARTS, 6), ids=[f"{owner.__name__}.{name}" for owner, name in PARTS]
)
def test_a_check_of_which_a_part_fails_changes_nothing(expected, monkeypatch, owner, name):
    met = []

    def fail(*_, **__):
        met.append(name)
        raise Worse if len(met) % 2 else ZeroDivisionError("a part failed")

    with virtual_gpus(2):
        check = CallCheck()
        with check.watching():
            monkeypatch.setattr(owner, name, fail)
            assert run_program() == expected
            monkeypatch.undo()
        assert met
        check.report()
