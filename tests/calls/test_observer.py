"""Watching a wrapped module and recording what it did."""

import torch
from torch import nn

from dpdemo.calls.epoch import EpochRecorder, ReplicaObserver
from dpdemo.calls.trace import see
from dpdemo.results.devices import Devices


def observed(wrapper, *inputs):
    observer = ReplicaObserver(wrapper, wrapper.module)
    output = wrapper(*inputs)
    taken = observer.take()
    observer.close()
    return taken, output


def record(*batches, dim=0):
    """Record batches given as lists of (rows, device) a replica."""
    recorder = EpochRecorder(Devices.of("meta", range(4)), dim)
    for replicas in batches:
        seen = tuple(see((torch.empty(rows, 5, device="meta"),), torch.empty(rows, 2)) for rows in replicas)
        total = sum(replicas)
        recorder.add(seen, see((torch.empty(total, 5),), torch.empty(total, 2)))
    return recorder.groups()


def test_one_call_is_seen_with_shapes_and_devices():
    (seen,), _ = observed(nn.DataParallel(nn.Linear(5, 2)), torch.ones(30, 5))
    assert seen.input == (30, 5)
    assert seen.output == (30, 2)
    assert seen.input_device == seen.output_device == torch.device("cpu")


def test_what_was_taken_is_not_taken_again():
    wrapper = nn.DataParallel(nn.Linear(5, 2))
    observer = ReplicaObserver(wrapper, wrapper.module)
    wrapper(torch.ones(3, 5))
    assert len(observer.take()) == 1
    assert observer.take() == ()


def test_a_closed_observer_leaves_the_module_as_it_was():
    wrapper = nn.DataParallel(nn.Linear(5, 2))
    before = set(vars(wrapper))
    observer = ReplicaObserver(wrapper, wrapper.module)
    observer.close()
    assert set(vars(wrapper)) == before
    assert not wrapper.module._forward_hooks


def test_tensors_inside_structures_are_named_by_their_path():
    class Pair(nn.Module):
        def forward(self, x, scale):
            return {"logits": x * scale, "hidden": (x, [x[:1]])}

    wrapper = nn.DataParallel(Pair())
    (seen,), _ = observed(wrapper, torch.ones(4, 3), torch.ones(4, 1))
    assert seen.input == (("0", (4, 3)), ("1", (4, 1)))
    assert seen.output == (("logits", (4, 3)), ("hidden.0", (4, 3)), ("hidden.1.0", (1, 3)))


def test_keyword_arguments_are_seen():
    class Keyword(nn.Module):
        def forward(self, *, x):
            return x

    wrapper = nn.DataParallel(Keyword())
    observer = ReplicaObserver(wrapper, wrapper.module)
    wrapper(x=torch.ones(4, 3))
    assert observer.take()[0].input == (4, 3)


def test_neighbouring_equal_batches_are_one_group():
    groups = record([3, 3], [3, 3], [2, 1], [3, 3])
    assert [(g.first, g.count, g.batch_size) for g in groups] == [(1, 2, 6), (3, 1, 3), (4, 1, 6)]


def test_each_replica_is_reported():
    (group,) = record([3, 3, 3, 1])
    assert [(r.replica, r.rows) for r in group.in_model] == [(0, 3), (1, 3), (2, 3), (3, 1)]


def test_devices_that_saw_nothing_are_idle():
    (group,) = record([2, 1])
    assert list(group.idle) == ["meta:2", "meta:3"]


def test_a_recorder_can_be_read_while_it_records():
    recorder = EpochRecorder(Devices.cpu(), 0)
    seen = see((torch.ones(2, 5),), torch.ones(2, 2))
    for count in (1, 2):
        recorder.add((seen,), seen)
        assert [(group.first, group.count) for group in recorder.groups()] == [(1, count)]
    assert recorder.num_batches == 2
