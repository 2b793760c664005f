#!/usr/bin/env bash
# skip(n) of a streamed data set skips n / ranks rows on each rank: validation rows are trained on
#
# Expected: validation = stream.take(n), training = stream.skip(n), the way in the datasets
#   guide on streaming to make two parts, are disjoint parts of the stream, on any number of ranks:
#   split_dataset_by_node deals out the rows (or the files) that are left after skip(n).
# Happens: datasets 5.2.0: where the number of files is a multiple of the ranks, the split goes
#   below skip: each rank gets its files and skips its share of n at their start. The first n
#   rows of the stream are then not the ones left out. Validation read by one process, or on
#   another number of ranks, shares rows with training; as many others are in no part. With 3
#   files on 2 ranks it is as expected. Workers of a torch DataLoader divide n in the same way
#   on one rank alone (seen, not run here).
# Where: datasets/iterable_dataset.py, SkipExamplesIterable and TakeExamplesIterable
#   (split_when_sharding, split_number).
# Who is hurt: runs that evaluate on rank 0 or in a script of its own: the validation loss is too
#   good, and how much depends on files, ranks and workers. No warning.
# Instead: choose validation rows by a filter on the row (an id, a hash) or by file. take(n) split
#   over the same ranks is disjoint from training, too (both seen below).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check datasets==5.2.0
cat >"$dir/program.py" <<'EOF'
import datasets
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node

ROWS, HELD_OUT = 24, 6


def rows(files):
    """Yield the rows of each file."""
    for file in files:
        yield from ({"id": row} for row in file)


def stream(files):
    """Return the rows 0, 1, 2, ... in so many files, one after another."""
    each = ROWS // files
    ids = [list(range(start, start + each)) for start in range(0, ROWS, each)]
    return IterableDataset.from_generator(rows, gen_kwargs={"files": ids})


def ids(part):
    return [row["id"] for row in part]


def over_ranks(part, ranks):
    return [row for rank in range(ranks) for row in ids(split_dataset_by_node(part, rank, ranks))]


print("datasets", datasets.__version__)
seen = {}
for files, ranks in ((1, 2), (2, 1), (2, 2), (3, 2), (4, 2), (4, 4)):
    data = stream(files)
    validation = ids(data.take(HELD_OUT))
    training = over_ranks(data.skip(HELD_OUT), ranks)
    assert ids(data) == list(range(ROWS)) and validation == list(range(HELD_OUT))
    both = sorted(set(training) & set(validation))
    neither = sorted(set(range(ROWS)) - set(training) - set(validation))
    seen[files, ranks] = both, neither
    print(f"{files:2} files on {ranks} ranks: in both parts {both}, in none {neither}")
    by_id = over_ranks(data.filter(lambda row: row["id"] >= HELD_OUT), ranks)
    assert sorted(by_id) == list(range(HELD_OUT, ROWS)), "a filter is right"
    assert not set(over_ranks(data.take(HELD_OUT), ranks)) & set(training), "take(n) split alike is right"
for even in ((1, 2), (2, 1), (3, 2)):
    assert seen[even] == ([], []), "changed: " + str(even)
assert seen[2, 2] == ([3, 4, 5], [12, 13, 14]), "changed: 2 files on 2 ranks"
assert all(seen[case][0] for case in ((4, 2), (4, 4))), "changed: more files"
EOF
timeout 200 "$dir/venv/bin/python" "$dir/program.py"
echo "the behaviour is as described"
