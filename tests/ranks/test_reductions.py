"""A program's use of its losses, and calls that bypass DataParallel's own forward."""

from dataclasses import replace

import pytest
import torch
from cases_loss import Classifier, PerToken, tokens
from casetable import Counting, Linear, Net, x
from test_watched_calls import codes, report_on
from torch import nn
from torch.nn.parallel import data_parallel, gather, parallel_apply, replicate, scatter

from dpdemo.checking.evidence import Comparison, Evidence, LossGradients, Probe, Reduction, Scan, Single
from dpdemo.checking.recording.by_hand import Cuts
from dpdemo.checking.repairs import repair_of
from dpdemo.checking.rules.loss import loss_scale

LABELS = torch.arange(8) % 3
pytestmark = pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")


def training(model, batch, reduce, *, steps=2, gpus=4):
    """Train for some steps; give what the check says."""

    def script():
        wrapped = nn.DataParallel(model.cuda())
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            reduce(wrapped(*(part.cuda() for part in batch))).backward()
            optimizer.step()
        with torch.no_grad():
            wrapped(*(part.cuda() for part in batch)).mean().item()

    return report_on(script, gpus)


@pytest.mark.parametrize("scale", [1, 0.25, 65536.0])
def test_the_mean_of_losses_of_even_chunks_is_right_whatever_its_scale(scale):
    report = training(Classifier(), (x(), LABELS), lambda loss: loss.mean() * scale)
    assert codes(report, "error", "warning") == set(), report.findings


def test_the_sum_of_losses_is_not():
    report = training(Classifier(), (x(), LABELS), torch.Tensor.sum)
    assert codes(report) == {"DP501"}
    assert "4.00 times" in report.findings[0].message


def test_the_mean_of_losses_of_uneven_chunks_is_not():
    report = training(Classifier(), (x(), LABELS), torch.Tensor.mean, gpus=3)
    assert codes(report) == {"DP501"}


def test_losses_weighed_with_their_rows_are_right_over_uneven_chunks():
    rows = torch.tensor([3.0, 3.0, 2.0])
    report = training(Classifier(), (x(), LABELS), lambda loss: (loss * rows.cuda()).sum() / 8, gpus=3)
    assert codes(report, "error", "warning") == set(), report.findings


def test_a_mean_over_unequal_counts_of_tokens_is_not():
    report = training(PerToken(), tokens(), torch.Tensor.mean)
    assert codes(report) == {"DP501"}
    assert "% off" in report.findings[0].message


class Summed(Net):
    """As transformers' models under Trainer: a sum over the chunk ÷ the count of the whole batch."""

    def forward(self, x, labels, num_items):
        losses = nn.functional.cross_entropy(self.fc(x), labels, reduction="sum")
        return losses / num_items.mean()


def test_losses_divided_by_the_count_of_the_whole_batch_are_right_when_they_are_summed():
    batch = (x(), LABELS, torch.full((2, 1), 8.0))
    report = training(Summed(), batch, lambda loss: (loss * 2).mean(), gpus=2)
    assert codes(report, "error", "warning") == set(), report.findings


# ---- around DataParallel's own forward ----


