"""Which hooks keep nothing of what they see, as far as they are written."""

from math import sqrt

import pytest
import torch

from dpdemo.checking.places import place_of_function
from dpdemo.checking.rewriting.harmless import is_harmless

KEPT = []


class Scaling:
    """Writes what it computes to its own module, as equalised learning rates do."""

    def scaled(self, module):
        return module.raw * sqrt(2 / module.raw[0].numel())

    def __call__(self, module, _args):
        module.weight = self.scaled(module)


class Remembering(Scaling):
    """Keeps it, too."""

    def __init__(self):
        self.last = None

    def __call__(self, module, _args):
        self.last = module.weight = self.scaled(module)


def halved(_module, _args, output):
    return torch.mul(output, 0.5)


def kept(_module, _args, output):
    KEPT.append(output)


def by_gpu(module, _args, output):
    module.seen[output.device] = output


@pytest.mark.parametrize(
    ("hook", "is_so"),
    [(Scaling(), True), (Remembering(), False), (halved, True), (kept, False), (by_gpu, True)],
)
def test_a_hook_is_harmless_if_it_keeps_nothing_or_each_gpus_apart(hook, is_so):
    assert is_harmless(place_of_function(hook)) is is_so
