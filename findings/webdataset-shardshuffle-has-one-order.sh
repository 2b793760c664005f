#!/usr/bin/env bash
# webdataset's shardshuffle shuffles once: each epoch has the shards in the same order
#
# Expected: WebDataset(urls, shardshuffle=100) shuffles the shards in every epoch, as shuffle=True
#   of torch's DataLoader does and as .shuffle(...) of samples in the same pipeline does.
# Happens: webdataset 1.0.2: the constructor draws one seed (or takes seed= or WDS_SEED), and each
#   iteration starts a new generator with that same seed. All epochs of a process have one
#   order of shards. With detshuffle=True the epoch is added to the seed, and orders differ.
#   No warning; the order differs between runs, so that it looks random.
# Where: webdataset/compat.py, WebDataset (self.seed, then
#   filters.shuffle(args.shardshuffle, seed=self.seed)).
# Who is hurt: training from shards, where the buffer of samples is far smaller than the set: the
#   order of shards is most of the shuffling. The same shards are always first (the learning
#   rate's warm-up, the cut of a short epoch) and always neighbours in a batch.
# Instead: detshuffle=True, seen below in one process (a worker that starts again each epoch
#   starts the count of epochs again, too, by source); or resampled=True.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check webdataset==1.0.2 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import sys
from importlib.metadata import version

import webdataset

EPOCHS, SHARDS, EACH = 30, 8, 3
folder = sys.argv[1]
urls = [f"{folder}/part-{shard}.tar" for shard in range(SHARDS)]
for shard, url in enumerate(urls):
    with webdataset.TarWriter(url) as writer:
        for row in range(EACH):
            writer.write({"__key__": f"{shard}{row}", "txt": str(row)})


def orders(size=0, **options):
    """Return the order of shards in each epoch, and how many orders of samples there are."""
    data = webdataset.WebDataset(urls, **options)
    if size:
        data = data.shuffle(size)
    shards, samples = [], set()
    for _ in range(EPOCHS):
        keys = [sample["__key__"] for sample in data]
        assert len(set(keys)) == SHARDS * EACH
        shards.append("".join(key[0] for key in keys[::EACH]))
        samples.add(tuple(keys))
    return shards, len(samples)


cases = {
    "shardshuffle=100": orders(shardshuffle=100),
    "the same again": orders(shardshuffle=100),
    "seed=1": orders(shardshuffle=100, seed=1),
    "detshuffle=True": orders(shardshuffle=100, detshuffle=True, seed=0),
    "shuffle(100) of samples": orders(shardshuffle=False, size=100),
}
for name, (shards, samples) in cases.items():
    print(f"webdataset {version('webdataset')}  {name:24} {samples:2} orders of samples in {EPOCHS} epochs; shards by their samples {shards[:2]}")
for name in ("shardshuffle=100", "the same again", "seed=1"):
    assert cases[name][1] == 1, "changed: " + name
assert cases["seed=1"][0][0] != "".join(map(str, range(SHARDS))), "the order is shuffled"
assert cases["detshuffle=True"][1] > 10 and cases["shuffle(100) of samples"][1] > 10
EOF
timeout 120 "$dir/venv/bin/python" "$dir/program.py" "$dir"
echo "the behaviour is as described"
