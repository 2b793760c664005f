"""The forms of a speed-up report: the table letter by letter, the others against the report."""

import csv
import io
import json

import pytest
from samples import drawn

from dpdemo.results.speedupdata import Anchor, Launches
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.workload import given_workload

LAUNCHES = Launches(forward=228, backward=400, modules=151, tensors=320)
IMAGES = given_workload(25_557_032, output_bytes=256_000, input_bytes=38_535_168, rows=64, launches=LAUNCHES)
WORDS = given_workload(124_000_000, output_bytes=98_000_000)
REPORTS = {
    "anchored": predict_speedup(IMAGES, LINKS["pcie4"], [2, 4, 8], [Anchor(ms=193)]),
    "bytes": predict_speedup(WORDS, LINKS["nvlink-3090"], [2]),
    "one": predict_speedup(WORDS, LINKS["no-p2p"], [1], [Anchor(ms=49)]),
}


@pytest.mark.parametrize(("name", "width"), [("anchored", 80), ("anchored", 130), ("bytes", 80), ("one", 80)])
def test_the_table_is_as_it_was(golden, name, width):
    golden(f"speedup-{name}-{width}.txt", drawn(REPORTS[name], width=width))


@pytest.mark.parametrize("name", REPORTS)
def test_the_table_fits_a_narrow_terminal_with_one_strategy_below_the_other(name):
    text = drawn(REPORTS[name], width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert all(way.strategy == "DDP" or f"{way.num_gpus} × DP" in text for way in REPORTS[name].ways)


def test_markdown_is_as_it_was(golden):
    golden("speedup-anchored.md", drawn(REPORTS["anchored"], "markdown"))


def test_json_has_the_report_and_its_summary():
    report = REPORTS["anchored"]
    told = json.loads(drawn(report, "json"))
    assert (told["schema"], told["summary"]) == ("dpdemo.speedup/1", report.summary)
    assert told["ways"][0]["weak"]["speedup"]["point"] == report.ways[0].weak.speedup.point


def test_csv_has_a_line_for_each_way_and_scaling():
    report = REPORTS["anchored"]
    lines = list(csv.DictReader(io.StringIO(drawn(report, "csv"))))
    assert len(lines) == 2 * len(report.ways)
    for line, way in zip(lines[::2], report.ways, strict=True):
        assert (line["gpus"], line["strategy"]) == (str(way.num_gpus), way.strategy)
        assert float(line["speedup"]) == way.weak.speedup.point
        assert int(line["moved_bytes"]) == way.weak.moved_bytes
