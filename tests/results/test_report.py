import dataclasses
from fractions import Fraction

from hypothesis import given
from strategies import batch_sizes, configs, device_counts

from dpdemo.config.load import make_config
from dpdemo.results.split import SplitReport
from dpdemo.splitting.predict import predict, simulate


def weight_by_definition(sizes: list[int]) -> Fraction:
    """Weigh a sample of the shortest chunk in the mean of the replicas' means, over its even share."""
    in_mean_of_means = Fraction(1, len(sizes)) * Fraction(1, min(sizes))
    return in_mean_of_means / Fraction(1, sum(sizes))


def chunk_rows(group) -> list[int]:
    return [replica.rows for replica in group.in_model]


@given(batch_sizes, device_counts)
def test_the_weight_is_the_one_of_the_definition(batch_size, num_devices):
    (group,) = simulate(batch_size=batch_size, data_size=batch_size, gpus=num_devices).batches
    assert group.sample_weight == float(weight_by_definition(chunk_rows(group)))


@given(configs)
def test_totals_are_the_sums_over_every_batch(config):
    report = predict(config)
    batches = list(report.each_batch())
    computed = sum(sum(chunk_rows(batch)) for batch in batches)
    capacity = sum(len(report.devices) * max(chunk_rows(batch)) for batch in batches)
    assert report.totals.batches == len(batches)
    assert report.totals.samples == sum(batch.batch_size for batch in batches) == computed
    assert report.totals.utilization == computed / capacity
    left_out = config.data_size % config.batch_size if config.drop_last else 0
    assert report.totals.samples == config.data_size - left_out


@given(configs)
def test_batches_are_numbered_through_and_use_every_device_or_name_it_idle(config):
    report = predict(config)
    batches = list(report.each_batch())
    assert [batch.first for batch in batches] == list(range(1, len(batches) + 1))
    assert [group.last() for group in report.batches][-1] == len(batches)
    for batch in batches:
        named = [replica.device for replica in batch.in_model] + list(batch.idle)
        assert named == list(report.devices)
        assert batch.num_devices == len(report.devices)
        assert [replica.replica for replica in batch.in_model] == list(range(len(batch.in_model)))


def test_a_batch_has_its_own_utilization():
    full, last = simulate(gpus=8).batches
    assert (full.utilization, last.utilization) == (30 / 32, 10 / 16)
    assert (full.largest, full.smallest, full.rows_computed, full.num_replicas) == (4, 2, 30, 8)
    assert (last.num_devices, last.num_replicas) == (8, 5)


def test_a_batch_without_replicas_has_figures():
    """A model of the user's own may never call what is wrapped."""
    unseen = dataclasses.replace(simulate(gpus=3).batches[0], in_model=())
    assert (unseen.largest, unseen.smallest, unseen.utilization, unseen.sample_weight) == (0, 0, 1.0, 1.0)


def test_an_epoch_without_batches_has_totals_too():
    report = SplitReport("run", make_config({}), simulate().devices, ())
    assert (report.totals.batches, report.totals.samples, report.totals.utilization) == (0, 0, 1.0)
