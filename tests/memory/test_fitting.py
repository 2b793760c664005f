"""The largest batch that fits fits, the next one does not, and the suggested remedies help."""

import threading

import pytest
from fastpart import mostly_slow
from torch import nn

from dpdemo import RunError, UsageError
from dpdemo.memory import largest_batch, predict_memory
from dpdemo.results.memorydata import Training
from dpdemo.sizes import parse_size

MODELS = ("linear", "partial", "hybrid", "cnn", "rnn", "transformer")


def fits(batch_size, gpu_memory, **given):
    report = predict_memory(gpu_memory=gpu_memory, reserve=0, batch_size=batch_size, **given)
    return report.answer == "fits"


@pytest.mark.parametrize("model", mostly_slow(MODELS, 6))
def test_the_largest_batch_fits_and_the_next_one_does_not(model):
    given = {"model": model, "gpus": 3, "input_size": 24}
    report = largest_batch(gpu_memory="100MiB", reserve=0, batch_size=16, **given)
    largest = report.fit.largest
    assert largest > 100
    assert report.batch_size == largest
    assert report.fits
    assert fits(largest, "100MiB", **given)
    assert not fits(largest + 1, "100MiB", **given)


@pytest.mark.slow
def test_it_is_what_trying_every_batch_finds():
    size = parse_size("82MiB")
    given = {"gpus": 2, "input_size": 64_000, "output_size": 3}
    fitting = [batch for batch in range(1, 60) if fits(batch, size, **given)]
    assert 2 < len(fitting) < 59
    assert largest_batch(gpu_memory=size, reserve=0, batch_size=30, **given).fit.largest == fitting[-1]


@pytest.mark.slow
def test_the_limiting_gpu_is_named_with_its_phase_and_missing_memory():
    report = largest_batch(gpus=3, gpu_memory=["1GiB", "70MiB", "1GiB"], reserve=0, model="cnn")
    fit = report.fit
    following = predict_memory(
        gpus=3, gpu_memory=["1GiB", "70MiB", "1GiB"], reserve=0, model="cnn", batch_size=fit.largest + 1
    )
    assert fit.binding == "cuda:1"
    assert fit.phase == following.gpus[1].phase
    assert fit.missing_bytes == -following.gpus[1].spare_bytes > 0


def test_where_not_even_one_sample_fits_it_says_so_and_shows_one():
    report = largest_batch(gpus=2, gpu_memory="70MiB", reserve=0, input_size=2000, output_size=2000)
    assert report.fit.largest == 0
    assert report.batch_size == 1
    assert not report.fits
    assert report.fit.binding == "cuda:0"
    assert report.fit.missing_bytes > 0


@pytest.mark.slow
def test_a_batch_whose_last_chunk_is_too_small_for_batchnorm_is_passed_over():
    given = {"gpus": 2, "model": "test_fitting:Normed", "inputs": ["8x64"]}
    report = largest_batch(gpu_memory="70MiB", reserve=0, batch_size=8, **given)
    assert report.fit.largest > 3
    assert report.fits
    with pytest.raises(RunError, match="more than 1 value per channel"):
        predict_memory(batch_size=3, **given)


def loss_of_the_whole_batch(output):
    assert threading.current_thread() is threading.main_thread(), "a replica has no whole batch"
    return output.mean()


