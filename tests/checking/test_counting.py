"""By what count the losses of replicas must be weighed."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from dpdemo.checking import check

LABELS = torch.tensor(
    [
        [1, 2, -100, -100],
        [3, -100, -100, -100],
        [1, 2, 3, 4],
        [2, 2, 2, -100],
        [1, 1, -100, -100],
        [4, 3, 2, 1],
        [1, -100, -100, -100],
        [2, 3, -100, -100],
    ]
)
IDS = torch.arange(1, 33).view(8, 4) % 5 + 1


class Tagger(nn.Module):
    """Averages over what its subclass counts, in a method that no line of forward shows."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(6, 5), nn.Linear(5, 6)

    def loss(self, logits, labels):
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def scored(self, ids, labels):
        return self.loss(self.out(self.words(ids)), labels)

    def forward(self, ids, labels):
        return self.scored(ids, labels)


class Shifted(Tagger):
    def loss(self, logits, labels):
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class OfRows(Tagger):
    def loss(self, logits, labels):
        each = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return each.view(labels.shape).sum(1).mean()


class Masked(Tagger):
    def loss(self, logits, labels):
        ids, mask = labels
        each = functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
        return (each * mask.flatten()).sum() / mask.sum()

    def forward(self, ids, mask):
        return self.scored(ids, (ids, mask))


def repair_of(model, *inputs):
    report = check(model, inputs)
    (found,) = [one for one in report.findings if one.code == "DP501"]
    return found.own_after


@pytest.mark.parametrize(
    ("kind", "count"),
    [(Tagger, "(part != -100).sum()"), (Shifted, "(part[:, 1:] != -100).sum()")],
)
def test_labels_that_are_masked_do_not_count(kind, count):
    after = repair_of(kind(), IDS, LABELS)
    assert f"torch.stack([{count} for part in labels.chunk(len(model.device_ids))])" in after


def test_a_masks_ones_count():
    assert "part.sum() for part in mask.chunk" in repair_of(Masked(), IDS, (LABELS > 0).float())


def test_rows_count_where_chunks_are_unequal():
    after = repair_of(OfRows(), IDS[:7], LABELS[:7])
    assert "torch.tensor(len(part)) for part in ids.chunk" in after


def test_no_count_is_told_where_none_is_right():
    class Two(Tagger):
        def loss(self, logits, labels):
            each = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
            return super().loss(logits, labels) + each.topk(len(labels)).values.mean()

    assert "counts" not in repair_of(Two(), IDS, LABELS)
