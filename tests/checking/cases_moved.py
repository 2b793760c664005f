"""State and results that move around the call: where they are written, read and kept, in many ways."""

import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.nn import functional


@trigger("DP301", "`step` goes from 0 to 1")
class ATemperatureFallsWithACounterThatIsRaisedFirst(Net):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        temperature = max(0.1, 0.9**self.step)
        return self.fc(x) / temperature


@twin("DP301")
class ACounterIsRaisedOutside(Net):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        return self.fc(x) / max(0.1, 0.9**self.step)


class Warming(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        if self.training:
            self.calls = self.calls + 1
        return self.fc(x) * min(1.0, 0.5 + self.calls)


@trigger("DP301", "`0.calls`", "1 more like it")
def two_blocks_warm_up_by_calls():
    return nn.Sequential(Warming(), nn.ReLU(), Warming()), x()


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


@twin("DP301")
class AHiddenStateIsHandedOver(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 3), nn.Linear(3, 2)

    def forward(self, x, h=None):
        if h is None:
            h = torch.zeros(x.size(0), 3, device=x.device)
        h = self.cell(x, h).detach()
        return self.out(h), h


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("sizes", torch.ones(5))

    def forward(self, z):
        nearest = torch.cdist(z, self.codes).argmin(1)
        chosen = functional.one_hot(nearest, 5).to(z.dtype)
        found = self.codes[nearest]
        if self.training:
            self.sizes.data.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
            mean = (chosen.t() @ z.detach()) / self.sizes.unsqueeze(1)
            self.codes.data.mul_(0.9).add_(mean, alpha=0.1)
        return z + (found - z).detach()


@trigger("DP305", "`book.codes` and `book.sizes`", "chunk 0 alone")
class ACodebookDeepInAModelFollowsItsData(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.book, self.decoder = nn.Linear(4, 4), Codebook(), nn.Linear(4, 3)

    def forward(self, x):
        return self.decoder(self.book(self.encoder(x)))


@twin("DP305", also=["DP309"])
class WhatACodebookFollowsIsKeptByGpu(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 3))
        self.kept = {}

    def forward(self, x):
        z = self.fc(x)
        self.kept[z.get_device()] = z
        return self.codes[torch.cdist(z, self.codes).argmin(1)]


class Leaving(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.outs = []

    def forward(self, x):
        y = self.fc(x).tanh()
        self.outs.append(y)
        return y


@trigger("DP309", "`acts`", also=["DP310"])
class AClosureKeepsActivationsInADictOfTheModel(Net):
    def __init__(self):
        super().__init__()
        self.acts = {}
        self.fc.register_forward_hook(self.keeping("fc"))

    def keeping(self, name):
        def keep(module, given, output):
            self.acts[name] = output.detach()

        return keep

    def forward(self, x):
        return self.fc(x).relu()


@trigger("DP211", "`bag`", "a list of 4 under DataParallel", given=lambda: (x(), []))
class FeaturesArePutInABag(Net):
    def forward(self, x, bag):
        y = self.fc(x)
        bag.append(y.detach())
        return y.relu()


@trigger("DP211", "`info` is written by all replicas", given=lambda: (x(), {}))
class TwoEntriesAreWrittenToADict(Net):
    def forward(self, x, info):
        y = self.fc(x)
        info["size"] = len(x)
        info["mean"] = y.mean().item()
        return y


@twin("DP590")
class AClassHasANumberThatIsOnlyRead(Net):
    total = 3

    def forward(self, x):
        return self.fc(x) + 0.1 * self.total


@trigger("DP403", "is the text")
class NamesAreLookedUpInALoop(Net):
    def forward(self, x):
        y = self.fc(x)
        names = []
        for index in y.argmax(-1).tolist():
            names.append("abc"[index])  # noqa: PERF401 - as people write it
        return y, names


@trigger("DP308", "`Linear.state_dict()` is empty in replicas")
class ATargetIsLoadedWithAnAverage(Net):
    def __init__(self):
        super().__init__()
        self.target = nn.Linear(4, 3).requires_grad_(False)

    def forward(self, x):
        if self.training:
            mine, its = self.fc.state_dict(), self.target.state_dict()
            self.target.load_state_dict({name: 0.9 * its[name] + 0.1 * mine[name] for name in its})
        return self.fc(x) + self.target(x)


@twin("DP301", also=["DP301"])
class RowsOnTheModelAreScratchSpace(Net):
    def forward(self, x):
        self.scratch = self.fc(x)
        return self.scratch.relu()
