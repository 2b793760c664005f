"""A program whose gradients are the weights of its tokens: what `simulate --lengths` predicts of it holds."""

import json

import pytest

from dpdemo import simulate

LENGTHS = [3, 9, 1, 2, 7, 8, 4, 5, 6, 2, 2, 9, 1, 1]
PROGRAM = '''
import json
import sys
import torch
from torch import nn

LENGTHS, ROWS, ACCUMULATE, IS_DDP = json.loads(sys.argv[1])
WIDTH = max(LENGTHS)


class MeanOfTokens(nn.Module):
    """Each token has a parameter of its own, whose gradient is the token's weight in the loss."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(sum(LENGTHS) + 1))

    def forward(self, input_ids, attention_mask):
        return (self.value[input_ids] * attention_mask).sum() / attention_mask.sum()


rows, first = [], 1
for length in LENGTHS:
    rows.append(torch.cat([torch.arange(first, first + length), torch.zeros(WIDTH - length, dtype=int)]))
    first += length
ids = torch.stack(rows)
if IS_DDP:
    torch.distributed.init_process_group("nccl")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.cuda.set_device(rank)
    model = nn.parallel.DistributedDataParallel(MeanOfTokens().cuda(), device_ids=[rank])
    sampler = torch.utils.data.DistributedSampler(ids, shuffle=False)
    batches = torch.utils.data.DataLoader(ids, batch_size=ROWS, sampler=sampler)
else:
    model = nn.DataParallel(MeanOfTokens().cuda())
    batches = ids.split(ROWS)
weights = []
for number, batch in enumerate(batches, 1):
    batch = batch.cuda()
    (model(batch, (batch > 0).long()).mean() / ACCUMULATE).backward()
    if number % ACCUMULATE == 0:
        gradient = model.module.value.grad
        used = gradient[gradient > 0]
        weights += (used * len(used)).tolist()
        model.module.value.grad = None
if not IS_DDP or rank == 0:
    print(json.dumps([min(weights), max(weights)]))
if IS_DDP:
    torch.distributed.destroy_process_group()
'''


@pytest.fixture
def weights_of(program, tmp_path):
    """Run the program, and return the extremes of its tokens' weights."""

    def call(*options, rows, accumulate=1, is_ddp=False):
        (tmp_path / "train.py").write_text(PROGRAM)
        given = json.dumps([LENGTHS, rows, accumulate, is_ddp])
        done = program("exec", *options, "train.py", given, cwd=tmp_path)
        assert done.code == 0, done.err
        return json.loads(done.out.splitlines()[-1])

    return call


def predicted(**given):
    tokens = simulate(lengths=LENGTHS, **given).to_dict()["tokens"]
    return [tokens["lightest"]["weight"], tokens["heaviest"]["weight"]]


@pytest.mark.slow
def test_gradients_over_accumulated_batches_have_the_predicted_weights(weights_of):
    found = weights_of("--gpus", 3, rows=7, accumulate=2)
    assert found == pytest.approx(predicted(gpus=3, batch_size=7, accumulate=2), rel=1e-5)


@pytest.mark.slow
def test_gradients_under_ddp_have_the_predicted_weights(weights_of):
    found = weights_of("--ranks", 2, rows=7, is_ddp=True)
    assert found == pytest.approx(predicted(gpus=2, batch_size=7, strategy="ddp"), rel=1e-5)


def test_exec_observes_the_predicted_tokens_and_gradients(weights_of, tmp_path):
    found = weights_of("--gpus", 3, "--report", "report.json", rows=7)
    assert found == pytest.approx(predicted(gpus=3, batch_size=7), rel=1e-5)
    seen = json.loads((tmp_path / "report.json").read_text())["data_parallel"][0]["tokens"]
    planned = simulate(lengths=LENGTHS, gpus=3, batch_size=7, pad_to=max(LENGTHS)).to_dict()["tokens"]
    assert (seen["told_by"], seen["calls"]) == ("attention_mask", 2)
    for key in ("tokens", "padded_tokens", "balance", "padded_balance", "devices"):
        assert seen[key] == planned[key]
    assert seen["worst"]["devices"] == planned["worst"]["devices"]
