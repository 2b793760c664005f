"""Tensor parallelism makes two weights of one that two modules share.

says: parallelize_module made parameters of their own of embed.weight and out.weight
"""

import torch
from common import start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

rank, size = start()


class Tied(nn.Module):
    """A language model whose output layer has the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 6)
        self.out = nn.Linear(6, 8, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        """Return logits."""
        return self.out(self.embed(tokens))


model = Tied().cuda()
plan = {
    "embed": RowwiseParallel(input_layouts=Replicate()),
    "out": ColwiseParallel(output_layouts=Replicate()),
}
parallelize_module(model, init_device_mesh("cuda", (size,)), plan)  # here
model.train()  # right: model.out.weight = model.embed.weight
opt = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.randint(0, 8, (4, 5), generator=torch.Generator().manual_seed(1)).cuda()
for _ in range(2):
    opt.zero_grad()
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    opt.step()
