"""A batch is run in one mode where nobody asks which it is, and in both wherever one could matter."""

from functools import partial

import pytest
from cases import TRIGGERS
from casetable import Linear, Net, x
from torch import nn

from dpdemo.checking import check, engine
from dpdemo.checking.running.probing import Prober, probe_all


@pytest.fixture
def modes_of(monkeypatch):
    """List the modes in which a check runs a model's full batch."""
    genuine = Prober.probe

    def modes_of(kind, *args):
        ran = {}

        def probe(prober, planned, *given, **options):
            ran[planned.size, planned.mode] = True
            return genuine(prober, planned, *given, **options)

        monkeypatch.setattr(Prober, "probe", probe)
        check(lambda: kind(*args), x())
        return [mode for size, mode in ran if size == 8]

    return modes_of


class Made(Net):
    """Makes layers while it runs, which are in a mode that nobody asks for."""

    def forward(self, x):
        return nn.Sequential(nn.ReLU(), nn.Flatten())(self.fc(x))


class Recurrent(Net):
    """Has a recurrent layer, which hands its mode on to a kernel."""

    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(4, 4, num_layers=2, batch_first=True, **options)

    def forward(self, x):
        return self.fc(self.rnn(x[:, None])[0][:, -1])


@pytest.mark.parametrize(
    ("kind", "args"),
    [(Linear, ()), (Made, ()), *((Recurrent, (kind,)) for kind in (nn.LSTM, nn.GRU, nn.RNN))],
)
def test_a_batch_runs_once_where_nobody_asks_for_the_mode(kind, args, modes_of):
    assert modes_of(kind, *args) == ["train"]


def doubled(y, module):
    return y * (2 if module.training else 1)


FORWARDS = {
    "Reads": lambda self, x: self.fc(x) * (2 if self.training else 1),
    "ReadsByHand": lambda self, x: self.fc(x) * (2 if vars(self)["training"] else 1),
    "ReadsInside": lambda self, x: sum([self.fc(x) * (1 + self.__dict__["training"]) for _ in range(2)]),
    "ReadsInAHelper": lambda self, x: doubled(self.fc(x), self),
}
READING = [type(name, (Net,), {"forward": forward}) for name, forward in FORWARDS.items()]


class Writes(Net):
    def forward(self, x):
        self.fc.training = False
        return self.fc(x)


class Freezes(Net):
    """Does something of its own when it is put into a mode."""

    def train(self, mode=True):
        self.factor = 1 + mode
        return super().train(mode)

    def forward(self, x):
        return self.fc(x) * self.factor


class FreezesAlone(Net):
    """The same, on the object."""

    def __init__(self):
        super().__init__()
        self.train = lambda mode=True: self  # noqa: ARG005 - as PyTorch has it

    def forward(self, x):
        return self.fc(x)


class Notices(Net):
    """Sees its mode set."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "training":
            super().__setattr__("factor", 1 + value)

    def forward(self, x):
        return self.fc(x) * self.factor


class Hides(Net):
    """Has its mode somewhere else."""

    training = property(
        lambda self: self.__dict__.get("mode"), lambda self, mode: self.__dict__.update(mode=mode)
    )

    def forward(self, x):
        return self.fc(x)


class Hooked(Net):
    """Has a hook that reads the mode."""

    def __init__(self):
        super().__init__()
        self.fc.register_forward_hook(lambda layer, _, output: output * (1 + layer.training))

    def forward(self, x):
        return self.fc(x)


class Layered(Net):
    """Has a layer of PyTorch's that goes by its mode."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.fc(self.layer(x))


class AsksInRecurrent(nn.GRU):
    """Has a mode of its own besides that of the kernel."""

    def forward(self, x):
        out, state = super().forward(x)
        return out * (1 + self.training), state


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        *((kind, ()) for kind in (*READING, Writes, Freezes, FreezesAlone, Notices, Hides, Hooked)),
        *((Layered, (layer,)) for layer in (nn.Dropout(0.0), nn.Dropout(0.5), nn.BatchNorm1d(4))),
        *((Recurrent, (kind,)) for kind in (partial(nn.LSTM, dropout=0.5), AsksInRecurrent)),
    ],
)
def test_a_batch_runs_in_both_modes_where_one_could_matter(kind, args, modes_of):
    assert modes_of(kind, *args) == ["train", "eval"]


@pytest.mark.parametrize("loses_in_training", [True, False])
def test_a_pitfall_of_one_mode_is_seen_in_that_one(loses_in_training):
    class Counts(Net):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def forward(self, x):
            if self.training == loses_in_training:
                self.steps += 1
            return self.fc(x)

    (finding,) = check(Counts, x(), batch_size=8, data_size=8).findings
    assert finding.code == "DP301"
    assert finding.seen_in == ("batch 8, train" if loses_in_training else "batch 8, eval",)


@pytest.mark.parametrize("case", TRIGGERS[::12], ids=str)
def test_what_is_told_does_not_depend_on_what_is_left_out(case, monkeypatch):
    told = check(case.factory, **case.options)
    all_modes = lambda *given, knows_modes: probe_all(*given, knows_modes=True)  # noqa: ARG005, E731 - as engine calls it
    monkeypatch.setattr(engine, "probe_all", all_modes)
    assert check(case.factory, **case.options) == told


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_a_mode_that_fails_on_one_gpu_is_named_and_the_other_compared(mode):
    class Fails(Net):
        def forward(self, x):
            if self.training == (mode == "training"):
                raise RuntimeError("not in this mode")
            return self.fc(x) - x.mean(0)[:3]

    report = check(Fails, x())
    assert report.codes == ("DP502",)
    assert f"{mode} was not compared, because a plain call of it raises RuntimeError" in report.notes[0]
