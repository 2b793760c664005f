"""Much-copied models in our own words, each with the codes that a human expects of it under DataParallel."""

import torch
from casetable import factory_of
from torch import nn
from torch.nn import functional

SNIPPETS = []


def expects(*codes, given=None):
    """Register a factory, or a class of models, with the codes of its errors and warnings."""
    return lambda made: SNIPPETS.append((factory_of(made, given or _rows), set(codes))) or made


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _rows():
    return drawn(8, 8)


class Encoder(nn.Module):
    def __init__(self, inputs=8, outputs=4):
        super().__init__()
        self.fc, self.head = nn.Linear(inputs, 16), nn.Linear(16, outputs)

    def forward(self, x):
        return self.head(self.fc(x).relu())


@expects("DP305", "DP301", "DP501")
def a_code_book_with_moving_averages():
    """VQ-VAE: sizes and sums of the codes follow the batch inside forward."""

    class Quantizer(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Embedding(6, 4)
            self.register_buffer("sizes", torch.ones(6))
            self.sums = nn.Parameter(torch.ones(6, 4))

        def forward(self, z):
            nearest = torch.cdist(z, self.codes.weight).argmin(1)
            hits = functional.one_hot(nearest, 6).float()
            if self.training:
                self.sizes = self.sizes * 0.99 + hits.sum(0) * 0.01
                self.sums = nn.Parameter(self.sums * 0.99 + hits.t() @ z.detach() * 0.01)
                self.codes.weight = nn.Parameter(self.sums / self.sizes.unsqueeze(1))
            return functional.mse_loss(z, (hits @ self.codes.weight).detach())

    return nn.Sequential(nn.Linear(8, 4), Quantizer()), drawn(8, 8)


class Twins(nn.Module):
    """Two encoders that begin alike, the second of which follows the first."""

    def __init__(self, momentum):
        super().__init__()
        self.query, self.key, self.momentum = Encoder(), Encoder(), momentum
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)

    @torch.no_grad()
    def follow(self):
        for one, other in zip(self.query.parameters(), self.key.parameters(), strict=True):
            other.data = other.data * self.momentum + one.data * (1 - self.momentum)


@expects("DP308", "DP305", given=lambda: (drawn(8, 8), drawn(8, 8)))
class AKeyEncoderFollowsAndAQueueIsFilled(Twins):
    """MoCo, at the published momentum."""

    def __init__(self):
        super().__init__(0.999)
        self.register_buffer("queue", drawn(4, 16))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, x, y):
        query = functional.normalize(self.query(x), dim=1)
        with torch.no_grad():
            self.follow()
            key = functional.normalize(self.key(y), dim=1)
        others = query @ self.queue.clone()
        first = int(self.at)
        self.queue[:, first : first + len(key)] = key.t()
        self.at[0] = (first + len(key)) % 16
        return torch.cat([(query * key).sum(1, keepdim=True), others], 1)


@expects("DP308", "DP501", given=lambda: (drawn(8, 8), drawn(8, 8)))
class ATargetNetworkFollowsInForward(Twins):
    """BYOL: the loss is averaged, and the target follows, in forward."""

    def __init__(self):
        super().__init__(0.99)
        self.predictor = nn.Linear(4, 4)

    def forward(self, x, y):
        self.follow()
        one = functional.normalize(self.predictor(self.query(x)), dim=1)
        other = functional.normalize(self.key(y), dim=1)
        return 2 - 2 * (one * other).sum(1).mean()


@expects("DP305", "DP501")
class ACenterOfTheTeacherIsABuffer(nn.Module):
    """DINO's loss as a part of the model."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = Encoder(), Encoder()
        self.register_buffer("center", torch.zeros(1, 4))

    def forward(self, x):
        told = functional.softmax((self.teacher(x) - self.center) / 0.04, dim=1).detach()
        loss = -(told * functional.log_softmax(self.student(x) / 0.1, dim=1)).sum(1).mean()
        self.center = self.center * 0.9 + self.teacher(x).detach().mean(0, keepdim=True) * 0.1
        return loss


@expects("DP502", given=lambda: (drawn(8, 8), torch.arange(8) % 3))
class SamplesOfOneClassAttractEachOther(nn.Module):
    """SupCon, whose features of a chunk are compared with each other alone."""

    def __init__(self):
        super().__init__()
        self.body = Encoder()

    def forward(self, x, labels):
        z = functional.normalize(self.body(x), dim=1)
        alike = (labels[:, None] == labels[None]).float()
        logits = (z @ z.t() / 0.1).log_softmax(1)
        return -(alike * logits).sum(1) / alike.sum(1)


@expects("DP301", given=lambda: drawn(8, 6, 4))
class AHiddenStateIsKeptOnSelf(nn.Module):
    """`self.hidden` from one batch to the next."""

    def __init__(self):
        super().__init__()
        self.rnn, self.hidden = nn.GRU(4, 5, batch_first=True), None

    def forward(self, x):
        out, hidden = self.rnn(x, self.hidden)
        self.hidden = hidden.detach()
        return out


@expects(given=lambda: drawn(8, 3, 6, 6))
class SkipsAreALocalList(nn.Module):
    """U-Net."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)])
        self.up = nn.ModuleList([nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(8, 2, 3, padding=1)])

    def forward(self, x):
        skips = []
        for stage in self.down:
            x = stage(x).relu()
            skips.append(x)
        for stage in self.up:
            x = stage(torch.cat([x, skips.pop()], 1))
        return x


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, adjacency):
        return self.out(adjacency @ self.fc(adjacency @ x).relu())


