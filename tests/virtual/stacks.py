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
    `keeps_input` and `keeps_output` say what a layer keeps of them.
    """

    buffers = ()
    keeps_input = True
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


class Encoder(Stack):
    """TransformerEncoderLayer(32, 4, 64) with dropout on 10 positions, the batch first."""

    positions, width, heads, inner = 10, 32, 4, 64
    keeps_input = False  # but a copy

    def __init__(self):
        d, f = self.width, self.inner
        self.shapes = [
            *((3 * d, d), (3 * d,), (d, d), (d,)),  # attention
            *((f, d), (f,), (d, f), (d,)),
            *((d,), (d,), (d,), (d,)),  # two normalisations
        ]

    def model(self):
        return nn.TransformerEncoderLayer(self.width, self.heads, self.inner, dropout=0.1, batch_first=True)

    def input(self, rows):
        return rows, self.positions, self.width

    def output(self, rows):
        return rows, self.positions, self.width

    def _sizes(self, rows):
        """One tensor of the width; three; one inside; masks of both; mean or deviation; log-sum-exps."""
        length = self.positions
        return (
            block(rows, length, self.width),
            block(3, rows, length, self.width),
            block(rows, length, self.inner),
            block(rows, length, self.width, itemsize=1),
            block(rows, length, self.inner, itemsize=1),
            block(rows, length),
            block(rows, self.heads, 32 * -(-length // 32)),
        )

    def kept(self, rows):
        one, three, inner, mask, inner_mask, moment, sums = self._sizes(rows)
        attention = one + three + one + sums + one + mask  # input, q k v, result, its heads side by side
        feed_forward = one + inner + mask + inner + inner_mask
        return attention + feed_forward + 2 * (one + 2 * moment)

    def forward(self, rows, hand):
        one, three, inner, mask, inner_mask, moment, sums = self._sizes(rows)
        hand.take(one)  # the input with positions first, in one piece
        hand.take(three)
        hand.take(three)  # with bias
        hand.drop(three)
        hand.take(three)  # q, k and v one after the other
        hand.drop(three)
        hand.take(one)
        hand.take(sums)
        hand.take(one)  # heads side by side
        hand.take(one)
        self._drop_out(hand, one, mask)
        hand.take(one)  # plus the input
        hand.drop(one)
        hand.take(one, moment, moment)
        hand.take(inner)
        hand.take(inner)  # the ReLU's result
        hand.drop(inner)
        hand.take(inner, inner_mask)
        hand.take(one)
        self._drop_out(hand, one, mask)
        hand.take(one)
        hand.drop(one)
        hand.take(one, moment, moment)

    def _drop_out(self, hand, size, mask):
        """What replaces a tensor by a thinner one."""
        hand.take(size, mask)
        hand.drop(size)

    def backward(self, rows, hand, done):
        d = block(self.width)
        one, _, _, _, _, moment, _ = self._sizes(rows)
        hand.take(one, d, d)
        hand.drop(one, moment, moment)
        done("output")
        self._backward_inside(rows, hand)
        # Gradients of the normalised tensor by two ways: one here, and one that waited
        hand.take(one)
        hand.drop(one, one)
        hand.take(one, d, d)
        hand.drop(one, one, moment, moment)
        self._backward_attention(rows, hand, done)

    def _backward_inside(self, rows, hand):
        one, _, inner, mask, inner_mask, _, _ = self._sizes(rows)
        weight, d, f = block(self.width, self.inner), block(self.width), block(self.inner)
        hand.take(one)
        hand.drop(mask)
        hand.take(inner, weight, d)
        hand.drop(inner, one)  # the thinned input of the second layer, and its result's gradient
        hand.take(inner)
        hand.drop(inner, inner_mask)
        hand.take(inner)
        hand.drop(inner, inner)  # the ReLU's result and its gradient
        hand.take(one, weight, f)
        hand.drop(inner, one)  # and the layer's input

    def _backward_attention(self, rows, hand, done):
        one, three, _, mask, _, _, sums = self._sizes(rows)
        self._drop_out(hand, one, 0)
        hand.drop(mask)
        hand.take(one)  # with positions first, in one piece
        hand.drop(one)
        hand.take(one, block(self.width, self.width), block(self.width))
        hand.drop(one, one)
        done("parameters")  # the projection in keeps its input only, which needs no gradient
        hand.take(sums)  # dot products, one for each row
        hand.take(one, one, one)
        hand.drop(sums, three, one, one, sums)
        for _ in "qkv":  # heads before rows, then positions before heads, in one piece
            for _ in range(2):
                hand.take(one)
                hand.drop(one)
        hand.take(three)  # the first of the three as a part of the whole
        hand.drop(one)
        for _ in range(2):
            hand.take(three)  # the next
            hand.drop(one)
            hand.take(three)  # and their sum
            hand.drop(three, three)
        hand.take(three)  # as the projection in made it
        hand.drop(three)
        hand.take(block(3 * self.width))
        hand.take(block(3 * self.width, self.width))
        hand.drop(three, one)
