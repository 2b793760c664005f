"""Draw random DataParallel programs and hold each against chunks done by hand on the plain CPU.

    python tests/tools/fuzz/dataparallel.py --seconds 300 --seed 7

A program is a stack of layers with parameters and buffers, inputs in a nested structure, some GPUs in some
order and some steps of an optimizer. What must agree: outputs of the first step to the last bit (the same
kernels see the same shapes), gradients and parameters to the last digits of float64 (sums in another order),
buffers as those of chunk 0.
"""

import copy
import random
import sys
import time
import warnings
from pathlib import Path

import torch
from hunting import hunt
from torch import nn

from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.virtual import virtual_gpus

sys.path.insert(0, str(Path(__file__).parents[2]))  # a program of its own finds what the tests share
from byhand import ByHand


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


def tokens_of(x):
    return torch.stack([x, x.flip(-1), x * 2], 1)


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTM(width, width, batch_first=True)

    def forward(self, x):
        return self.cell(tokens_of(x))[0][:, -1].contiguous()  # cuDNN and the CPU lay it out differently


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        tokens = tokens_of(x)
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
    "shared": lambda width: nn.Sequential(*[nn.Linear(width, width)] * 2),  # one layer, twice
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
        "output_device": draw.choice([None, *range(num_gpus)]),
        "source": draw.choice(["cpu", *(f"cuda:{index}" for index in range(num_gpus))]),
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


def by_hand(model, batches, given):
    """Take the steps on the CPU, chunk after chunk."""
    return steps(ByHand(model, len(given["ids"])), batches, "cpu", given)


def under_data_parallel(model, batches, given):
    """Take the same steps under the genuine DataParallel on virtual GPUs."""
    ids, chosen = given["ids"], given["output_device"]
    with virtual_gpus(given["num_gpus"]), warnings.catch_warnings():
        # PyTorch gathers the gradient of an input on the CPU by a name for the CPU that it deprecates
        warnings.filterwarnings("ignore", "Using -1 to represent CPU tensor", FutureWarning)
        wrapped = nn.DataParallel(model.to(f"cuda:{ids[0]}"), ids, chosen)
        found = steps(wrapped, batches, given["source"], given)
        # With a single id the module is called as it is: `output_device` is not looked at
        expected = ids[0] if chosen is None or len(ids) == 1 else chosen
        devices = {tensor.device for tensor in found["output"]}
        assert devices == {torch.device("cuda", expected)}, devices
        model.cpu()
        return {what: [tensor.cpu() for tensor in found[what]] for what in found}


def steps(wrapped, batches, source, given):
    """Take a step with each batch, and return all outputs and the gradients of all inputs."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3, momentum=0.9)
    found = {"output": [], "gradient of input": []}
    for x, bias in batches:
        optimizer.zero_grad()
        leaf = x.to(source).requires_grad_()
        kwargs = {} if bias is None else {"bias": bias.to(source)}
        output = wrapped(nested(given["shape"], leaf), **kwargs)
        loss_of(output).backward()
        optimizer.step()
        found["output"] += [tensor.detach() for tensor in tensors(output)]
        found["gradient of input"].append(leaf.grad)
        leaf.requires_grad_(False)
    return found


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
    expected = by_hand(twin, batches, given)
    got = under_data_parallel(model, batches, given)
    if not torch.equal(expected["output"][0], got["output"][0]):
        return "the first output is not the same to the last bit"
    for what, want, have in [
        *(pair for kind in expected for pair in pairs(kind, enumerate(expected[kind]), enumerate(got[kind]))),
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
