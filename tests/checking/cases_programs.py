"""Pitfalls as programs have them: in a helper, in a module without parameters, in an object."""

import threading

import torch
from casetable import Net, trigger, twin, x
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Attending(nn.Module):
    """A layer that leaves its weights behind for whoever wants them."""

    def __init__(self):
        super().__init__()
        self.fc, self.last = nn.Linear(4, 4), None

    def forward(self, x):
        weights = torch.softmax(self.fc(x), -1)
        self.last = weights.detach()
        return x * weights


@twin("DP301", also=["DP301"])
class OnlyWhatIsShownReadsWhatForwardHasLeft(Attending):
    def extra_repr(self):
        return f"last={self.last is not None}"


class Masks:
    """A table of masks, for each length and device."""

    def __init__(self):
        self.table = {}

    def get(self, length, device):
        key = length, str(device)
        if key not in self.table:
            self.table[key] = torch.arange(length, device=device) > 1
        return self.table[key]


@twin("DP309", also=["DP309"])
class AnObjectKeepsAMaskForEachDevice(Net):
    def __init__(self):
        super().__init__()
        self.masks = Masks()

    def forward(self, x):
        return self.fc(x * self.masks.get(x.size(1), x.device))


class Hardest(nn.Module):
    """Keeps the losses of the hardest samples of a batch."""

    def forward(self, logits, labels):
        losses = functional.cross_entropy(logits, labels, reduction="none")
        threshold = losses.detach().sort(descending=True).values[:2][-1]
        return losses * (losses >= threshold)


@trigger("DP502", "depends on the others of its batch")
def the_hardest_samples_are_chosen_in_a_module_of_their_own():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.hardest = Hardest()

        def forward(self, x, labels):
            return self.hardest(self.fc(x), labels)

    return Model(), lambda rows: (x(rows), torch.arange(rows) % 3)


@trigger("DP401", "`[1]` is one number on one GPU", "their mean is another number")
class APerplexityOfTheBatchIsReturned(Net):
    def forward(self, x):
        y = self.fc(x)
        usage = functional.one_hot(y.argmax(-1), 3).float().mean(0)
        return y, torch.exp(-(usage * (usage + 1e-6).log()).sum())


@trigger("DP405", "replica 0 returns", raises=True)
def each_domain_that_is_there_has_a_key():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))

        def forward(self, x, domain):
            scores = {}
            for index, tower in enumerate(self.towers):
                rows = domain == index
                if rows.any():
                    scores[f"domain_{index}"] = tower(x[rows])
            return scores

    return Model(), lambda rows: (x(rows), torch.arange(rows) * 2 // rows)


@trigger("DP214", "pad_packed_sequence without total_length")
def a_helper_pads_each_chunk_to_its_own_longest():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 3, batch_first=True)

        def encoded(self, x, lengths):
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]

        def forward(self, x, lengths):
            return self.encoded(x, lengths)

    def batch(rows):
        return torch.randn(rows, 8, 4), torch.arange(rows).flip(0).clamp(max=7) + 1

    return Model(), batch


@trigger("DP211", "`stats['seen']` is written by each replica in a copy of its own", "0 under DataParallel")
def samples_are_counted_in_a_dict_of_the_callers():
    class Model(Net):
        def forward(self, x, stats):
            stats["seen"] = stats.get("seen", 0) + len(x)
            return self.fc(x)

    return Model(), lambda rows: (x(rows), {"seen": 0})


@twin("DP211", also=["DP211"])
def a_dict_of_the_callers_is_scratch():
    class Model(Net):
        def forward(self, batch):
            batch["y"] = self.fc(batch["x"])
            return batch["y"]

    return Model(), lambda rows: ({"x": x(rows)},)


@trigger("DP203", "called without `style` and runs on its default", also=["DP205"])
def one_style_for_all_is_handed_over_by_keyword():
    class Model(Net):
        def forward(self, x, region, style=None, alpha=1.0):
            y = self.fc(x) * region
            return y if style is None else y + alpha * self.fc(style)

    style = torch.ones(1, 4)
    return Model(), lambda rows: ((torch.randn(rows, 4), torch.rand(rows, 1)), {"style": style, "alpha": 0.5})


@trigger("DP101", "`project` is looked up on DataParallel", raises=True)
def a_method_of_what_is_wrapped_is_called_twice():
    class Encoder(Net):
        def forward(self, x):
            return self.fc(x)

        def project(self, x):
            return self(x).relu()

    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.DataParallel(Encoder())

        def forward(self, x, other):
            one, two = self.encoder.project(x), self.encoder.project(other)
            return (one * two).sum(1)

    return Task(), lambda rows: (torch.randn(rows, 4), torch.randn(rows, 4))


@twin("DP207", also=["DP203"])
def factors_in_a_list_are_as_many_as_the_rows_of_a_short_batch():
    class Model(Net):
        def forward(self, x, scales, flag=True):
            return self.fc(x) * (scales[0] + scales[1] + scales[2]) if flag else self.fc(x)

    return Model(), lambda rows: ((torch.randn(rows, 4), [0.5, 1.0, 2.0]), {"flag": True})


@trigger("DP103", "`last.weight` and `last.bias` on cuda:1", also=["DP303", "DP391"])
class TwoHalvesAreOnTwoGpus(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8).to("cuda:0"), nn.Linear(8, 2).to("cuda:1")

    def forward(self, x):
        return self.last(self.first(x.to("cuda:0")).to("cuda:1"))


POLICIES = threading.local()
POLICIES.factor = 2.0


@trigger("DP602", "a `threading.local()` has nothing of the caller's in replica 0", raises=True)
class ASettingIsKeptForEachThread(Net):
    def forward(self, x):
        return self.fc(x) * POLICIES.factor


@trigger("DP314", "(attribute gain) is a plain tensor in replicas", raises=True)
class TwoParametersHaveAnAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.zeros(3))
        self.weight.gain = 0.5
        self.bias.gain = 0.1

    def forward(self, x):
        return functional.linear(x, self.weight * self.weight.gain, self.bias * self.bias.gain)


@twin("DP313", also=["DP313"])
def a_weight_is_kept_within_bounds_that_do_not_depend_on_the_batch():
    class Bounded(nn.Linear):
        def forward(self, x):
            with torch.no_grad():
                self.weight.data.copy_(self.weight.data.renorm(2, 0, 0.25))
            return super().forward(x)

    return nn.Sequential(Bounded(4, 4), nn.Linear(4, 3)), x()
