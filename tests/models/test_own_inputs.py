"""A factory that returns inputs with its model: every command takes its batch size from them."""

import pytest
import torch

import dpdemo
from dpdemo.diagnosing.diagnose import Case, diagnose

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is visible on this machine")

SOURCE = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(7, 3)

    def forward(self, x, scale):
        return self.fc(x) * scale


def example():
    return Two(), (torch.randn(40, 7), torch.ones(40, 1))


def keywords():
    return Two(), {"scale": torch.ones(40, 1), "x": torch.randn(40, 7)}


def function():
    return Two(), lambda rows: (torch.randn(rows, 7), torch.ones(rows, 1))


def many():
    return Two(), (torch.randn(400, 7), torch.ones(400, 1))
"""


@pytest.fixture(autouse=True)
def folder(users_folder):
    return users_folder({"bringing.py": SOURCE})


def rows_of(group):
    return [replica.rows for replica in group.in_model]


def chunks(rows, gpus):
    return [len(chunk) for chunk in torch.arange(rows).chunk(gpus)]


@pytest.mark.parametrize("factory", ["example", "keywords"])
def test_each_command_uses_the_40_rows_of_the_factory(factory):
    target = f"bringing.py:{factory}"
    ran = dpdemo.run(model=target, gpus=3, virtual=True)
    assert [(group.count, group.batch_size) for group in ran.batches] == [(2, 40), (1, 20)]
    assert rows_of(ran.batches[0]) == chunks(40, 3)
    assert ran.config.batch_size == 40

    explained = dpdemo.explain(model=target, gpus=3, virtual=True)
    assert explained.batch_size == 40
    assert [part.shapes[0][1][0] for part in explained.step("scatter").made] == chunks(40, 3)

    doctored = diagnose(Case(target, num_gpus=3))
    assert doctored.batch_size == 40
    assert "14 rows" in doctored.answers[0].text
    assert "--batch-size 40" in doctored.answers[0].more

    assert dpdemo.predict_memory(model=target, gpus=3).batch_size == 40


def test_a_chosen_batch_size_wins_over_the_rows_of_the_factory():
    target = "bringing.py:example"
    ran = dpdemo.run(model=target, gpus=2, virtual=True, batch_size=9, data_size=30)
    assert [(group.count, group.batch_size) for group in ran.batches] == [(3, 9), (1, 3)]
    assert dpdemo.explain(model=target, gpus=2, virtual=True, batch_size=9).batch_size == 9
    assert diagnose(Case(target, num_gpus=2, batch_size=9)).batch_size == 9
    assert dpdemo.predict_memory(model=target, gpus=2, batch_size=9).batch_size == 9


def test_a_function_of_the_batch_size_gets_the_default_or_the_chosen_one():
    target = "bringing.py:function"
    assert dpdemo.run(model=target, gpus=2, virtual=True).batches[0].batch_size == 30
    assert dpdemo.run(model=target, gpus=2, virtual=True, batch_size=50).batches[0].batch_size == 50
    assert dpdemo.explain(model=target, gpus=2, virtual=True).plain.difference < 1e-6


def test_an_epoch_has_at_least_one_batch_of_a_large_factory():
    ran = dpdemo.run(model="bringing.py:many", gpus=2, virtual=True)
    assert [(group.count, group.batch_size) for group in ran.batches] == [(1, 400)]
    few = dpdemo.run(model="bringing.py:many", gpus=2, virtual=True, data_size=100)
    assert [(group.count, group.batch_size) for group in few.batches] == [(1, 100)]


def test_on_the_cpu_the_factorys_batch_is_one_plain_call():
    assert dpdemo.run(model="bringing.py:example").batches[0].batch_size == 40
    assert [step.name for step in dpdemo.explain(model="bringing.py:example").steps] == ["plain call"]


def test_a_sample_of_a_shuffled_epoch_is_traced_through_the_factorys_batches():
    found = dpdemo.run(model="bringing.py:example", gpus=2, virtual=True, shuffle=True, trace_sample=3)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    position = int((order == 3).nonzero())
    assert found.trace.stops[0].batch == position // 40 + 1
