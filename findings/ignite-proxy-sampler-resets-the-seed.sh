#!/usr/bin/env bash
# ignite's DistributedProxySampler sets torch's global seed to the epoch: every run has one dropout
#
# Expected: ignite.distributed.auto_dataloader wraps a sampler of yours (weighted, balanced, by
#   length) so that each rank takes its part of one order. torch.manual_seed(seed + rank) in the
#   program, the usual way to another dropout on each rank and in each run, keeps its effect, as
#   it does with torch's DistributedSampler, which has a generator of its own.
# Happens: pytorch-ignite 0.5.4: each iter() of the sampler calls torch.manual_seed(epoch). The
#   program's seed no longer matters from the first batch of each epoch on: another seed gives the
#   same order of samples, the same dropout masks and the same noise, and all ranks
#   draw the same masks for their different rows. No warning.
# Where: ignite/distributed/auto.py, DistributedProxySampler.__iter__.
# Who is hurt: runs repeated with several seeds to report a spread: only the initial weights
#   differ. Diffusion, VAE and dropout training draws the same noise on every rank, so that a
#   batch over N ranks has 1/N of the noise's variety.
# Instead: a subclass whose __iter__ calls the proxy's in torch.random.fork_rng() (seen below); or
#   shuffle by torch's DistributedSampler, which auto_dataloader takes for data without a sampler.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6 pytorch-ignite==0.5.4
cat >"$dir/program.py" <<'EOF'
import importlib.metadata

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.distributed.auto import DistributedProxySampler
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

idist.initialize("gloo")
rank = idist.get_rank()
rows = list(range(16))
drop = nn.Dropout(0.5)


class Kept(DistributedProxySampler):
    """The proxy, with the program's random state as it was before."""

    def __iter__(self):
        with torch.random.fork_rng():
            return super().__iter__()


def masks(loader, seed):
    """Return samples and dropout masks of one epoch after the program's own seed."""
    torch.manual_seed(seed + rank)
    found = [(batch.tolist(), (drop(torch.ones(8)) > 0).int().tolist()) for batch in loader]
    return [batch for batch, _ in found], [mask for _, mask in found]


def compare(name, loader):
    """Return whether order and masks are alike for two seeds, and masks on both ranks."""
    order, first = masks(loader, 1)
    other_order, second = masks(loader, 1001)
    everyone = [None, None]
    dist.all_gather_object(everyone, first)
    found = order == other_order, first == second, everyone[0] == everyone[1]
    if rank == 0:
        ignite, version = importlib.metadata.version("pytorch-ignite"), torch.__version__
        print(f"ignite {ignite}, torch {version}  {name:18}  two seeds: same order {found[0]!s:5}  same masks {found[1]!s:5}  two ranks: same masks {found[2]}", flush=True)
        print(f"  seed 1: first batch {order[0]}, mask {first[0]};  seed 1001: {other_order[0]}, {second[0]}", flush=True)
    return found


sampler = WeightedRandomSampler([1.0] * 16, 16)
proxy = idist.auto_dataloader(rows, batch_size=4, sampler=sampler)
kept = DataLoader(rows, batch_size=2, sampler=Kept(sampler))
plain = DataLoader(rows, batch_size=2, sampler=DistributedSampler(rows))
assert compare("auto_dataloader", proxy) == (True, True, True), "changed: the seed has an effect"
assert compare("in fork_rng", kept)[1:] == (False, False)
assert compare("DistributedSampler", plain)[1:] == (False, False)
idist.finalize()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
