"""Programs for virtual GPUs of any storage: models with what they are called with, losses, optimizers, steps.

Each has a name, and takes a `Notes`, to which it says when a phase is over.
"""

import contextlib
import copy
import io
import itertools
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch.nn.parallel import gather, parallel_apply, replicate, scatter
from torch.utils.checkpoint import checkpoint

from dpdemo.virtual import VirtualGpus, virtual_gpus


@dataclass
class Notes:
    """What the ledger says after each phase of a program, and of its fullest moment in that phase."""

    gpus: VirtualGpus
    pages: dict[str, Any] = field(default_factory=dict)

    def __call__(self, phase):
        """Close a phase: note what is held and what was moved, and begin the next one."""
        self.pages[phase] = [
            {
                "live": self.gpus.live_by_kind(index),
                "peak": self.gpus.peak_by_kind(index),
                "peak bytes": self.gpus.peak_bytes(index),
                "peak phase": self.gpus.peak_phase(index),
            }
            for index in range(len(self.gpus))
        ]
        self.pages[phase] += [self.gpus.bytes_moved_between, vars(self.gpus.bytes_moved).copy()]
        self.gpus.phase = f"after {phase}"
        self.gpus.reset_peaks()


def pages_of(program, storage, num_gpus=3):
    """Run a program on GPUs with this storage; return what the ledger said after each phase."""
    torch.manual_seed(0)
    with virtual_gpus(num_gpus, storage=storage) as gpus:
        notes = Notes(gpus)
        program(notes)
        notes("end")
        return notes.pages


def numbers(*shape):
    return torch.randn(shape)


def words(*shape):
    return torch.randint(0, 50, shape)


def _image(*layers):
    return lambda: nn.Sequential(*layers), lambda: (numbers(6, 3, 16, 16),)


# Built inside the block: each entry makes a model, and a batch of what it is called with.
MODELS = {
    "linear": (
        lambda: nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 70)),
        lambda: (numbers(12, 20),),
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=2, bias=False),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 3),
        ),
        lambda: (numbers(12, 3, 16, 16),),
    ),
    "convolution up": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, dilation=2),
            nn.ConvTranspose2d(8, 4, 3, stride=2),
            nn.AvgPool2d(2),
            nn.Upsample(scale_factor=2),
        ),
        lambda: (numbers(6, 3, 16, 16),),
    ),
    "channels last": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(
            memory_format=torch.channels_last
        ),
        lambda: (numbers(6, 3, 16, 16).contiguous(memory_format=torch.channels_last),),
    ),
    "convolution of rows with channels last": (  # the linear layers copy rows that are not in order
        lambda: nn.Sequential(Channels(nn.Linear(16, 8)), nn.Conv2d(8, 8, 3), Channels(nn.Linear(8, 16))),
        lambda: (numbers(6, 16, 9, 9).contiguous(memory_format=torch.channels_last),),
    ),
    "batch norm of rows that were turned": (  # the layer after it copies what is not in order
        lambda: nn.Sequential(Turned(nn.BatchNorm1d(8)), nn.Linear(8, 5)),
        lambda: (numbers(6, 9, 8),),
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU(), nn.InstanceNorm2d(8), nn.PixelShuffle(2)
        ),
        lambda: (numbers(6, 3, 16, 16),),
    ),
    "padding and unfolding": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.LPPool2d(2, 2), nn.ZeroPad2d(1), nn.ReflectionPad2d(1), nn.Unfold(2)
        ),
        lambda: (numbers(6, 3, 16, 16),),
    ),
    "activations": (
        lambda: nn.Sequential(
            nn.Linear(8, 8), nn.PReLU(), nn.ELU(), nn.Hardswish(), nn.Mish(), nn.Softplus(), nn.RReLU(),
            nn.CELU(), nn.Hardtanh(), nn.Sigmoid(), nn.Softmax(-1), nn.LogSoftmax(-1), nn.GLU(),
        ),
        lambda: (numbers(6, 8),),
    ),
    "lstm": (lambda: nn.LSTM(10, 33, 2, batch_first=True, dropout=0.3), lambda: (numbers(9, 7, 10),)),
    "lstm both ways, projected": (
        lambda: nn.LSTM(10, 33, 2, batch_first=True, bidirectional=True, proj_size=5),
        lambda: (numbers(9, 7, 10),),
    ),
    "lstm cell": (lambda: nn.LSTMCell(10, 33), lambda: (numbers(9, 10),)),
    "attention": (
        lambda: nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True),
        lambda: (numbers(6, 10, 32),) * 3,
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
        ),
        lambda: (numbers(6, 10, 32),),
    ),
    "decoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), 2),
        lambda: (numbers(6, 10, 32), numbers(6, 7, 32)),
    ),
    "embedding": (
        lambda: nn.Sequential(
            nn.Embedding(50, 16, padding_idx=0), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 50)
        ),
        lambda: (words(9, 7),),
    ),
    "dropouts": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout2d(0.5), nn.AlphaDropout(0.3), nn.Dropout(0.1)),
        lambda: (numbers(6, 3, 8, 8),),
    ),
    "rms norm": (lambda: nn.Sequential(nn.Linear(8, 16), nn.RMSNorm(16)), lambda: (numbers(6, 8),)),
}  # fmt: skip

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adam, fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "adamw": torch.optim.AdamW,
    "adamw, amsgrad": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True),
    "adagrad": torch.optim.Adagrad,
}

