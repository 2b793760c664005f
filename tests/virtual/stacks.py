"""Stacks of layers, with what each holds worked out by hand from shapes alone.

`Hand` adds up blocks of 512 bytes as CUDA's caching allocator gives them. A stack says which tensors come and
go on the GPU that runs `rows` of the batch, forward and backward; nothing is measured. In `backward`, `done`
is called with the name of a parameter when no later step needs it, since a replica's copies are freed then.
"""

import torch
from torch import nn

FLOAT = 4


def block(*shape, itemsize=FLOAT):
    """The bytes of a tensor, rounded up to blocks of 512."""
    num_bytes = itemsize
    for size in shape:
        num_bytes *= size
    return -(-num_bytes // 512) * 512


class Hand:
    """A sum that remembers its highest value."""

    def __init__(self, held=0):
        self.now = self.most = held

    def take(self, *sizes):
        self.now += sum(sizes)
        self.most = max(self.most, self.now)

    def drop(self, *sizes):
        self.now -= sum(sizes)


class Stack:
    """A model and the shapes of all that it holds.

    Each has `model()`, the shapes of its `input(rows)` and `output(rows)`, and in bytes what forward has
    `kept(rows)` for backward, beside the input and the parameters; `forward` and `backward` take and drop.
    `keeps_output` says whether a layer keeps its output.
    """

    buffers = ()
    keeps_output = False
    is_replica = False


class Linears(Stack):
    """Linear(40, 300), ReLU, Linear(300, 20)."""

    def __init__(self):
        self.shapes = [(300, 40), (300,), (20, 300), (20,)]

    def model(self):
        return nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 20))

    def input(self, rows):
        return rows, 40

    def output(self, rows):
        return rows, 20

    def kept(self, rows):
        return block(rows, 300)  # the ReLU's result, which the second layer keeps too

    def forward(self, rows, hand):
        hidden = block(rows, 300)
        hand.take(hidden)  # the first layer's result
        hand.take(hidden)  # the ReLU's
        hand.drop(hidden)
        hand.take(block(rows, 20))

    def backward(self, rows, hand, done):
        hidden = block(rows, 300)
        hand.take(hidden, block(20, 300), block(20))  # of the ReLU's result, second weight and bias
        done("parameters")  # the first layer's input needs no gradient, and so its weight is not kept
        done("output")
        hand.take(hidden)  # of the first layer's result
        hand.drop(hidden, hidden)  # the ReLU's result and its gradient
        hand.take(block(300, 40), block(300))
        hand.drop(hidden)


class Convolutions(Stack):
    """Conv2d(3, 8, 3, padding=1), BatchNorm2d(8), ReLU, Conv2d(8, 4, 3) on 16 × 16 pixels."""

    def __init__(self):
        self.shapes = [(8, 3, 3, 3), (8,), (8,), (8,), (4, 8, 3, 3), (4,)]
        self.buffers = [(8,), (8,)]  # running mean and variance; the count of batches is apart

    def model(self):
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def input(self, rows):
        return rows, 3, 16, 16

    def output(self, rows):
        return rows, 4, 14, 14

    def kept(self, rows):
        image = block(rows, 8, 16, 16)
        return 2 * image + 2 * block(8)  # the first result, mean and deviation; the ReLU's result

    def forward(self, rows, hand):
        image = block(rows, 8, 16, 16)
        hand.take(image)
        hand.take(image, block(8), block(8))  # normalised; with the batch's mean and deviation
        hand.take(image)  # the ReLU's result
        hand.drop(image)  # what it was made of
        hand.take(block(rows, 4, 14, 14))

    def backward(self, rows, hand, done):
        image = block(rows, 8, 16, 16)
        hand.take(image, block(4, 8, 3, 3), block(4))
        done("output")
        hand.take(image)  # of what was normalised
        hand.drop(image, image)  # the ReLU's result and its gradient
        hand.take(image, block(8), block(8))  # of the first result; of scale and shift
        hand.drop(image, image, block(8), block(8))  # what came in; the first result, mean and deviation
        done("buffers")
        hand.take(block(8, 3, 3, 3), block(8))
        done("parameters")
        hand.drop(image)


class _Output(nn.Module):
    """The first of a recurrent network's results."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)[0]


class Recurrent(Stack):
    """LSTM(10, 33) of two layers on 7 steps, the batch first."""

    steps, width, hidden, layers = 7, 10, 33, 2
    keeps_output = True

    def __init__(self):
        gates = 4 * self.hidden
        self.shapes = [
            *((gates, self.width), (gates, self.hidden), (gates,), (gates,)),
            *((gates, self.hidden), (gates, self.hidden), (gates,), (gates,)),
        ]

    def model(self):
        return _Output(nn.LSTM(self.width, self.hidden, self.layers, batch_first=True))

    def input(self, rows):
        return rows, self.steps, self.width

    def output(self, rows):
        return rows, self.steps, self.hidden

    def _reserve(self, rows):
        numbers = rows * self.steps * self.layers * self.hidden * 6  # four gates, the cell, and its tanh
        if self.is_replica:  # weights that are no parts of one buffer are copied into one
            numbers += sum(torch.Size(shape).numel() for shape in self.shapes)
        return block(numbers)

    def kept(self, rows):
        state = block(self.layers, rows, self.hidden)
        return 2 * state + self._reserve(rows)  # the first states, and the reserve

    def forward(self, rows, hand):
        state = block(self.layers, rows, self.hidden)
        hand.take(state)
        hand.take(state)
        hand.take(block(*self.output(rows)), state, state)
        hand.take(self._reserve(rows))
        hand.drop(state, state)  # the last states

    def backward(self, rows, hand, done):
        state = block(self.layers, rows, self.hidden)
        hand.take(state, state)  # zeros, as gradients of the last states
        # time comes first in copies of the data and of the gradient; and the data's gradient is made
        scratch = block(2 * rows * self.steps * self.width + rows * self.steps * self.hidden)
        hand.take(scratch)
        hand.take(*(block(*shape) for shape in self.shapes))
        hand.drop(scratch, state, state, self.kept(rows))
        done("parameters")
        done("output")
