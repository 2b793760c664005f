"""Pitfalls that are found by what calls do, however the code is written: DP309, DP502, DP602, and others."""

import contextvars
import enum

import torch
from casetable import Net, trigger, twin, x
from torch import nn


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


@twin("DP309")
class WhatIsHandedOnLiesByTheGpu(Net):
    def __init__(self):
        super().__init__()
        self.head, self.kept = nn.Linear(3, 3), {}

    def forward(self, x):
        self.kept[x.device] = x
        y = self.head(self.fc(x))
        return y + self.kept.pop(x.device).sum(1, keepdim=True)


class Backend(enum.Enum):
    PLAIN = "plain"
    TWICE = "twice"


BACKEND = contextvars.ContextVar("backend", default=Backend.PLAIN)


@twin("DP602")
def a_variable_of_the_context_is_not_asked_for():
    BACKEND.set(Backend.TWICE)
    return Plain(), x()


class Plain(Net):
    def forward(self, x):
        return self.fc(x)


class AutocastParallel(nn.DataParallel):
    def forward(self, *inputs, **kwargs):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return super().forward(*inputs, **kwargs)


class Scaled(Net):
    def forward(self, x):
        return self.fc(x) * 3


@trigger("DP601", "autocast('cuda') is bfloat16 around the call and float16 in replicas")
def a_wrapper_of_the_users_opens_autocast():
    return AutocastParallel(Scaled().to("cuda:0")), x()


@twin("DP313")
def looked_up_rows_are_shortened():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, ids):
            rows = self.table(ids)
            return self.head(rows / rows.norm(dim=-1, keepdim=True).clamp(min=0.5))

    return Model(), lambda rows: (torch.arange(rows) % 9,)


class Followed(Net):
    """Follows its data in training, as codebooks and normalisers do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.mean.lerp_(y.detach().mean(0), 0.1)
        return y - self.mean


@twin("DP305", also=["DP305"])
def a_model_that_follows_its_data_is_given_in_evaluation():
    return Followed().eval(), x()


@twin("DP216", also=["DP203"])
def each_word_is_looked_up_by_itself_and_a_flag_comes_by_keyword():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, ids, hidden=False):
            h = self.words(ids)
            return (self.out(h), h) if hidden else self.out(h)

    return Model(), lambda rows: ((torch.arange(rows * 6).view(rows, 6) % 9,), {"hidden": True})
