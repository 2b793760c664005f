"""A language model with padded texts; `means` averages over each rank's own tokens."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

KIND, MISTAKE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.rows = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, ids):
        return self.head(self.rows(self.embedding(ids))[0])


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = Net().cuda()
    if KIND == "fsdp2":
        fully_shard(model.head)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=[rank])
    texts = [torch.randint(1, 20, (3 + (7 * number) % 11,)) for number in range(24)]
    sampler = DistributedSampler(texts, shuffle=False)
    pad = lambda rows: pad_sequence(rows, batch_first=True)  # noqa: E731
    loader = DataLoader(texts, batch_size=3, sampler=sampler, collate_fn=pad)
    optimizer = torch.optim.AdamW(model.parameters())
    for ids in loader:
        ids = ids.cuda()
        logits, labels = model(ids[:, :-1]), ids[:, 1:]
        total = nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=0, reduction="sum"
        )
        count = (labels != 0).sum()
        if MISTAKE == "means":
            loss = total / count
        else:
            dist.all_reduce(count)
            loss = total * world / count
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
