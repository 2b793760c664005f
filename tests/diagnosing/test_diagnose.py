"""One screen about a model: each answer against the report that it is taken from."""

import pytest
import torch
from fastpart import mostly_slow

from dpdemo.checking.registry import rule_of
from dpdemo.config.load import make_config
from dpdemo.diagnosing import answers
from dpdemo.diagnosing.answers import RIGHT
from dpdemo.diagnosing.case import Case
from dpdemo.diagnosing.diagnose import diagnose
from dpdemo.diagnosing.limit import limited
from dpdemo.errors import UsageError
from dpdemo.memory import predict_memory
from dpdemo.results.check import CheckReport
from dpdemo.results.devices import Devices
from dpdemo.results.execution import ExecReport, Traffic
from dpdemo.results.findings import Finding
from dpdemo.timing import predict_speedup
from dpdemo.timing.links import LINKS
from dpdemo.timing.observe import observe_workload

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is visible on this machine")

MODELS = """
import torch
from torch import nn


class Clean(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))


class Counts(Clean):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return super().forward(x)


class Frozen(Clean):
    def forward(self, x):
        y = super().forward(x)
        y.register_hook(self.refuse)
        return y

    def refuse(self, grad):
        raise ValueError("no gradients here")


class TwoInputs(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x, y):
        return super().forward(x) + y


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3, padding=1)

    def forward(self, x):
        return self.conv(x).relu().mean((2, 3))


class Fixed(Images):
    def forward(self, x):
        return self.conv(x.view(len(x), 3, 512, 512)).relu().mean((2, 3))


def with_inputs():
    return TwoInputs(), (torch.zeros(8, 4), torch.zeros(8, 4))
"""


@pytest.fixture(autouse=True)
def folder(users_folder):
    return users_folder({"doctored.py": MODELS})


def marks(report):
    return [answer.mark for answer in report.answers]


def test_a_clean_model_with_an_even_batch_is_well():
    report = diagnose(Case("doctored.py:Clean", num_gpus=4))
    assert marks(report) == ["good", "unknown", "unknown", "good", "good"]
    assert report.assumed == ("--input 32x12, inferred from the first layer",)
    assert report.ok
    assert report.answers[2].text.startswith("4 GPUs over pcie4 pay if one GPU needs longer than ")


def test_a_pitfall_is_named_and_comes_first_in_what_to_do():
    report = diagnose(Case("doctored.py:Counts", num_gpus=4))
    assert report.answers[3].mark == "bad"
    assert report.answers[3].text.startswith("DP301 lost-state: `steps`")
    assert "fix what is not right: dpdemo check doctored.py:Counts --gpus 4" in report.answers[-1].text
    assert report.answers[-1].mark == "look"
    assert not report.ok


def test_an_uneven_batch_is_worth_a_look_and_its_even_neighbours_are_named():
    report = diagnose(Case("doctored.py:Clean", num_gpus=8, inputs=("10x12",)))
    assert report.batch_size == 10
    assert report.answers[0].mark == "look"
    assert report.answers[0].text == "no: a batch of 10 gives 2 rows per GPU; 3 GPUs idle"
    assert "8 GPUs share evenly: 16" in report.answers[-1].text


@pytest.mark.parametrize(
    ("memory", "mark"), mostly_slow([("80GiB", "good"), ("80GiB,24GiB", "good"), ("1MiB", "bad")], every=3)
)
def test_a_card_that_is_named_is_compared(memory, mark):
    report = diagnose(Case("linear", num_gpus=2, gpu_memory=memory))
    assert report.answers[1].mark == mark
    assert report.ok == (mark == "good")
    assert report.answers[1].more.endswith(f"--gpu-memory {memory}")


def test_what_fits_tightly_is_worth_a_look_as_memory_says():
    """The tensors alone have room, but not what PyTorch keeps beside them."""
    (gpu, *_) = predict_memory(model="linear", gpus=2, batch_size=32).gpus
    between = (gpu.least_bytes + gpu.needed_bytes) // 2**21
    case = Case("linear", num_gpus=2, gpu_memory=f"{between}MiB")
    assert predict_memory(model="linear", gpus=2, batch_size=32, gpu_memory=f"{between}MiB").answer == "tight"
    report = diagnose(case)
    assert (report.answers[1].mark, report.ok) == ("look", True)
    assert report.answers[1].text.startswith("tightly: cuda:0 needs ")


