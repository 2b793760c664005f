"""Losses that a program's replicas return, judged as it reduces them and in the words of `check`."""

import re
import warnings

import pytest
import torch
from casetable import Net, x
from test_watched_calls import codes, report_on
from torch import nn

from dpdemo.checking import check as dpdemo_check
from dpdemo.programs.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus


class Loss(Net):
    """Returns the mean loss of its chunk; one of half precision and behind BatchNorm if asked."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.fc(self.layers(x)), y)


def stepping(reduce, rows=16, steps=1, scaler=None, layers=()):
    """Train a model whose loss is reduced outside, with a GradScaler if there is one."""

    def script():
        torch.manual_seed(0)
        model = nn.DataParallel(Loss(*layers).cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaling = scaler() if scaler else torch.amp.GradScaler("cuda", enabled=False)
        for step in range(steps):
            labels = torch.arange(rows)
            labels[step] += step  # so that their sum, which a check looks at, is another one
            loss = reduce(model(x(rows).cuda(), (labels % 3).cuda()))
            optimizer.zero_grad()
            scaling.scale(loss).backward()
            scaling.step(optimizer)
            scaling.update()

    return script


SCALERS = [None, lambda: torch.amp.GradScaler("cuda"), lambda: torch.amp.GradScaler("cuda", init_scale=8.0)]


@pytest.mark.filterwarnings("ignore:Was asked to gather")
@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize(
    ("reduce", "words"),
    [
        (torch.sum, "gradients of loss.sum() are 4.00 times those of one GPU at batch 16"),
        (lambda loss: 2 * loss.sum() / 2, "gradients of loss.sum() are 4.00 times"),
        (lambda loss: (loss * loss.new_tensor([1, 0, 0, 0])).sum(), "the program's weighted sum of 4 losses"),
        (torch.mean, None),
        (lambda loss: loss.mean() / 3, None),  # accumulated over steps
    ],
)
def test_gradients_of_losses_are_compared_unscaled(reduce, words, scaler):
    messages = [found.message for found in report_on(stepping(reduce, scaler=scaler)).findings]
    assert len(messages) == (words is not None)
    assert not words or words in messages[0]


def test_a_scaled_pass_does_not_change_what_is_known_of_one_that_is_not_scaled():
    def script():
        torch.manual_seed(0)
        model = nn.DataParallel(Loss().cuda())
        labels = torch.arange(16).cuda() % 3
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(nn.Linear(2, 1).cuda()(torch.ones(1, 2).cuda()).sum()).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(x(16).cuda(), labels).sum().backward()

    (found,) = report_on(script).findings
    assert "gradients of loss.sum() are 4.00 times" in found.message


@pytest.mark.filterwarnings("ignore:Was asked to gather")
@pytest.mark.parametrize(("rows", "codes_"), [(14, {"DP501"}), (16, set())])
@pytest.mark.parametrize("layers", [(), (nn.BatchNorm1d(4),), (nn.Dropout(0.2), nn.BatchNorm1d(4))])
def test_neither_batchnorm_nor_dropout_hides_the_loss_of_a_program(layers, rows, codes_):
    report = report_on(stepping(torch.mean, rows, layers=layers))
    assert codes(report) == codes_
    if codes_:
        (message,) = [found.message for found in report.findings if found.code == "DP501"]
        assert re.fullmatch(
            r"gradients of loss\.mean\(\) are \d+% off those of one GPU at batch 14, chunks of 4\+4\+4\+2: "
            "samples of a short chunk weigh more",
            message,
        )


class Strict(Loss):
    """Runs only where its norm is in training."""

    def forward(self, x, y):
        assert self.layers[0].training
        return super().forward(x, y)


@pytest.mark.filterwarnings("ignore:Was asked to gather")
@pytest.mark.parametrize("kind", [Strict, Loss])
def test_a_loss_that_batchnorm_hides_is_noted_as_not_compared(kind):
    def script():
        model = nn.DataParallel(kind(nn.BatchNorm1d(4)).cuda())
        model(x(14).cuda(), torch.arange(14).cuda() % 3).mean().backward()

    report = report_on(script)
    assert [note for note in report.notes if "loss was not compared" in note] == list(report.notes)
    assert (report.notes == ()) == ("DP501" in report.codes) == (kind is Loss)


@pytest.mark.filterwarnings("ignore:Was asked to gather")
def test_check_and_a_program_tell_a_loss_in_the_same_words():
    def words(report):
        (found,) = (found for found in report.findings if found.code == "DP501")
        return set(
            re.findall(r"loss\.\w+\(\) (?:are )?[\d.]+%? \w+|batch \d+|chunks of [^(]*", found.message)
        )

    def model():
        torch.manual_seed(0)
        return Loss(), (x(14), torch.arange(14) % 3)

    in_a_program = words(report_on(stepping(torch.mean, 14)))
    assert len(in_a_program) == 3
    assert in_a_program <= words(dpdemo_check(model, data_size=14))


@pytest.mark.filterwarnings("ignore:Was asked to gather")
def test_other_labels_are_no_other_shape_and_no_note_says_so():
    report = report_on(stepping(torch.mean, steps=5))
    assert (report.findings, report.notes) == ((), ())


@pytest.mark.filterwarnings("ignore:Was asked to gather")
@pytest.mark.parametrize("scaler", SCALERS[:2])
def test_a_check_moves_no_bytes_of_the_program(scaler):
    script = stepping(torch.mean, steps=2, scaler=scaler)
    with virtual_gpus(4) as gpus:
        script()
        alone = gpus.bytes_moved
    with virtual_gpus(4) as gpus:
        with CallCheck().watching():
            script()
        assert gpus.bytes_moved == alone


@pytest.mark.filterwarnings("ignore:Was asked to gather")
def test_a_scaler_that_does_not_tell_its_factor_does_not_stop_the_script():
    class Odd(torch.amp.GradScaler):
        def get_scale(self):
            raise ValueError("no factor")

    report = report_on(stepping(torch.mean, scaler=lambda: Odd("cuda")))
    assert [note for note in report.notes if "no factor" in note]


class Autocast(nn.Module):
    """Computes in half precision inside forward, so that chunks are rounded otherwise than the batch."""

    def __init__(self, dtype):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.out = nn.Linear(64, 3)
        self.dtype = dtype

    def forward(self, x, y):
        with torch.autocast("cuda", dtype=self.dtype):
            return nn.functional.cross_entropy(self.out(self.layers(x)), y)


class Cast(Autocast):
    """Casts by hand: it is as coarse in a model of double precision."""

    def forward(self, x, y):
        weight, bias = self.out.weight.to(self.dtype), self.out.bias.to(self.dtype)
        features = self.layers(x).to(self.dtype)
        return nn.functional.cross_entropy(nn.functional.linear(features, weight, bias), y)


@pytest.mark.filterwarnings("ignore:Was asked to gather")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [Autocast, Cast])
@pytest.mark.parametrize(("reduce", "found"), [(torch.mean, ()), (torch.sum, ("DP501",))])
def test_rounding_of_half_precision_is_no_wrong_loss(kind, dtype, reduce, found):
    def script():
        for seed in range(2):  # with weights of seed 0 or 1 bfloat16 rounds gradients by 0.2 %
            torch.manual_seed(seed)
            model = nn.DataParallel(kind(dtype).cuda())
            reduce(model(x(32).cuda(), (torch.arange(32) * 7 % 3).cuda())).backward()

    assert report_on(script).codes == found
