#!/usr/bin/env bash
# parallelize_module unties tied weights: embedding and output layer then learn apart
#
# Expected: a language model whose output layer has the embedding's weight (one Parameter, two
#   modules) keeps one weight under tensor parallelism, where the plan gives both the same
#   shards (the vocabulary over the ranks), or it raises, as fully_shard does for shared
#   parameters in two groups.
# Happens: torch 2.13.0 (2.15.0, too): each style replaces its module's weight by a new
#   Parameter made from the old one. Afterwards there are two parameters, equal at first.
#   Each gets its own half of the gradient, so that they drift apart from the first step.
#   The first loss is right; nothing warns. parameters() and state_dict() have one tensor more.
# Where: torch/distributed/tensor/parallel/style.py (the _partition_* functions of
#   ColwiseParallel and RowwiseParallel); distribute_module in tensor/_api.py goes by module.
# Who is hurt: training of GPT-2-like models with the usual plan. The run is another one than
#   on one GPU, checkpoints loaded into the tied model keep one of the two weights and lose
#   what the other learned, and the memory for the vocabulary is doubled.
# Instead: tie again after parallelize_module, model.out.weight = model.embed.weight, where both
#   have the same placements; then make the optimizer.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
tokens = torch.randint(0, 8, (6, 9), generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """A language model with a tied output layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.body = nn.Linear(16, 16)
        self.out = nn.Linear(16, 8, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.body(self.embed(tokens)).tanh())


def train(parallel, again=False):
    """Return the losses of 6 steps, the number of parameters, and how far the two weights are apart."""
    torch.manual_seed(0)
    model = Model()
    if parallel:
        plan = {
            "embed": RowwiseParallel(input_layouts=Replicate()),
            "out": ColwiseParallel(output_layouts=Replicate()),
        }
        parallelize_module(model, mesh, plan)
        assert model.embed.weight.placements == model.out.weight.placements
    if again:
        model.out.weight = model.embed.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for _ in range(6):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    apart = model.embed.weight.detach() - model.out.weight.detach()
    if parallel:
        apart = apart.full_tensor()
    return losses, len(list(model.parameters())), apart.abs().max().item()


cases = {
    "one process": train(False),
    "tensor parallel": train(True),
    "tied again": train(True, again=True),
}
if dist.get_rank() == 0:
    print("torch", torch.__version__)
    for name, (losses, count, apart) in cases.items():
        text = " ".join(f"{loss:.4f}" for loss in losses)
        print(f"{name:15}  {count} parameters  losses {text}  weights apart by {apart:.4f}", flush=True)
one, tensor_parallel, again = cases.values()
assert torch.allclose(torch.tensor(one[0]), torch.tensor(again[0]), atol=1e-4) and one[1] == again[1] == 3
assert abs(one[0][0] - tensor_parallel[0][0]) < 1e-4, "the first loss is right"
assert tensor_parallel[1] == 4 and tensor_parallel[2] > 0.01, "changed: the weights stay tied"
assert abs(one[0][-1] - tensor_parallel[0][-1]) > 0.01, "changed: the losses are one process's"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"
