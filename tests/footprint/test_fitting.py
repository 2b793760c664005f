"""The largest batch that fits fits, the next one does not, and what is said to help does."""

import threading

import pytest
from torch import nn

from dpdemo import RunError, UsageError
from dpdemo.bytesize import parse_size
from dpdemo.footprint import largest_batch, predict_memory
from dpdemo.memoryreport import Training

MODELS = ("linear", "partial", "hybrid", "cnn", "rnn", "transformer")


def fits(batch_size, gpu_memory, **given):
    return predict_memory(gpu_memory=gpu_memory, batch_size=batch_size, **given).fits


@pytest.mark.parametrize("model", MODELS)
def test_the_largest_batch_fits_and_the_next_one_does_not(model):
    given = {"model": model, "gpus": 3, "input_size": 24}
    report = largest_batch(gpu_memory="100MiB", batch_size=16, **given)
    largest = report.fit.largest
    assert largest > 100
    assert report.batch_size == largest
    assert report.fits
    assert fits(largest, "100MiB", **given)
    assert not fits(largest + 1, "100MiB", **given)


def test_it_is_what_trying_every_batch_finds():
    size = parse_size("64MiB") + 20_000
    given = {"gpus": 2, "input_size": 64, "output_size": 3}
    fitting = [batch for batch in range(1, 60) if fits(batch, size, **given)]
    assert 2 < len(fitting) < 59
    assert largest_batch(gpu_memory=size, batch_size=30, **given).fit.largest == fitting[-1]


def test_the_gpu_that_binds_is_told_with_the_phase_and_what_it_lacks():
    report = largest_batch(gpus=3, gpu_memory=["1GiB", "70MiB", "1GiB"], model="cnn")
    fit = report.fit
    following = predict_memory(
        gpus=3, gpu_memory=["1GiB", "70MiB", "1GiB"], model="cnn", batch_size=fit.largest + 1
    )
    assert fit.binding == "cuda:1"
    assert fit.phase == following.gpus[1].phase
    assert fit.missing_bytes == -following.gpus[1].spare_bytes > 0


def test_where_not_even_one_sample_fits_it_says_so_and_shows_one():
    report = largest_batch(gpus=2, gpu_memory="70MiB", input_size=2000, output_size=2000)
    assert report.fit.largest == 0
    assert report.batch_size == 1
    assert not report.fits
    assert report.fit.binding == "cuda:0"
    assert report.fit.missing_bytes > 0


def test_a_batch_whose_last_chunk_is_too_small_for_batchnorm_is_passed_over():
    given = {"gpus": 2, "model": "test_fitting:Normed", "inputs": ["8x64"]}
    report = largest_batch(gpu_memory=parse_size("64MiB") + 40_000, batch_size=8, **given)
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
        gpus=2, gpu_memory="200MiB", input_size=64, output_size=4000, training=Training("sgd")
    )


def test_every_remedy_helps_and_the_best_comes_first(bound_by_outputs):
    remedies = bound_by_outputs.fit.remedies
    room = [parse_size("200MiB") - remedy.peak_bytes for remedy in remedies]
    assert {remedy.name for remedy in remedies} >= {
        "loss inside the model",
        "another output_device",
        "inference mode",
    }
    assert room == sorted(room, reverse=True)
    assert all(remedy.gain_bytes > 0 for remedy in remedies)


def test_the_gain_of_another_output_device_is_what_setting_it_gains(bound_by_outputs):
    given = {"gpus": 2, "input_size": 64, "output_size": 4000, "training": Training("sgd")}
    batch_size = bound_by_outputs.fit.largest + 1
    before = predict_memory(batch_size=batch_size, **given)
    after = predict_memory(batch_size=batch_size, output_device=1, **given)
    remedy = next(r for r in bound_by_outputs.fit.remedies if r.name == "another output_device")
    assert remedy.gain_bytes == before.gpus[0].peak_bytes - after.gpus[0].peak_bytes
    assert remedy.how == "DataParallel(model, output_device=1)"
    assert (remedy.fullest, remedy.peak_bytes) == ("cuda:1", after.gpus[1].peak_bytes)


def test_the_gain_of_inference_is_what_inference_gains(bound_by_outputs):
    given = {"gpus": 2, "input_size": 64, "output_size": 4000}
    batch_size = bound_by_outputs.fit.largest + 1
    before = predict_memory(batch_size=batch_size, training=Training("sgd"), **given)
    after = predict_memory(batch_size=batch_size, training=Training("sgd", inference=True), **given)
    remedy = next(r for r in bound_by_outputs.fit.remedies if r.name == "inference mode")
    assert remedy.gain_bytes == before.gpus[0].peak_bytes - after.gpus[0].peak_bytes


def test_inference_has_no_optimizer_and_the_steps_after_it_have_theirs_again():
    given = {"gpus": 2, "input_size": 1000, "output_size": 1000}
    report = largest_batch(gpu_memory="90MiB", **given)
    batch_size = report.fit.largest + 1
    found = {remedy.name: remedy for remedy in report.fit.remedies}
    before = predict_memory(batch_size=batch_size, **given).gpus[0].peak_bytes
    inference = predict_memory(batch_size=batch_size, training=Training(inference=True), **given).gpus[0]
    elsewhere = predict_memory(batch_size=batch_size, output_device=1, **given).gpus[0]
    assert found["inference mode"].gain_bytes == before - inference.peak_bytes
    assert found["another output_device"].gain_bytes == before - elsewhere.peak_bytes


def test_a_remedy_with_which_the_model_cannot_run_is_left_out():
    given = {"gpus": 2, "gpu_memory": "200MiB", "input_size": 64, "output_size": 4000}
    own = Training("sgd", loss="test_fitting:loss_of_the_whole_batch")
    names = [
        {remedy.name for remedy in largest_batch(training=training, **given).fit.remedies}
        for training in (Training("sgd", loss="mean"), own)
    ]
    assert names[0] - names[1] == {"loss inside the model"}


def test_a_smaller_first_chunk_evens_the_gpus_out():
    report = largest_batch(
        gpus=4, gpu_memory="120MiB", model="transformer", input_size=64, output_size=200, batch_size=64
    )
    remedy = next(r for r in report.fit.remedies if r.name == "smaller chunk on GPU 0")
    assert remedy.how.startswith("scatter ")
    assert remedy.gain_bytes > 0
    assert remedy.peak_bytes < parse_size("120MiB")


def test_one_gpu_has_no_remedies_that_need_another():
    report = largest_batch(gpus=1, gpu_memory="100MiB", model="cnn")
    assert [remedy.name for remedy in report.fit.remedies] == ["inference mode"]


def test_memory_that_does_not_grow_with_the_batch_is_told():
    with pytest.raises(RunError, match="expected memory that grows with the batch"):
        largest_batch(
            gpus=2,
            gpu_memory="1GiB",
            model="test_fitting:Normed",
            inputs=lambda _: __import__("torch").zeros(8, 64),
        )


def test_a_search_needs_a_size():
    with pytest.raises(UsageError, match="expected the memory of a GPU such as 24GiB, got none"):
        largest_batch(gpus=2, gpu_memory=None)


def test_a_batch_at_another_dimension_is_searched_too():
    report = largest_batch(gpus=2, gpu_memory="80MiB", model="rnn", dim=1, input_size=64)
    assert report.fit.largest > 100
    assert "loss inside the model" in {remedy.name for remedy in report.fit.remedies}
