"""What a forward fills with tensors and empties again is seen while it runs."""

import pytest
from casetable import Net, x
from torch import nn

from dpdemo.checking.observing.caches import caches_of
from dpdemo.checking.observing.meanwhile import used_meanwhile
from dpdemo.checking.running.copying import ModelSource
from dpdemo.checking.running.runs import Runner
from dpdemo.virtual import virtual_gpus


class Stack:
    def __init__(self, name):
        self.items, self.name = [], name

    def push(self, value):
        self.items.append(value)
        return value

    def pop(self):
        return self.items.pop()


class Down(nn.Module):
    def __init__(self, stack):
        super().__init__()
        self.fc, self.stack = nn.Linear(4, 4), stack

    def forward(self, x):
        return self.fc(self.stack.push(x.relu()))


class Up(nn.Module):
    def __init__(self, stack):
        super().__init__()
        self.fc, self.stack = nn.Linear(4, 4), stack

    def forward(self, x):
        return self.fc(x) + self.stack.pop()


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        stack = Stack("skips")
        self.down, self.up = Down(stack), Up(stack)

    def forward(self, x):
        return self.up(self.down(x))


class Context:
    hidden = None


class Handing(Net):
    """Puts what a part needs on an object, and takes it off again."""

    def __init__(self):
        super().__init__()
        self.context, self.last = Context(), nn.Linear(3, 3)

    def forward(self, x):
        self.context.hidden = self.fc(x)
        y = self.last(self.context.hidden)
        self.context.hidden = None
        return y


class ByGpu(Net):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        self.kept[x.device] = x
        y = self.fc(x)
        del self.kept[x.device]
        return y


class Counting(Net):
    """Writes numbers, and no tensors."""

    def __init__(self):
        super().__init__()
        self.depth = [0]

    def forward(self, x):
        self.depth[0] += 1
        y = self.fc(x)
        self.depth[0] -= 1
        return y


class Staying(Net):
    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, x):
        self.kept.append(x)
        return self.fc(x)


FOUND = {Pair: (("down.stack", "up.stack"),), Handing: (("context",),), ByGpu: (), Counting: (), Staying: ()}


@pytest.mark.parametrize("kind", FOUND)
def test_it_is_told_by_all_its_names_and_only_where_nothing_of_it_stays(kind):
    with virtual_gpus(2):
        runner = Runner(ModelSource(kind()), (0, 1))
        assert used_meanwhile(runner, "train", ((x(),), {})) == FOUND[kind]


@pytest.mark.parametrize(("key", "number"), [(4, 1), ("cuda:0", 0)])
def test_a_cache_of_a_class_is_suspect_unless_its_keys_name_a_gpu(key, number):
    with virtual_gpus(2):
        kind = type("Cached", (Net,), {"__module__": __name__, "kept": {key: x().cuda()}})
        assert len(caches_of(kind())) == number
