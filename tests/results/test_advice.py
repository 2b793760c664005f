from itertools import pairwise

import pytest
import torch
from hypothesis import given
from strategies import configs

from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.results.advice import KINDS, advice, find, parse_kinds, rule
from dpdemo.splitting.predict import predict, simulate

BOTH = "--batch-size 24 or --batch-size 32 fills all 8 devices equally"


def told(**values):
    return [str(finding) for finding in find(simulate(**values))]


@pytest.mark.parametrize(
    ("values", "findings"),
    [
        ({"gpus": 2}, []),
        ({"gpus": 3}, ["batch 4: chunks of 4 and 2 rows"]),
        (
            {"gpus": 8},
            ["batches 1–3: chunks of 4 and 2 rows", "batch 4: 3 of 8 devices idle (cuda:5–7)"],
        ),
        (
            {"gpus": 3, "batch_size": 4, "data_size": 8},
            ["batches 1–2: 1 of 3 devices idle (cuda:2)"],
        ),
        (
            {"gpus": 2, "batch_size": 3, "data_size": 3},
            ["batch 1: chunks of 2 and 1 rows",
             "batch 1: a chunk holds a lone sample; BatchNorm in training can fail there"],
        ),
        ({"data_size": 31}, ["batch 2: a chunk holds a lone sample; BatchNorm in training can fail there"]),
    ],
)  # fmt: skip
def test_findings_name_their_batches(values, findings):
    assert told(**values) == findings


@given(configs)
def test_findings_agree_with_the_chunks(config):
    report = predict(config)
    shown = set()
    for group in report.batches:
        sizes = [replica.rows for replica in group.in_model]
        shown |= {("idle", group.first)} if len(sizes) < len(report.devices) else set()
        shown |= {("uneven", group.first)} if len(set(sizes)) > 1 else set()
        shown |= {("lone-sample", group.first)} if 1 in sizes else set()
    assert {(finding.kind, finding.group.first) for finding in find(report)} == shown


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"gpus": 2}, ""),
        ({"gpus": 3}, "--drop-last leaves out the short last batch of 10"),
        (
            {"gpus": 8},
            "--batch-size 24 --drop-last fills all 8 devices equally, and leaves out 4 samples at the end",
        ),
        ({"gpus": 8, "drop_last": True}, BOTH),
        ({"gpus": 8, "data_size": 96}, BOTH),
        # 24 would leave a last batch of 8: a lone sample a device
        ({"gpus": 8, "data_size": 32}, "--batch-size 32 fills all 8 devices equally"),
        # 16 is the least that gives each of 8 devices two rows
        ({"gpus": 8, "batch_size": 8, "data_size": 64}, "--batch-size 16 fills all 8 devices equally"),
        (
            {"gpus": 8, "data_size": 30, "batch_size": 30},
            "--batch-size 24 --drop-last fills all 8 devices equally, and leaves out 6 samples at the end",
        ),
        (
            {"gpus": 4, "batch_size": 33, "data_size": 66},
            "--batch-size 32 --drop-last fills all 4 devices equally, and leaves out 2 samples at the end",
        ),
        (
            {"gpus": 3, "data_size": 10, "batch_size": 10},
            "--batch-size 9 --drop-last fills all 3 devices equally, and leaves out 1 sample at the end",
        ),
        ({"gpus": 64, "data_size": 100}, "100 samples give 64 devices less than two rows each: 50 would do"),
        ({"batch_size": 1, "data_size": 4}, "--batch-size 2 fills the device with two rows"),
        ({"data_size": 1}, ""),
    ],
)
def test_advice_is_one_line(values, line):
    assert advice(simulate(**values)) == line


@given(configs)
def test_advised_sizes_leave_nothing_to_find(config):
    """In the full batches always; in the whole epoch unless the advice also says `--drop-last`."""
    line = advice(predict(config))
    words = line.split()
    sizes = [int(after) for word, after in pairwise(words) if word == "--batch-size"]
    for size in sizes:
        changed = predict(Config(**{**config.values(), "batch_size": size}))
        assert changed.batches[0].batch_size == size
        assert all(finding.group is not changed.batches[0] for finding in find(changed))
        if "--drop-last" not in line:
            assert find(changed) == ()
    if "--drop-last" in line:
        spared = {"drop_last": True} | ({"batch_size": sizes[0]} if sizes else {})
        assert find(predict(Config(**{**config.values(), **spared}))) == ()


@given(configs)
def test_the_rule_derives_the_chunks_of_an_uneven_batch(config):
    report = predict(config)
    uneven = [group for group in report.batches if group.idle or group.largest != group.smallest]
    if not uneven:
        assert not rule(report)
        return
    size, devices = uneven[0].batch_size, len(report.devices)
    sizes = [len(chunk) for chunk in torch.arange(size).chunk(devices)]
    assert f"ceil({size} / {devices}) = {sizes[0]} row" in rule(report)
    assert (f"the last chunk has the {sizes[-1]} left over" in rule(report)) == (sizes[-1] != sizes[0])
    assert ("none is left for" in rule(report)) == (len(sizes) < devices)


@given(configs)
def test_only_findings_have_advice_and_all_of_them(config):
    report = predict(config)
    helpless = config.data_size == 1
    assert bool(advice(report)) == (bool(find(report)) and not helpless)
    assert "\n" not in advice(report)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("idle", ("idle",)),
        ("lone-sample,idle", ("idle", "lone-sample")),
        ("idle, uneven", ("idle", "uneven")),
        (",".join(KINDS), KINDS),
    ],
)
def test_kinds_are_read_in_any_order(text, kinds):
    assert parse_kinds(text) == kinds


@pytest.mark.parametrize(
    ("text", "got", "hint"),
    [
        ("", "''", "separate kinds by commas: --fail-on idle,uneven"),
        ("idle,,uneven", "''", "separate kinds by commas: --fail-on idle,uneven"),
        ("idel", "'idel'", "did you mean `idle`?"),
        ("lone_sample", "'lone_sample'", "did you mean `lone-sample`?"),
    ],
)
def test_an_unknown_kind_is_an_error(text, got, hint):
    expected = rf"^expected some of idle,uneven,lone-sample, got {got} - at argument `fail_on`$"
    with pytest.raises(UsageError, match=expected) as caught:
        parse_kinds(text)
    assert caught.value.hint == hint
