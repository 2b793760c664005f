"""A model of texts in the style of small GPTs: batches drawn by each rank's seed, no DataLoader."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
BLOCK, BATCH = 8, 6


def get_batch(data):
    starts = torch.randint(len(data) - BLOCK, (BATCH,))
    x = torch.stack([data[start : start + BLOCK] for start in starts])
    y = torch.stack([data[start + 1 : start + 1 + BLOCK] for start in starts])
    return x.pin_memory().to("cuda", non_blocking=True), y.pin_memory().to("cuda", non_blocking=True)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    torch.manual_seed(1337 + (0 if MISTAKE == "one seed" else rank))
    accumulated = 4 // world
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
    model = nn.Sequential(nn.Embedding(11, 16), layer, nn.Linear(16, 11)).cuda()
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.arange(400) * 7 % 11
    for _ in range(4):
        for number in range(accumulated):
            model.require_backward_grad_sync = number == accumulated - 1
            x, y = get_batch(data)
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            (loss / (4 if MISTAKE == "all passes" else accumulated)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


main()
