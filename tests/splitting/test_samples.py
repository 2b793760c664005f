"""The weight of each sample, compared with a plain loop over chunks on the CPU in float64."""

import pytest
import torch
from cases_loss import Classifier, PerToken, tokens
from casetable import Linear, x
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dpdemo
from dpdemo.errors import UsageError

pytestmark = pytest.mark.filterwarnings("error:Was asked to gather along dimension 0")


@settings(max_examples=10, deadline=None)
@given(rows=st.integers(2, 13), gpus=st.integers(2, 5))
def test_a_sample_counts_as_the_arithmetic_of_chunks_says(rows, gpus):
    """A mean in each chunk, and a mean of those: B ÷ (number of chunks × rows of its chunk)."""
    report = dpdemo.sample_weights(Classifier(), x(rows), torch.arange(rows) % 3, gpus=gpus)
    chunks = [len(part) for part in torch.arange(rows).chunk(gpus)]
    expected = [rows / (len(chunks) * size) for size in chunks for _ in range(size)]
    assert [weighed.weight for weighed in report.samples] == pytest.approx(expected, rel=1e-9)
    assert report.chunks == tuple(chunks)
    assert report.is_even == (len(set(chunks)) == 1)


def test_tokens_of_unequal_counts_count_as_a_plain_loop_says():
    model, (inputs, labels) = PerToken(), tokens()
    report = dpdemo.sample_weights(model, inputs, labels)
    valid = (labels != -100).sum(1)
    for sample, count in zip(report.samples, valid.tolist(), strict=True):
        of_chunk = valid[sample.index // 2 * 2 : sample.index // 2 * 2 + 2].sum().item()
        assert sample.weight == pytest.approx(valid.sum().item() / (4 * of_chunk), rel=1e-9)
        assert len(sample.tokens) == (count if count > 1 else 0)
    assert "a token on cuda:0 counts" in str(report)
    assert "sums.sum() / counts.sum()" in report.repair


def test_the_repair_makes_all_count_alike():
    class SumAndCount(PerToken):
        def forward(self, x, labels):
            logits = self.fc(x).flatten(0, 1)
            total = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum", ignore_index=-100)
            return torch.stack([total, (labels != -100).sum().to(total.dtype)])[None]

    def reduce(pairs):
        pairs = pairs.view(-1, 2)
        return pairs[:, 0].sum() / pairs[:, 1].sum()

    class Flat(SumAndCount):
        def forward(self, x, labels):
            return super().forward(x, labels)[0]

    report = dpdemo.sample_weights(Flat(), *tokens(), reduction=reduce)
    # one GPU's own number is the sum alone: all weights are one and the same share of it
    weights = [weighed.weight for weighed in report.samples]
    assert weights == pytest.approx([weights[0]] * 8, rel=1e-9)


def test_a_sum_counts_each_sample_as_often_as_there_are_chunks():
    report = dpdemo.sample_weights(Classifier(), x(), torch.arange(8) % 3, reduction=torch.sum)
    assert [weighed.weight for weighed in report.samples] == pytest.approx([4.0] * 8)


def test_a_model_without_a_loss_is_refused():
    with pytest.raises(UsageError, match="expected a model that returns its loss"):
        dpdemo.sample_weights(Linear(), x())


def test_the_table_names_each_sample():
    report = dpdemo.sample_weights(Classifier(), x(7), torch.arange(7) % 3)
    text = " ".join(report.text("table").split())
    assert (
        "Classifier, batch 7 as 2+2+2+1: a sample on cuda:3 counts 1.75 times as much as on one GPU" in text
    )
    assert report.text("csv").count("\n") == 8
