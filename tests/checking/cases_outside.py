"""Models whose forward does what needs the whole batch, as they are written outside of this project."""

import copy

import torch
from casetable import Linear, Net, trigger, twin, x
from torch import nn
from torch.nn import functional

LABELS = torch.arange(8) % 3


@twin("DP502", given=lambda: (x(), x().flip(1)))
class FeaturesOfImagesAndTexts(Net):
    def forward(self, image, text):
        return functional.normalize(self.fc(image), dim=-1), self.fc(text)


@twin("DP313")
class ALossOnSelfIsForForwardAlone(Net):
    def forward(self, x):
        self.last_loss = self.fc(x).square().mean()
        return self.fc(x) + 0 * self.last_loss.detach()


@trigger("DP313", "`fc.weight`", "is thrown away")
class TheDataOfAWeightIsAssigned(Net):
    def forward(self, x):
        self.fc.weight.data = functional.normalize(self.fc.weight.data, dim=1)
        return self.fc(x)


@trigger("DP311", "goes backward")
class ASaliencyIsReadFromAnInput(Net):
    def forward(self, x):
        x = x.detach().requires_grad_(True)
        self.fc(x).max(1).values.sum().backward()
        return x.grad


@trigger("DP311", "goes backward", also=["DP502"], given=lambda: (x(), LABELS), raises=True)
class FastWeightsAreReadFromGradients(Net):
    def forward(self, x, y):
        loss = functional.cross_entropy(self.fc(x), y)
        self.fc.zero_grad()
        loss.backward()
        weight = self.fc.weight - 0.1 * self.fc.weight.grad
        bias = self.fc.bias - 0.1 * self.fc.bias.grad
        return functional.linear(x, weight, bias)


@trigger("DP312", "cannot be deep-copied", raises=True)
class AWeightIsCopiedInForward(Net):
    def forward(self, x):
        old = copy.deepcopy(self.fc.weight)
        return functional.linear(x, old) + self.fc(x)


@twin("DP302")
class ATiedWeightIsUsedByItsName(Linear):
    def forward(self, x):
        return functional.linear(self.fc(x), self.fc.weight.t())


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
