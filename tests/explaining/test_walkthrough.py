"""The steps of one batch, compared with torch.chunk and with chunks computed by hand."""

from collections import Counter

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import dpdemo
from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.config.catalogue import MODELS
from dpdemo.virtual import virtual_gpus

NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
needs_gpu = pytest.mark.skipif(NUM_GPUS == 0, reason="no CUDA GPU is visible on this machine")
needs_no_gpu = pytest.mark.skipif(NUM_GPUS > 0, reason="a CUDA GPU is visible on this machine")

STEPS = ["scatter", "replicate", "parallel_apply", "gather"]

FAILING = """
import torch
from torch import nn

class FailsInReplica(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)

    def forward(self, x):
        if x.get_device() == 1:
            raise ValueError("not on this one")
        return self.fc(x)

class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        x.mul_(2)
        return {"logits": self.fc(x) * self.calls, "loss": (x ** 2).mean()}

class TwoTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)

    def forward(self, x):
        gap = 1 if len(x) == 30 else 0  # in a plain call alone
        return x.double().relu() * 0 + gap * 1e-9, x.relu() * 0 + gap * 1e-6

class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)

    def forward(self, x):
        inner = nn.DataParallel(nn.Linear(5, 2).to(x.device), [x.get_device(), 1 - x.get_device()])
        return self.fc(x) + inner(x)

class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.drop(x)
"""


@pytest.fixture
def own_models(users_folder):
    users_folder({"explained_models.py": FAILING})


def names(explanation):
    return [step.name for step in explanation.steps]


def rows(parts, dim=0):
    return [part.shapes[0][1][dim] for part in parts]


def noted_results(monkeypatch):
    """Return a list to which each call of DataParallel appends its result."""
    results, forward = [], nn.DataParallel.forward

    def noted(*args, **kwargs):
        results.append(forward(*args, **kwargs))
        return results[-1]

    monkeypatch.setattr(nn.DataParallel, "forward", noted)
    return results


@st.composite
def configs(draw):
    gpus = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    return {
        "model": draw(st.sampled_from(list(MODELS))),
        "gpus": gpus,
        "output_device": draw(st.none() | st.integers(0, 4)),
        "dim": draw(st.integers(0, 1)),
        "batch_size": 2 * len(gpus) * draw(st.integers(1, 3)) + draw(st.sampled_from([0, 0, 2])),
        "shuffle": draw(st.booleans()),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
    }


def trains(config):
    """BatchNorm refuses a chunk of one row in training."""
    chunks = torch.arange(config["batch_size"]).chunk(len(config["gpus"]))
    return config["model"] != "cnn" or min(map(len, chunks)) > 1