def test_whether_it_pays_is_answered_for_the_named_batch_divided_over_the_gpus():
    report = diagnose(Case("doctored.py:Clean", num_gpus=3, inputs=("32x12",)))
    answer, config = report.answers[2], make_config({"model": "doctored.py:Clean", "batch_size": 32})
    expected = predict_speedup(observe_workload(config, ["32x12"]), LINKS["pcie4"], 3)
    assert [way.rows for way in expected.ways] == [(11, 11, 10), (11, 11, 11)]
    assert answer.text == expected.summary
    assert answer.text.endswith(" for a step of 32 rows")
    assert (
        answer.more == "dpdemo speedup doctored.py:Clean --gpus 3 --input 32x12 --batch-size 32 --link pcie4"
    )


def test_what_could_not_be_looked_at_is_no_clean_bill():
    report = diagnose(Case("doctored.py:Frozen", num_gpus=2, inputs=("8x12",)))
    assert report.answers[3].mark == "unknown"
    assert "no pitfalls in what could be looked at: Frozen: gradients were not" in report.answers[3].text


def test_inputs_that_come_with_the_model_are_taken():
    assert marks(diagnose(Case("doctored.py:with_inputs", num_gpus=2, batch_size=8)))[::3] == ["good", "good"]


def test_inputs_that_cannot_be_worked_out_are_asked_for():
    with pytest.raises(UsageError, match=r"expected inputs of `doctored\.py:TwoInputs`, got none") as caught:
        diagnose(Case("doctored.py:TwoInputs"))
    assert "such as 32x128" in caught.value.hint


def test_answers_come_one_by_one_and_the_check_last():
    seen = []
    report = diagnose(Case("doctored.py:Clean", num_gpus=2), answered=seen.append)
    assert [each.answers for each in seen] == [report.answers[:number] for number in (1, 2, 3, 4)]
    assert report.answers[3].question == RIGHT


def test_all_findings_and_notes_are_named():
    """No `(and 1 more)`: each is there with its code."""
    rules = [rule_of(code) for code in ("DP301", "DP302", "DP401")]
    found = CheckReport(
        "Net", 2, tuple(Finding(rule, "error", "x", f"text of {rule.code}") for rule in rules)
    )
    text = answers.rightness(found, "more").text
    assert all(f"{rule.code} {rule.name}" in text for rule in rules)
    noted = answers.rightness(CheckReport("Net", 2, (), notes=("one", "two"), compared=True), "more")
    assert "one; two" in noted.text


def test_a_large_batch_is_checked_with_fewer_rows_and_a_smaller_image():
    case = Case("doctored.py:Images", num_gpus=2, batch_size=64, inputs=("64x3x512x512",))
    found = limited(case, lambda each: predict_memory(each.config, inputs=list(each.inputs)))
    (shape,) = found.inputs
    rows, _, side, _ = map(int, shape.split("x"))
    assert rows == found.batch_size == 4
    assert 32 <= side < 512
    assert limited(found, lambda each: predict_memory(each.config, inputs=list(each.inputs))) == found


def test_a_model_that_takes_one_size_of_image_keeps_it():
    case = Case("doctored.py:Fixed", num_gpus=2, batch_size=64, inputs=("64x3x512x512",))
    found = limited(case, lambda each: predict_memory(each.config, inputs=list(each.inputs)))
    assert found.inputs == ("4x3x512x512",)


@pytest.mark.parametrize(
    ("arguments", "ended_by", "advice"),
    [
        (("--ranks", "4"), "KeyError: 'LOCAL_RANK'", "run its ranks: dpdemo exec --ranks 4 train.py"),
        ((), "KeyError: 'LOCAL_RANK'", "start it by `torchrun --nproc-per-node 2 train.py`"),
        (("--gpus", "4"), "ValueError: no", "write --gpus before train.py"),
        ((), "ValueError: no", "make the program run to its end"),
    ],
)
def test_a_program_that_died_is_told_how_to_go_on(arguments, ended_by, advice):
    report = ExecReport("train.py", arguments, Devices.of("cuda", (0,)), (), Traffic(0, 0, 0, 0, 0, 0), ())
    found = answers.of_program(report, CheckReport("", 1, (), ended_by=ended_by))
    assert found.answers[-1].text.startswith(advice)
