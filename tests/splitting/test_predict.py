import pytest
from hypothesis import given
from strategies import configs

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config, resolve
from dpdemo.errors import UsageError
from dpdemo.splitting.predict import predict, simulate


def rows(report):
    return [[replica.rows for replica in group.in_model] for group in report.batches]


@pytest.mark.parametrize(
    ("gpus", "in_batch_of_30", "in_batch_of_10", "idle"),
    [
        (None, [30], [10], ""),
        (1, [30], [10], ""),
        (2, [15] * 2, [5] * 2, ""),
        (3, [10] * 3, [4, 4, 2], ""),
        (8, [4] * 7 + [2], [2] * 5, "cuda:5–7"),
    ],
)
def test_the_tutorials_epoch_splits_as_the_tutorial_shows(gpus, in_batch_of_30, in_batch_of_10, idle):
    report = simulate(gpus=gpus)
    assert rows(report) == [in_batch_of_30, in_batch_of_10]
    assert [(group.count, group.batch_size) for group in report.batches] == [(3, 30), (1, 10)]
    assert [str(group.idle) for group in report.batches] == ["", idle]
    assert [group.outside.output for group in report.batches] == [(("", (30, 2)),), (("", (10, 2)),)]
    assert report.batches[0].in_model[0].input == (("", (in_batch_of_30[0], 5)),)
    assert report.batches[0].in_model[0].output == (("", (in_batch_of_30[0], 2)),)


@pytest.mark.parametrize("data_size", [100, 10**9])
def test_an_epoch_of_any_size_is_two_groups_of_a_replica_for_each_chunk(data_size):
    report = simulate(gpus=8, data_size=data_size)
    assert [len(group.in_model) for group in report.batches] == [8, 5]
    assert report.totals.samples == data_size


@given(configs)
def test_a_prediction_has_at_most_two_groups(config):
    report = predict(config)
    assert len(report.batches) <= 2
    assert report.config is config
    assert report.command == "simulate"


def test_drop_last_leaves_out_the_short_batch_and_only_that():
    assert rows(simulate(gpus=2, drop_last=True)) == [[15, 15]]
    assert rows(simulate(gpus=2, drop_last=True, data_size=90)) == rows(simulate(gpus=2, data_size=90))


def test_of_a_users_own_model_the_outputs_are_not_known():
    (batch, _) = simulate(gpus=3, model="pkg.mod:factory", dim=1).batches
    assert (batch.in_model[0].input, batch.in_model[0].output) == ((("", (5, 10)),), ())
    assert (batch.outside.input, batch.outside.output) == ((("", (5, 30)),), ())


def test_all_gpus_cannot_be_previewed():
    with pytest.raises(
        UsageError, match=r"^expected a count such as 8, .*, got `all`, which depends on the machi"
    ):
        simulate(gpus="all")


def test_an_output_device_without_gpus_is_an_error_and_not_ignored():
    with pytest.raises(
        UsageError, match=r"^expected GPUs to gather on, got output_device 1 without `gpus` - at a"
    ):
        simulate(output_device=1)


def test_a_config_can_be_a_config_a_path_or_keywords(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("gpus: 3\nbatch_size: 12\n")
    expected = make_config({"gpus": 3, "batch_size": 12})
    assert resolve(None, {"gpus": 3, "batch_size": 12}) == expected
    assert resolve(expected, {}) == resolve(str(path), {}) == resolve(path, {}) == expected
    assert resolve(expected, {"gpus": 2}).gpus == resolve(path, {"gpus": 2}).gpus == 2


def test_a_config_made_by_hand_is_checked_as_a_whole():
    with pytest.raises(
        UsageError, match=r"^expected at least one full batch, got data_size 10 < batch_size 30"
    ):
        simulate(Config(data_size=10, drop_last=True))


def test_a_bad_keyword_is_located_as_an_argument():
    with pytest.raises(UsageError, match=r"^expected a list of ordinals .*, got 0 - at argument `gpus`$"):
        simulate(gpus=0)
    with pytest.raises(
        UsageError, match=r"^expected a whole number of 1 or more, got 0 - at argument `batch_size`$"
    ):
        simulate(batch_size=0)
    with pytest.raises(UsageError, match=r"^expected a known key, got `batchsize`$"):
        simulate(batchsize=3)
