"""The bytes of whole training steps, worked out by hand from shapes alone, are those that the ledger tells.

`stacks.py` has the layers; the tests here put them on one GPU, and under DataParallel on three. The gradient
of the output is given, so that no loss comes in between.

What is in the ledger and would not be on a GPU (docs/virtual-gpus.md has the whole list):

- the sum of two gradients of one tensor: on a GPU the engine adds the second to the first, and here it makes
  a new tensor, as it does wherever a dispatch mode is on;
- the gradients of a recurrent network's weights: parts of one buffer of cuDNN's, here blocks of their own,
  which is less than 512 bytes more for each.
"""

import pytest
import torch
from stacks import Convolutions, Hand, Linears, Recurrent, block
from torch import nn

from dpdemo.virtual import virtual_gpus

NUM_GPUS = 3
ROWS = 10  # 4, 4 and 2 on three GPUs
STACKS = {"linear": Linears, "convolution": Convolutions, "recurrent": Recurrent}

pytestmark = pytest.mark.usefixtures("without_collector")


@pytest.fixture(params=STACKS.values(), ids=list(STACKS))
def stack(request):
    return request.param()


@pytest.fixture(params=["cpu", "meta"])
def storage(request):
    return str(request.param)


def blocks(shapes):
    """Each tensor in a block of its own."""
    return sum(block(*shape) for shape in shapes)


def together(shapes):
    """All tensors in one buffer."""
    return block(sum(torch.Size(shape).numel() for shape in shapes))


def counts(stack):
    """The number of batches that batch normalisation keeps, on a GPU too."""
    return block(1, itemsize=8) if stack.buffers else 0


def kinds(**sizes):
    """All kinds of the ledger; those not named are empty."""
    names = (
        *("parameters", "gradients", "optimizer state", "buffers", "inputs", "activations"),
        *("replica copies", "gathered outputs", "temporaries", "cuDNN scratch"),
        *("gradient buckets", "gathered blocks", "block remainders"),
    )
    return {name: sizes.pop(name.replace(" ", "_"), 0) for name in names}


def test_one_gpu(stack, storage):
    """Forward, backward, and what is left."""
    parameters, buffers = blocks(stack.shapes), blocks(stack.buffers) + counts(stack)
    inputs, output = block(*stack.input(ROWS)), block(*stack.output(ROWS))
    with virtual_gpus(1, storage=storage) as gpus:
        model = stack.model().cuda()
        batch, gradient = torch.ones(stack.input(ROWS)).cuda(), torch.ones(stack.output(ROWS)).cuda()
        assert gpus.live_by_kind(0) == kinds(parameters=parameters, buffers=buffers, inputs=inputs + output)
        hand = Hand(parameters + buffers + inputs + output)
        gpus.reset_peaks()
        result = model(batch)
        stack.forward(ROWS, hand)
        assert gpus.peak_bytes(0) == hand.most
        assert gpus.live_bytes(0) == hand.now
        assert hand.now == parameters + buffers + inputs + 2 * output + stack.kept(ROWS)

        gpus.reset_peaks()
        hand = Hand(hand.now)
        result.backward(gradient)
        stack.backward(ROWS, hand, lambda _: None)
        assert gpus.peak_bytes(0) == hand.most
        assert hand.now == gpus.live_bytes(0) == 2 * parameters + buffers + inputs + 2 * output
        assert gpus.live_by_kind(0) == kinds(
            parameters=parameters, gradients=parameters, buffers=buffers, inputs=inputs + output,
            activations=output,
        )  # fmt: skip
        assert gpus.peak_by_kind(0)["activations"] <= stack.kept(ROWS) + output
        del result


def test_three_gpus(stack, storage):
    """Each GPU's forward and backward under DataParallel."""
    stack.is_replica = True
    chunks = (4, 4, 2)
    with virtual_gpus(NUM_GPUS, storage=storage) as gpus:
        model = nn.DataParallel(stack.model().cuda())
        batch, gradient = torch.ones(stack.input(ROWS)), torch.ones(stack.output(ROWS)).cuda()
        gpus.reset_peaks()
        result = model(batch)
        for index, rows in enumerate(chunks):
            hand = forward_by_hand(stack, index, rows)
            assert (index, gpus.peak_bytes(index)) == (index, hand.most)
            assert (index, gpus.live_bytes(index)) == (index, hand.now)
        gpus.reset_peaks()
        result.backward(gradient)
        for index, rows in enumerate(chunks):
            hand = backward_by_hand(stack, index, rows)
            assert (index, gpus.peak_bytes(index)) == (index, hand.most)
            assert (index, gpus.live_bytes(index)) == (index, hand.now)
        assert gpus.live_by_kind(0) == kinds(
            parameters=blocks(stack.shapes), gradients=together(stack.shapes),
            inputs=block(*stack.output(ROWS)), gathered_outputs=block(*stack.output(ROWS)),
            buffers=blocks(stack.buffers) + counts(stack),
        )  # fmt: skip


def held_by_first(stack):
    """GPU 0 has the model, and the gradient that is given."""
    return blocks(stack.shapes) + blocks(stack.buffers) + counts(stack) + block(*stack.output(ROWS))


def forward_by_hand(stack, index, rows):
    """Scatter, replicate, forward and gather, as GPU `index` has them."""
    hand = Hand(0 if index else held_by_first(stack))
    hand.take(block(*stack.input(rows)))
    copies, buffers = together(stack.shapes), together(stack.buffers)
    if index:
        hand.take(copies, buffers, counts(stack))
    else:
        for size in (copies, buffers):  # one buffer, of which copies are sent
            hand.take(size)
            hand.drop(size)
    stack.forward(rows, hand)
    if index == 0:
        hand.take(block(*stack.output(ROWS)))
    else:
        hand.drop(counts(stack))
    if not stack.keeps_output:
        hand.drop(block(*stack.output(rows)))
    return hand


def backward_by_hand(stack, index, rows):
    """Gather's backward, backward, and the sum of the gradients, as GPU `index` has them."""
    hand = Hand(forward_by_hand(stack, index, rows).now)
    chunk = block(*stack.output(rows))
    if index:
        hand.take(chunk)  # of the gradient

    def done(what):
        if what == "output":
            hand.drop(chunk if index else 0, chunk if stack.keeps_output else 0)
        elif index:
            hand.drop(together(stack.shapes if what == "parameters" else stack.buffers))

    stack.backward(rows, hand, done)
    hand.drop(block(*stack.input(rows)))
    shapes = together(stack.shapes)
    hand.take(shapes)  # the gradients of this GPU, one after the other
    if index == 0:
        hand.take(shapes)  # the sum: NCCL adds the others' while it sends
    hand.drop(blocks(stack.shapes), shapes)  # of GPU 0 the sum is left
    return hand
