"""Weights by memory, against every way to cut a batch."""

from itertools import product

import pytest
import torch

import dpdemo
from dpdemo.config.load import make_config
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.predict import batches_of, opened_stepper
from dpdemo.memory.weighing import Weigher
from dpdemo.reports.memory import Training

MODEL = {"input_size": 2**20, "output_size": 1, "gpus": 2}  # a row takes two of the allocator's segments
WORKSPACES = 64 * 2**20


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def rows_of(report):
    return tuple(gpu.rows for gpu in report.gpus)


def fits_of(capacities, most, **config):
    """The oracle: try all chunks up to `most` rows per GPU, and list those with which every GPU fits."""
    checked = make_config({**MODEL, "weights": "auto", **config})
    hardware = Hardware(list(capacities), reserve=0)
    with opened_stepper(checked, Training(), hardware, batches_of(checked, None), lambda _: None) as stepper:
        weigher = Weigher(stepper, lambda _: None)
        every = product(range(most + 1), repeat=len(capacities))
        return {
            chunks: all(gpu.answer == "fits" for gpu in weigher.measured(chunks).gpus)
            for chunks in every
            if any(chunks)
        }


@pytest.mark.slow
@pytest.mark.parametrize("room", [(150_000, 60_000), (120_000, 100_000), (180_000, 20_000), (90_000, 70_000)])
def test_the_largest_batch_is_the_largest_of_all_ways_to_cut(room):
    capacities = [WORKSPACES + 524 * one for one in room]
    fitting = [chunks for chunks, fits in fits_of(capacities, 14).items() if fits]
    # the first GPU alone copies nothing, and may take a row more than both: no split, so not asked for
    fitting = [chunks for chunks in fitting if chunks[1]] or fitting
    report = dpdemo.largest_batch(**MODEL, weights="auto", gpu_memory=capacities, reserve=0)
    assert max(map(sum, fitting)) < 28  # else the oracle did not look far enough
    assert report.fit.largest == max(map(sum, fitting)) == sum(rows_of(report)) == report.batch_size
    assert rows_of(report) in fitting
    assert report.fits


def test_a_batch_past_smaller_ones_that_do_not_fit_is_found():
    # few rows of 3 MiB share segments of 20 MiB, and leave much of them; more rows have segments of their own
    given = {"input_size": 3 * 2**18, "output_size": 1}
    capacities = [110_332_342, 117_437_269]
    fitting = {chunks for chunks, fits in fits_of(capacities, 7, **given).items() if fits}
    report = dpdemo.largest_batch(**{**MODEL, **given}, weights="auto", gpu_memory=capacities, reserve=0)
    assert {sum(chunks) for chunks in fitting} == {1, 6}  # 2 to 5 rows fit in no way
    assert report.fit.largest == max(map(sum, fitting)) == 6
    assert rows_of(report) in fitting


def test_it_is_never_smaller_than_with_equal_chunks_and_the_first_gpu_gets_fewest_rows():
    config = {"input_size": 2**20, "output_size": 1, "gpus": 4, "gpu_memory": 160 * 2**20, "reserve": 0}
    even = dpdemo.largest_batch(**config)
    weighed = dpdemo.largest_batch(**config, weights="auto")
    assert weighed.fit.largest >= even.fit.largest > 0
    assert rows_of(weighed)[0] == min(rows_of(weighed))


def test_where_not_even_one_sample_fits_it_says_so():
    report = dpdemo.largest_batch(**MODEL, weights="auto", gpu_memory=WORKSPACES + 100, reserve=0)
    assert (report.fit.largest, report.fits) == (0, False)


@pytest.mark.slow
def test_a_batch_is_cut_so_that_the_fullest_gpu_holds_least():
    config = {**MODEL, "batch_size": 30}
    report = dpdemo.predict_memory(**config, weights="auto")
    peaks = {
        chunks: max(gpu.peak_bytes for gpu in dpdemo.predict_memory(**config, chunks=chunks).gpus)
        for chunks in ((rows, 30 - rows) for rows in range(30))  # all of it on one GPU needs no copies
    }
    assert max(gpu.peak_bytes for gpu in report.gpus) == min(peaks.values()) == peaks[rows_of(report)]


def test_a_model_that_cannot_run_one_row_gets_none_or_two():
    report = dpdemo.largest_batch(
        model="cnn", input_size=1, gpus=3, weights="auto", gpu_memory=WORKSPACES + 20_000, reserve=0
    )
    assert 1 not in rows_of(report)


def test_what_auto_found_is_what_its_chunks_need():
    found = dpdemo.predict_memory(**MODEL, batch_size=40, weights="auto")
    again = dpdemo.predict_memory(**MODEL, batch_size=40, chunks=rows_of(found))
    assert found.gpus == again.gpus


def test_a_gpu_that_is_named_twice_cannot_be_weighed():
    with pytest.raises(dpdemo.UsageError, match=r"expected each GPU once, got \[0, 0\]"):
        dpdemo.predict_memory(gpus=[0, 0], weights="auto")
