#!/usr/bin/env bash
# The first step of a pipeline updates BatchNorm's running statistics from memory left over
#
# Expected: a pipelined step with 4 micro-batches updates the running statistics of each
#   BatchNorm 4 times, with the micro-batches, as a loop over them does in one process. The
#   search for the shapes between stages needs no numbers, and leaves the modules alone.
# Happens: torch 2.13.0: the first step finds the shapes by running each stage's forward once
#   more, in training mode, with real tensors. The first stage sees its first micro-batch twice.
#   Each later stage sees torch.empty: whatever lies in memory goes into running_mean and
#   running_var (four runs: variances of inf, nan, 6e27, and zeros that bend the means). Training
#   does not show it, as it takes the statistics of the micro-batch. inf and nan never decay: in
#   eval mode the layer returns its bias or nan. num_batches_tracked is 5 in place of 4. 2.15.0 keeps
#   the buffers (seen). The same forward also counts in counters and draws from dropout.
# Where: torch/distributed/pipelining/stage.py, PipelineStage._forward_metadata_inference and
#   _to_tensor, with TensorMeta.to_tensor in _utils.py.
# Who is hurt: convolutional networks in a pipeline: training losses look right, evaluation
#   is wrong or nan, and differs from run to run; so does a checkpoint of the buffers.
# Instead: give PipelineStage input_args and output_args, with requires_grad as in training, and
#   no forward is made to find them (seen below); or save the buffers and put them back.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)) + 5
target = torch.randn(8, 4, generator=torch.Generator().manual_seed(2))


def first_step(**shapes):
    """Return this rank's BatchNorm after one step, and after a loop over the micro-batches."""
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    loop, twice = copy.deepcopy(stages), copy.deepcopy(stages)
    stage = PipelineStage(stages[rank], rank, 2, torch.device("cpu"), **shapes)
    schedule = ScheduleGPipe(stage, 4, loss_fn=F.mse_loss)
    if rank == 0:
        schedule.step(rows)
    else:
        schedule.step(target=target)
    for chunk in rows.chunk(4):
        loop[1](loop[0](chunk))
    for chunk in [rows.chunk(4)[0], *rows.chunk(4)]:
        twice[0](chunk)
    return stages[rank][1], loop[rank][1], twice[0][1]


found, loop, twice = first_step()
inputs, outputs = torch.empty(2, 4, requires_grad=rank == 1), torch.empty(2, 4, requires_grad=True)
given, again, _ = first_step(input_args=(inputs,), output_args=(outputs,))
for turn in range(2):
    dist.barrier()
    if turn == rank:
        print("torch", torch.__version__, "stage", rank)
        for name, norm in (("a loop", loop), ("pipeline", found), ("shapes given", given)):
            mean = [float(f"{value:.4g}") for value in norm.running_mean]
            var = [float(f"{value:.4g}") for value in norm.running_var]
            print(f"  {name:13} {norm.num_batches_tracked.item()} batches  mean {mean}  var {var}", flush=True)


def same(one, other):
    return all(torch.allclose(one.get_buffer(key), other.get_buffer(key)) for key in ("running_mean", "running_var"))


assert loop.num_batches_tracked == given.num_batches_tracked == 4
assert same(given, again), "with shapes given the buffers are right"
assert found.num_batches_tracked == 5, "changed: no extra forward"
assert not same(found, loop), "changed: the buffers are right"
assert rank or same(found, twice), "changed: the first stage does not see the first micro-batch twice"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
