#!/usr/bin/env bash
# ZeroRedundancyOptimizer.load_state_dict empties the caller's state dict
#
# Expected: load_state_dict(state) reads `state`, the whole optimizer's state that all ranks have
#   loaded, takes its rank's part and leaves the dict as it was, as torch's optimizers do. The same
#   dict can be saved again, or loaded by an optimizer that is not sharded.
# Happens: torch 2.13.0: on each rank the state of every parameter that belongs to another rank is
#   replaced by None in the caller's dict. A checkpoint saved from that dict afterwards lacks the
#   moments of all but one rank's parameters, without an error or a warning; the
#   documentation is silent. The dict still has all its keys, so that a comparison of keys
#   finds nothing.
# Where: torch/distributed/optim/zero_redundancy_optimizer.py, load_state_dict (the branch that clears
#   state irrelevant to the rank writes to state_dict["state"]).
# Who is hurt: programs that load a checkpoint and write it out again: a copy with another name,
#   a best-so-far in memory until a better one comes, a conversion for evaluation or for one GPU.
#   Who loads the copy later finds no state for most parameters.
# Instead: load_state_dict(copy.deepcopy(state)) (seen below: the dict is whole; a shallow copy is not
#   enough, as the inner dict is the one that changes).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import copy
import io
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()


def build(sharded):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))
    if sharded:
        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def with_state(state):
    """Return the parameters whose moments are in the dict after a save and a load."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)["state"]
    return sorted(index for index, values in saved.items() if values is not None)


def show(name, state):
    both = [None, None]
    dist.all_gather_object(both, (sorted(state["state"]), with_state(state)))
    if rank == 0:
        for place, (keys, found) in enumerate(both):
            print(f"torch {torch.__version__}  {name:49} rank {place}: keys {keys}  moments of {found}", flush=True)
    return [found for _, found in both]


model, optimizer = build(sharded=True)
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
optimizer.consolidate_state_dict(to=0)
whole = [optimizer.state_dict() if rank == 0 else None]
dist.broadcast_object_list(whole, src=0)
state = whole[0]

results = []
for name, sharded, load in (
    ("plain Adam", False, lambda state: state),
    ("ZeroRedundancyOptimizer, a deep copy", True, copy.deepcopy),
    ("ZeroRedundancyOptimizer, a shallow copy", True, dict),
    ("ZeroRedundancyOptimizer", True, lambda state: state),
):
    mine = copy.deepcopy(state)
    build(sharded)[1].load_state_dict(load(mine))
    results.append(show("loaded by " + name, mine))
plain, deep, shallow, direct = results
assert plain == deep == [[0, 1, 2, 3]] * 2, "the others are right"
for emptied in (shallow, direct):
    assert set(emptied[0]) | set(emptied[1]) == {0, 1, 2, 3}, "the ranks' parts"
    assert not set(emptied[0]) & set(emptied[1]) and all(emptied), "changed: load_state_dict"
dist.destroy_process_group()
os._exit(0)  # a thread of gloo's that drops a tensor while Python ends aborts the process
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
