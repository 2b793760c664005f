"""Rules about modules that a program gives another forward: DP304."""

import functools

import torch
from casetable import Net, trigger, x
from torch import nn


class Head(Net):
    def forward(self, x):
        return self.fc(x)


def add_rank(linear, rank, alpha):
    linear.down = nn.Parameter(torch.ones(rank, linear.in_features))
    linear.up = nn.Parameter(torch.ones(linear.out_features, rank))
    plain = linear.forward
    linear.forward = lambda x: plain(x) + alpha / rank * (x @ linear.down.T) @ linear.up.T


@trigger("DP304", "`fc.forward` is a forward that holds `fc`")
def a_lambda_adds_a_low_rank_to_a_layer():
    model = Head()
    add_rank(model.fc, rank=2, alpha=4)
    return model, x()


def keep_within(module, bound):
    inner = module.forward

    def forward(x, *, is_free=False):
        y = inner(x)
        return y if is_free else y.clamp(-bound, bound) * module.weight.mean()

    module.forward = forward


@trigger("DP304", "`fc.forward` is a forward that holds `fc`")
def a_function_bounds_what_a_layer_gives():
    model = Head()
    keep_within(model.fc, 0.5)
    return model, x()


def scaled(layer, x, by=2.0):
    return nn.functional.linear(x, layer.weight) * by


def scale(layer):
    layer.forward = functools.partial(scaled, layer)


@trigger("DP304", "`fc.forward` is a forward that holds `fc`")
def a_partial_of_a_function_is_a_layers_forward():
    model = Head()
    scale(model.fc)
    return model, x()
