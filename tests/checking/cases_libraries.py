"""Rules that models written as libraries write them run into: outputs, processors, hooks, heads of a list."""

import torch
from casetable import Net, trigger
from torch import nn
from torch.nn import functional


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
