"""Networks for segmentation of which a library publishes how much memory their training allocates.

Written from their papers and configuration values, for one purpose: to be predicted and held against
`published.csv`. What is particular to that library: a stem of three 3x3 convolutions, an auxiliary head on
the third stage, SyncBN on each GPU (as large as BatchNorm), logits that are enlarged to the labels' size.
What is particular to the PyTorch of that time (1.5 to 1.8): `log_softmax` keeps its input beside its result.
"""

import itertools
from functools import partial

import torch
from torch import nn
from torch.nn import functional


def unit(wide, narrow, size=3, stride=1, dilation=1):
    """Return a convolution with its norm and ReLU."""
    padding = dilation * (size // 2)
    conv = nn.Conv2d(wide, narrow, size, stride, padding, dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(narrow), nn.ReLU(inplace=True))


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a 3x3 between two 1x1."""

    def __init__(self, wide, inner, out, stride, dilation):
        super().__init__()
        if out == inner:
            layers = [*unit(wide, inner, 3, stride, dilation), *unit(inner, out, 3, 1, dilation)[:2]]
        else:
            layers = [
                *unit(wide, inner, 1),
                *unit(inner, inner, 3, stride, dilation),
                *unit(inner, out, 1)[:2],
            ]
        self.layers = nn.Sequential(*layers)
        is_same = wide == out and stride == 1
        self.shortcut = nn.Identity() if is_same else unit(wide, out, 1, stride)[:2]

    def forward(self, x):
        """Add the two ways."""
        out = self.layers(x)
        out += self.shortcut(x)
        return functional.relu(out, inplace=True)


DEPTHS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class Backbone(nn.Module):
    """ResNet-V1c with the last two stages dilated to an eighth of the image."""

    def __init__(self, depth):
        super().__init__()
        self.stem = nn.Sequential(*unit(3, 32, stride=2), *unit(32, 32), *unit(32, 64), nn.MaxPool2d(3, 2, 1))
        grows = 1 if depth == 18 else 4
        wide = 64
        self.stages = nn.ModuleList()
        for place, num_blocks in enumerate(DEPTHS[depth]):
            inner, dilation = 64 << place, (1, 1, 2, 4)[place]
            blocks = []
            for number in range(num_blocks):
                first = max(dilation // 2, 1) if number == 0 else dilation
                stride = 2 if place == 1 and number == 0 else 1
                blocks.append(Block(wide, inner, inner * grows, stride, first))
                wide = inner * grows
            self.stages.append(nn.Sequential(*blocks))

    def forward(self, x):
        """Return what each stage makes."""
        stages = []
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
            stages.append(x)
        return stages


class FcnHead(nn.Module):
    """Convolutions, and one over their result beside their input."""

    def __init__(self, wide, channels, num_convs, classes, *, joins):
        super().__init__()
        widths = [wide, *[channels] * num_convs]
        self.convs = nn.Sequential(*(unit(*pair) for pair in itertools.pairwise(widths)))
        self.join = unit(wide + channels, channels) if joins else None
        self.classify = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(channels, classes, 1))

    def forward(self, x):
        """Return the logits at the features' size."""
        out = self.convs(x)
        if self.join is not None:
            out = self.join(torch.cat([x, out], dim=1))
        return self.classify(out)


class PspHead(nn.Module):
    """Means over regions of four sizes beside the features."""

    def __init__(self, wide, channels, classes):
        super().__init__()
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(scale), unit(wide, channels, 1)) for scale in (1, 2, 3, 6)
        )
        self.join = unit(wide + 4 * channels, channels)
        self.classify = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(channels, classes, 1))

    def forward(self, x):
        """Return the logits at the features' size."""
        pooled = [
            functional.interpolate(pool(x), x.shape[2:], mode="bilinear", align_corners=False)
            for pool in self.pools
        ]
        return self.classify(self.join(torch.cat([x, *pooled], dim=1)))


class AsppHead(nn.Module):
    """Convolutions of four dilations and a mean over the image (DeepLabV3)."""

    def __init__(self, wide, channels, classes):
        super().__init__()
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), unit(wide, channels, 1))
        self.branches = nn.ModuleList(
            unit(wide, channels, 1 if dilation == 1 else 3, 1, dilation) for dilation in (1, 12, 24, 36)
        )
        self.join = unit(5 * channels, channels)
        self.classify = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(channels, classes, 1))

    def forward(self, x):
        """Return the logits at the features' size."""
        pooled = functional.interpolate(self.pool(x), x.shape[2:], mode="bilinear", align_corners=False)
        return self.classify(self.join(torch.cat([pooled, *(branch(x) for branch in self.branches)], dim=1)))


class Segmenter(nn.Module):
    """A backbone with two heads, each with its cross-entropy at the labels' size."""

    def __init__(self, head, depth, classes):
        super().__init__()
        wide = 512 if depth == 18 else 2048
        channels = wide // 4
        self.backbone = Backbone(depth)
        heads = {
            "fcn": lambda: FcnHead(wide, channels, 2, classes, joins=True),
            "pspnet": lambda: PspHead(wide, channels, classes),
            "deeplabv3": lambda: AsppHead(wide, channels, classes),
        }
        self.head = heads[head]()
        self.aside = FcnHead(wide // 2, channels // 2, 1, classes, joins=False)

    def forward(self, image, label):
        """Return the loss."""
        stages = self.backbone(image)
        return _loss(self.head(stages[-1]), label) + 0.4 * _loss(self.aside(stages[-2]), label)


class _LogSoftmax(torch.autograd.Function):
    """`log_softmax` over the classes as PyTorch had it until 1.10.

    Its backward took the input, for no more than its dtype, so autograd kept both (`_log_softmax` in
    tools/autograd/derivatives.yaml: `_log_softmax_backward_data(grad, result, dim, self)`). Today it takes
    `self.scalar_type()`.
    """

    @staticmethod
    def forward(ctx, logits):
        result = torch.log_softmax(logits, 1)
        ctx.save_for_backward(logits, result)
        return result

    @staticmethod
    def backward(ctx, grad):
        logits, result = ctx.saved_tensors
        return torch.ops.aten._log_softmax_backward_data(grad, result, 1, logits.dtype)


def _loss(logits, label):
    large = functional.interpolate(logits, label.shape[1:], mode="bilinear", align_corners=False)
    losses = functional.nll_loss(_LogSoftmax.apply(large), label, ignore_index=255, reduction="none")
    return losses.mean()


def __getattr__(name):
    """Return what makes a network, for `segmentation:fcn_50_19_...`: its head, depth and classes."""
    head, _, sizes = name.partition("_")
    if not sizes or not sizes[0].isdigit():
        raise AttributeError(name)
    depth, classes, *_ = map(int, sizes.split("_"))
    return partial(Segmenter, head, depth, classes)
