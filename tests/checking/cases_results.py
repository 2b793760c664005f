"""Rules of results: of the return that a call goes through, and of parts that differ in length."""

import dataclasses

import torch
from casetable import Net, trigger, x
from torch import nn


@dataclasses.dataclass
class Sampled:
    sample: torch.Tensor
    middle: torch.Tensor


@trigger("DP402", "the result is of type Sampled")
def one_of_two_returns_makes_an_object():
    class Model(Net):
        def forward(self, x, return_dict=True):
            middle = self.fc(x)
            sample = middle.relu()
            if not return_dict:
                return (sample,)
            return Sampled(sample=sample, middle=middle)

    return Model(), x()


@trigger("DP409", "of shape (3, 8) has the batch on dimension 1")
def the_early_return_has_the_batch_last():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.is_fast = True

        def forward(self, x):
            y = self.fc(x)
            if self.is_fast:
                return y.t()
            return y.relu()

    return Model(), x()


@trigger("DP406", "on dimension 1")
def a_mask_and_words_are_as_long_as_the_longest():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 3)

        def forward(self, ids, lengths):
            longest = int(lengths.max())
            mask = torch.arange(longest, device=ids.device)[None] < lengths[:, None]
            y = self.words(ids[:, :longest])
            return y * mask[..., None]

    def batch(rows):
        lengths = torch.randint(2, 7, (rows,)).sort(descending=True).values
        return torch.randint(9, (rows, 7)), lengths

    return Model(), batch


@trigger("DP406", "on dimension 1")
def sequences_are_repeated_and_padded():
    class Model(Net):
        def forward(self, x, counts):
            y = self.fc(x)
            longer = [row.expand(int(count), -1) for row, count in zip(y, counts, strict=True)]
            return nn.utils.rnn.pad_sequence(longer, batch_first=True), counts

    return Model(), lambda rows: (torch.randn(rows, 4), torch.arange(rows) % 5 + 1)
