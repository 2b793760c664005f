"""Rules of state and of chunks in replicas: DP301 to DP316."""

import torch
from casetable import Net, Recurrent, steps, trigger, twin, with_batchnorm, x
from torch import nn
from torch.nn import functional


@trigger("DP306", "chunks of 4 instead of 16", also=["DP316"], given=lambda: x(16))
class BatchnormNormalisesChunks(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.fc(self.norm(x))


@twin("DP306")
def groupnorm_knows_no_batch():
    return with_batchnorm(nn.GroupNorm(2, 8)), x(16)


@trigger("DP307", "plain BatchNorm", also=["DP316"])
def sync_batchnorm_does_not_synchronise():
    return with_batchnorm(nn.SyncBatchNorm(8)), x(16)


@twin("DP307")
def groupnorm_needs_no_synchronising():
    return with_batchnorm(nn.GroupNorm(4, 8)), x(16)


@twin("DP311")
class GradientsAreTakenOfInputs(Net):
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.fc(x).sum(), x, create_graph=True)
        return self.fc(x).sum(1) + slope.square().sum(1)


@trigger("DP315", "`rnn`: call flatten_parameters()", given=steps)
class AnRnnIsCalledAsItIs(Recurrent):
    def forward(self, x):
        return self.rnn(x)[0]


@twin("DP315", given=steps)
class AnRnnIsFlattenedFirst(Recurrent):
    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x)[0]


@trigger("DP316", "batch of 7 is cut into 2+2+2+1", also=["DP306"], data_size=39, raises=True)
def the_last_batch_ends_in_a_lone_sample():
    return with_batchnorm(nn.BatchNorm1d(8)), x(16)


@twin("DP316", also=["DP306"], data_size=40)
def the_last_batch_is_even():
    return with_batchnorm(nn.BatchNorm1d(8)), x(16)


# ---- objects on self, and state that nothing depends on ----


class Causal(Net):
    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        if self.mask is None or self.mask.device != x.device:
            self.mask = torch.tril(torch.ones(4, 4, device=x.device))
        return self.fc(x @ self.mask)


@twin("DP301", also=["DP301"])
def a_mask_is_made_where_it_is_missing():
    return Causal(), x()


@twin("DP309", also=["DP309"])
class ACacheHasAnEntryForEachLengthAndGpu(Net):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        key = (x.size(1), x.device)
        if key not in self.cache:
            self.cache[key] = torch.ones(4, device=x.device)
        return self.fc(x * self.cache[key])


class Teaching(Net):
    def __init__(self, drop=0.0):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(4, 3), nn.Dropout(drop), nn.Sequential(nn.ReLU(), nn.ReLU()))

    def forward(self, x):
        self.teacher.eval()
        with torch.no_grad():
            aim = self.teacher(x)
        return self.fc(x) - aim


@twin("DP301", also=["DP301"])
def a_teacher_is_put_in_evaluation():
    return Teaching(), x()


@trigger("DP316", "GroupNorm cannot train on one sample", also=["DP213"], gpus=4, raises=True)
def a_groupnorm_of_lone_numbers_meets_a_lone_sample():
    return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(8, 8)), x(16)


@twin("DP305")
def spectral_norm_has_converged():
    """Its power iteration moves the vectors by no more than rounding."""
    layer = nn.utils.spectral_norm(nn.Linear(4, 4), n_power_iterations=50)
    for _ in range(20):
        layer(x())
    layer._forward_pre_hooks[next(iter(layer._forward_pre_hooks))].n_power_iterations = 1
    return nn.Sequential(layer, nn.Linear(4, 3)), x()


@trigger("DP313", "forward freezes a parameter, which replicas hold as the result", raises=True)
class AWeightIsFrozenInForward(Net):
    def forward(self, x):
        self.fc.weight.requires_grad_(False)
        return self.fc(x)


@trigger("DP311", "`zero_grad()` in forward has no effect in replicas")
class GradientsAreZeroedInForward(Net):
    def forward(self, x):
        self.zero_grad()
        return self.fc(x)


@trigger("DP301", "`drop.training` goes from True to False")
class ADropoutIsSwitchedOffInForward(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.drop(self.fc(x))
        self.drop.eval()
        return y


@trigger("DP301", "`steps` goes from 0 to 1 on one GPU, and stays 0 under DataParallel")
class CallsAreCountedInForward(Net):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return self.fc(x)


class Ticking(Net):
    def __init__(self):
        super().__init__()
        self.seen, self.calls = 0, 0

    def tick(self, rows):
        setattr(self, "calls", self.calls + 1)  # noqa: B010 - as people write it
        self.seen += len(rows)


@trigger("DP301", "`seen` goes from 0 to 8")
class ABaseClassCountsSamplesAndCalls(Ticking):
    def forward(self, x):
        self.tick(x)
        return self.fc(x)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.head0, self.head1 = nn.Linear(3, 2), nn.Linear(3, 4)

    def every(self):
        return [self.head0, self.head1]

    @torch.no_grad()
    def normalise(self):
        for head in self.every():
            head.weight.copy_(functional.normalize(head.weight, dim=1))

    def forward(self, y):
        return [head(y) for head in self.every()]


@trigger("DP313", "forward changes the parameter `heads.head0.weight` in place", raises=True)
class AMethodOfAPartNormalisesWeights(Net):
    def __init__(self):
        super().__init__()
        self.heads = Heads()

    def forward(self, x):
        if self.training:
            self.heads.normalise()
        return self.heads(self.fc(x))


@twin("DP313")
class ALossOnSelfIsForForwardAlone(Net):
    def forward(self, x):
        self.last_loss = self.fc(x).square().mean()
        return self.fc(x) + 0 * self.last_loss.detach()


@trigger("DP313", "`fc.weight`", "is thrown away")
class TheDataOfAWeightIsAssigned(Net):
    def forward(self, x):
        self.fc.weight.data = functional.normalize(self.fc.weight.data, dim=1)
        return self.fc(x)


@trigger("DP311", "goes backward")
class ASaliencyIsReadFromAnInput(Net):
    def forward(self, x):
        x = x.detach().requires_grad_(True)
        self.fc(x).max(1).values.sum().backward()
        return x.grad


@trigger("DP311", "goes backward", also=["DP502"], given=lambda: (x(), torch.arange(8) % 3), raises=True)
class FastWeightsAreReadFromGradients(Net):
    def forward(self, x, y):
        loss = functional.cross_entropy(self.fc(x), y)
        self.fc.zero_grad()
        loss.backward()
        weight = self.fc.weight - 0.1 * self.fc.weight.grad
        bias = self.fc.bias - 0.1 * self.fc.bias.grad
        return functional.linear(x, weight, bias)


@twin("DP309")
class WhatIsHandedOnLiesByTheGpu(Net):
    def __init__(self):
        super().__init__()
        self.head, self.kept = nn.Linear(3, 3), {}

    def forward(self, x):
        self.kept[x.device] = x
        y = self.head(self.fc(x))
        return y + self.kept.pop(x.device).sum(1, keepdim=True)


@twin("DP313")
def looked_up_rows_are_shortened():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, ids):
            rows = self.table(ids)
            return self.head(rows / rows.norm(dim=-1, keepdim=True).clamp(min=0.5))

    return Model(), lambda rows: (torch.arange(rows) % 9,)


class Followed(Net):
    """Follows its data in training, as codebooks and normalisers do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.mean.lerp_(y.detach().mean(0), 0.1)
        return y - self.mean


@twin("DP305", also=["DP305"])
def a_model_that_follows_its_data_is_given_in_evaluation():
    return Followed().eval(), x()
