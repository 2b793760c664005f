#!/usr/bin/env bash
# torch.distributed.nn.functional.broadcast sends its gradient to another rank in a sub-group
#
# Expected: torch.distributed.nn.functional.broadcast(tensor, src, group) takes `src` as dist.broadcast does,
#   a rank of the whole world, and sends the gradients of all ranks of the group back to that rank.
# Happens: in torch 2.13.0 forward goes by the world's number and backward by the group's: it compares `src` with
#   dist.get_rank(group). In a group of ranks 1 and 2 with src=1, rank 1, whose tensor it was, gets a gradient of
#   zeros, and rank 2 keeps one that nobody asked for. A group that begins with rank 0 hides it.
# Where: torch/distributed/nn/functional.py, _Broadcast.backward (scatter and gather there compare alike).
# Who is hurt: whoever trains through a broadcast inside a data-parallel or tensor-parallel sub-group: the loss is
#   right on each rank, and the tensor is never trained. No warning.
# Instead: all_gather with gradients and take the source's part, or a DTensor that is replicated over the mesh.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat > "$folder/train.py" << 'PROGRAM'
import os

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import broadcast

dist.init_process_group("gloo")
rank = dist.get_rank()
for members, source in (([0, 1], 0), ([1, 2], 1)):
    group = dist.new_group(members)
    if rank in members:
        tensor = torch.tensor([float(10 + rank)], requires_grad=True)
        received = broadcast(tensor, source, group)
        received.sum().backward()
        line = f"group {members}, source {source}: rank {rank} received {received.item()}, gradient {tensor.grad.item()}\n"
        with open(os.path.join(os.environ["OUT"], f"{members[0]}-{rank}.txt"), "w") as out:
            out.write(line)
    dist.barrier()
dist.destroy_process_group()
PROGRAM
mkdir "$folder/out"
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
OUT="$folder/out" timeout 120 "$folder/venv/bin/python" -m torch.distributed.run --standalone \
    --nproc-per-node 3 "$folder/train.py" > "$folder/log.txt" 2>&1 || { cat "$folder/log.txt"; exit 1; }
"$folder/venv/bin/python" -c "import torch; print('torch', torch.__version__)"
cat "$folder"/out/*.txt
grep -q "group \[0, 1\], source 0: rank 0 received 10.0, gradient 2.0" "$folder/out/0-0.txt"
grep -q "group \[0, 1\], source 0: rank 1 received 10.0, gradient 0.0" "$folder/out/0-1.txt"
grep -q "group \[1, 2\], source 1: rank 1 received 11.0, gradient 0.0" "$folder/out/1-1.txt"
! grep -q "gradient 0.0" "$folder/out/1-2.txt"
echo "as found: the source of a group that does not begin with rank 0 gets no gradient"
