#!/usr/bin/env bash
# set_model_state_dict puts the live parameters into the caller's dict: a saved copy trains along
#
# Expected: set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True,
#   broadcast_from_rank0=True)) reads `state`, whose full tensors rank 0 has loaded, as
#   module.load_state_dict does; `state` can be loaded again later, into this or another model.
# Happens: torch 2.13.0: the dict itself is rewritten. On rank 0 each full tensor is replaced by a
#   DTensor that shares its memory with the parameter of the sharded model. After one optimizer
#   step the "saved" weights are the trained ones, without an error or a warning; a comparison
#   before the step finds them right. The full tensors are gone unless another name holds
#   them. The empty dict of the other ranks stays empty. Without broadcast_from_rank0 the
#   dict is rewritten on every rank, with DTensors of their own memory (seen below): their values
#   stay, but they are sharded ones.
# Where: torch/distributed/checkpoint/state_dict.py, _load_model_state_dict
#   (state_dict.update(local_state_dict)); torch/distributed/_state_dict_utils.py,
#   _distribute_tensors, copies into the parameter's own local tensor and passes that on.
# Who is hurt: fine-tuning under FSDP2 that starts from weights kept in memory and goes back to
#   them (restarts, best weights, learning-rate search), and teachers or reference models
#   filled from the same dict later: the reference is the trained model.
# Instead: pass a shallow copy, dict(state) (seen below: the caller's tensors stay as they were).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
rank = dist.get_rank()


def local(value):
    """Return this rank's part of a DTensor, or the tensor itself."""
    return (value.to_local() if isinstance(value, DTensor) else value).detach()


def run(name, broadcast, copy):
    """Return type, shared memory, and the change of the caller's weight by a step on this rank."""
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    loaded = {key: value.detach().clone() for key, value in model.state_dict().items()}
    state = loaded if rank == 0 or not broadcast else {}
    fully_shard(model)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
    set_model_state_dict(model, dict(state) if copy else state, options=options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if "weight" not in state:
        kind, shares, before = "absent", False, None
    else:
        kind = type(state["weight"]).__name__
        parameter = model.weight.to_local().untyped_storage().data_ptr()
        shares = local(state["weight"]).untyped_storage().data_ptr() == parameter
        before = local(state["weight"]).clone()
    start = model.weight.to_local().detach().clone()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight.to_local(), start), "the step trains"
    moved = 0.0 if before is None else (local(state["weight"]) - before).abs().max().item()
    print(f"torch {torch.__version__}  {name:26}  rank {rank}: weight in the caller's dict: {kind:7}  shares memory: {shares!s:5}  moved by {moved:.3f}", flush=True)
    dist.barrier()
    return kind, shares, moved


kind, shares, moved = run("broadcast_from_rank0", True, False)
if rank == 0:
    assert kind == "DTensor" and shares and moved > 0.1, "changed: the caller's dict is left alone"
kind, shares, moved = run("full_state_dict alone", False, False)
assert kind == "DTensor" and not shares and moved == 0, "changed without broadcast"
kind, shares, moved = run("broadcast, shallow copy", True, True)
assert kind == ("Tensor" if rank == 0 else "absent") and not shares and moved == 0, "a copy is right"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
