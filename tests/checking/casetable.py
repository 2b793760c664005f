"""How a case is written: what it needs, and the models that many cases share."""

import re
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass(frozen=True, eq=False)
class Case:
    """`says` are words of the finding's message: those that name the cause."""

    code: str
    factory: object
    says: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    options: dict = field(default_factory=dict)
    raises: bool = False
    """Whether a training step raises an error whose text tells the rule."""

    def __str__(self):
        return f"{self.code}-{self.factory.__name__}"


TRIGGERS: list[Case] = []
TWINS: list[Case] = []


def trigger(code, *says, also=(), given=None, raises=False, **options):
    """The rule finds it, and says these words; `also` lists other rules that are right to speak."""
    return _adding(TRIGGERS, given, lambda factory: Case(code, factory, says, tuple(also), options, raises))


def twin(code, also=(), given=None, **options):
    """The rule, and every other one but `also`, finds nothing."""
    return _adding(TWINS, given, lambda factory: Case(code, factory, (), tuple(also), options))


def _adding(cases, given, case):
    def add(made):
        cases.append(case(factory_of(made, given or x)))
        return made

    return add


def factory_of(made, given):
    """Return a factory of (model, inputs): a function is one; for a class of models `given` makes inputs."""
    if not isinstance(made, type):
        return made

    def factory():
        return made(), given()

    factory.__name__ = re.sub(r"(?<=.)(?=[A-Z])", "_", made.__name__).lower()
    return factory


class Net(nn.Module):
    """One linear layer, for models that only differ in their forward."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)


def x(rows=8):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))


def wrapped(model, **options):
    return nn.DataParallel(model.to("cuda:0"), **options)


class Linear(Net):
    def forward(self, x):
        return self.fc(x)


class Counting(Net):
    """A model that counts its calls, which a replica does in vain."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return self.fc(x)


class Head(nn.Module):
    """A model of which one part is in DataParallel."""

    def __init__(self):
        super().__init__()
        self.net = nn.DataParallel(nn.Linear(4, 3).to("cuda:0"))

    def forward(self, x):
        return self.net(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 5, batch_first=True)


def steps(rows=8):
    return torch.randn(rows, 6, 4, generator=torch.Generator().manual_seed(1))


@dataclass
class Batch:
    x: torch.Tensor


def returning(make):
    """A model whose forward returns make(y, x)."""

    class Model(Net):
        def forward(self, x):
            return make(self.fc(x), x)

    return Model()


def with_batchnorm(norm):
    return nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 2))
