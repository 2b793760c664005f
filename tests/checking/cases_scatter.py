"""Rules of scatter: DP2."""

import collections

import torch
from casetable import Linear, Net, Recurrent, steps, trigger, twin, x
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class TimesWeight(Net):
    def forward(self, x, w):
        return self.fc(x) * w.mean()


@trigger("DP201", "`w` has 1 of 8 rows", "2 of 8 samples", "1 of 4 GPUs")
def a_lone_weight_cuts_the_batch():
    return TimesWeight(), (x(), torch.tensor([2.0]))


@twin("DP201", given=lambda: {"x": x(), "positions": torch.ones(1, 4).expand(8, -1)})
class PositionIdsAreExpandedToTheBatch(Net):
    def forward(self, x, positions):
        return self.fc(x + positions)


class Optional(Net):
    def forward(self, x=None, scale=1.0):
        return self.fc(torch.zeros(1, 4, device=self.fc.weight.device) if x is None else x) * scale


@trigger("DP203", "without `x`", "replica 3")
def a_starved_replica_runs_on_defaults():
    return Optional(), ((x(),), {"scale": 2.0})


@twin("DP203")
def all_arguments_by_keyword_starve_nobody():
    return Optional(), {"x": x(), "scale": 2.0}


class Scaled(Net):
    def forward(self, x, scale=1.0):
        return self.fc(x) * scale


@trigger("DP203", "without `x`", "replica 3", "batch of 5", raises=True)
def a_flag_by_keyword_outnumbers_the_chunks():
    return Scaled(), ((x(),), {"scale": 2.0})


@twin("DP203")
def a_flag_by_position_is_cut_to_the_chunks():
    return Scaled(), (x(), 2.0)


class Masked(Net):
    def forward(self, x, mask=None):
        return self.fc(x) * mask


@twin("DP203")
def a_keyword_as_long_as_the_batch():
    return Masked(), ((x(),), {"mask": torch.ones(8, 3)})


@twin("DP205")
class AMatrixIsABuffer(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("A", torch.eye(3))

    def forward(self, x):
        return self.fc(x) @ self.A


class Divided(Net):
    def forward(self, x, count):
        return self.fc(x) / count


@trigger("DP206", "`count` is a tensor of shape ()", raises=True)
def a_count_is_a_tensor_without_dimensions():
    return Divided(), (x(), torch.tensor(2.0))


@twin("DP206")
def a_count_is_a_number():
    return Divided(), (x(), 2.0)


@twin("DP208", given=lambda: ({"x": x()},))
class TensorsInADictAreCut(Net):
    def forward(self, batch):
        return self.fc(batch["x"])


class Dictionary(Net):
    def forward(self, batch):
        return self.fc(batch["x"])


@twin("DP208")
def an_ordered_dict_as_argument():
    return Dictionary(), (collections.OrderedDict(x=x()),)


@trigger("DP210", "`x`", "chunk 0 only")
class AnInputIsScaledInPlace(Net):
    def forward(self, x):
        x.mul_(2)
        return self.fc(x)


@twin("DP210")
class AnInputIsScaledInACopy(Net):
    def forward(self, x):
        return self.fc(x * 2)


@twin("DP211", given=lambda: (x(), []))
class AListIsOnlyRead(Net):
    def forward(self, x, log):
        return self.fc(x) + len(log)


@twin("DP212", given=lambda: (steps(), torch.zeros(8, 1, 5), torch.zeros(8, 1, 5)))
class AHiddenStateComesBatchFirst(Recurrent):
    def forward(self, x, h, c):
        state = h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()
        return self.rnn(x, state)[0]


@trigger("DP213", "batch of 6 on 4 GPUs is cut into 2+2+2: 1 idle")
def a_batch_of_6_leaves_a_gpu_idle():
    return Linear(), x(6)


@trigger("DP213", "batch of 2", "2 idle", data_size=10)
def the_last_batch_leaves_gpus_idle():
    return Linear(), x(8)


@twin("DP213", data_size=10, drop_last=True)
def the_short_last_batch_is_left_out():
    return Linear(), x(8)


@twin("DP214", given=lambda: (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1])))
class ChunksArePaddedToTheWholeLength(Recurrent):
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)
        out, _ = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.size(1))[0]


class Lengths(Recurrent):
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=6)[0]


@trigger("DP215", "scatter moves the lengths", "1D CPU int64", raises=True)
def lengths_are_moved_to_the_gpus():
    return Lengths(), (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1]))


@twin("DP215", given=lambda: (steps(), torch.tensor([6, 6, 5, 5, 4, 3, 2, 1])))
class LengthsAreBroughtBackToTheCpu(Lengths):
    def forward(self, x, lengths):
        return super().forward(x, lengths.cpu())


# ---- what is cut, and must not be, or along another dimension ----


class Recurring(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 5)

    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x)[0]


@trigger("DP216", "`x` of shape (6, 8, 4) has its samples on dimension 1")
def time_comes_first():
    return Recurring(), torch.randn(6, 8, 4, generator=torch.Generator().manual_seed(1))


@twin("DP216", gpus=2)
def time_comes_first_and_samples_are_cut():
    return nn.DataParallel(Recurring().to("cuda:0"), device_ids=[0, 1], dim=1), torch.randn(6, 8, 4)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, images):
        return [self.conv(image[None]).mean((2, 3))[0] for image in images]


@twin("DP207", given=lambda: torch.randn(8, 3, 8, 8))
class ImagesAreStacked(Detector):
    def forward(self, images):
        return self.conv(images).mean((2, 3))


class Counted(Net):
    """As transformers' models under Trainer: the number of items is the same for each GPU."""

    def forward(self, x, num_items):
        return self.fc(x) / num_items.mean()


