#!/usr/bin/env bash
# Optimizer.load_state_dict keeps the caller's tensors: two optimizers loaded from it share their state
#
# Expected: optimizer.load_state_dict(state) copies, as module.load_state_dict does. `state`, a deep
#   copy kept as the best so far or as the start of several runs, can be loaded again later,
#   and two optimizers that load it have nothing to do with each other.
# Happens: torch 2.13.0: where dtype and device fit, the tensors of `state` themselves become the
#   optimizer's moments and step count, and each step() changes them in place. After a few steps
#   the "saved" state is the trained one, so that the second return to it goes back
#   with the weights, but not with Adam's moments. Two replicas loaded from one dict share moments: a
#   step of one moves the other's, and each counts the steps of both. No error, no warning; the
#   documentation of load_state_dict is silent.
# Where: torch/optim/optimizer.py, load_state_dict (a shallow copy) and
#   _process_value_according_to_param_policy (value.to, which returns the same tensor).
# Who is hurt: learning-rate search, restarts after a bad step and population training that go back
#   more than once to weights kept in memory; several models of one process (members of an
#   ensemble, simulated ranks or federated clients) that start from one checkpoint. From a file
#   that is read again each time, or onto another device, it is right.
# Instead: load_state_dict(copy.deepcopy(state)) each time (seen below: equal to the first run).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import copy

import torch
from torch import nn

rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


def build():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


model, optimizer = build()
train(model, optimizer, 3)
kept = copy.deepcopy([model.state_dict(), optimizer.state_dict()])


def return_and_train(load):
    """Go back to what was kept, train 5 steps, and return the weight."""
    model, optimizer = build()
    model.load_state_dict(kept[0])
    optimizer.load_state_dict(load(kept[1]))
    train(model, optimizer, 5)
    return model.weight.detach().clone()


copied = [return_and_train(copy.deepcopy) for _ in range(2)]
print(f"torch {torch.__version__}  two returns, each with a copy of the state: {[weight.tolist() for weight in copied]}")
before = kept[1]["state"][0]["step"].item()
plain = [return_and_train(lambda state: state) for _ in range(2)]
after = kept[1]["state"][0]["step"].item()
print(f"torch {torch.__version__}  two returns to the same dict:               {[weight.tolist() for weight in plain]}")
print(f"torch {torch.__version__}  step in the kept dict: {before} before, {after} after")

replicas = [build() for _ in range(2)]
state = copy.deepcopy(optimizer.state_dict())
for _, other in replicas:
    other.load_state_dict(state)
train(*replicas[0], 4)
counts = [other.state_dict()["state"][0]["step"].item() for _, other in replicas]
print(f"torch {torch.__version__}  the first replica makes 4 steps more than 3; the counts: {counts}")

weights = copy.deepcopy(model.state_dict())
other = nn.Linear(3, 1)
other.load_state_dict(weights)
with torch.no_grad():
    other.weight.zero_()
assert weights["weight"].any(), "module.load_state_dict copies"
assert torch.equal(*copied) and torch.equal(copied[0], plain[0]), "a copy is right"
assert not torch.allclose(plain[0], plain[1], atol=1e-3), "changed: the second return"
assert (before, after, counts) == (3, 13, [7, 7]), "changed: the kept dict"
EOF
export OMP_NUM_THREADS=1
timeout 200 "$dir/venv/bin/python" "$dir/program.py"
echo "the behaviour is as described"
