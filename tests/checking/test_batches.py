"""Arguments are copied to a GPU whatever they are, and only their tensors change."""

import collections
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from casetable import Net, x

from dpdemo.checking import check
from dpdemo.checking.running.batches import on_device
from dpdemo.virtual import virtual_gpus


class Pair(NamedTuple):
    x: torch.Tensor
    count: int


class Made(dict):
    """A dict that cannot be made from nothing."""

    def __init__(self, pairs, note="made"):
        super().__init__(pairs)
        self.note = note


class Locked(collections.OrderedDict):
    """A dict without `update`, as ModelOutput of `transformers` is."""

    def update(self, *_, **__):
        raise TypeError("use item assignment")


class Span(tuple):
    """A tuple that is made of two things."""

    __slots__ = ()

    def __new__(cls, start, end):
        return super().__new__(cls, (start, end))


class Rows(list):
    """A list that wants a name."""

    def __init__(self, name, rows):
        super().__init__(rows)
        self.name = name


@dataclass
class Batch:
    x: torch.Tensor


HOLDERS = {
    "dict": lambda: {"x": x()},
    "defaultdict": lambda: collections.defaultdict(list, x=x()),
    "a dict that wants arguments": lambda: Made([("x", x())]),
    "a dict without update": lambda: Locked(x=x()),
    "list": lambda: [x()],
    "a list that wants arguments": lambda: Rows("rows", [x()]),
    "namedtuple": lambda: Pair(x(), 8),
    "tuple": lambda: (x(), 8),
    "a tuple that wants arguments": lambda: Span(x(), 8),
    "what torch.max returns": lambda: x().max(1),
    "dataclass": lambda: Batch(x()),
}


@pytest.mark.parametrize("make", HOLDERS.values(), ids=list(HOLDERS))
def test_what_holds_tensors_is_copied_with_them(make):
    value = make()
    with virtual_gpus(2):
        twin = on_device(value, torch.device("cuda:1"))
        assert type(twin) is type(value)
        there, here = first_tensor(twin), first_tensor(value)
        assert str(there.device) == "cuda:1"
        assert here.device.type == "cpu"
        assert torch.equal(there.cpu(), here)


def first_tensor(value):
    if isinstance(value, Batch):
        return value.x
    return next(iter(value.values() if isinstance(value, dict) else value))


@pytest.mark.parametrize(
    "value",
    [collections.Counter(a=2), torch.Size([3, 4]), (), [], {}, {1, 2}, "text", range(3), None, torch.float32],
    ids=repr,
)
def test_what_holds_none_is_equal_afterwards(value):
    assert on_device(value, torch.device("cpu")) == value


def test_a_size_reaches_forward_whole():
    class Reshaped(Net):
        def forward(self, x, size):
            assert len(size) == 3
            return self.fc(x).reshape(-1, *size[1:])

    assert check(Reshaped, (x(), torch.Size([8, 3, 1]))).findings == ()


def test_a_dict_that_wants_arguments_is_checked():
    class Reading(Net):
        def forward(self, batch):
            return self.fc(batch["x"])

    assert check(Reading, (Made([("x", x())]),)).findings == ()