@twin("DP205")
def one_number_for_each_gpu():
    return Counted(), lambda rows: {"x": x(rows), "num_items": torch.full((4, 1), 12.0)}


@twin("DP201", also=["DP213"], data_size=17)
def one_number_for_each_gpu_beside_a_lone_sample():
    class Model(Net):
        def forward(self, x, labels, num_items):
            return (self.fc(x) - labels[:, None]) / num_items.mean()

    return Model(), lambda rows: {
        "x": x(rows), "labels": torch.arange(float(rows)), "num_items": torch.full((4, 1), 12.0)
    }  # fmt: skip


@trigger(
    "DP206",
    "`batch['scale']` is a tensor of shape ()",
    given=lambda: ({"x": x(), "scale": torch.tensor(2.0)},),
    raises=True,
)
class ANumberWithoutDimensionsLiesInADict(Net):
    def forward(self, batch):
        return self.fc(batch["x"]) * batch["scale"]


class Masking(nn.Module):
    """A recurrent layer that is time first or not, and a mask that is batch first."""

    def __init__(self, *, batch_first):
        super().__init__()
        self.rnn = nn.GRU(4, 5, batch_first=batch_first)

    def forward(self, x, mask):
        self.rnn.flatten_parameters()
        own = mask if self.rnn.batch_first else mask.t()
        return (self.rnn(x)[0] * own[..., None]).sum(int(self.rnn.batch_first))


def shown(rows, length):
    return (torch.arange(length) < torch.arange(1, rows + 1)[:, None]).float()


@twin("DP216")
def words_and_mask_are_batch_first():
    return Masking(batch_first=True), (steps(), shown(8, 6))


@trigger("DP206", "`step` is a tensor of shape ()", given=lambda: (x(), torch.tensor(7)), raises=True)
class AStepWithoutDimensionsIsNeededAsATensor(Net):
    def forward(self, x, step):
        steps = step.float().reshape(-1, 1)
        return self.fc(x) + torch.cat([steps.sin(), steps.cos(), steps], 1)


@twin("DP206", dim=1, given=lambda: (torch.ones(6, 8, 4), torch.arange(8)[None]))
class LengthsHaveASecondDimension(Net):
    def forward(self, x, lengths):
        return self.fc(x) * lengths.view(1, -1, 1)


@trigger("DP210", "`image`", "chunk 0 only", given=lambda: x().cuda())
class AnImageIsNormalisedInPlace(Net):
    def forward(self, image):
        image -= 0.5
        image /= 0.25
        return self.fc(image)


class Positions(nn.Module):
    """Looks up words and their places, each position by itself: cut along time it is right, too."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 5)
        self.places = nn.Embedding(12, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, ids, position_ids):
        return self.out(torch.tanh(self.words(ids) + self.places(position_ids)))


def words(rows=16):
    return torch.arange(rows * 9).reshape(rows, 9) % 20


@trigger("DP201", "`position_ids` has 1 of 16 rows", given=lambda: (words(), torch.arange(9)[None]))
class OneRowOfPlacesStandsForAll(Positions):
    pass


@trigger("DP205", "`position_ids`", "whole", given=lambda: (words(), torch.arange(9)))
class PlacesHaveNoRows(Positions):
    pass


@twin("DP201", given=lambda: (words(), torch.arange(9).expand(16, -1)))
class EachSampleHasItsPlaces(Positions):
    pass


@twin("DP205", dim=1, given=lambda: (words().T, torch.arange(9)[:, None].expand(-1, 16)))
class PlacesAreCutWithTimeFirst(Positions):
    pass


@trigger(
    "DP214",
    "`packed` is a PackedSequence",
    given=lambda: (pack_padded_sequence(steps(), torch.arange(6, -2, -1).clamp(1), batch_first=True),),
)
class APackedSequenceIsAnArgument(Recurrent):
    def forward(self, packed):
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=6)[0]


@trigger(
    "DP216",
    "`words` has the batch on dimension 1 and `scale` on dimension 0",
    given=lambda: (steps().transpose(0, 1), torch.arange(8) + 1.0),
)
class WordsAreTimeFirstAndTheirScaleIsBatchFirst(Recurrent):
    def forward(self, words, scale):
        return self.rnn(words.transpose(0, 1))[0].sum(1) * scale[:, None]


@trigger(
    "DP208",
    "`parts` is or holds a defaultdict",
    given=lambda: (collections.defaultdict(torch.Tensor, x=x()),),
    raises=True,
)
class ADefaultdictIsAnArgument(Net):
    def forward(self, parts):
        return self.fc(parts["x"])


@trigger("DP211", "`info` is written by all replicas", given=lambda: (x(), {}))
class TwoEntriesAreWrittenToADict(Net):
    def forward(self, x, info):
        y = self.fc(x)
        info["size"] = len(x)
        info["mean"] = y.mean().item()
        return y


@trigger("DP212", "the state is made for the whole batch", given=lambda: torch.randn(8, 6, 4), raises=True)
class AMethodMakesTheState(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = 8
        self.rnn = nn.GRU(4, 5, batch_first=True)

    def first_state(self, device):
        return torch.zeros(1, self.rows, 5, device=device)

    def forward(self, x):
        out, _ = self.rnn(x, self.first_state(x.device))
        return out


@twin("DP216", also=["DP203"])
def each_word_is_looked_up_by_itself_and_a_flag_comes_by_keyword():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, ids, hidden=False):
            h = self.words(ids)
            return (self.out(h), h) if hidden else self.out(h)

    return Model(), lambda rows: ((torch.arange(rows * 6).view(rows, 6) % 9,), {"hidden": True})
