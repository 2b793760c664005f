"""The forms of a speed-up report: the table letter by letter, the others against the report."""

import csv
import io
import json

import pytest
from samples import drawn

from dpdemo.results.speedup import Launches, Workload
from dpdemo.timing.links import LINKS, link_of_bandwidth
from dpdemo.timing.predict import predict_speedup

IMAGES = Workload(
    name="resnet50", rows=64, num_parameters=25_557_032, parameter_bytes=102_228_128, buffer_bytes=212_904,
    gradient_bytes=102_228_128, input_bytes=38_535_168, output_bytes=256_000,
    launches=Launches(228, 400, 151, 320),
)  # fmt: skip
WORDS = Workload(
    name="gpt2", rows=1, num_parameters=124_000_000, parameter_bytes=496_000_000, gradient_bytes=496_000_000
)
REPORTS = {
    "images": predict_speedup(IMAGES, LINKS["pcie4"], 3),
    "undivided": predict_speedup(WORDS, link_of_bandwidth("20GB/s"), 2),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_table_is_as_it_was(golden, name):
    golden(f"speedup-{name}.txt", drawn(REPORTS[name]))


@pytest.mark.parametrize("name", REPORTS)
def test_the_table_fits_a_narrow_terminal_with_one_strategy_below_the_other(name):
    text = drawn(REPORTS[name], width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert all(way.strategy in text for way in REPORTS[name].ways)


def test_json_has_the_report_and_its_summary():
    report = REPORTS["images"]
    written = json.loads(drawn(report, "json"))
    assert (written["schema"], written["summary"]) == ("dpdemo.speedup/2", report.summary)
    assert written["ways"][0]["num_bytes"] == report.ways[0].num_bytes
    assert written["ways"][1]["break_even_ms"]["low"] == report.ways[1].break_even_ms.low
    assert written["ways"][1]["launch_ms"] is None


def test_csv_has_a_line_for_each_strategy():
    for report in REPORTS.values():
        lines = list(csv.DictReader(io.StringIO(drawn(report, "csv"))))
        for line, way in zip(lines, report.ways, strict=True):
            assert (line["strategy"], int(line["num_bytes"])) == (way.strategy, sum(way.num_bytes.values()))
            even = "" if way.break_even_ms is None else str(way.break_even_ms.high)
            assert line["break_even_ms_high"] == even
