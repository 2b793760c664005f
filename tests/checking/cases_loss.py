"""Rules of losses and numbers: DP5."""

import torch
from casetable import Linear, Net, returning, trigger, twin, x
from torch import nn
from torch.nn import functional


class Classifier(Net):
    reduction = "mean"

    def forward(self, x, y):
        return functional.cross_entropy(self.fc(x), y, reduction=self.reduction)


@trigger("DP501", "loss.sum() are 4.00 times")
def a_loss_is_averaged_in_each_replica():
    return Classifier(), (x(), torch.arange(8) % 3)


@trigger("DP502", "depends on the others of its batch")
class SamplesAreCentredOverTheBatch(Net):
    def forward(self, x):
        h = self.fc(x)
        return h - h.mean(0)


@trigger("DP410", "the result of shape", "has no batch dimension")
def a_mean_over_the_batch_is_one_for_each_gpu():
    return returning(lambda y, _: y.mean(0, keepdim=True)), x()


@trigger("DP410", "the result of shape", "has no batch dimension")
class ASumOverTheBatchBehindDropoutIsOneForEachGpu(Net):
    def forward(self, x):
        return nn.functional.dropout(self.fc(x), 0.1, self.training).sum(0)


@trigger("DP590", "differs from one GPU's")
class TheNumberOfTheGpuScalesTheResult(Net):
    def forward(self, x):
        return self.fc(x) * (1 + x.device.index)


@trigger("DP590", "the result's `[2]` has another shape than on one GPU")
def a_result_is_split_into_parts_of_two_rows():
    return returning(lambda y, _: y.split(2)), x(16)


@twin("DP590")
def gradients_are_infinite_on_one_gpu_too():
    return returning(lambda y, _: y.relu().sqrt() / 0), x()


class PerToken(nn.Module):
    """A language model's loss: the mean over the tokens that have a label."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 7)

    def forward(self, x, labels):
        return functional.cross_entropy(self.fc(x).flatten(0, 1), labels.flatten(), ignore_index=-100)


def tokens(rows=8, unequal=True):
    labels = torch.arange(rows * 6).reshape(rows, 6) % 7
    if unequal:
        for row in range(rows):
            labels[row, 1 + row * 5 // rows :] = -100
    return torch.randn(rows, 6, 4, generator=torch.Generator().manual_seed(1)), labels


@twin("DP501", given=tokens)
class SumsAndCountsAreReturned(PerToken):
    def forward(self, x, labels):
        logits = self.fc(x)
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return losses.view_as(labels).sum(1), (labels != -100).sum(1)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(4, 3)
        self.text = nn.Linear(4, 3)


@trigger("DP502", "compares each sample with every other", given=lambda: (x(), x().flip(0)))
class AllPairsAreComparedInForward(Towers):
    def forward(self, a, b):
        return self.image(a) @ self.text(b).T


@twin("DP502", given=lambda: (x(), x().flip(0)))
class PairsAreComparedOutside(Towers):
    def forward(self, a, b):
        return self.image(a), self.text(b)


@twin("DP502")
def groups_of_one_number_are_normalised_to_rounding():
    """Each group has one number: what GroupNorm makes of it is rounding, magnified."""
    return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(4, 8), nn.Linear(8, 2)), 1e3 * x(16)


@twin("DP590")
class ComplexParametersAreCompared(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))

    def forward(self, x):
        return torch.view_as_real(x.to(torch.complex64) @ self.w)


@twin("DP410")
def a_weight_is_read_outside():
    return Linear(), x()


@twin("DP501", given=tokens)
class ASumAndACountOfOneNumberEachAreReturned(PerToken):
    def forward(self, x, labels):
        logits = self.fc(x).flatten(0, 1)
        total = functional.cross_entropy(logits, labels.flatten(), reduction="sum")
        return total[None], (labels != -100).sum()[None]


class OnlyInTraining(Classifier):
    """Returns its loss in training and logits in evaluation, and has layers that draw or take statistics."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x, y):
        logits = self.fc(self.layers(x))
        return functional.cross_entropy(logits, y, reduction=self.reduction) if self.training else logits


@trigger(
    "DP501",
    "gradients of loss.mean() are",
    "chunks of 4+4+4+2: samples of a short chunk weigh more",
    also=["DP306", "DP316"],
)
def a_batchnorm_does_not_hide_a_loss():
    return OnlyInTraining(nn.BatchNorm1d(4)), (x(14), torch.arange(14) ** 2 % 3)


@twin("DP501", also=["DP306", "DP316"])
def losses_behind_batchnorm_and_dropout_are_returned_for_each_sample():
    model = OnlyInTraining(nn.BatchNorm1d(4), nn.Dropout(0.3))
    model.reduction = "none"
    return model, (x(14), torch.arange(14) ** 2 % 3)


@trigger(
    "DP501", "the loss is NaN in a replica, and finite on one GPU", given=lambda: (x(), torch.arange(8) < 2)
)
class ALossIsTakenOverSomeRows(Net):
    def forward(self, x, chosen):
        return self.fc(x)[chosen].square().mean()


@trigger("DP501", "loss.sum() gives them right")
class ALossIsSummedInEachReplica(Net):
    def forward(self, x):
        return self.fc(x).square().sum()


@trigger("DP501", "gradients of loss.mean() are")
def a_method_computes_the_loss_of_the_tokens():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

        def compute_loss(self, logits, labels):
            return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)

        def forward(self, ids, labels=None):
            logits = self.head(self.words(ids)[None].squeeze(0))
            if labels is None:
                return {"logits": logits}
            return {"loss": self.compute_loss(logits, labels), "logits": logits}

    def batch(rows):
        ids = torch.randint(9, (rows, 5))
        return ids, ids.masked_fill(torch.arange(5) >= 1 + torch.arange(rows)[:, None] % 5, -100)

    return Model(), batch


@twin("DP502", given=lambda: (x(), x().flip(1)))
class FeaturesOfImagesAndTexts(Net):
    def forward(self, image, text):
        return functional.normalize(self.fc(image), dim=-1), self.fc(text)
