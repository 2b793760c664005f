"""No false alarms: models without pitfalls give no error, and only warnings that are true of them."""

import pytest
import torch
from fastpart import mostly_slow
from torch import nn

from dpdemo.checking import check
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import Config
from dpdemo.models.modules import Placement, build

BATCHNORM = {"DP306", "DP316"}  # statistics of chunks, and lone samples: true of every BatchNorm


@pytest.mark.parametrize("name", MODELS)
def test_a_built_in_model_has_no_pitfall(name):
    config = Config(model=name, batch_size=16, input_size=6)

    def factory():
        first = torch.device("cuda:0")
        built = build(config, Placement(lambda module: nn.DataParallel(module.to(first)), first, first))
        shape = MODELS[name].input(config.input_size, config.output_size)
        ids = MODELS[name].reads_cpu_input
        return built.model, torch.randint(0, 9, (16, *shape)) if ids else torch.randn(16, *shape)

    report = check(factory)
    assert report.ok
    assert {finding.code for finding in report.findings if finding.severity == "warning"} <= BATCHNORM


def convolutions(*, norm):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), norm(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1),
        nn.ConvTranspose2d(8, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip


class Tagger(nn.Module):
    """An embedding, a recurrent layer that is flattened first, and a linear one."""

    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.rnn = kind(8, 6, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.fc = nn.Linear(12, 5)

    def forward(self, ids):
        self.rnn.flatten_parameters()
        return self.fc(self.rnn(self.embedding(ids))[0])


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, source, target, padding=None):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device)
        return self.transformer(source, target, tgt_mask=mask, src_key_padding_mask=padding)


class Tied(nn.Module):
    """Weights used twice, weight norm, parameters in a list, a buffer, and a tuple of settings."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8, bias=False)
        self.decoder = nn.Linear(8, 8, bias=False)
        self.decoder.weight = self.encoder.weight
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.scales = nn.ParameterList([torch.ones(8), torch.ones(8)])
        self.blocks = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.Linear(8, 8)})
        self.register_buffer("shift", torch.ones(8))
        self.settings = {"order": ("a", "b"), "gain": 2.0}
        self.activation = nn.functional.gelu

    def forward(self, x):
        x = self.normed(self.decoder(self.encoder(x))) * self.scales[0] + self.shift
        for name in self.settings["order"]:
            x = self.activation(self.blocks[name](x))
        return {"features": self.spectral(x), "gated": torch.sigmoid(x) * self.scales[1], "nothing": None}


def attention():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


CLEAN = {
    "convolutions": (lambda: convolutions(norm=lambda _: nn.Identity()), ["16x3x8x8"], set()),
    "batchnorm": (lambda: convolutions(norm=nn.BatchNorm2d), ["16x3x8x8"], BATCHNORM),
    "instancenorm": (lambda: convolutions(norm=nn.InstanceNorm2d), ["16x3x8x8"], set()),
    "groupnorm": (lambda: convolutions(norm=lambda n: nn.GroupNorm(2, n)), ["16x3x8x8"], set()),
    "lstm": (lambda: Tagger(nn.LSTM), ["16x5:int64<50"], set()),
    "gru": (lambda: Tagger(nn.GRU), ["16x5:int64<50"], set()),
    "encoder": (attention, ["16x5x8"], set()),
    "transformer": (Translator, ["16x5x8", "16x4x8"], set()),
    "padding": (Translator, ["source=16x5x8", "target=16x4x8", "padding=16x5:bool<1"], set()),
    "tied": (Tied, ["16x8"], set()),
}


@pytest.mark.parametrize("name", mostly_slow(CLEAN, 3))
def test_a_model_of_torch_nn_has_no_pitfall(name):
    factory, shapes, warnings = CLEAN[name]
    report = check(factory, shapes)
    found = {finding.code: finding.message for finding in report.findings if finding.severity != "info"}
    assert set(found) <= warnings, found
    assert found.keys() >= warnings & {"DP306"}


class Mixed(nn.Module):
    """bfloat16 inside, float32 at both ends: gradients are rounded once for each chunk."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = self.fc(x)
        return self.out(hidden.float())


def test_rounding_of_gradients_is_no_pitfall_where_only_layers_inside_have_half_precision():
    torch.manual_seed(0)
    report = check(Mixed(), (torch.randn(9, 4),), gpus=3)
    assert not report.findings
