"""More models in the manner of public code: caches, packed samples, modules outside of the model."""

import functools

import numpy as np
import torch
from snippets import Encoder, drawn, expects
from torch import nn
from torch.nn import functional

FIXED = None


class OneLayer(nn.Module):
    sizes = 4, 4

    def __init__(self):
        super().__init__()
        self.c = nn.Linear(*self.sizes)


class Positions:
    def __init__(self):
        self.tables = {}

    def get(self, n, like):
        if n not in self.tables:
            self.tables[n] = torch.arange(n, device=like.device).float()
        return self.tables[n]


VGG = nn.Linear(4, 3).requires_grad_(False)


POSITIONS = Positions()


@expects("DP308")
class EmaForeach(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target = (Encoder(), Encoder())
        self.target.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            t, o = (list(self.target.parameters()), list(self.online.parameters()))
            torch._foreach_mul_(t, 0.99)
            torch._foreach_add_(t, o, alpha=0.01)
        return self.online(x) - self.target(x)


@expects("DP313")
def old_spectral_norm():

    class SN(nn.Module):
        def __init__(self, m):
            super().__init__()
            self.module = m
            w = m.weight
            self.module.u = nn.Parameter(torch.randn(w.size(0)), requires_grad=False)
            self.module.v = nn.Parameter(torch.randn(w.size(1)), requires_grad=False)
            self.module.weight_bar = nn.Parameter(w.data)
            del self.module._parameters["weight"]
            self._upd()

        def _upd(self):
            u, v, w = (self.module.u, self.module.v, self.module.weight_bar)
            v.data = functional.normalize(torch.mv(w.data.t(), u.data), dim=0)
            u.data = functional.normalize(torch.mv(w.data, v.data), dim=0)
            self.module.weight = w / u.dot(w.mv(v))

        def forward(self, x):
            self._upd()
            return self.module(x)

    return (nn.Sequential(SN(nn.Linear(8, 4)), nn.ReLU(), nn.Linear(4, 2)), (drawn(8, 8),))


@expects("DP309")
def class_attribute_grid():

    class Net(OneLayer):
        grid = None

        def forward(self, x):
            if Net.grid is None or Net.grid.size(0) != x.size(1):
                Net.grid = torch.arange(x.size(1), device=x.device).float()
            return self.c(x) + Net.grid

    return (Net(), (drawn(8, 4),))


@expects("DP309")
def lru_positions():

    @functools.lru_cache(maxsize=8)
    def table(n, dev_type):
        return torch.arange(n, device=dev_type).float()

    class Net(OneLayer):
        def forward(self, x):
            return self.c(x) + table(x.size(1), x.device.type)

    return (Net(), (drawn(8, 4),))


@expects("DP309")
def closure_cache():
    cache = {}

    def alibi(n, x):
        if n not in cache:
            cache[n] = torch.arange(n).float().to(x)
        return cache[n]

    class Net(OneLayer):
        def forward(self, x):
            return self.c(x) + alibi(x.size(1), x)

    return (Net(), (drawn(8, 4),))


@expects("DP214", given=lambda: (drawn(12, 4), torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3, 3])))
class PygStyleBatchVector(OneLayer):
    sizes = 4, 3

    def forward(self, x, batch):
        h = self.c(x)
        n = int(batch.max()) + 1
        s = torch.zeros(n, 3, device=h.device).index_add(0, batch, h)
        return s / torch.bincount(batch, minlength=n).clamp(min=1)[:, None]


@expects(
    "DP214",
    given=lambda: (drawn(4, 10, 8), torch.tensor([1, 2, 3, 1, 2, 4, 1, 1, 2]), torch.tensor([1, 3, 2, 3])),
)
class CtcTargets(OneLayer):
    sizes = 8, 5

    def forward(self, x, targets, target_lengths):
        lp = self.c(x).log_softmax(-1).transpose(0, 1)
        il = torch.full((x.size(0),), x.size(1), dtype=torch.long)
        return functional.ctc_loss(lp, targets, il, target_lengths, reduction="none")


@expects("DP214", given=lambda: (drawn(12, 4), [3, 4, 2, 3]))
class LengthsPythonList(OneLayer):
    sizes = 4, 3

    def forward(self, x, lengths):
        return torch.stack([p.mean(0) for p in self.c(x).split(lengths)])


