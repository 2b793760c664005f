"""Rules about modules that a program gives another forward: DP304."""

import functools

from casetable import Net
from torch import nn


class Head(Net):
    def forward(self, x):
        return self.fc(x)


def scaled(layer, x, by=2.0):
    return nn.functional.linear(x, layer.weight) * by


def scale(layer):
    layer.forward = functools.partial(scaled, layer)
