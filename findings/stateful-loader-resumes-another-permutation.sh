#!/usr/bin/env bash
# torchdata's StatefulDataLoader resumes a RandomSampler of yours in another permutation
#
# Expected: StatefulDataLoader's state, saved in the middle of an epoch and loaded into the same loader
#   in a new process, goes on with the rest of that epoch, for torch's RandomSampler given as sampler=
#   as for shuffle=True. torchdata's tutorial says of both RandomSampler and BatchSampler of
#   torch.utils.data that importing torchdata.stateful_dataloader patches them, so that a sampler with
#   a state of its own is not needed.
# Happens: torchdata 0.11.0 with torch 2.13.0: nothing is patched. shuffle=True makes torchdata's own
#   sampler, whose state has the generator. A RandomSampler (or SubsetRandomSampler, the usual one
#   for a training part of a set, or BatchSampler(RandomSampler)) is torch's: the loader only counts
#   what it gave out, and after the load skips as many positions of a newly drawn
#   permutation. The same seed in both processes helps in the first epoch only. No warning, and the
#   number of steps is right: some rows are trained on twice in that epoch and others never. A
#   generator= of its own does not help either.
# Where: torchdata/stateful_dataloader/stateful_dataloader.py (_sampler_iter_yielded) and sampler.py
#   (its RandomSampler is another class than torch's).
# Who is hurt: long epochs that are resumed: each restart gives rows a second time. shuffle=True
#   changed to sampler=RandomSampler(data) or num_samples=... loses the exact resume unseen.
# Instead: shuffle=True, or torchdata.stateful_dataloader.sampler.RandomSampler (both seen below).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6 torchdata==0.11.0
cat >"$dir/program.py" <<'EOF'
import sys
from importlib.metadata import version

import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader import sampler as stateful
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler

data = range(12)
loaders = {
    "shuffle=True": lambda: StatefulDataLoader(data, 2, shuffle=True),
    "torchdata's RandomSampler": lambda: StatefulDataLoader(data, 2, sampler=stateful.RandomSampler(data)),
    "torch's RandomSampler": lambda: StatefulDataLoader(data, 2, sampler=RandomSampler(data)),
    "SubsetRandomSampler": lambda: StatefulDataLoader(data, 2, sampler=SubsetRandomSampler(data)),
    "BatchSampler(RandomSampler)": lambda: StatefulDataLoader(
        data, batch_sampler=BatchSampler(RandomSampler(data), 2, drop_last=False)
    ),
    "RandomSampler with a generator": lambda: StatefulDataLoader(
        data, 2, sampler=RandomSampler(data, generator=torch.Generator().manual_seed(5))
    ),
}


def rows(batches):
    return [int(row) for batch in batches for row in batch]


if sys.argv[1] == "start":  # epoch 0, then half of epoch 1
    saved = {}
    for name, make in loaders.items():
        torch.manual_seed(0)
        loader = make()
        rows(loader)
        batches = iter(loader)
        first = rows([next(batches) for _ in range(3)])
        saved[name] = (first, loader.state_dict(), rows(batches))
    torch.save(saved, sys.argv[2])
else:
    for name, (first, state, rest) in torch.load(sys.argv[2], weights_only=False).items():
        torch.manual_seed(0)
        loader = loaders[name]()
        loader.load_state_dict(state)
        resumed = rows(loader)
        twice = sorted(set(first) & set(resumed))
        print(f"torchdata {version('torchdata')}  {name:30} first half {first}  rest {rest}  resumed with {resumed}  twice: {twice}", flush=True)
        assert len(resumed) == 6
        if name in ("shuffle=True", "torchdata's RandomSampler"):
            assert resumed == rest, name + " is right"
        else:
            assert twice, "changed: " + name
EOF
export OMP_NUM_THREADS=1
for part in start resume; do
    timeout 200 "$dir/venv/bin/python" "$dir/program.py" $part "$dir/state.pt"
done
echo "the behaviour is as described"
