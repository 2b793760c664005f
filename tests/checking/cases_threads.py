"""Rules of threads and of memory: DP6 and DP7."""

import contextvars

import torch
from casetable import Head, Linear, Net, trigger, twin, x
from torch import nn


class Half(Head):
    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.net(x)


@trigger("DP601", "autocast('cuda') is bfloat16 around the call and float16 in replicas")
def bfloat16_around_the_call_is_float16_inside():
    return Half(), x()


@trigger("DP601", "bfloat16 around the call and float16", autocast="bfloat16")
def bfloat16_around_a_model_is_float16_inside():
    return Linear(), x()


@trigger("DP602", "inference_mode is true around the call and false in replicas")
class InferenceModeEndsAtTheReplicas(Head):
    def forward(self, x):
        with torch.inference_mode():
            return self.net(x)


class Shifting(Net):
    """A module that makes a tensor where the default device is."""

    def forward(self, x):
        return self.fc(x) + torch.ones(3)


def by_default_on_gpus(net):
    class Model(Head):
        def __init__(self):
            super().__init__()
            self.net = nn.DataParallel(net.to("cuda:0"))

        def forward(self, x):
            with torch.device("cuda"):
                return self.net(x)

    return Model(), x()


@trigger("DP602", "default device is cuda around the call and cpu in replicas", also=("DP391",))
def a_default_device_ends_at_the_replicas():
    return by_default_on_gpus(Shifting())


@twin("DP602")
def a_default_device_that_forward_makes_nothing_by():
    return by_default_on_gpus(Linear())


@twin("DP602")
class NoGradReachesTheReplicas(Head):
    def forward(self, x):
        with torch.no_grad():
            return self.net(x)


@trigger("DP603", "draws random numbers")
def dropout_draws_on_each_gpu():
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout()), x()


@twin("DP603")
def without_dropout_nothing_is_drawn():
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)), x()


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return (x[:, :1] * self.scale).expand(-1, 2**16).contiguous()


@trigger("DP701", "GPU 0 holds up to")
def wide_results_are_gathered_on_gpu_0():
    return Wide(), x(16)


@twin("DP701", given=lambda: x(16))
class SmallResultsAreGatheredOnGpu0(Wide):
    def forward(self, x):
        return super().forward(x).mean(1)


@twin("DP601", autocast="bfloat16")
def forward_sets_autocast_itself():
    class Model(Net):
        @torch.autocast("cuda", dtype=torch.bfloat16)
        def forward(self, x):
            return self.fc(x)

    return Model(), x()


@twin("DP601")
def autocast_is_set_in_the_forward_of_a_part_that_is_wrapped():
    """Gradients of bfloat16 are rounded for each chunk: no difference to tell of."""

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                y = self.fc(x)
            return y.float()

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.DataParallel(Part().cuda())

        def forward(self, x):
            return self.part(x)

    return Step().cuda(), torch.randn(16, 8, generator=torch.Generator().manual_seed(2))


BACKEND = contextvars.ContextVar("backend", default="plain")


@twin("DP602")
def a_variable_of_the_context_is_not_asked_for():
    BACKEND.set("twice")
    return Linear(), x()


class AutocastParallel(nn.DataParallel):
    def forward(self, *inputs, **kwargs):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return super().forward(*inputs, **kwargs)


@trigger("DP601", "autocast('cuda') is bfloat16 around the call and float16 in replicas")
def a_wrapper_of_the_users_opens_autocast():
    return AutocastParallel(Linear().to("cuda:0")), x()
