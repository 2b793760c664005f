#!/usr/bin/env bash
# gather_for_metrics of two loaders read together cuts one by the other's remainder: rows are lost
#
# Expected: for left, right in zip(one, two) over two prepared loaders (source and target domain,
#   labelled and unlabelled, two tasks), accelerator.gather_for_metrics(left) returns each row of
#   the first set once, and of the second likewise: it drops the rows that pad the last batch of the loader
#   that its argument comes from. So it does where loaders are read one after the other or nested.
# Happens: accelerate 1.15.0: the cut goes by the loader that was started last, whatever tensor is
#   given. Its short last batch cuts the other's full batch: real rows are lost (below 2 of 12),
#   in one process as well, where nothing is padded. The other way round, on 2 ranks,
#   the first loader's padding stays: 2 rows count twice. No error, no warning. The documentation
#   says that duplicates in the last batch are dropped; it does not speak of two loaders at once.
# Where: accelerate/accelerator.py, gather_for_metrics (gradient_state.remainder) and state.py,
#   GradientState.active_dataloader (the last of dataloader_references).
# Who is hurt: evaluation of paired sets (image and text, clean and perturbed, two tasks), and
#   metrics logged in a training loop over two loaders: the numbers depend on ranks and
#   on the order of the arguments of zip. accumulate() ends its window by the same flag, by source.
# Instead: put both into one data set, or gather() and cut by a row number that is part of the batch
#   (seen below: right).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat >"$dir/program.py" <<'EOF'
from importlib.metadata import version

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
size = 4 // accelerator.num_processes  # both sets make 3 steps on 1 and on 2 ranks
twelve = DataLoader(torch.arange(12), batch_size=size)
ten = DataLoader(torch.arange(10), batch_size=size)  # on 2 ranks the last batch is padded by 2 rows
twelve, ten = accelerator.prepare(twelve, ten)


def gathered(loaders, gather=accelerator.gather_for_metrics):
    """Return the rows of each loader that come out of a loop over both."""
    rows = [[] for _ in loaders]
    for batches in zip(*loaders):
        for found, batch in zip(rows, batches):
            found += gather(batch).tolist()
    return rows


def show(name, rows):
    if accelerator.is_main_process:
        print(f"accelerate {version('accelerate')}  {accelerator.num_processes} ranks  {name:34} {rows}", flush=True)
    return rows


alone = show("each alone", gathered([twelve]) + gathered([ten]))
lost = show("zip(twelve, ten)", gathered([twelve, ten]))
twice = show("zip(ten, twelve)", gathered([ten, twelve]))
numbered = [sorted(set(rows)) for rows in gathered([twelve, ten], accelerator.gather)]
show("gather() and one of each number", numbered)

assert alone == numbered == [list(range(12)), list(range(10))], "the others are right"
padding = [0, 1] if accelerator.num_processes == 2 else []
assert lost == [list(range(10)), list(range(10))], "changed: zip(twelve, ten)"
assert twice == [[*range(10), *padding], list(range(12))], "changed: zip(ten, twelve)"
accelerator.end_training()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo ACCELERATE_USE_CPU=true HF_HUB_OFFLINE=1
timeout 200 "$dir/venv/bin/python" "$dir/program.py"
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
