"""Pitfalls of what objects, and modules deep in a model, keep of a call."""

import numpy as np
import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.nn import functional


class Masks:
    """Masks by their length, without the device."""

    def __init__(self):
        self.known = {}

    def get(self, length, device):
        if length not in self.known:
            self.known[length] = torch.ones(length, device=device).cumsum(0)
        return self.known[length]


class Masked(Net):
    def __init__(self, masks):
        super().__init__()
        self.masks = masks

    def forward(self, x):
        return self.fc(x * self.masks.get(x.size(1), x.device))


@trigger("DP309", "are one object", "a Masks (known=a dict of 1)")
class PartsShareAnObjectWithACacheByLength(nn.Module):
    def __init__(self):
        super().__init__()
        masks = Masks()
        self.parts = nn.ModuleList([Masked(masks), Masked(masks)])

    def forward(self, x):
        return self.parts[0](x) + self.parts[1](x)


class Book(nn.Module):
    """A table of codes without a forward of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.eye(5, 4))
        self.register_buffer("sizes", torch.ones(5))
        self.register_buffer("sums", torch.eye(5, 4))

    def nearest(self, rows):
        return torch.cdist(rows, self.codes).argmin(1)

    @torch.no_grad()
    def update(self, rows, index):
        hits = functional.one_hot(index, 5).type(rows.dtype)
        self.sizes.mul_(0.9).add_(hits.sum(0), alpha=0.1)
        self.sums.mul_(0.9).add_(hits.t() @ rows, alpha=0.1)
        total = self.sizes.sum()
        share = (self.sizes + 0.1) / (total + 0.5) * total
        self.codes.copy_(self.sums / share[:, None])


class Quantized(Net):
    def __init__(self):
        super().__init__()
        self.book = Book()

    def observe(self, rows, index):
        if self.training:
            self.book.update(rows, index)

    def forward(self, x):
        index = self.book.nearest(x)
        chosen = self.book.codes[index].clone()
        self.observe(x.detach(), index)
        return self.fc(chosen)


@trigger("DP305", "`quantized.book.codes`", "what chunk 0 alone gives")
class ATableOfAPartIsUpdatedByAMethodOfThePartAroundIt(Net):
    def __init__(self):
        super().__init__()
        self.quantized = Quantized()

    def forward(self, x):
        return self.quantized(x * 0.5) + self.fc(x)


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        return x - self.mean


class Following(Centred):
    """Follows the mean of its inputs, and takes it off them."""

    @torch.no_grad()
    def update(self, rows):
        self.mean.mul_(0.9).add_(rows.mean(0), alpha=0.1)

    def forward(self, x):
        if self.training:
            self.update(x)
        return super().forward(x)


@trigger("DP305", "the buffer `scaled.mean`", "what chunk 0 alone gives")
class APartFollowsTheMeanOfWhatADropoutLeaves(Net):
    def __init__(self):
        super().__init__()
        self.drop, self.scaled = nn.Dropout(0.2), Following()

    def forward(self, rows):
        return self.fc(self.scaled(self.drop(rows)))


@twin("DP305")
class BuffersOfDrawnNumbersAndAPowerIterationBesideADropout(Net):
    def __init__(self):
        super().__init__()
        self.fc = nn.utils.spectral_norm(self.fc)
        self.register_buffer("noise", torch.zeros(4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, rows):
        self.noise.normal_()
        self.calls += 1
        return functional.dropout(self.fc(rows + self.noise), 0.2, self.training)


@twin("DP590", also=("DP306", "DP316"))
class ABranchBeginsAtZeroByTheWeightOfItsBatchNorm(Net):
    """Results are those of one GPU, whatever the statistics; gradients of that weight are not."""

    def __init__(self):
        super().__init__()
        self.branch, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        nn.init.zeros_(self.norm.weight)

    def forward(self, rows):
        return self.fc(rows + self.norm(self.branch(rows)))


@trigger("DP301", "`spread` goes from None to a tensor of shape (3,)")
class AScaleIsSetByTheFirstBatch(Net):
    def __init__(self):
        super().__init__()
        self.spread = None

    def forward(self, rows):
        y = self.fc(rows)
        return y / self.spread_of(y)

    def spread_of(self, y):
        if self.spread is None:
            self.spread = y.detach().std(0) + 0.1
        return self.spread


@trigger("DP207", "a list of 8 dict", given=lambda: (x(), [{"scale": float(row)} for row in range(8)]))
class ForwardTakesMoreArgumentsThanItIsGiven(Net):
    def forward(self, x, metas, *more):
        scales = torch.tensor([one["scale"] for one in metas], device=x.device)
        return self.fc(x, *more) * scales[:, None]


def block(norm):
    return nn.Sequential(nn.Linear(4, 6), norm(6), nn.ReLU(), nn.Linear(6, 3))


@trigger("DP306", "`net.1`: statistics are taken over chunks", also=("DP316",))
class TheClassOfABatchNormIsHandedOver(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d):
        super().__init__()
        self.net = block(norm)

    def forward(self, x):
        return self.net(x)


@trigger("DP309", "`counts` is written by all replicas at once: an array of shape (3,)")
class ForwardCountsInAnArrayOfNumpy(Net):
    def __init__(self):
        super().__init__()
        self.counts = np.zeros(3)

    def forward(self, x):
        y = self.fc(x)
        self.counts += np.bincount(y.argmax(1).cpu().numpy(), minlength=3)
        return y


def scaled(y):
    scaled.calls += 1
    return y * (1 + 0.1 * scaled.calls)


scaled.calls = 0


class Running(nn.Module):
    """Takes the mean of earlier batches off, and is told of each."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(1.0))

    @torch.no_grad()
    def update(self, x):
        x = x.reshape(-1, x.shape[-1])
        delta, n = x.mean(0) - self.mean, x.shape[0]
        total = self.count + n
        self.mean.add_(delta * n / total)
        self.count.copy_(total)

    def forward(self, x):
        return x - self.mean


