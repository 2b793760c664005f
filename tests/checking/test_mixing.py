"""Where forward mixes samples is found by what a plain call of a batch and one of its chunk go through."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from dpdemo.checking.observing.mixing import first_mixing, is_chunk_of, traced
from dpdemo.checking.source import code_of


class Norm(nn.Module):
    def forward(self, h):
        return h - h.mean(0)


class Alone(nn.Module):
    def forward(self, x):
        h = x.relu()
        h = torch.cat((h, h / 2), 1)
        return h.sum(1)


class InAPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 3), Norm(), nn.Linear(3, 2)

    def forward(self, x):
        h = self.first(x)
        h = self.norm(h)
        return self.last(h)


class ByPairs(nn.Module):
    def forward(self, x):
        h = functional.normalize(x)
        logits = torch.einsum("id,jd->ij", h, h)
        return logits.softmax(1)


class InALoop(nn.Module):
    def forward(self, x):
        for step in range(3):
            x = x * 2
            if step == 1:
                x = x / x.max()
        return x


class AtTheEnd(nn.Module):
    def forward(self, x):
        return functional.softmax(x, dim=0)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        h = self.fc(x) * 2
        y = h.sum(1)
        h -= h.mean(0)
        return y, h


MIXING = {InAPart: "h = self.norm(h)", ByPairs: "logits = torch.einsum", InALoop: "x = x / x.max()",
          InPlace: "h -= h.mean(0)", AtTheEnd: "return functional.softmax(x, dim=0)"}  # fmt: skip


def found_in(model):
    x = torch.randn(8, 4)
    traces = []
    for rows in (8, 2):
        with traced(model) as steps:
            model(x[:rows])
        traces.append(steps)
    return first_mixing(*traces, code_of(model.forward))


@pytest.mark.parametrize("kind", MIXING)
def test_the_first_line_that_mixes_samples_is_found(kind):
    place = found_in(kind())
    with open(place.file) as file:  # noqa: PTH123 - one line of this very file
        assert MIXING[kind] in file.read().splitlines()[place.line - 1]


def test_a_model_that_keeps_samples_apart_has_no_such_line():
    assert found_in(Alone()) is None


@pytest.mark.parametrize(
    ("whole", "part", "expected"),
    [
        (torch.arange(8.0), torch.arange(2.0), True),
        (torch.ones(5, 8, 3), torch.ones(5, 2, 3), True),
        (torch.ones(8, 8), torch.ones(2, 2), False),
        (torch.arange(8.0).flip(0), torch.arange(2.0).flip(0), False),
        (torch.tensor(3.0), torch.tensor(2.0), False),
        ({"a": (torch.arange(8), 8)}, {"a": (torch.arange(2), 2)}, True),
        (0.5, 0.25, False),
        (True, False, False),
    ],
)
def test_a_chunk_is_the_beginning_of_its_batch_along_one_dimension(whole, part, expected):
    assert is_chunk_of(whole, part) is expected