@expects("DP205")
def the_nodes_of_a_graph_are_rows():
    """GCN over one graph."""
    return Graph(), (drawn(8, 8), torch.eye(8) + 0.1)


@expects()
def each_sample_has_a_graph_of_its_own():
    return Graph(), (drawn(8, 5, 8), torch.eye(5).expand(8, -1, -1) + 0.1)


@expects("DP205")
def one_adjacency_is_shared_by_all_samples():
    """A traffic forecaster whose road network is an argument."""
    return Graph(), (drawn(8, 5, 8), torch.eye(5) + 0.1)


@expects("DP501")
def a_loss_with_padding_is_averaged_in_forward():
    """A language model that returns its loss."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)

        def forward(self, ids, labels):
            return functional.cross_entropy(self.head(self.embed(ids)).flatten(0, 1), labels.flatten())

    labels = torch.arange(48).view(8, 6) % 10
    return Net(), (labels, labels.masked_fill(torch.arange(6) > torch.arange(8)[:, None] % 6, -100))


@expects("DP207", given=lambda: (drawn(8, 3, 6, 6), [{"boxes": drawn(n % 3 + 1, 4)} for n in range(8)]))
class TargetsAreAListOfDicts(nn.Module):
    """A detector of torchvision's kind."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)

    def forward(self, images, targets):
        found = self.body(images).mean((2, 3))
        return torch.stack(
            [(one - its["boxes"].mean(0)).abs().sum() for one, its in zip(found, targets, strict=True)]
        )


@expects("DP214", given=lambda: (drawn(24, 3), torch.tensor([5, 12, 16, 24])))
class CloudsAreJoinedWithTheirOffsets(nn.Module):
    """A point transformer: points, features and where each cloud ends."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, points, offset):
        ends = offset.tolist()
        parts = zip([0, *ends[:-1]], ends, strict=True)
        return torch.stack([self.fc(points[first:last]).mean(0) for first, last in parts])


@expects("DP214", given=lambda: (drawn(20, 6), torch.tensor([[1, 2, 4], [1, 3, 4]])))
class PatchesOfPicturesAreJoinedWithTheirGrids(nn.Module):
    """The vision tower of Qwen2-VL: rows of patches, and a grid for each picture."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, patches, grid_thw):
        sizes = grid_thw.prod(1).tolist()
        return torch.stack([part.mean(0) for part in self.fc(patches).split(sizes)])


GRIDS = {}


@expects("DP309")
def a_sampling_grid_is_kept_by_its_size():
    """Optical flow's backwarp, and its cache."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = nn.Conv2d(3, 2, 3, padding=1)

        def forward(self, x):
            flow, size = self.flow(x), tuple(x.shape[2:])
            if size not in GRIDS:
                lines = [torch.linspace(-1, 1, number) for number in size]
                GRIDS[size] = torch.stack(torch.meshgrid(*lines, indexing="ij")).to(x.device)
            grid = (GRIDS[size] + flow).permute(0, 2, 3, 1)
            return functional.grid_sample(x, grid, align_corners=True)

    GRIDS.clear()
    return Net(), drawn(8, 3, 5, 5)


@expects("DP304")
def a_skeleton_in_a_closure_gets_other_weights():
    """A linearised network, as of neural tangents."""

    class Net(nn.Module):
        def __init__(self, body):
            super().__init__()
            names = [name for name, _ in body.named_parameters()]
            self.weights = nn.ParameterList([nn.Parameter(one.detach().clone()) for one in body.parameters()])
            self.call = lambda weights, x: torch.func.functional_call(
                body, dict(zip(names, weights, strict=True)), (x,)
            )

        def forward(self, x):
            return self.call(tuple(self.weights), x)

    return Net(Encoder().to("cuda:0")), drawn(8, 8)


class Angles(torch.Tensor):
    """Adding goes round the circle, as of pypose's LieTensor."""

    def turned(self, by):
        return torch.remainder(self.as_subclass(torch.Tensor) + by, 360)

    def __matmul__(self, other):
        return torch.remainder(self.as_subclass(torch.Tensor) * other.mean(), 360)


@expects("DP208", given=lambda: drawn(8, 8).as_subclass(Angles))
class ATensorHasAMethodOfItsOwn(Encoder):
    def forward(self, x):
        return super().forward(x.turned(90))


@expects("DP208", given=lambda: drawn(8, 8).as_subclass(Angles))
class ATensorMultipliesInAWayOfItsOwn(Encoder):
    def forward(self, x):
        return x @ self.fc.weight.t()
