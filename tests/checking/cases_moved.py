"""State and results that move around the call: where they are written, read and kept, in many ways."""

import torch
from casetable import Net, trigger, twin, x
from torch import nn


@twin("DP301")
class ACounterIsRaisedOutside(Net):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        return self.fc(x) / max(0.1, 0.9**self.step)


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
