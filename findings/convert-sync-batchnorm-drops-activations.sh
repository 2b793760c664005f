#!/usr/bin/env bash
# convert_sync_batchnorm takes the activations out of timm models
#
# Expected: torch.nn.SyncBatchNorm.convert_sync_batchnorm changes where statistics come from; in
#   eval mode, or on one rank, the converted model computes the same as before. A subclass of
#   BatchNorm2d with a forward of its own is left as it is, or refused.
# Happens: torch 2.13.0 with timm 1.0.31: every subclass of BatchNorm is replaced by a plain
#   SyncBatchNorm, and what the subclass does besides is lost. timm's BatchNormAct2d (in
#   EfficientNet, MobileNet, RegNet and others) has the activation and the dropout in it: the
#   converted model has hardly any activation left. All weights are there, shapes fit, state_dict
#   keys are the same, and nothing warns. Forward hooks of the
#   BatchNorm layers are lost as well. ResNet, whose activations are modules of the block, is fine.
# Where: torch/nn/modules/batchnorm.py, SyncBatchNorm.convert_sync_batchnorm (isinstance of
#   _BatchNorm); timm/layers/norm_act.py has the class, and a conversion of its own.
# Who is hurt: Lightning's Trainer(sync_batchnorm=True) and most DDP scripts call torch's (lightning
#   2.6.6, pytorch/plugins/layer_sync.py, by source): pretrained weights give noise, training from
#   scratch gives a nearly linear network, and only on several GPUs.
# Instead: timm.layers.convert_sync_batchnorm (seen below: the same output); compare the output in
#   eval mode before and after any conversion; register hooks after it.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6 timm==1.0.31 torchvision==0.28.0 pillow==12.0.0
# torchvision's wheel may be built for CUDA and torch's not: then two names that it asks for at
# import are declared first. Nothing here calls them.
declare=0
"$dir/venv/bin/python" -c "import torchvision" 2>/dev/null || declare=1
cat >"$dir/program.py" <<'EOF'
import sys

import torch
from torch import nn

if sys.argv[1] == "1":
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm
from timm.layers import convert_sync_batchnorm

print("torch", torch.__version__, "timm", timm.__version__)
image = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def compare(name, convert):
    """Return how far the output moves by the conversion, and the calls of hooks before and after."""
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    calls = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda *_: calls.append(1))
    before, hooked = model(image), len(calls)
    keys = list(model.state_dict())
    model = convert(model)
    calls.clear()
    after = model(image)
    assert list(model.state_dict()) == keys and after.shape == before.shape
    return ((after - before).norm() / before.norm()).item(), hooked, len(calls)


changed = {}
for name in ("resnet18", "regnetx_002", "mobilenetv3_small_050"):
    for kind, convert in (
        ("torch", nn.SyncBatchNorm.convert_sync_batchnorm),
        ("timm", convert_sync_batchnorm),
    ):
        moved, hooked, left = compare(name, convert)
        changed[name, kind] = moved
        print(f"{name:22} converted by {kind:5}  output moves by {moved:.4g} of its norm  hooks called {hooked}, then {left}")
        if kind == "torch":
            assert hooked and not left, "changed: hooks stay"
assert all(value < 1e-5 for (name, kind), value in changed.items() if kind == "timm" or name == "resnet18")
assert changed["regnetx_002", "torch"] > 0.1, "changed: RegNet keeps its activations"
assert changed["mobilenetv3_small_050", "torch"] > 0.1, "changed: MobileNet keeps its activations"
EOF
OMP_NUM_THREADS=1 timeout 150 "$dir/venv/bin/python" "$dir/program.py" "$declare"
echo "the behaviour is as described"
