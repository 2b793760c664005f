#!/usr/bin/env bash
# Saving a checkpoint before the first step changes the training: Adam starts at step 2
#
# Expected: get_state_dict(model, optimizer) of torch.distributed.checkpoint.state_dict, which the
#   checkpoint tutorials use to save under FSDP, DDP or in one process, reads. A run that saves
#   its start has the same weights as a run that does not.
# Happens: torch 2.13.0: an optimizer without state is given one by a real step()
#   with zero gradients and lr 0, and the state stays. Adam and AdamW then count their
#   first real step as the second: with the default betas it is 0.744 of what it should be,
#   and later steps are too small as well, less and less. SGD with momentum and dampening loses
#   the first step's exemption from dampening: it is 0.1 of its size with dampening=0.9. Hooks of
#   step() run, too. No warning; the checkpoint says step 1 where no step was made.
#   get_optimizer_state_dict does the same; optimizer.state_dict() alone changes nothing.
# Where: torch/distributed/checkpoint/state_dict.py, _init_optim_state, called by
#   _get_optim_state_dict; its comment counts on a load that follows, which a save has not.
# Who is hurt: runs that save step 0 (to compare, to fork, to test that saving works), and tests
#   that two runs are equal: with and without the save they are not, also in one process.
# Instead: save after the first step; or optimizer.state.clear() after such a save (seen below).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, get_state_dict


def nothing(model, optimizer):
    pass


def both(model, optimizer):
    get_state_dict(model, optimizer)


def optimizer_only(model, optimizer):
    get_optimizer_state_dict(model, optimizer)


def own(model, optimizer):
    optimizer.state_dict()


def cleared(model, optimizer):
    get_state_dict(model, optimizer)
    optimizer.state.clear()


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.9)


def train(make, save):
    """Return how far the weight moves in the first step and in the first five."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    optimizer = make(model.parameters())
    start = model.weight.detach().clone()
    save(model, optimizer)
    assert torch.equal(model.weight, start)
    moved = []
    for _ in range(5):
        optimizer.zero_grad()
        (model(torch.ones(2, 3)) - 9).square().mean().backward()
        optimizer.step()
        moved.append((model.weight - start).norm().item())
    return moved[0], moved[-1]


for make, part in ((adam, 0.7441), (momentum, 0.1)):
    right = train(make, nothing)
    for save in (nothing, own, both, optimizer_only, cleared):
        first, fifth = (found / wanted for found, wanted in zip(train(make, save), right))
        print(f"torch {torch.__version__}  {make.__name__:8}  saved at the start: {save.__name__:14}  first step {first:.4f}, five steps {fifth:.4f} of the run without")
        if save in (both, optimizer_only):
            assert abs(first - part) < 0.001 and fifth < 0.99, "changed: " + save.__name__
        else:
            assert abs(first - 1) < 1e-6 and abs(fifth - 1) < 1e-6, save.__name__ + " is right"
EOF
OMP_NUM_THREADS=1 timeout 200 "$dir/venv/bin/python" "$dir/program.py"
echo "the behaviour is as described"
