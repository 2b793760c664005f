#!/usr/bin/env bash
# The loader of deepspeed.initialize(training_data=...) shuffles once: every epoch has one order
#
# Expected: the loader that deepspeed.initialize(training_data=data) returns shuffles (it does), and
#   in each epoch in another way, as the DataLoader with shuffle=True that it stands for does, and
#   as DeepSpeed's own loader does where it uses a RandomSampler.
# Happens: deepspeed 0.19.8: under a launcher the loader gets a DistributedSampler, whose order follows
#   from its seed and its epoch, and nothing in deepspeed ever calls set_epoch. Each epoch has the
#   first one's order: each rank has the same rows, in the same batches, for the whole
#   training. The first epoch looks shuffled. No warning. The docstring of initialize names the
#   argument's type only. One rank under the launcher has it, too, by source.
# Where: deepspeed/runtime/dataloader.py, DeepSpeedDataLoader (DistributedSampler in __init__, none of
#   __iter__ and _create_dataloader touches its epoch); RepeatingLoader starts the same loader again,
#   which is how PipelineEngine reads training_data (by source).
# Who is hurt: training for several epochs: batches are always made of the same rows, BatchNorm and
#   contrastive losses always see the same neighbours, rank 0 never reads the other ranks' rows.
#   Padding repeats the same rows each epoch.
# Instead: loader.data_sampler.set_epoch(epoch) before each epoch (seen below); or a DataLoader of
#   your own.
# DeepSpeed compiles a C++ operator for its own collectives on CPU; the program below leaves it out.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6 setuptools==80.9.0 wheel==0.45.1
DS_ACCELERATOR=cpu "$dir/venv/bin/pip" install -q --disable-pip-version-check --no-build-isolation deepspeed==0.19.8
cat >"$dir/program.py" <<'EOF'
import os

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
model = nn.Linear(1, 1)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
}
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    training_data=TensorDataset(torch.arange(24.0)[:, None]),
    config=config,
)


def train():
    """Train an epoch and return its rows."""
    seen = []
    for (rows,) in loader:
        seen += rows.flatten().int().tolist()
        engine.backward(engine(rows.to(engine.device)).square().mean())
        engine.step()
    return seen


plain = [train() for _ in range(3)]
told = []
for epoch in range(3):
    loader.data_sampler.set_epoch(epoch)
    told.append(train())
both = [None, None]
dist.all_gather_object(both, (plain, told))
if dist.get_rank() == 0:
    for rank, (plain, told) in enumerate(both):
        for epoch in range(3):
            print(f"deepspeed {deepspeed.__version__}  rank {rank} epoch {epoch}: {plain[epoch]}  with set_epoch: {told[epoch]}", flush=True)
for plain, told in both:
    assert plain[0] != sorted(plain[0]) and len(plain[0]) == 12, "the first epoch is shuffled"
    assert told[0] != told[1] != told[2] and sorted(told[0]) != sorted(told[1]), "set_epoch is right"
    assert plain[0] == plain[1] == plain[2], "changed: epochs have another order"
dist.destroy_process_group()
os._exit(0)  # a thread of gloo's that drops a tensor while Python ends aborts the process
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo DS_ACCELERATOR=cpu
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py" >"$dir/output" 2>&1 || {
    cat "$dir/output"
    exit 1
}
grep '^deepspeed' "$dir/output"
echo "the behaviour is as described"