@trigger("DP305", "the buffers `running.count` and `running.mean`")
class TheModelTellsAPartOfItsBatch(Net):
    def __init__(self):
        super().__init__()
        self.running = Running()

    def centred(self, rows):
        out = self.running(rows)
        if self.training:
            self.running.update(rows)
        return out

    def forward(self, x):
        return self.fc(self.centred(x))


class Solver(nn.Module):
    """Is made around a part for one call, and penalises what it finds there."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, rows):
        return self.part(rows) + sum(one.square().sum() for one in self.parameters())


@trigger("DP308", "`Solver.parameters()` is empty in replicas: results")
class AModuleIsMadeAroundAPartOfTheReplica(Net):
    def forward(self, rows):
        return Solver(self.fc)(rows)


@trigger("DP205", "`graph` is cut into chunks with the batch", also=("DP212",))
def a_graph_stands_before_the_batch():
    class Model(Net):
        def forward(self, graph, x, scale):
            return self.fc(graph @ (graph @ x)) * scale[:, None, None]

    return Model(), lambda batch: (torch.eye(12) * 2, torch.ones(batch, 12, 4), torch.ones(batch))


class Trimmed(Net):
    def forward(self, rows, lengths):
        return self.fc(rows[:, : int(lengths.max())])


class PaddedWithZeros(nn.DataParallel):
    def gather(self, outputs, output_device):
        longest = max(one.size(1) for one in outputs)
        outputs = [functional.pad(one, (0, 0, 0, longest - one.size(1))) for one in outputs]
        return super().gather(outputs, output_device)


@twin("DP406")
def what_a_wrapper_pads_is_no_difference():
    rows = torch.randn(8, 6, 4, generator=torch.Generator().manual_seed(1))
    return PaddedWithZeros(Trimmed().to("cuda:0")), (rows, torch.arange(8) % 6 + 1)
