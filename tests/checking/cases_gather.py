"""Rules of gather: DP4."""

import collections

import torch
from casetable import Batch, Net, Recurrent, returning, steps, trigger, twin, x
from torch import nn


@trigger("DP401", "one number on one GPU, and 4 here")
def a_mean_comes_back_as_a_vector():
    return returning(lambda y, _: y.detach().square().mean()), x()


@twin("DP401")
def means_are_taken_of_each_sample():
    return returning(lambda y, _: y.square().mean(1)), x()


@trigger("DP402", "`[1]` is of type int", raises=True)
class ANumberIsReturned(Net):
    def forward(self, x):
        y = self.fc(x)
        return y, 3


@trigger("DP402", "of type Batch", raises=True)
def a_dataclass_is_returned():
    return returning(lambda y, _: Batch(y)), x()


@twin("DP402")
def a_number_is_returned_as_a_tensor():
    return returning(lambda y, _: (y, torch.full((len(y),), 3, device=y.device), None)), x()


@trigger("DP403", "`['names']` is the text 'a' and comes back as '<map object at")
def names_come_back_garbled():
    return returning(lambda y, _: {"y": y, "names": ["a", "b"]}), x()


@trigger("DP403", "`[0]['name']` is the text 'image 0'", also=["DP408"])
def names_of_images_come_back_garbled():
    return returning(lambda y, _: [{"y": row, "name": f"image {i}"} for i, row in enumerate(y)]), x()


@twin("DP403")
def names_stay_outside():
    return returning(lambda y, _: {"y": y}), x()


@trigger("DP405", "`[1]` is None in replica 0", "dropped")
def an_auxiliary_result_is_dropped():
    return returning(lambda y, x: (y, None if x.device.index == 0 else y)), x()


@twin("DP405")
def none_is_returned_by_all():
    return returning(lambda y, _: (y, None)), x()


@twin("DP405")
def all_replicas_return_all_keys():
    return returning(lambda y, _: {"y": y, "aux": y}), x()


@trigger("DP406", "size 2, 2, 3 and 3 on dimension 1", raises=True)
class ResultsArePaddedToTheLongestOfAChunk(Net):
    def forward(self, x):
        longest = 2 + int((x[:, 0] > 0).any())
        wide = torch.arange(longest, device=x.device) < 2 + (x[:, :1] > 0)
        return torch.where(wide, self.fc(x)[:, :longest], 0)


@twin("DP406")
def results_are_padded_alike():
    return returning(lambda y, _: y[:, :2]), x()


@trigger("DP407", "is on the CPU", raises=True)
def a_result_is_moved_to_the_cpu():
    return returning(lambda y, _: y.cpu()), x()


@twin("DP407")
def a_result_stays_on_its_gpu():
    return returning(lambda y, _: y.relu()), x()


@trigger("DP408", "is a list of 8, one for each sample; from 2+2+2+2 it comes back with 2", raises=True)
def boxes_of_images_are_merged():
    return returning(lambda y, _: [{"boxes": y[i : i + 1]} for i in range(len(y))]), x()


@trigger("DP408", "from 2+2+2+1 it cannot be joined", raises=True)
def boxes_of_images_cannot_be_joined():
    return returning(lambda y, _: [y[i : i + 1] for i in range(len(y))]), x(7)


@twin("DP408")
def levels_of_a_pyramid_are_joined():
    return returning(lambda y, _: [y, y[:, :2], y[:, :1]]), x()


@trigger("DP409", "`[1]` of shape (1, 8, 5) has the batch on dimension 1", also=["DP590"], given=steps)
class TheLastStateIsJoinedAlongItsLayers(Recurrent):
    def forward(self, x):
        y, (h, _) = self.rnn(x)
        return y, h


@trigger("DP409", "shape (8,)", "joined along dimension 1", raises=True)
def columns_are_summed_to_one_dimension():
    class Model(Net):
        def forward(self, x):
            return self.fc(x.t()).sum(1)

    return nn.DataParallel(Model(), dim=1), torch.ones(4, 8)


@twin("DP409", given=steps)
class TheLastStateIsReturnedBatchFirst(Recurrent):
    def forward(self, x):
        y, (h, _) = self.rnn(x)
        return y, h.transpose(0, 1)


@trigger("DP590", "the results cannot be gathered", raises=True)
def sparse_results_cannot_be_joined():
    return returning(lambda y, _: y.to_sparse()), x()


class Cache:
    """As transformers' DynamicCache: gather builds it anew from what iterating gives."""

    def __init__(self, layers=()):
        self.layers = [tuple(layer) for layer in layers]

    def __iter__(self):
        return iter(self.layers)


@twin("DP402")
def a_cache_is_joined_rightly():
    return returning(lambda y, _: {"y": y, "past": Cache([(y, y * 2), (y * 3, y * 4)])}), x()


@twin("DP402", also=["DP501", "DP401"])
def a_cache_is_joined_rightly_beside_a_loss():
    return returning(lambda y, _: {"loss": y.mean(), "past": Cache([(y, y * 2)])}), x()


# ---- results that are written out in forward, whose own line is repaired ----


@trigger("DP407", "`['classes']` is on the CPU", raises=True)
class ClassesAreBroughtToTheCpu(Net):
    def forward(self, x):
        y = self.fc(x)
        return {"y": y, "classes": y.argmax(1).cpu()}


@twin("DP410", also=["DP213"], data_size=3, given=lambda: x(3))
class NothingIsSelectedInAnyChunk(Net):
    def forward(self, x):
        y = self.fc(x)
        return y[y > 1e6]


@trigger("DP409", "flattened with the batch second", "6 groups of all samples", given=steps)
class RowsAreFlattenedTimeFirst(Recurrent):
    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x)[0].transpose(0, 1).reshape(-1, 5)


@twin("DP409", given=steps)
class RowsAreFlattenedBatchFirst(Recurrent):
    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x)[0].reshape(-1, 5)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 12)


@twin("DP408")
class BoxesOfImagesAreJoinedAndCounted(Detector):
    def forward(self, x):
        boxes = self.fc(x).view(-1, 3, 4)
        keep = boxes[:, :, 0] > 0
        return boxes[keep], keep.sum(1)


@trigger(
    "DP406",
    "on dimension 1",
    given=(torch.arange(6)[None] < torch.tensor([6, 5, 4, 4, 3, 2, 2, 1])[:, None]).long,
    raises=True,
)
class WordsAreCutOffBehindTheLongest(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 3)

    def forward(self, ids):
        longest = int((ids > 0).sum(1).max())
        return self.words(ids[:, :longest])


@trigger("DP402", "the result is or holds a defaultdict", raises=True)
class ADefaultdictIsReturned(Net):
    def forward(self, x):
        return collections.defaultdict(list, y=self.fc(x))


@trigger("DP403", "is the text")
class NamesAreLookedUpInALoop(Net):
    def forward(self, x):
        y = self.fc(x)
        names = []
        for index in y.argmax(-1).tolist():
            names.append("abc"[index])  # noqa: PERF401 - as people write it
        return y, names
