"""Draw random DataParallel programs and hold each against chunks done by hand on the plain CPU.

    python tests/tools/fuzz/dataparallel.py --seconds 300 --seed 7

A program is a stack of layers with parameters and buffers, inputs in a nested structure, some GPUs in some
order and some steps of an optimizer. What must agree: outputs of the first step to the last bit (the same
kernels see the same shapes), gradients and parameters to the last digits of float64 (sums in another order),
buffers as those of chunk 0.
"""

import copy
import random
import time

import torch
from hunting import hunt
from torch import nn

from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.virtual import virtual_gpus


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.register_buffer("shift", torch.ones(width))

    def forward(self, x):
        return x * torch.sigmoid(self.scale) + self.shift


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x):
        return self.conv(x.unsqueeze(1)).mean(1)


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        return self.cell(x.unsqueeze(1))[0].squeeze(1)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        tokens = torch.stack([x, x.flip(-1), x * 2], 1)
        return self.inner(tokens, tokens, tokens)[0].mean(1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        self.seen += len(x)
        return x


LAYERS = {
    "linear": lambda width: nn.Linear(width, width),
    "norm": nn.BatchNorm1d,
    "layernorm": nn.LayerNorm,
    "tanh": lambda _: nn.Tanh(),
    "gelu": lambda _: nn.GELU(),
    "bilinear": Gate,
    "conv": lambda _: Convolved(),
    "recurrent": Recurrent,
    "attention": Attention,
    "counter": lambda _: Counter(),
}


class Model(nn.Module):
    """A stack whose inputs and outputs are nested as drawn."""

    def __init__(self, names, width, shape):
        super().__init__()
        self.layers = nn.ModuleList(LAYERS[name](width) for name in names)
        self.shape = shape

    def forward(self, given, *, bias=None):
        x = given if self.shape == "lone" else given["x"] if self.shape == "dict" else given[0]
        for layer in self.layers:
            x = layer(x)
        x = x if bias is None else x + bias
        return {"lone": x, "dict": {"y": x, "pair": (x.sum(1), x[:, :1])}, "tuple": (x, [x.cos()])}[
            self.shape
        ]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in tensors(part)]


def nested(shape, x):
    return {"lone": x, "dict": {"x": x}, "tuple": (x,)}[shape]


def program(draw):
    """Draw what a program is made of."""
    num_gpus = draw.randint(1, 6)
    ids = draw.sample(range(num_gpus), draw.randint(1, num_gpus))
    return {
        "num_gpus": num_gpus,
        "ids": ids,
        "output_device": draw.choice([None, *ids]),
        "names": ["linear", *(draw.choice(list(LAYERS)) for _ in range(draw.randint(0, 4)))],
        "width": draw.choice([2, 4, 6]),
        "shape": draw.choice(["lone", "dict", "tuple"]),
        "rows": [draw.randint(2, 40) for _ in range(draw.randint(1, 3))],
        "has_bias": draw.random() < 0.5,
        "training": draw.random() < 0.8,
        "seed": draw.randrange(10**6),
    }


def loss_of(output):
    return sum((tensor**2).sum() for tensor in tensors(output))


def by_hand(model, batches, num_chunks, given):
    """Take the steps on the CPU, each chunk on a copy, as torch.chunk cuts it; copy 0 keeps its buffers.

    Each chunk lies in memory of its own, as on its GPU: a kernel may look at where its operands begin.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    outputs = []
    for x, bias in batches:
        optimizer.zero_grad()
        chunks = [chunk.clone() for chunk in x.chunk(num_chunks)]
        parts = bias.chunk(num_chunks) if bias is not None else [None] * len(chunks)
        biases = [part if part is None else part.clone() for part in parts]
        copies = [copy.deepcopy(model) for _ in chunks]
        parts = [
            replica(nested(given["shape"], chunk), bias=part)
            for replica, chunk, part in zip(copies, chunks, biases, strict=True)
        ]
        gathered = [torch.cat(columns) for columns in zip(*map(tensors, parts), strict=True)]
        loss_of(gathered).backward()
        for name, parameter in model.named_parameters():
            grads = [dict(item.named_parameters())[name].grad for item in copies]
            parameter.grad = sum(grad for grad in grads if grad is not None) if any(
                grad is not None for grad in grads
            ) else None  # fmt: skip
        for mine, buffer in zip(model.buffers(), copies[0].buffers(), strict=True):
            mine.copy_(buffer)
        optimizer.step()
        outputs += [tensor.detach() for tensor in gathered]
    return outputs


def under_data_parallel(model, batches, given):
    """Take the same steps under the genuine DataParallel on virtual GPUs."""
    outputs = []
    with virtual_gpus(given["num_gpus"]):
        first = f"cuda:{given['ids'][0]}"
        model.to(first)
        wrapped = nn.DataParallel(model, given["ids"], given["output_device"])
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        for x, bias in batches:
            optimizer.zero_grad()
            kwargs = {} if bias is None else {"bias": bias.to(first)}
            output = wrapped(nested(given["shape"], x.to(first)), **kwargs)
            loss_of(output).backward()
            optimizer.step()
            outputs += [tensor.detach().cpu() for tensor in tensors(output)]
        model.cpu()
    return outputs


def difference(given):
    """Run one program both ways and say what differs; "" if nothing does."""
    torch.manual_seed(given["seed"])
    model = Model(given["names"], given["width"], given["shape"]).double().train(given["training"])
    twin = copy.deepcopy(model)
    batches = [
        (
            torch.randn(rows, given["width"], dtype=torch.float64),
            torch.randn(rows, given["width"], dtype=torch.float64) if given["has_bias"] else None,
        )
        for rows in given["rows"]
    ]
    chunks = [len(chunk) for x, _ in batches for chunk in x.chunk(len(given["ids"]))]
    if given["training"] and "norm" in given["names"] and 1 in chunks:
        return ""  # BatchNorm refuses a lone sample in training, on any device
    expected = by_hand(twin, batches, len(given["ids"]), given)
    got = under_data_parallel(model, batches, given)
    if not torch.equal(expected[0], got[0]):
        return "the first output is not the same to the last bit"
    for what, want, have in [
        *((f"output {number}", *pair) for number, pair in enumerate(zip(expected, got, strict=True))),
        *pairs("parameter", twin.named_parameters(), model.named_parameters()),
        *pairs("buffer", twin.named_buffers(), model.named_buffers()),
        *pairs("gradient of", gradients(twin), gradients(model)),
    ]:
        if not torch.allclose(want, have, *tolerance_of("float64")):
            return f"{what} differs by {(want - have).abs().max()}"
    return ""


def gradients(model):
    return ((name, item.grad) for name, item in model.named_parameters() if item.grad is not None)


def pairs(kind, wanted, found):
    return [(f"{kind} {name}", want, have) for (name, want), (_, have) in zip(wanted, found, strict=True)]


def runs(seed, seconds, most=None):
    """Yield (number, program, difference) until the time or the number is over."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end and (most is None or number < most):
        given = program(random.Random(f"{seed}/{number}"))  # noqa: S311 - it is to be repeatable
        yield number, given, difference(given)
        number += 1


if __name__ == "__main__":
    hunt(__doc__, "programs that were compared with chunks by hand", runs, str)