@expects(
    "DP214",
    given=lambda: (
        torch.randint(20, (17,), generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 4, 6, 11]),
    ),
)
class EmbeddingBagOffsets(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.EmbeddingBag(20, 4)
        self.c = nn.Linear(4, 2)

    def forward(self, text, offsets):
        return self.c(self.e(text, offsets))


@expects(
    "DP207",
    given=lambda: (
        drawn(8, 8),
        [{"boxes": drawn(n, 4), "labels": torch.ones(n, dtype=torch.long)} for n in (2, 3, 1, 4, 2, 5, 1, 3)],
    ),
)
class DetectionTargets(OneLayer):
    sizes = 8, 4

    def forward(self, x, targets):
        p = self.c(x)
        return torch.stack([(p[i] - t["boxes"]).square().mean() for i, t in enumerate(targets)])


@expects("DP207", given=lambda: ([drawn(n, 3) for n in (5, 9, 4, 7, 6, 8, 3, 5)],))
class PointCloudsList(OneLayer):
    sizes = 3, 4

    def forward(self, clouds):
        return torch.stack([self.c(p).amax(0) for p in clouds])


@expects("DP304")
class UnregisteredHeadClosure(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(8, 4)
        head = nn.Linear(4, 2)
        self.head = lambda h: head(h)  # noqa: PLW0108 - as in public code

    def forward(self, x):
        return self.head(self.c(x))


@expects("DP304")
class GlobalPerceptualNet(OneLayer):
    sizes = 8, 4

    def forward(self, x):
        return VGG.to(x.device)(self.c(x))


@expects("DP603")
class FixedGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(8, 4)
        self.gen = None

    def forward(self, x):
        g = torch.Generator(device="cuda:0").manual_seed(3)
        return self.c(x) + 0.1 * torch.randn(x.size(0), 4, device=x.device, generator=g)


@expects("DP304")
class HeadsInAListOnTheCpu(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(8, 4)
        self.heads = [nn.Linear(4, 2) for _ in range(2)]

    def forward(self, x):
        h = self.c(x)
        return torch.cat([f(h) for f in self.heads], 1)


@expects("DP304")
def global_net_on_gpu():
    global FIXED  # noqa: PLW0603 - as a script has it
    FIXED = nn.Linear(4, 3).cuda()

    class Net(OneLayer):
        sizes = 8, 4

        def forward(self, x):
            return FIXED(self.c(x))

    return (Net(), (drawn(8, 8),))


@expects("DP305")
class SmallUpdateOfOnes(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(8, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        h = self.c(x)
        if self.training:
            self.scale.lerp_(h.detach().abs().mean(0), 0.001)
        return h / self.scale


@expects("DP214", given=lambda: (drawn(12, 4), np.array([3, 4, 2, 3])))
class LengthsNdarray(OneLayer):
    sizes = 4, 3

    def forward(self, x, lengths):
        return torch.stack([p.mean(0) for p in self.c(x).split(lengths.tolist())])


@expects("DP309", given=lambda: (drawn(8, 4),))
class ModuleLevelObjectCache(OneLayer):
    def forward(self, x):
        return POSITIONS.get(x.size(1), x) + self.c(x)


@expects("DP309", given=lambda: (drawn(8, 4),))
class DefaultArgumentCache(OneLayer):
    def forward(self, x, _memo={}):  # noqa: B006 - it is meant to be kept
        if x.size(1) not in _memo:
            _memo[x.size(1)] = torch.arange(x.size(1), device=x.device).float()
        return self.c(x) + _memo[x.size(1)]


@expects("DP309", given=lambda: (drawn(8, 4),))
class CachedMethod(OneLayer):
    @staticmethod
    @functools.cache
    def bias(n):
        return torch.ones(n, device="cuda")

    def forward(self, x):
        return self.c(x) + self.bias(x.size(1))


@expects(given=lambda: (drawn(8, 6, 4),))
class FairseqPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(4, 4)
        self.weights = torch.arange(40.0).view(10, 4).sin()
        self.register_buffer("_float_tensor", torch.zeros(1))

    def forward(self, x):
        self.weights = self.weights.to(self._float_tensor)
        return self.e(x) + self.weights[: x.size(1)]


@expects()
class CudaWithoutNumber(OneLayer):
    sizes = 8, 4

    def forward(self, x):
        one_hot = torch.zeros(x.size(0), 4, device="cuda")
        one_hot.scatter_(1, torch.zeros(len(x), 1, dtype=torch.long).cuda(), 1)
        return self.c(x) * one_hot + torch.ones(4).cuda()


@expects()
def glow_logdet_read_by_parent():

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = nn.Parameter(torch.zeros(4))
            self.logdet = None

        def forward(self, x):
            self.logdet = self.s.sum().expand(len(x))
            return x * self.s.exp()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.ModuleList([Flow(), Flow()])

        def forward(self, x):
            for f in self.f:
                x = f(x)
            return (x, sum(f.logdet for f in self.f))

    return (Net(), (drawn(8, 4),))


@expects(given=lambda: (torch.randint(8, (8, 3), generator=torch.Generator().manual_seed(1)),))
class CumulativeFeatureIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(64, 4)
        self.register_buffer("offsets", torch.tensor([0, 8, 24]))

    def forward(self, ids):
        return self.e(ids + self.offsets).flatten(1)


@expects(given=lambda: (drawn(8, 8), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])))
class SortedTimesteps(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(8, 8)
        self.e = nn.Embedding(50, 8)

    def forward(self, x, t):
        return self.c(x) + self.e(t)


@expects(given=lambda: ([drawn(8, 2, 6, 6), drawn(8, 4, 3, 3)],))
class MultiScaleListInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.ModuleList([nn.Conv2d(2, 3, 1), nn.Conv2d(4, 3, 1)])

    def forward(self, feats):
        return sum((c(f).mean((2, 3)) for c, f in zip(self.c, feats, strict=True)))
