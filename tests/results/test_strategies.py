"""The table of strategies: a column for each, its answer, and rows that each GPU can have."""

from dataclasses import replace

from memories import GIB, compared, fitted
from samples import drawn

from dpdemo.results.strategies import StrategiesReport, largest_rows
from dpdemo.results.wrapping import Wrapping


def test_the_picture_looks_like_the_golden_one(golden):
    golden("strategies-80.txt", drawn(compared()))


def test_each_strategy_has_an_answer():
    assert [line for line in drawn(compared()).splitlines() if " fit" in line] == [
        "DataParallel does not fit: 24.9 GiB on cuda:0, in the loss; lacks 937 MiB.",
        "DistributedDataParallel fits: 14 GiB on cuda:0, in backward; 10 GiB left.",
        "fully_shard fits: 13.6 GiB on cuda:0, in backward; 10.4 GiB left.",
    ]


def test_one_that_fits_is_enough():
    assert compared().fits
    assert not compared(GIB).fits


def test_without_a_capacity_nothing_fits_or_lacks():
    assert "fully_shard: 13.6 GiB on cuda:0, in backward." in drawn(compared(None))


def test_a_note_of_one_strategy_names_it_and_one_of_all_does_not():
    assert "FSDP2: A note." in drawn(compared())
    noted = StrategiesReport(tuple(replace(report, notes=("A note.",)) for report in compared().reports))
    assert "\nA note." in drawn(noted)


def test_settings_are_listed_for_the_strategy_that_reads_them():
    assert "FSDP2: computed in bf16, each block checkpointed." in drawn(compared())
    words = Wrapping(bucket_mb=5, bucket_view=True, mixed="bf16").words("ddp")
    assert words == ["buckets of 5 MiB", "gradients as views of buckets"]


def test_settings_that_a_strategy_does_not_read_are_left_out():
    settings = Wrapping(blocks=("Block",), mixed="bf16", bucket_mb=5)
    assert settings.of("ddp") == Wrapping(bucket_mb=5)
    assert settings.of("fsdp2") == Wrapping(blocks=("Block",), mixed="bf16")
    assert settings.of("dp") == Wrapping()


def test_the_largest_batch_of_data_parallel_is_shared():
    assert largest_rows(fitted()) == 61
    told = drawn(StrategiesReport((fitted(),)))
    assert "DataParallel: at most 61 rows on each GPU." in told
