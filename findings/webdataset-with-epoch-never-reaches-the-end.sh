#!/usr/bin/env bash
# webdataset's with_epoch(n) begins each epoch at the start: what comes after n is never read
#
# Expected: with_epoch(n), which gives every rank epochs of the same length, is a mark in an
#   endless stream: where a rank has more than n samples, the next epoch goes on with
#   the rest, so that over the epochs all samples are read about equally often.
# Happens: webdataset 1.0.2: each iteration starts the whole pipeline again and stops after n
#   samples. Where shards are read in order, the same first n samples of a rank are all
#   that it ever reads; shuffle(size) moves the limit on by at most size samples, and they
#   come rarely. Whole shards are never opened. No error, no warning; the number of samples of
#   an epoch is what one asked for. One iterator that is kept over epochs does not help: it
#   ends after n.
# Where: webdataset/pipeline.py, DataPipeline.with_epoch and iterator (islice of a new iterator).
# Who is hurt: training with another number of samples per rank, for which with_epoch is the usual
#   way: with n for the smallest rank (or too small by a wrong estimate) the rest of larger
#   ranks is lost, in each worker of a loader as well, where n counts per worker.
# Instead: WebDataset(..., shardshuffle=N, detshuffle=True), so that each epoch begins with another
#   shard (seen below: all samples are read; shardshuffle alone keeps one order for all
#   epochs), or resampled=True; count the keys of some epochs once.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check webdataset==1.0.2 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import sys
from collections import Counter

import webdataset

EPOCHS, SHARDS, EACH = 100, 6, 4
folder = sys.argv[1]
for shard in range(SHARDS):
    with webdataset.TarWriter(f"{folder}/part-{shard}.tar") as writer:
        for row in range(shard * EACH, (shard + 1) * EACH):
            writer.write({"__key__": f"{row:03}", "txt": str(row)})
urls = [f"{folder}/part-{shard}.tar" for shard in range(SHARDS)]


def part(rank):
    """Return a splitter that gives rank 0 four shards and rank 1 the other two."""
    return lambda source: (url for index, url in enumerate(source) if (index < 4) == (rank == 0))


def read(rank, length, size=0, **options):
    """Return how often each sample of the rank was read in all epochs, and the lengths of epochs."""
    data = webdataset.WebDataset(urls, nodesplitter=part(rank), **{"shardshuffle": False, **options})
    if size:
        data = data.shuffle(size)
    data = data.with_epoch(length)
    seen, lengths = Counter(), set()
    for _ in range(EPOCHS):
        keys = [int(sample["__key__"]) for sample in data]
        seen.update(keys)
        lengths.add(len(keys))
    return seen, lengths


cases = {
    "rank 0, 16 samples": (16, read(0, 8)),
    "rank 1, 8 samples": (8, read(1, 8)),
    "rank 0, shuffle(3)": (16, read(0, 8, size=3)),
    "rank 0, shards shuffled": (16, read(0, 8, shardshuffle=100, detshuffle=True, seed=0)),
}
for name, (has, (seen, lengths)) in cases.items():
    print(f"webdataset {webdataset.__version__}  {name:24} epochs of {lengths}: in {EPOCHS} epochs {len(seen)} of {has} samples are read, the last one is {max(seen)}")
    assert lengths == {8}
assert set(cases["rank 0, 16 samples"][1][0].values()) == {EPOCHS}, "changed: another epoch is another part"
assert max(cases["rank 0, 16 samples"][1][0]) == 7, "changed: the end is read"
assert max(cases["rank 0, shuffle(3)"][1][0]) < 12, "changed: the end is read with a buffer"
assert len(cases["rank 1, 8 samples"][1][0]) == 8
assert len(cases["rank 0, shards shuffled"][1][0]) == 16, "shuffled shards are right"
EOF
timeout 120 "$dir/venv/bin/python" "$dir/program.py" "$dir"
echo "the behaviour is as described"