class Normed(nn.Module):
    """A layer that cannot train on a lone sample."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        return self.norm(x)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(__import__("pathlib").Path(__file__).parent))


@pytest.fixture(scope="module")
def bound_by_outputs():
    """Two GPUs of which the first lacks room for the outputs that it gathers."""
    return largest_batch(
        gpus=2, gpu_memory="200MiB", reserve=0, input_size=64, output_size=4000, training=Training("sgd")
    )


def test_every_remedy_helps_and_the_best_comes_first(bound_by_outputs):
    remedies = bound_by_outputs.fit.remedies
    gains = [remedy.gain_bytes for remedy in remedies]
    assert {remedy.name for remedy in remedies} >= {
        *("loss inside the model", "another output_device", "autocast", "gradient accumulation"),
        "DistributedDataParallel",
    }
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0


def test_the_gain_of_another_output_device_is_what_setting_it_gains(bound_by_outputs):
    given = {"gpus": 2, "input_size": 64, "output_size": 4000, "training": Training("sgd")}
    batch_size = bound_by_outputs.fit.largest + 1
    before = predict_memory(batch_size=batch_size, **given)
    after = predict_memory(batch_size=batch_size, output_device=1, **given)
    remedy = next(r for r in bound_by_outputs.fit.remedies if r.name == "another output_device")
    assert remedy.gain_bytes == need(before) - need(after)
    assert remedy.how == "DataParallel(model, output_device=1)"
    assert (remedy.fullest, remedy.peak_bytes) == ("cuda:1", after.gpus[1].peak_bytes)


def need(report):
    """Return the need of the fullest GPU, in whole segments."""
    return max(gpu.needed_bytes for gpu in report.gpus)


def remedy_of(report, name):
    return next((remedy for remedy in report.fit.remedies if remedy.name == name), None)


def test_the_gain_of_autocast_is_what_autocast_gains(bound_by_outputs):
    given = {"gpus": 2, "input_size": 64, "output_size": 4000}
    batch_size = bound_by_outputs.fit.largest + 1
    before = predict_memory(batch_size=batch_size, training=Training("sgd"), **given)
    after = predict_memory(batch_size=batch_size, training=Training("sgd", amp=True), **given)
    assert remedy_of(bound_by_outputs, "autocast").gain_bytes == need(before) - need(after)


def test_one_process_for_each_gpu_gathers_nothing_and_holds_its_gradients_twice(bound_by_outputs):
    rows = -(-(bound_by_outputs.fit.largest + 1) // 2)
    alone = predict_memory(gpus=1, batch_size=rows, input_size=64, output_size=4000, training=Training("sgd"))
    found = remedy_of(bound_by_outputs, "DistributedDataParallel")
    assert found.peak_bytes == alone.gpus[0].peak_bytes + -(-4 * alone.num_parameters // 512) * 512


class Deep(nn.Module):
    """Many blocks alike."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)) for _ in range(8)
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.slow
def test_checkpointing_holds_one_block_at_a_time_in_each_replica_and_is_taken_back():
    given = {"gpus": 2, "model": "test_fitting:Deep", "inputs": ["64x64"], "training": Training("sgd")}
    forward = nn.Sequential.forward
    report = largest_batch(gpu_memory="400MiB", reserve=0, **given)
    found = remedy_of(report, "activation checkpointing")
    assert nn.Sequential.forward is forward
    assert found.how == "torch.utils.checkpoint around each Sequential"
    assert found.gain_bytes > 0.5 * report.fullest.peak_bytes


def test_a_model_that_looks_at_inference_alone_has_no_remedies_of_training():
    report = largest_batch(
        gpus=1, gpu_memory="100MiB", reserve=0, model="cnn", training=Training(inference=True)
    )
    assert report.fit.remedies == ()


@pytest.mark.slow
def test_a_remedy_with_which_the_model_cannot_run_is_left_out():
    given = {"gpus": 2, "gpu_memory": "200MiB", "reserve": 0, "input_size": 64, "output_size": 4000}
    whole_batch = Training("sgd", loss="test_fitting:loss_of_the_whole_batch")
    names = [
        {remedy.name for remedy in largest_batch(training=training, **given).fit.remedies}
        for training in (Training("sgd", loss="mean"), whole_batch)
    ]
    assert names[0] - names[1] == {"loss inside the model"}


def test_one_gpu_has_no_remedies_that_need_another():
    report = largest_batch(gpus=1, gpu_memory="100MiB", reserve=0, model="cnn")
    names = {remedy.name for remedy in report.fit.remedies}
    assert "gradient accumulation" in names
    assert not names & {"another output_device", "DistributedDataParallel"}


def test_memory_that_does_not_grow_with_the_batch_is_told():
    with pytest.raises(RunError, match="expected memory that grows with the batch"):
        largest_batch(
            gpus=2,
            gpu_memory="1GiB",
            reserve=0,
            model="test_fitting:Normed",
            inputs=lambda _: __import__("torch").zeros(8, 64),
        )


def test_a_search_needs_a_size():
    with pytest.raises(UsageError, match="expected the memory of each GPU, got none"):
        largest_batch(gpus=2, gpu_memory=None)


def test_a_batch_at_another_dimension_is_searched_too():
    report = largest_batch(gpus=2, gpu_memory="80MiB", reserve=0, model="rnn", dim=1, input_size=64)
    assert report.fit.largest > 100
    assert "gradient accumulation" in {remedy.name for remedy in report.fit.remedies}
