"""The built-in models as source text, for a script that has nothing but torch.

`modules.py` builds the same models; a test compares the two.
"""

from dpdemo.config.catalogue import BLOCK, CHANNELS, EMBEDDING, MODELS, VOCABULARY
from dpdemo.config.fields import Config

_ENCODER = """\
nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, dropout=0.0, batch_first=True),
            num_layers=2,
            enable_nested_tensor=False,
        )"""
_SEQUENTIAL = {
    "linear": ["nn.Linear({i}, {o})"],
    "partial": [f"nn.Linear({{i}}, {BLOCK})", f"nn.Linear({BLOCK}, {BLOCK})", f"nn.Linear({BLOCK}, {{o}})"],
    "hybrid": [f"nn.Embedding({VOCABULARY}, {EMBEDDING})", f"nn.Linear({EMBEDDING}, {{o}})"],
    "cnn": [
        f"nn.Conv2d({CHANNELS}, 8, kernel_size=3, padding=1)",
        "nn.BatchNorm2d(8)",
        "nn.ReLU()",
        "nn.AdaptiveAvgPool2d(1)",
        "nn.Flatten()",
        "nn.Linear(8, {o})",
    ],
    "transformer": [
        "nn.Linear({i}, 16)",
        _ENCODER,
        "nn.Linear(16, {o})",
    ],
}

_RECURRENT = """\
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM({i}, 16, batch_first=True)
        self.fc = nn.Linear(16, {o})

    def forward(self, x):
        return self.fc(self.lstm(x)[0])


def make_model():
    return Recurrent()
"""


def source_of_model(config: Config) -> str:
    """Write a function `make_model()` that makes a config's built-in model on the CPU."""
    sizes = {"i": config.input_size, "o": config.output_size}
    if config.model == "rnn":
        return _RECURRENT.format(**sizes)
    layers = "".join(f"        {layer.format(**sizes)},\n" for layer in _SEQUENTIAL[config.model])
    return f"def make_model():\n    return nn.Sequential(\n{layers}    )\n"


def source_of_data(config: Config) -> str:
    """Write an expression for all samples of an epoch, [DATA_SIZE, ...], drawn from `generator`."""
    shape = (
        MODELS[config.model].input(config.input_size, config.output_size)
        if config.is_builtin
        else (config.input_size,)
    )
    sizes = ", ".join(map(str, ("DATA_SIZE", *shape)))
    if config.model == "hybrid":
        return f"torch.randint({VOCABULARY}, ({sizes},), generator=generator)"
    return f"torch.randn({sizes}, generator=generator, dtype=torch.{config.dtype})"
