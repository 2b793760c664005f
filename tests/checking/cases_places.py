"""Pitfalls whose repair stands in several places: the call and forward, `__init__` and a property."""

import types

import torch
from casetable import Net, Recurrent, steps, trigger, twin, x

# ---- arguments: the call, and forward's first line ----


class Weighing(Net):
    def forward(self, x, weights=None):
        """Scale classes, where there are weights."""
        y = self.fc(x)
        return y if weights is None else y * weights


@trigger("DP205", "`weights` is cut into chunks", also=["DP203"])
def weights_of_classes_may_be_left_out():
    return Weighing(), ((x(),), {"weights": torch.tensor([1.0, 2.0, 3.0])})


@trigger("DP201", "`causal` has 1 of 8 rows", given=lambda: (torch.ones(8, 5, 4), torch.ones(1, 5, 1)))
class AMaskOfOneRowIsTakenOutOfIt(Net):
    """With a row for each sample forward would fail."""

    def forward(self, x, causal):
        return self.fc(x.masked_fill(causal.squeeze(0).view(5, 1) == 0, 0.0))


@trigger(
    "DP207",
    "`prompts` (a list of 8 str)",
    given=lambda: {"x": x(), "prompts": [f"image {'i' * i}" for i in range(8)]},
)
class TextsComeByKeywordOnly(Net):
    def forward(self, x, *, prompts):
        return self.fc(x) * x.new_tensor([len(one) for one in prompts])[:, None]


@trigger(
    "DP208", "`data` is a SimpleNamespace that holds x", given=lambda: types.SimpleNamespace(x=x(), scale=2.0)
)
class TensorsInANamespaceStayOnGpu0(Net):
    def forward(self, data):
        return self.fc(data.x) * data.scale


class Named(dict):
    def __init__(self, name, **parts):
        super().__init__(**parts)
        self.name = name


@trigger(
    "DP208",
    "`batch` is a Named, which scatter builds anew without what is in it",
    given=lambda: (Named("train", x=x()),),
)
class ADictOfAnotherClassComesEmpty(Net):
    def forward(self, batch):
        return self.fc(batch["x"])


@trigger(
    "DP212",
    "`h` and `c` have the batch on dimension 1",
    given=lambda: (steps(), torch.zeros(1, 8, 5), torch.zeros(1, 8, 5)),
    raises=True,
)
class TwoStatesOutnumberTheBatch(Recurrent):
    def forward(self, x, h, c):
        self.rnn.flatten_parameters()
        return self.rnn(x, (h, c))[0]


@twin("DP207")
def texts_come_with_the_numbers_of_rows():
    class Model(Net):
        def forward(self, x, texts, rows=None):
            texts = texts if rows is None else [texts[row] for row in rows.tolist()]
            return self.fc(x) * x.new_tensor([len(one) for one in texts])[:, None]

    texts = [f"image {'i' * i}" for i in range(8)]
    return Model(), {"x": x(), "texts": texts, "rows": torch.arange(8)}


# ---- what `__init__` keeps: there, and a property ----


# ---- what lies outside of the model, or is the original's ----


@trigger("DP310", "the hook `keep` on `fc` runs 4 times")
class ForwardReadsWhatAHookHasKept(Net):
    def __init__(self):
        super().__init__()
        self.kept = None
        self.fc.register_forward_hook(self.keep)

    def keep(self, module, args, output):
        self.kept = output

    def forward(self, x):
        y = self.fc(x)
        return y, self.kept.mean(1)


@trigger("DP391", "replica 1", "cuda:0")
def a_default_is_on_gpu_0():
    class Model(Net):
        def forward(self, x, scale=torch.ones(3, device="cuda:0")):  # noqa: B008 - the pitfall
            return self.fc(x) * scale

    return Model(), x()