@needs_no_gpu
class TestOnVirtualGPUs:
    @given(configs().filter(trains))
    @settings(max_examples=60)
    def test_every_config_is_split_as_torch_chunk_splits(self, config):
        with virtual_gpus(5) as gpus:
            found = dpdemo.explain(**config)
            ledger = dict(gpus.bytes_moved_between)
        chunks = [len(chunk) for chunk in torch.arange(config["batch_size"]).chunk(len(config["gpus"]))]

        scatter = found.step("scatter")
        assert rows(scatter.made, config["dim"]) == chunks
        assert [part.device for part in scatter.made] == [f"cuda:{i}" for i in config["gpus"][: len(chunks)]]
        assert list(found.idle) == [f"cuda:{i}" for i in config["gpus"][len(chunks) :]]
        if len(config["gpus"]) > 1:
            assert names(found) == STEPS
            out = config["output_device"]
            assert found.steps[-1].made[0].device == f"cuda:{config['gpus'][0] if out is None else out}"
        moves = [move for step in found.steps for move in step.moved if move.source != "cpu"]
        moved = Counter()
        for move in moves:
            moved[move.source, move.target] += move.num_bytes
        counted = {(f"cuda:{source}", f"cuda:{other}"): size for (source, other), size in ledger.items()}
        assert moved == {pair: size for pair, size in counted.items() if "cuda:None" not in pair}

    def test_the_tutorials_batch_moves_two_chunks_two_copies_and_two_outputs(self):
        found = dpdemo.explain(gpus=3, virtual=True)
        moved = {step.name: [(m.source, m.target, m.num_bytes) for m in step.moved] for step in found.steps}
        assert moved == {
            "scatter": [("cuda:0", "cuda:1", 200), ("cuda:0", "cuda:2", 200)],
            "replicate": [("cuda:0", "cuda:1", 48), ("cuda:0", "cuda:2", 48)],
            "parallel_apply": [],
            "gather": [("cuda:1", "cuda:0", 80), ("cuda:2", "cuda:0", 80)],
        }
        assert found.module == dpdemo.explain().module

    def test_replicas_are_cut_to_the_number_of_chunks(self):
        found = dpdemo.explain(gpus=8, batch_size=10, virtual=True)
        assert [len(found.step(name).made) for name in STEPS] == [5, 5, 5, 1]
        assert list(found.idle) == ["cuda:5", "cuda:6", "cuda:7"]

    def test_one_gpu_is_a_plain_call_on_the_whole_batch(self):
        found = dpdemo.explain(gpus=[0], virtual=True)
        assert names(found) == ["scatter", "plain call"]
        assert rows(found.step("scatter").made) == [30]

    def test_the_parameters_and_buffers_of_every_replica_are_counted(self):
        found = dpdemo.explain(gpus=2, model="cnn", virtual=True)
        module, step = found.module, found.step("replicate")
        assert (module.num_parameters, module.num_buffers) == (6, 3)
        assert {part.num_tensors for part in (*step.given, *step.made)} == {9}
        assert step.moved_bytes == module.parameter_bytes + module.buffer_bytes

    def test_batchnorm_differs_from_a_plain_call_and_a_linear_layer_does_not(self):
        plain = dpdemo.explain(gpus=3, virtual=True).plain
        assert plain.difference <= tolerance_of(plain.dtype).allowed(plain.scale)
        assert dpdemo.explain(gpus=3, model="cnn", virtual=True).plain.difference > 1e-3

    @pytest.mark.usefixtures("own_models")
    def test_of_tensors_of_several_types_the_one_that_is_the_farthest_off_for_its_type_counts(self):
        """The double has a gap of 1e-9, a share of 0.01 of its tolerance; the single one of 1e-6, of 0.08."""
        plain = dpdemo.explain(model="explained_models:TwoTypes", gpus=2, virtual=True).plain
        assert plain.dtype == "float32"
        assert plain.difference == pytest.approx(1e-6, rel=0.2)

    @pytest.mark.usefixtures("own_models")
    def test_a_data_parallel_inside_a_replica_adds_no_steps(self):
        found = dpdemo.explain(model="explained_models:Nested", gpus=2, virtual=True)
        assert names(found) == STEPS
        assert rows(found.step("scatter").made) == [15, 15]

    def test_only_the_wrapped_submodules_input_is_explained(self):
        found = dpdemo.explain(gpus=2, model="partial", virtual=True)
        assert found.wrapped == "block2"
        assert found.steps[0].given[0].shapes == (("", (30, 20)),)


@needs_no_gpu
def test_without_a_gpu_it_is_one_plain_call():
    found = dpdemo.explain()
    assert names(found) == ["plain call"]
    assert list(found.devices) == ["cpu"]
    assert not found.virtual


@needs_no_gpu
def test_gpus_that_are_not_there_are_an_error():
    with pytest.raises(dpdemo.UsageError, match="expected visible GPUs, got cuda:0, cuda:1"):
        dpdemo.explain(gpus=[0, 1])


@needs_no_gpu
@pytest.mark.usefixtures("own_models")
class TestTheUsersModel:
    def test_a_forward_that_fails_names_the_replica_and_the_users_line(self):
        with pytest.raises(
            dpdemo.RunError, match="ValueError in replica 1 on device 1: not on this one"
        ) as caught:
            dpdemo.explain(model="explained_models:FailsInReplica", gpus=2, virtual=True)
        assert "explained_models.py:12 in forward" in str(caught.value)

    @pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0:UserWarning")
    def test_structures_scalars_buffers_and_writes_into_the_input_are_seen_as_they_are(self):
        found = dpdemo.explain(model="explained_models:Structured", gpus=2, virtual=True)
        assert found.steps[-1].made[0].shapes == (("logits", (30, 2)), ("loss", (2,)))
        assert found.plain.difference is None

    def test_random_numbers_come_from_the_configs_seed(self, monkeypatch):
        results = noted_results(monkeypatch)
        for seed in (1, 2):
            torch.manual_seed(seed)
            dpdemo.explain(model="explained_models:Dropping", gpus=2, virtual=True)
        assert torch.equal(*results)

    def test_the_global_generator_is_left_as_it_was(self):
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        dpdemo.explain(model="explained_models:Dropping", gpus=2, virtual=True)
        assert torch.equal(torch.rand(3), expected)


@needs_gpu
class TestOnRealGPUs:
    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("dim", [0, 1])
    def test_one_card_three_times_takes_the_four_steps(self, model, dim):
        found = dpdemo.explain(model=model, gpus=[0, 0, 0], dim=dim)
        assert names(found) == STEPS
        assert rows(found.step("scatter").made, dim) == [10, 10, 10]

    def test_one_card_is_a_plain_call(self):
        assert names(dpdemo.explain(gpus=[0])) == ["scatter", "plain call"]
