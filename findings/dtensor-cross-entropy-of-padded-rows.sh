#!/usr/bin/env bash
# cross_entropy of row-sharded DTensors is the mean of the shards' means, its gradient is not
#
# Expected: F.cross_entropy(logits, labels) with rows sharded over ranks and padding labelled
#   ignore_index (-100) is one process's mean over the rows that count; or it raises, as it
#   does where shards are uneven, with the reason that the mean would be biased.
# Happens: torch 2.13.0 checks that the rows are even, not that the ignored ones are. The
#   loss is the plain mean of each shard's mean, so that a shard with one token left weighs
#   as much as a full one; a shard with padding only turns the whole loss into nan. The same
#   with weight=, with even numbers of rows. The gradient is the right one (total_weight
#   is a sum over ranks), so it is not the gradient of the loss returned, and training is
#   right where the loss, if not nan, is wrong. 2.15.0 gives the right loss (seen): an upgrade
#   changes the logged numbers.
# Where: torch/distributed/tensor/_ops/_math_ops.py, nll_loss_forward_strategy (the output
#   of a mean gets Partial("avg"), total_weight a Partial sum).
# Who is hurt: language models with padding at the end of a batch or a sequence: logged
#   losses, perplexity, early stopping and checks for nan see another number than one process.
# Instead: reduction="sum" and a division by the number of labels that count.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)) * 2
weight = torch.tensor([1.0, 2, 3, 4, 5])


def losses(labels, by_hand=False, weight=None):
    """Return the loss of one process, the loss of the DTensors, and their gradients."""
    one = logits.clone().requires_grad_()
    loss = F.cross_entropy(one, labels, weight=weight)
    loss.backward()
    rows = distribute_tensor(logits, mesh, [Shard(0)]).requires_grad_()
    split = distribute_tensor(labels, mesh, [Shard(0)])
    if weight is not None:
        weight = distribute_tensor(weight, mesh, [Replicate()])
    reduction = "sum" if by_hand else "mean"
    sharded = F.cross_entropy(rows, split, weight=weight, reduction=reduction)
    if by_hand:
        sharded = sharded / (labels != -100).sum().item()
    sharded.backward()
    return loss.item(), sharded.full_tensor().item(), one.grad, rows.grad.full_tensor()


even = torch.tensor([1, 2, 3, 4, 0, 2, 3, 1])
padded = torch.tensor([1, 2, 3, 4, 0, -100, -100, -100])
empty = torch.tensor([1, 2, 3, 4, -100, -100, -100, -100])
cases = {
    "no padding": losses(even),
    "4 and 1 labels": losses(padded),
    "4 and 0 labels": losses(empty),
    "class weights": losses(even, weight=weight),
    "sum / count": losses(padded, by_hand=True),
}
if dist.get_rank() == 0:
    print("torch", torch.__version__)
    for name, (one, sharded, grad, split_grad) in cases.items():
        same = torch.allclose(grad, split_grad, atol=1e-6)
        print(f"{name:15}  one process {one:.4f}  DTensor {sharded:.4f}  same gradient {same}", flush=True)
for name, (one, sharded, grad, split_grad) in cases.items():
    assert torch.allclose(grad, split_grad, atol=1e-6), "changed: gradient of " + name
    right = math.isclose(one, sharded, rel_tol=1e-4)
    assert right == (name in ("no padding", "sum / count")), "changed: " + name
assert math.isnan(cases["4 and 0 labels"][1]), "changed: a shard of padding"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
