"""Replicas that wait for each other, as those of a synchronised batch norm do, are no race."""

import operator
import threading
from queue import Queue

import pytest
import torch
from torch import nn
from torch.nn.parallel._functions import Broadcast, ReduceAddCoalesced

from dpdemo.checking import check


class Meeting:
    """Where replicas hand each other their sums."""

    def __init__(self):
        self.lock, self.calls, self.sums, self.barrier = threading.Lock(), 0, {}, threading.Barrier(1)

    def expect(self, number):
        self.sums, self.barrier = {}, threading.Barrier(number)

    def total(self, index, part):
        with self.lock:
            self.sums[index] = part
            self.calls += 1
        self.barrier.wait(timeout=60)
        total = sum(self.sums[key].to(part.device) for key in sorted(self.sums))
        self.barrier.wait(timeout=60)
        return total


class Centred(nn.Module):
    """Takes the mean of the whole batch away."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.meeting, self.index = Meeting(), 0

    def forward(self, x):
        y = self.fc(x)
        rows = y.new_full((1, 1), len(y))
        told = self.meeting.total(self.index, torch.cat([y.sum(0, keepdim=True), rows], dim=1))
        return y - told[:, :-1] / told[:, -1:]

    def expect(self, index, number):
        self.index = index
        self.meeting.expect(number) if index == 0 else None


class Slots(nn.Module):
    """The same, by a dict and a lock that stand on the module, and a dict that is emptied again."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.changed, self.slots, self.gone = threading.Condition(), {}, []
        self.index, self.number = 0, 1

    def forward(self, x):
        y = self.fc(x)
        with self.changed:
            self.slots[self.index] = torch.cat([y.sum(0), y.new_full((1,), len(y))])
            self.changed.notify_all()
            self.changed.wait_for(lambda: len(self.slots) == self.number, timeout=60)
            told = sum(self.slots[key].to(y.device) for key in sorted(self.slots))
            self.gone.append(self.index)
            if len(self.gone) == self.number:
                self.slots.clear()
                self.gone.clear()
                self.changed.notify_all()
            self.changed.wait_for(lambda: not self.slots, timeout=60)
        return y - told[:-1] / told[-1]

    def expect(self, index, number):
        self.index, self.number = index, number


class Synchronised(nn.BatchNorm1d):
    """In the manner of vacancy's Synchronized-BatchNorm-PyTorch: replica 0 adds up what the others send."""

    def __init__(self, channels):
        super().__init__(channels)
        self.master, self.queue, self.answers = self.follow, Queue(), {}
        self.index, self.number = 0, 0

    def expect(self, index, number):
        self.index, self.number = index, number
        self.answers[index] = Queue()

    def __data_parallel_replicate__(self, context, index):
        """What the package's own wrapper calls; here `Told` calls `expect`."""

    def forward(self, x):
        if not (self.number and self.training):
            return super().forward(x)
        self.queue.put((self.index, x.sum(0), x.square().sum(0), len(x)))
        if self.index == 0:
            parts = sorted(
                (self.queue.get(timeout=60) for _ in range(self.number)), key=operator.itemgetter(0)
            )
            devices = list(range(self.number))
            sums = ReduceAddCoalesced.apply(0, 2, *(number for part in parts for number in part[1:3]))
            sent = Broadcast.apply(devices, *self.master(*sums, sum(part[3] for part in parts)))
            for index in devices:
                self.answers[index].put(sent[2 * index : 2 * index + 2])
        mean, scale = self.answers[self.index].get(timeout=60)
        return (x - mean) * (scale * self.weight) + self.bias

    def follow(self, total, squares, rows):
        mean = total / rows
        variance = squares / rows - mean * mean
        self.running_mean.lerp_(mean.detach(), self.momentum)
        self.running_var.lerp_(variance.detach() * rows / (rows - 1), self.momentum)
        return mean, variance.clamp(self.eps) ** -0.5


class Told(nn.DataParallel):
    """Tells each replica which one it is, as the libraries of synchronised batch norms do."""

    def replicate(self, module, device_ids):
        replicas = super().replicate(module, device_ids)
        for index, replica in enumerate(replicas):
            for inner in replica.modules():
                if hasattr(inner, "expect"):
                    inner.expect(index, len(replicas))
        return replicas


def with_norms():
    return nn.Sequential(nn.Linear(4, 3), Synchronised(3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize("make", [Centred, Slots, with_norms])
def test_replicas_that_wait_for_each_other_are_no_race(make):
    report = check(lambda: (Told(make().to("cuda:0")), torch.randn(16, 4)))
    assert (report.findings, report.notes, report.compared) == ((), (), True)


def test_a_synchronised_norm_that_clamps_by_eps_is_noted_where_that_matters():
    def small():
        model = with_norms()
        model[0].weight.data *= 1e-3
        return Told(model.to("cuda:0")), torch.randn(16, 4)

    (found,) = check(small).findings
    assert (found.code, found.severity) == ("DP306", "info")
    assert "`1` takes statistics over the whole batch" in found.message
    assert "the variance is clamped to eps" in found.message


def test_a_synchronised_norm_under_plain_data_parallel_takes_those_of_chunks():
    (found,) = check(with_norms, torch.randn(16, 4), data_size=16).findings
    assert (found.code, found.severity) == ("DP306", "warning")
    assert found.message.endswith("synchronises replicas that were told of each other, and these were not")
    assert found.after.startswith("patch_replication_callback(dp)")


class Logged(nn.Module):
    """A list that grows under a lock: no race, but an entry for each GPU in the order of threads."""

    def __init__(self):
        super().__init__()
        self.fc, self.lock, self.seen = nn.Linear(4, 3), threading.Lock(), []

    def forward(self, x):
        with self.lock:
            self.seen.append(x.mean())
        return self.fc(x)


def test_a_list_that_grows_under_a_lock_is_a_finding():
    assert check(Logged, torch.randn(16, 4)).codes == ("DP309",)