LOSSES = {
    "cross entropy": (F.cross_entropy, lambda: torch.randint(0, 70, (12,))),
    "cross entropy of shares": (
        lambda output, target: F.cross_entropy(output, target.softmax(-1)),
        lambda: numbers(12, 70),
    ),
    "mse": (F.mse_loss, lambda: numbers(12, 70)),
    "soft margin": (F.soft_margin_loss, lambda: numbers(12, 70)),
    "binary, of logits": (F.binary_cross_entropy_with_logits, lambda: torch.rand(12, 70)),
    "binary": (
        lambda output, target: F.binary_cross_entropy(output.sigmoid(), target),
        lambda: torch.rand(12, 70),
    ),
    "divergence": (
        lambda output, target: F.kl_div(output.log_softmax(-1), target, reduction="batchmean"),
        lambda: torch.rand(12, 70),
    ),
    "margin": (F.multi_margin_loss, lambda: torch.randint(0, 70, (12,))),
    "ctc": (
        lambda output, target: F.ctc_loss(
            output.view(12, 1, 70).log_softmax(-1), target[None, :3], torch.tensor([12]), torch.tensor([3])
        ),
        lambda: torch.randint(1, 70, (12,)),
    ),
}


def leaves(output):
    """The tensors of numbers in an output."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    return [leaf for part in output for leaf in leaves(part)]


def squares(output):
    """A loss for any output."""
    return sum(leaf.float().square().mean() for leaf in leaves(output))


def training(
    model_and_batch, optimizer=OPTIMIZERS["sgd"], *, loss=squares, is_split=True, autocast=None, clip=False
):
    """Two steps of training, under DataParallel or on one GPU."""
    make, batch = model_and_batch

    def run(notes):
        model = make().cuda()
        model = nn.DataParallel(model) if is_split else model
        steps = optimizer(model.parameters())
        notes("build")
        for number in range(2):
            given = batch() if is_split else tuple(item.cuda() for item in batch())
            lower = torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext()
            with lower:
                output = model(*given)
                notes(f"forward {number}")
                total = loss(output)
            notes(f"loss {number}")
            total.backward()
            notes(f"backward {number}")
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                notes(f"clip {number}")
            steps.step()
            notes(f"step {number}")
            steps.zero_grad()
            del output, total, given

    return run


def evaluation(model_and_batch, context):
    """One call in evaluation mode."""
    make, batch = model_and_batch

    def run(notes):
        model = nn.DataParallel(make().cuda()).eval()
        notes("build")
        with context():
            output = model(*batch())
        notes("evaluation")
        del output

    return run


class Channels(nn.Module):
    """Its part gets the channels as the last dimension."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Turned(nn.Module):
    """A layer for channels first, where they are last."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        turned = self.layer(x.transpose(1, 2))
        return turned.transpose(1, 2)


class Checkpointed(nn.Module):
    """Runs its inner part again in the backward pass."""

    def __init__(self, *, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(8, 50)
        self.inner = nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Dropout(0.3), nn.Linear(50, 4))

    def forward(self, x):
        return checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant)


def functional(notes):
    """DataParallel's four steps one by one."""
    model, batch = nn.Linear(8, 40).cuda(), numbers(10, 8).cuda()
    replicas = replicate(model, [0, 1, 2])
    notes("replicate")
    chunks = scatter((batch,), [0, 1, 2])
    notes("scatter")
    outputs = parallel_apply(replicas, chunks)
    notes("parallel apply")
    output = gather(outputs, 0)
    notes("gather")
    output.sum().backward()
    notes("backward")


def copies(notes):
    """Copies of a model, of its state, and of an optimizer's; to the host and back, to a file and back."""
    model = nn.Sequential(nn.Linear(8, 40), nn.BatchNorm1d(40)).cuda()
    twin = copy.deepcopy(model)
    notes("copy")
    twin(numbers(5, 8).cuda()).sum().backward()
    twin.load_state_dict(model.state_dict())
    notes("load")
    on_host = {name: value.cpu() for name, value in model.state_dict().items()}
    model.load_state_dict(on_host)
    notes("load from the host")
    optimizer = torch.optim.Adam(twin.parameters())
    optimizer.step()
    notes("step")
    torch.optim.Adam(model.parameters()).load_state_dict(copy.deepcopy(optimizer.state_dict()))
    notes("load state")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    notes("load from a file")
    model.half().to("cuda:1")
    notes("half, on another")
    model.cpu()
    notes("back")


