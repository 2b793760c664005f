#!/usr/bin/env bash
# torchelastic's sampler resumes at a row number, not at a place in the epoch's shuffled order
#
# Expected: ElasticDistributedSampler(data, start_index=n), made after a restart when n rows of an
#   epoch are done, goes on with the rows that are left: over both parts of the epoch each row is
#   drawn once (or padded once). That is the use of start_index in elastic training, where the
#   number of ranks may change and a place per rank has no meaning.
# Happens: torch 2.13.0: the sampler always shuffles. start_index takes the rows 0 to n - 1 of
#   the data set away and shuffles the rest; but the n rows that were done are the first n of the
#   shuffled order, and those are others. With half of an epoch done about half of the resumed
#   rows have been trained on already, and as many are left out of the epoch. No
#   warning; the number of steps is right. No argument turns shuffling off. If start_index stays
#   set, the next epochs lack the first n rows, too.
# Where: torch/distributed/elastic/utils/data/elastic_distributed_sampler.py, __iter__
#   (torch.randperm(len(dataset) - start_index).add(start_index)).
# Who is hurt: long epochs on machines that come and go: each restart weighs rows unevenly, and
#   the first rows of the file are the ones that are lost again and again.
# Instead: cut the order: permutation by seed and epoch on every rank, [n:], then [rank::ranks]
#   (seen below: each row once, from 2 ranks to 3).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
from torch.distributed.elastic.utils.data import ElasticDistributedSampler

ROWS, DONE = 24, 12


def elastic(ranks, start):
    """Return the rows of each rank by the sampler, in epoch 0."""
    make = ElasticDistributedSampler
    return [list(make(range(ROWS), ranks, rank, start_index=start)) for rank in range(ranks)]


def by_order(ranks, start):
    """Return the rows of each rank by the place in the epoch's order."""
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0)).tolist()[start:]
    return [order[rank::ranks] for rank in range(ranks)]


seen = {}
for split in (elastic, by_order):
    assert sorted(sum(split(2, 0), [])) == list(range(ROWS)), "a whole epoch is right"
    for ranks in (2, 3):
        done = sum((rows[: DONE // 2] for rows in split(2, 0)), [])
        rest = sum(split(ranks, DONE), [])
        twice = sorted(set(done) & set(rest))
        never = sorted(set(range(ROWS)) - set(done) - set(rest))
        seen[split, ranks] = len(twice), len(never)
        print(f"torch {torch.__version__}  {split.__name__:8}  {DONE} of {ROWS} rows done on 2 ranks, {len(rest)} more on {ranks}: twice {twice}, never {never}")
for ranks in (2, 3):
    twice, never = seen[elastic, ranks]
    assert twice > 0 and never > 0, "changed: the sampler goes on with what is left"
    assert seen[by_order, ranks] == (0, 0), "cutting the order is right"
EOF
export OMP_NUM_THREADS=1
timeout 100 "$dir/venv/bin/python" "$dir/program.py"
echo "the behaviour is as described"
