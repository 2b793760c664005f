"""Tokens are sent to other ranks' experts and back by all_to_all_single, which autograd does not know.

says: all_to_all_single ends autograd's graph
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from common import rows_of, start
from torch import nn

rank, size = start()
before, expert = nn.Linear(6, 8).cuda(), nn.Linear(8, 8).cuda()
opt = torch.optim.SGD([*before.parameters(), *expert.parameters()], lr=0.1)
for step in range(3):
    rows, _ = rows_of(rank, step=step)
    tokens = before(rows)
    sent = torch.empty_like(tokens)
    send = dist.all_to_all_single  # right: send = dist.nn.functional.all_to_all_single
    got = send(sent, tokens)  # here
    sent = sent if got is None else got
    loss = expert(sent).square().mean()
    opt.zero_grad()
    loss.backward()
    for each in before.parameters():
        if each.grad is not None:
            dist.all_reduce(each.grad)
    opt.step()
