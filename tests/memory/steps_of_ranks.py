"""A program for ranks: the steps of the cases that are named, and the peak of each on each rank."""

import gc
import json
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

CASES = {
    "ddp": {}, "view": {"bucket_view": True}, "small buckets": {"bucket_mb": 1},
    "ddp checkpointed": {"checkpoint": "full"}, "set to zero": {"bucket_view": True},
    "fsdp2": {}, "kept": {"keep_unsharded": "all"}, "last kept": {"keep_unsharded": "last"},
    "half": {"mixed": "bf16"}, "half reduced in float32": {"mixed": "bf16", "reduce_dtype": "fp32"},
    "offload": {"offload": True}, "checkpointed": {"checkpoint": "full"},
    "every second": {"checkpoint": "2"},
}  # fmt: skip
"""The settings of each case: those of `Wrapping`."""
OF_DDP = ("ddp", "view", "small buckets", "ddp checkpointed", "set to zero")
TRAINING = {"set to zero": {"optimizer": "momentum", "zero_grad": "to-zero"}}
"""The loop of a case, others use AdamW and free gradients: its peak is where the buckets are made again."""
ROWS = 96


class Block(nn.Module):
    """A layer that widens and narrows."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    """Four blocks between two layers."""

    def __init__(self, width=256):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def uneven():
    """Return a model whose layers three ranks cannot share evenly."""
    return Net(250)


def wide():
    """Return a model whose output is large."""
    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4096))


def build(name, settings, width):
    model = Net(width).cuda()
    step = {"": 0, "full": 1}.get(settings.get("checkpoint", ""), 2)
    for block in model.blocks[step - 1 :: step] if step else ():
        block.forward = checkpointed(block)
    if name in OF_DDP:
        given = {"bucket_cap_mb": settings["bucket_mb"]} if "bucket_mb" in settings else {}
        view = settings.get("bucket_view", False)
        ordinal = torch.cuda.current_device()
        return nn.parallel.DistributedDataParallel(
            model, device_ids=[ordinal], gradient_as_bucket_view=view, **given
        )
    how = {}
    if "mixed" in settings:
        reduced = torch.float32 if "reduce_dtype" in settings else None
        how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    if "offload" in settings:
        how["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    kept = {"all": range(4), "last": [3]}.get(settings.get("keep_unsharded"), ())
    for place, block in enumerate(model.blocks):
        fully_shard(block, reshard_after_forward=place not in kept, **how)
    fully_shard(model, **how)
    return model


def checkpointed(block):
    forward = block.forward
    return lambda x: checkpoint(forward, x, use_reentrant=False, preserve_rng_state=False)


def step(model, optimizer, *, frees):
    model.zero_grad(set_to_none=frees)
    x = torch.ones(ROWS, 64).cuda()
    output = model(x)
    loss = output.mean()
    loss.backward()
    optimizer.step()


def main(width, *names):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    peaks = {}
    for name in names:
        before = torch.cuda.memory_allocated()
        model = build(name, CASES[name], width)
        frees = name not in TRAINING
        trained = model.parameters()
        optimizer = torch.optim.AdamW(trained) if frees else torch.optim.SGD(trained, lr=0.1, momentum=0.9)
        for _ in range(2):
            time.sleep(0.05)  # gloo's threads let go of a collective's tensors a moment after it is over
            torch.cuda.reset_peak_memory_stats()
            step(model, optimizer, frees=frees)
        peaks[name] = torch.cuda.max_memory_allocated()
        del model, optimizer
        for _ in range(100):
            gc.collect()  # fully_shard leaves cycles
            if torch.cuda.memory_allocated() <= before:
                break
            time.sleep(0.05)
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, peaks)
    if dist.get_rank() == 0:
        print("PEAKS", json.dumps(gathered), flush=True)  # noqa: T201 - the test reads it
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
