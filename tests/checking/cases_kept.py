"""Pitfalls of what objects, and modules deep in a model, keep of a call."""

import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.distributions import MultivariateNormal, Normal
from torch.nn import functional


@trigger("DP302", "`noise` is a tensor of shape ()", "as `loc` of a Normal")
def a_distribution_is_taken_to_the_gpu_by_hand():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.noise = Normal(0, 1)
            self.noise.loc = self.noise.loc.cuda()
            self.noise.scale = self.noise.scale.cuda()

        def forward(self, x):
            return self.fc(x) * self.noise.cdf(x[:, :1])

    return Model(), x()


@trigger("DP302", "`prior` is a tensor of shape (3, 3)", "of a MultivariateNormal")
def a_distribution_is_made_on_the_gpu_in_a_method():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.build()

        def build(self):
            self.prior = MultivariateNormal(torch.zeros(3).cuda(), torch.eye(3).cuda())

        def forward(self, x):
            return self.prior.log_prob(self.fc(x))

    return Model(), x()


@twin("DP302")
def a_distribution_is_made_of_buffers_at_each_call():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("loc", torch.zeros(3))

        def forward(self, x):
            return Normal(self.loc, 1.0).log_prob(self.fc(x))

    return Model(), x()


class Maps:
    """An object that is called, and keeps what it is called with."""

    def __init__(self):
        self.maps = []

    def reset(self):
        self.maps.clear()

    def __call__(self, one):
        self.maps.append(one)

    def mean(self):
        return torch.stack(self.maps).mean(0)


@trigger("DP309", "`maps` is written by all replicas at once", "maps=a list of 2")
def an_object_that_is_called_collects_what_forward_reads():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.maps = Maps()

        def forward(self, x):
            self.maps.reset()
            self.maps(self.fc(x))
            self.maps(self.fc(x * 2))
            return self.maps.mean()

    return Model(), x()


@twin("DP309")
def an_object_that_is_called_is_made_at_each_call():
    class Model(Net):
        def forward(self, x):
            maps = Maps()
            maps(self.fc(x))
            maps(self.fc(x * 2))
            return maps.mean()

    return Model(), x()


class Scale:
    def __init__(self):
        self.factor = 2.0

    def __call__(self, x):
        return x * self.factor


@twin("DP309")
def an_object_that_is_called_keeps_nothing():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scale = Scale()

        def forward(self, x):
            return self.scale(self.fc(x))

    return Model(), x()


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
def parts_share_an_object_with_a_cache_by_length():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            masks = Masks()
            self.parts = nn.ModuleList([Masked(masks), Masked(masks)])

        def forward(self, x):
            return self.parts[0](x) + self.parts[1](x)

    return Model(), x()


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
def a_table_of_a_part_is_updated_by_a_method_of_the_part_around_it():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.quantized = Quantized()

        def forward(self, x):
            return self.quantized(x * 0.5) + self.fc(x)

    return Model(), x()


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


@trigger("DP305", "the buffer `scaled.mean`")
def a_part_follows_the_mean_of_the_inputs_and_takes_it_off_them():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.scaled = Following()

        def forward(self, rows):
            return self.fc(self.scaled(rows))

    return Model(), x()


class WithSides(Net):
    """Leaves what it computes on the way for a loss that the program asks for."""

    def __init__(self):
        super().__init__()
        self.sides = None

    def keep(self, sides):
        self.sides = [one.tanh() for one in sides]

    def side_loss(self, target):
        return sum(functional.mse_loss(one, target) for one in self.sides)


@trigger("DP301", "`sides` goes from None to a list of 2", "where `side_loss` reads it")
def a_base_class_reads_a_list_that_forward_leaves():
    class Model(WithSides):
        def forward(self, x):
            self.keep([self.fc(x), self.fc(x * 2)])
            return self.sides[0] + self.sides[1]

    return Model(), x()


@trigger("DP207", "a list of 8 dict")
def forward_takes_more_arguments_than_it_is_given():
    class Model(Net):
        def forward(self, x, metas, *more):
            scales = torch.tensor([one["scale"] for one in metas], device=x.device)
            return self.fc(x, *more) * scales[:, None]

    return Model(), (x(), [{"scale": float(row)} for row in range(8)])


class Pairs:
    """A loss that is no module."""

    def __call__(self, one, other):
        scores = one @ other.t()
        target = torch.arange(len(scores), device=scores.device)
        return functional.cross_entropy(scores, target, reduction="none")


@trigger("DP502", "depends on the others of its batch")
def a_layer_is_handed_to_a_method_before_pairs_are_compared():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.pairs = Pairs()

        def embed(self, layer, x):
            return functional.normalize(layer(x), dim=-1)

        def forward(self, x, other):
            one = self.embed(self.fc, x)
            two = self.embed(self.head, other)
            return {"loss": self.pairs(one, two)}

    return Model(), (x(), x() + 1)


def block(norm):
    return nn.Sequential(nn.Linear(4, 6), norm(6), nn.ReLU(), nn.Linear(6, 3))


@trigger("DP306", "`net.1`: statistics are taken over chunks")
def the_class_of_a_batch_norm_is_handed_over():
    class Model(nn.Module):
        def __init__(self, norm=nn.BatchNorm1d):
            super().__init__()
            self.net = block(norm)

        def forward(self, x):
            return self.net(x)

    return Model(), x()