def accumulation(notes):
    """Gradients of three batches added up."""
    model = nn.DataParallel(nn.Linear(8, 40).cuda())
    for number in range(3):
        model(numbers(10, 8)).sum().backward()
        notes(f"backward {number}")
    model.zero_grad(set_to_none=False)
    notes("zero")


def packed(notes):
    """Sequences of several lengths."""
    network = nn.LSTM(10, 33, batch_first=True, bidirectional=True).cuda()
    lengths = torch.tensor([7, 5, 3, 2])
    sequence = nn.utils.rnn.pack_padded_sequence(numbers(4, 7, 10).cuda(), lengths, batch_first=True)
    notes("pack")
    result, _ = network(sequence)
    notes("forward")
    output, _ = nn.utils.rnn.pad_packed_sequence(result, batch_first=True)
    notes("pad")
    output.sum().backward()
    notes("backward")


def made_there(notes):
    """Models made on a GPU."""
    first = nn.Sequential(nn.Linear(8, 40, device="cuda"), nn.BatchNorm1d(40, device="cuda"))
    notes("device=")
    with torch.device("cuda:1"):
        second = nn.Linear(8, 40)
    notes("with device")
    del first, second


def operators(notes):
    """Operators that users write themselves."""
    x = numbers(6, 8).cuda().requires_grad_()
    y = torch.cat([torch.einsum("ij,kj->ik", x, x), x], 1)
    notes("einsum, cat")
    parts = [torch.sort(y)[0], y.topk(3)[0], torch.where(y > 0, y, 0.0), y.masked_fill(y > 0, 1.0)]
    parts += [y.gather(1, torch.zeros(6, 2, dtype=torch.long, device="cuda")), y.cumsum(0), y.std(), y.norm()]
    notes("choices")
    parts += [y[:, torch.tensor([1, 2])], y[[0, 1]], y[1:3, ::2], y.max(0)[0], y.median(), torch.cdist(y, y)]
    notes("indices")
    torch.stack([part.sum() for part in parts]).sum().backward()
    notes("backward")
    z = y.detach()
    z[0], z[1], z[z > 5], z[:, 2] = 1, torch.ones(14), 0.0, True
    notes("setting")
    parts = [z.flip(0).roll(1).tril(), torch.fft.rfft(z), torch.linalg.inv(torch.eye(4, device="cuda"))]
    parts += [torch.linspace(0, 1, 5, device="cuda"), torch.arange(5, device="cuda"), z.to(torch.float16)]
    parts += [torch.randn(5, device="cuda").normal_().uniform_(), torch.randperm(9, device="cuda")]
    parts += [torch.bernoulli(torch.rand(9, device="cuda")), torch.multinomial(torch.rand(9).cuda(), 3)]
    parts += [F.interpolate(numbers(1, 1, 4, 4).cuda(), scale_factor=2, mode="bilinear")]
    notes("others")


def _without_gradients():
    names = ("convolution", "lstm", "encoder", "embedding", "decoder")
    contexts = (
        contextlib.nullcontext,
        torch.no_grad,
        torch.inference_mode,
        torch.no_grad,
        torch.inference_mode,
    )
    return {
        f"{context.__name__}: {name}": evaluation(MODELS[name], context)
        for name, context in zip(names, contexts, strict=True)
    }


def _with_loss(loss, target):
    return training(MODELS["linear"], loss=lambda output: loss(output, target().cuda()))


def _lowered():
    names = ("linear", "convolution", "lstm", "attention", "encoder", "embedding", "decoder")
    dtypes = itertools.cycle((torch.float16, torch.bfloat16))
    return {
        f"autocast, {dtype}: {name}": training(MODELS[name], OPTIMIZERS["adamw"], autocast=dtype)
        for name, dtype in zip(names, dtypes, strict=False)
    }


PROGRAMS = {
    **{f"DataParallel: {name}": training(model) for name, model in MODELS.items()},
    **{
        f"one GPU: {name}": training(MODELS[name], is_split=False)
        for name in ("convolution", "channels last", "lstm", "attention", "encoder")
    },
    **{f"optimizer: {name}": training(MODELS["linear"], made) for name, made in OPTIMIZERS.items()},
    **{f"loss: {name}": _with_loss(*pair) for name, pair in LOSSES.items()},
    **_lowered(),
    **_without_gradients(),
    **{
        f"clipped: {name}": training(MODELS[name], clip=True) for name in ("linear", "convolution", "encoder")
    },
    "checkpoint, reentrant": training((lambda: Checkpointed(reentrant=True), lambda: (numbers(9, 8),))),
    "checkpoint": training((lambda: Checkpointed(reentrant=False), lambda: (numbers(9, 8),))),
    "functional": functional,
    "copies": copies,
    "accumulation": accumulation,
    "packed": packed,
    "made there": made_there,
    "operators": operators,
}
