"""Rules of tensors that a model holds among other things: DP302."""

import collections
import functools
import types

import torch
from casetable import Net, trigger, x


def holding(hold, use):
    """Make a model that holds two tensors in some way, and uses them so."""

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.held = hold(torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:0"))

        def forward(self, x):
            return use(self.held, self.fc(x))

    return Model()


@trigger("DP302", "`held` is a tensor of shape (3,) on cuda:0")
def a_tensor_is_held_in_a_named_tuple():
    level = collections.namedtuple("level", "stride grid")  # noqa: PYI024 - as people write it
    return holding(lambda a, _: level(8, a), lambda held, y: y * held.grid / held.stride), x()


@trigger("DP302", "`held` is a tensor of shape (3,) on cuda:0")
def tensors_are_held_in_a_dict_of_pairs():
    def use(held, y):
        return sum(y * one * by for one, by in held.values())

    return holding(lambda a, b: {"a": (a, 0.5), "b": (b, 2.0)}, use), x()


@trigger("DP302", "`held` is a tensor of shape (3,) on cuda:0")
def tensors_are_held_in_an_ordered_dict():
    return holding(
        lambda a, b: collections.OrderedDict(a=a, b=b), lambda held, y: y * held["a"] + held["b"]
    ), x()


@trigger("DP302", "`held` is a tensor of shape (3,) on cuda:0")
def a_tensor_is_held_in_a_list_with_none():
    return holding(lambda a, _: [None, a], lambda held, y: y + held[1]), x()


@trigger("DP302", "`held` is a tensor of shape (3,) on cuda:0, as `scale` of a SimpleNamespace")
def a_tensor_is_held_in_a_namespace():
    return holding(
        lambda a, _: types.SimpleNamespace(scale=a, eps=0.1), lambda held, y: y * held.scale + held.eps
    ), x()


@trigger("DP302", "`weigh` is a lambda that holds a tensor of shape (3,) on cuda:0")
def a_lambda_has_a_tensor_from_around_it():
    class Model(Net):
        def __init__(self):
            super().__init__()
            weights = torch.ones(3, device="cuda:0")
            self.weigh = lambda y: y * weights

        def forward(self, x):
            return self.weigh(self.fc(x))

    return Model(), x()


@trigger("DP302", "`weigh` is a function that holds a tensor of shape (3,) on cuda:0")
def a_partial_function_has_a_tensor():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.weigh = functools.partial(torch.mul, torch.ones(3, device="cuda:0"))

        def forward(self, x):
            return self.weigh(self.fc(x))

    return Model(), x()


@trigger("DP302", "`mean` and `std` are tensors, and neither parameters nor buffers")
def two_tensors_are_set_in_one_statement():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.mean, self.std = torch.zeros(3, device="cuda:0"), torch.ones(3, device="cuda:0")

        def forward(self, x):
            return (self.fc(x) - self.mean) / self.std

    return Model(), x()