class Balanced(nn.DataParallel):
    """As transformer-xl's: a forward of its own, with a smaller first chunk."""

    def forward(self, *inputs, **kwargs):
        inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
        outputs = self.parallel_apply(replicas, self.device_ids, inputs, kwargs)
        return self.gather(outputs, self.output_device)

    def parallel_apply(self, replicas, device_ids, inputs, kwargs):
        return parallel_apply(replicas, inputs, kwargs, device_ids[: len(replicas)])

    def scatter(self, inputs, kwargs, device_ids):  # noqa: ARG002 - DataParallel gives them
        sizes = [1, *[(len(inputs[0]) - 1) // (len(device_ids) - 1)] * (len(device_ids) - 1)]
        chunks = torch.nn.parallel._functions.Scatter.apply(device_ids, sizes, 0, inputs[0])
        return tuple((chunk,) for chunk in chunks), tuple({} for _ in chunks)


def by_hand(model, given, ids=(0, 1, 2, 3)):
    replicas = replicate(model, list(ids))
    chunks = scatter(given, list(ids))
    return gather(parallel_apply(replicas[: len(chunks)], chunks), 0)


class OwnParallel(nn.Module):
    """As CornerNet and CenterNet have it: no subclass, and a scatter of its own, with sizes as one likes."""

    def __init__(self, module, sizes):
        super().__init__()
        self.module, self.sizes, self.ids = module, sizes, list(range(len(sizes)))

    def forward(self, *inputs):
        inputs = self.scatter_map(inputs)
        replicas = replicate(self.module, self.ids)
        return gather(parallel_apply(replicas, inputs, None, self.ids), 0)

    def scatter_map(self, value):
        if isinstance(value, torch.Tensor):
            return torch.nn.parallel._functions.Scatter.apply(self.ids, self.sizes, 0, value)
        if isinstance(value, tuple) and value:
            return list(zip(*map(self.scatter_map, value), strict=True))
        if isinstance(value, dict) and value:
            return list(map(type(value), zip(*map(self.scatter_map, value.items()), strict=True)))
        return [value for _ in self.ids]


WAYS = {
    "a class of one's own": lambda model, given: OwnParallel(model, [1, 4, 4, 4])(given),
    "a subclass": lambda model, given: Balanced(model)(given),
    "the function": data_parallel,
    "by hand": by_hand,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_pitfall_is_found_whatever_splits_the_batch(way):
    report = report_on(lambda: WAYS[way](Counting().cuda(), x(7 + 6).cuda()))
    assert "DP301" in codes(report), (report.findings, report.notes)


@pytest.mark.parametrize("way", WAYS)
def test_a_clean_model_is_clean_whatever_splits_the_batch(way):
    report = report_on(lambda: WAYS[way](Linear().cuda(), x(13).cuda()))
    assert codes(report, "error", "warning") == set(), report.findings
    assert (report.model, report.notes) == ("Linear", ())


def test_a_call_that_cannot_be_made_again_is_counted_and_named():
    def script():
        model = Linear().cuda()
        for _ in range(2):
            replicas = replicate(model, [0, 1])
            chunks = [x(3).to(f"cuda:{gpu}") for gpu in range(2)]
            parallel_apply(replicas, chunks)

    report = report_on(script)
    assert report.notes == (
        "Linear: 2 calls were not compared with one GPU, because its chunks were not made by scatter",
    )


class NotGathered(nn.DataParallel):
    """As PyTorch-Encoding's DataParallelModel: each GPU keeps its result, for the criterion there."""

    def gather(self, outputs, output_device):  # noqa: ARG002 - DataParallel gives it
        return outputs


class OnEachGpu(nn.DataParallel):
    """As its DataParallelCriterion: what it gets is in chunks already, but for the targets."""

    def forward(self, outputs, targets):
        targets, _ = self.scatter((targets,), {}, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids)
        losses = [
            replica(output, *target)
            for replica, output, target in zip(replicas, outputs, targets, strict=True)
        ]
        return sum(loss.to("cuda:0") for loss in losses) / len(losses)


def test_a_model_that_is_not_gathered_and_its_criterion_are_no_pitfall():
    def script():
        model, criterion = NotGathered(Linear().cuda()), OnEachGpu(nn.CrossEntropyLoss().cuda())
        for _ in range(2):
            criterion(model(x(8).cuda()), LABELS.cuda()).backward()

    report = report_on(script, 2)
    assert codes(report, "error", "warning") == set(), report.findings
    (note,) = report.notes
    assert note.endswith(
        "2 calls were not compared with one GPU, because its arguments are in chunks already"
    )
    assert report.batch_sizes == (8,)


def test_a_pitfall_of_a_model_that_is_not_gathered_is_found():
    report = report_on(lambda: NotGathered(Counting().cuda())(x(8).cuda()), 2)
    assert "DP301" in codes(report, "error")


class MeanOfDict(Net):
    """The loss of a batch that is a dict, as detectors have it."""

    def forward(self, batch, scale):
        return scale * (self.fc(batch["x"]) - batch["y"]).square().mean()


@pytest.mark.parametrize(("sizes", "found"), [([2, 6], {"DP501"}), ([4, 4], set())])
def test_the_batch_that_a_scatter_of_ones_own_cut_is_compared_with_one_gpu(sizes, found):
    def script():
        batch = {"x": x(8).cuda(), "y": torch.ones(8, 3).cuda()}
        OwnParallel(MeanOfDict().cuda(), sizes)(batch, 2.0).mean().backward()

    report = report_on(script)
    assert (codes(report, "error"), report.notes, report.batch_sizes) == (found, (), (8,))


def test_a_lone_sample_of_a_scatter_of_ones_own_blames_no_other_batch():
    def script():
        model = OwnParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).cuda(), [1, 4, 3])
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            model(x(8).cuda())

    (finding,) = [each for each in report_on(script).findings if each.code == "DP316"]
    assert finding.message.startswith("a batch of 8 is cut into 1+4+3, ")
    assert finding.message.endswith("so it is for batches of 8")


def test_what_was_not_cut_for_a_replica_is_not_taken_for_its_chunk():
    cuts, whole = Cuts(), x(8)
    chunks = whole.split(4)
    cuts.note(whole, chunks, 0)
    batch = cuts.joined([((chunks[0], "a"), {}), ((chunks[1], "a"), {})])
    assert batch.args[0] is whole
    assert (batch.args[1], batch.dim, batch.rows, batch.shares) == ("a", 0, (4, 4), ())
    assert cuts.joined([((chunks[1],), {}), ((chunks[0],), {})]) is None  # the other way round
    assert cuts.joined([((chunks[0], whole), {}), ((chunks[1], whole), {})]) is None
    assert cuts.joined([]) is None


def test_what_gather_refuses_is_found_by_hand_too():
    class Model(Net):
        def forward(self, x):
            return self.fc(x), 3

    def script():
        with pytest.raises(TypeError):
            by_hand(Model().cuda(), x(8).cuda())

    assert "DP402" in codes(report_on(script))


def test_losses_that_a_library_reduces_wrongly_at_the_last_batch_are_repaired_at_the_loader():
    """As Trainer does: sums ÷ the count for each of three GPUs, and their mean, where one got nothing."""
    loss = LossGradients(4.0, (2.0, 2.0), ((1.0, 1.0), (1.0, 1.0)))
    last = Probe(
        4, "train", is_real=True, single=Single(), calls=(), is_programs=True,
        comparison=Comparison(values_equal=True, loss=loss),
        reductions=(Reduction((1.5, 1.5), is_librarys=True),),
    )  # fmt: skip
    whole = replace(last, batch_size=9, reductions=())
    (found,) = loss_scale(Evidence(3, Scan("Net"), (whole, last)))
    assert found.severity == "warning"
    assert "installed package goes backward, are 1.50 times those of one GPU at batch 4, " in found.message
    assert "%" not in found.message  # one number for one thing
    assert repair_of(found).after.startswith("DataLoader(data, batch_size=9, drop_last=True)")
