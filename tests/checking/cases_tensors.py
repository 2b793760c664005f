"""Rules of tensors that a model holds among other things: DP302."""

import torch
from casetable import Net


def holding(hold, use):
    """Make a model that holds two tensors in some way, and uses them so."""

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.held = hold(torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:0"))

        def forward(self, x):
            return use(self.held, self.fc(x))

    return Model()
