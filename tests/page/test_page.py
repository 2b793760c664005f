"""The offline page as a file: one, small, closed to every network, and of the user's own case."""

import json
import re

import pytest

from dpdemo import UsageError
from dpdemo.cli.output import save
from dpdemo.prediction.lesson import golden_cases, make_lesson
from dpdemo.prediction.saved import read_memory, read_model_bytes
from dpdemo.render.page import as_page
from dpdemo.reports.diagnosis import Diagnosis
from dpdemo.reports.lesson import ModelBytes


def data_of(text):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_is_one_small_file():
    text = as_page(make_lesson(), "1.2")
    assert len(text.encode()) < 300_000
    assert "Made by dpdemo 1.2." in text
    assert re.findall(r"https?://|//cdn|@import|url\(", text) == []
    assert "default-src 'none'" in text


def test_the_page_opens_with_the_case_of_the_config():
    data = data_of(as_page(make_lesson(batch_size=64, data_size=1000, gpus=4, weights=(1, 2, 2, 0.5)), "1"))
    assert data["start"] == {"batch": 64, "data": 1000, "gpus": 4, "dropLast": False, "weights": "1,2,2,0.5"}
    assert data["model"]["moduleBytes"] == (5 + 1) * 2 * 4
    assert len(data["cases"]) == len(list(golden_cases()))


def test_a_models_name_cannot_leave_its_place():
    name = "</script><script>alert(1)</script>{{version}}:Net"
    text = as_page(make_lesson(model=ModelBytes(name, 1, 2, 3, "")), "1")
    assert "<script>alert" not in text
    assert data_of(text)["model"]["name"] == name


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gpus": 129}, "at most 128"),
        ({"batch_size": 10**6}, "at most 100000"),
        ({"data_size": 10**10}, "at most 1000000000"),
        ({"gpus": 2, "weights": (1, 0.0001)}, "at most three digits behind the point"),
    ],
)
def test_a_case_that_the_page_cannot_draw_is_refused(values, said):
    with pytest.raises(UsageError, match=said):
        make_lesson(**values)


def test_the_bytes_are_those_that_explain_saw(dpdemo_main, tmp_path):
    path = tmp_path / "explained.json"
    dpdemo_main("explain", "--virtual", "--gpus", "3", "--save", path, "--quiet")
    seen = read_model_bytes(path)
    counted = make_lesson().model
    assert (seen.input_bytes, seen.output_bytes, seen.module_bytes) == (
        counted.input_bytes,
        counted.output_bytes,
        counted.module_bytes,
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "dpdemo.memory/1"}', '{"schema": "dpdemo.explain/1"}']
)
def test_a_file_that_explain_did_not_save_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="expected what `dpdemo explain` saves"):
        read_model_bytes(path)
    with pytest.raises(UsageError, match="No such file"):
        read_model_bytes(tmp_path / "none.json")


def test_the_memory_is_what_dpdemo_memory_predicted(dpdemo_main, tmp_path):
    path = tmp_path / "memory.json"
    dpdemo_main("memory", "--gpus", "3", "--save", path, "--quiet")
    found = read_memory(path)
    told = json.loads(path.read_text())
    assert [gpu.peak for gpu in found.gpus] == [gpu["peak_bytes"] for gpu in told["gpus"]]
    assert all(sum(num_bytes for _, num_bytes in gpu.parts) == gpu.peak for gpu in found.gpus)
    with pytest.raises(UsageError, match="expected what `dpdemo explain` saves"):
        read_model_bytes(path)


def test_the_command_saves_the_page_and_writes_it_to_a_pipe(dpdemo_main, tmp_path):
    path = tmp_path / "page.html"
    done = dpdemo_main("page", "--gpus", "8", "--save", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"saved to {path}" in done.stderr
    piped = dpdemo_main("page", "--gpus", "8")
    assert piped.stdout == path.read_text()
    refused = dpdemo_main("page", "--save", tmp_path / "page.pdf")
    assert (refused.returncode, "expected a file ending in .html" in refused.stderr) == (2, True)


def test_a_model_of_ones_own_brings_its_bytes_and_its_memory_by_phase(dpdemo_main, tmp_path):
    path = tmp_path / "page.html"
    dpdemo_main("page", "cnn", "--gpus", "3", "--batch-size", "12", "--save", path, "--quiet")
    data = data_of(path.read_text())
    assert data["start"]["gpus"] == 3
    held = dict(data["memory"]["gpus"][0]["parts"])
    assert 0 < data["model"]["moduleBytes"] <= held["parameters"] + held["buffers"]
    first, second = (dict(gpu["phases"]) for gpu in data["memory"]["gpus"][:2])
    assert list(first) == [
        *("replicate", "forward", "gather", "loss", "backward", "optimizer step", "between steps"),
    ]
    assert second["forward"] > second["scatter"] > 0
    peak = data["memory"]["gpus"][0]
    workspaces = dict(peak["parts"])["library workspaces"] + dict(peak["parts"])["cuDNN scratch"]
    assert max(first.values()) == peak["peak"] - workspaces


@pytest.mark.parametrize("command", ["simulate", "explain", "memory", "sweep"])
def test_a_name_that_ends_in_page_html_saves_the_page_of_a_reports_case(dpdemo_main, tmp_path, command):
    path = tmp_path / "case.page.html"
    more = {"explain": ["--virtual"], "sweep": ["--batch-size", "24"]}.get(command, ["--batch-size", "24"])
    done = dpdemo_main(command, "--gpus", "4", *more, "--save", path)
    assert f"saved to {path}" in done.stderr
    data = data_of(path.read_text())
    assert data["start"]["gpus"] == 4
    assert data["start"]["batch"] == (30 if command == "explain" else 24)
    assert (data["memory"] is not None) == (command == "memory")
    if command == "explain":
        assert data["model"]["source"] == "as dpdemo explain saw them"


def test_a_report_without_a_page_is_refused_by_name(tmp_path):
    report = Diagnosis("linear", 2, None, (), ())
    with pytest.raises(
        UsageError, match=r"expected `\.html` for what this command shows, got 'x\.page\.html'"
    ):
        save(report, [tmp_path / "x.page.html"], quiet=True)
