"""Networks for videos of which a library publishes how much memory their training allocates, in MiB.

Written from their papers and configuration values, to be predicted and compared with `published.csv`:
TSN (Wang et al. 2016), I3D and its slow pathway alone (Carreira and Zisserman 2017, Feichtenhofer et al.
2019) on ResNet-50, and C3D (Tran et al. 2015).
"""

from functools import partial

import torch
from torch import nn

BLOCKS = (3, 4, 6, 3)
TEMPORAL = {"i3d": ((1,), (1, 0), (1, 0), (0, 1)), "slow": ((0,), (0,), (1,), (1,)), "tsn": ((0,),) * 4}
"""By stage, which of its blocks convolve over time, repeated."""
CLASSES = {"c3d": 101}


def unit(is_image, wide, narrow, size, stride=(1, 1, 1)):
    """Return a convolution with its norm; images have no time."""
    padding = [side // 2 for side in size]
    if is_image:
        conv = nn.Conv2d(wide, narrow, size[1:], stride[1:], padding[1:], bias=False)
        return conv, nn.BatchNorm2d(narrow)
    return nn.Conv3d(wide, narrow, size, stride, padding, bias=False), nn.BatchNorm3d(narrow)


class Block(nn.Module):
    """A residual block of three convolutions, the first of them over time if `temporal`."""

    def __init__(self, is_image, wide, inner, stride, temporal):
        super().__init__()
        make, strides = partial(unit, is_image), (1, stride, stride)
        self.layers = nn.Sequential(
            *make(wide, inner, (3 if temporal else 1, 1, 1)),
            nn.ReLU(inplace=True),
            *make(inner, inner, (1, 3, 3), strides),
            nn.ReLU(inplace=True),
            *make(inner, 4 * inner, (1, 1, 1)),
        )
        is_same = wide == 4 * inner
        self.shortcut = (
            nn.Identity() if is_same else nn.Sequential(*make(wide, 4 * inner, (1, 1, 1), strides))
        )

    def forward(self, x):
        """Add the two ways."""
        return torch.relu_(self.layers(x) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-50 over frames, whose scores are averaged, or over time too."""

    def __init__(self, name):
        super().__init__()
        self.is_image = name == "tsn"
        time = 2 if name == "i3d" else 1
        layers = [*unit(self.is_image, 3, 64, (5 if time == 2 else 1, 7, 7), (time, 2, 2)), nn.ReLU(True)]
        layers += [
            nn.MaxPool2d(3, 2, 1) if self.is_image else nn.MaxPool3d((1, 3, 3), (time, 2, 2), (0, 1, 1))
        ]
        wide = 64
        for place, (number, temporal) in enumerate(zip(BLOCKS, TEMPORAL[name], strict=True)):
            for block in range(number):
                stride = 2 if place and not block else 1
                is_over_time = temporal[block % len(temporal)]
                layers.append(Block(self.is_image, wide, 64 << place, stride, is_over_time))
                wide = 256 << place
            if name == "i3d" and not place:
                layers.append(nn.MaxPool3d((2, 1, 1), (2, 1, 1)))
        layers.append(nn.AdaptiveAvgPool2d(1) if self.is_image else nn.AdaptiveAvgPool3d(1))
        self.layers = nn.Sequential(*layers)
        self.classify = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(2048, 400))

    def forward(self, clips):
        """Return the scores of [rows, channels, frames, height, width]."""
        if not self.is_image:
            return self.classify(self.layers(clips))
        rows, channels, frames, *size = clips.shape
        features = self.layers(clips.view(rows * frames, channels, *size))
        return self.classify(features.view(rows, frames, -1).mean(1))


def c3d():
    """Return C3D for clips of 16 frames of 112 x 112."""
    layers = []
    wide = 3
    for place, widths in enumerate([(64,), (128,), (256, 256), (512, 512), (512, 512)]):
        for width in widths:
            layers += [nn.Conv3d(wide, width, 3, padding=1), nn.ReLU(inplace=False)]
            wide = width
        size = (1, 2, 2) if not place else 2
        layers.append(nn.MaxPool3d(size, size, (0, 1, 1) if place == 4 else 0))
    layers.append(nn.Flatten())
    for inner in (8192, 4096):
        layers += [nn.Linear(inner, 4096), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(4096, CLASSES["c3d"]))


def __getattr__(name):
    """Return what makes a network, for `video:i3d` and the like."""
    if name not in TEMPORAL:
        raise AttributeError(name)
    return partial(ResNet, name)
