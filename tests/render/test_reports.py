"""Every report shows itself: as text, to Rich, in a notebook, as plain data, as rows, and in a file."""

import csv
import io
import json
import re
from html import unescape

import pytest
from memories import fitted
from rich.console import Console
from samples import called, interrupted, observed, returning_a_dict, simulated
from test_executed import report as executed
from test_executed import use
from test_explained import explanation

from dpdemo.errors import UsageError
from dpdemo.render import _DRAWN_IN, drawing_of, write
from dpdemo.render.rows import csv_pieces
from dpdemo.reports.check import CheckReport, Finding, Place, RulePage
from dpdemo.reports.diagnosis import Answer, Diagnosis
from dpdemo.reports.weights import SampleWeight, WeightsReport
from dpdemo.sweeping.sweep import sweep
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.workload import given_workload

RULE = RulePage("DP301", "lost-state", "error", "a title", (("Before", "self.n += 1"), ("After", "return n")))
CHECK = CheckReport("Net", 4, (Finding(RULE, "error", "n", "`n` is lost", Place("/m.py", 3), ("8",)),), (8,))
REPORTS = {
    "split": simulated(gpus=8),
    "ranks": simulated(gpus=2, nodes=2, strategy="ddp"),
    "dict": returning_a_dict(),
    "interrupted": interrupted(),
    "before the first batch": observed(simulated(gpus=2), batches=(), partial=True),
    "explanation": explanation([4, 4, 2]),
    "memory": fitted(),
    "execution": executed(use()),
    "check": CHECK,
    "sweep": sweep(gpus="1-4", batch_size="1-8"),
    "speedup": predict_speedup(given_workload(124_000_000), LINKS["pcie4"], [2]),
    "diagnosis": Diagnosis("m.py", 2, 8, (), (Answer("Is it right?", "bad", "DP301", "dpdemo check"),)),
    "weights": WeightsReport("Net", 2, 3, (2, 1), (SampleWeight(2, "cuda:1", 1.5),)),
}
every = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)


def test_there_is_one_of_each_report():
    assert {type(report).__name__ for report in REPORTS.values()} == set(_DRAWN_IN)


@every
def test_its_text_is_the_table_of_a_pipe(report):
    file = io.StringIO()
    write(report, "table", Console(file=file, width=80, _environ={}))

    assert f"{report}\n" == file.getvalue()


@every
@pytest.mark.parametrize("width", [60, 80, 120])
def test_rich_prints_it_as_wide_as_its_console(report, width):
    one, other = io.StringIO(), io.StringIO()
    Console(file=one, width=width, _environ={}).print(report, crop=False)
    write(report, "table", Console(file=other, width=width, _environ={}))

    assert one.getvalue() == other.getvalue()


def test_in_a_notebook_its_text_does_not_slip_into_the_cell(monkeypatch, tmp_path):
    report = simulated(gpus=2)
    text, page = str(report), report._repr_html_()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    assert (str(report), report._repr_html_()) == (text, page)
    report.save(tmp_path / "r.svg")


@every
def test_a_notebook_shows_the_letters_of_the_table_and_no_background(report):
    page = report._repr_html_()
    letters = unescape(re.sub(r"<[^>]+>", "", page))

    assert [line.rstrip() for line in letters.strip().splitlines()] == str(report).splitlines()
    assert "background-color: #ffffff" not in page
    assert "<body" not in page
    assert "<style" not in page


@every
def test_its_plain_data_is_what_json_holds(report):
    assert json.loads(report.to_json()) == json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert next(iter(report.to_dict())) == "schema"


@every
def test_its_rows_are_flat_and_those_of_its_csv(report):
    rows = report.rows()
    text = drawing_of(report).text("csv")
    read = list(csv.DictReader(io.StringIO(text)))

    assert text == "".join(csv_pieces(report.columns, [tuple(row.values()) for row in rows]))
    assert [list(row) for row in read] == [list(report.columns)] * len(rows)
    assert not any(isinstance(value, list | tuple | dict) for row in rows for value in row.values())


@every
def test_its_markdown_is_that_of_the_format(report):
    assert report.to_markdown() == drawing_of(report).text("markdown")
    assert report.to_markdown().endswith("\n")
    assert "\n\n\n" not in report.to_markdown()


@every
@pytest.mark.parametrize("ending", [".svg", ".html", ".txt", ".json", ".csv", ".md"])
def test_it_saves_itself_by_the_ending(report, ending, tmp_path):
    report.save(tmp_path / f"r{ending}")

    assert (tmp_path / f"r{ending}").read_text(encoding="utf-8").strip()
    with pytest.raises(UsageError, match="expected a file ending in "):
        report.save(tmp_path / "r.pdf")


def test_a_users_names_steer_no_notebook():
    page = called("a.b:<script>alert(1)</script>")._repr_html_()

    assert "<script" not in page


def test_reports_know_nothing_of_what_draws_them_until_they_are_drawn():
    from test_render import LOADED, run

    assert run(f"import dpdemo; dpdemo.simulate(gpus=3).rows(); {LOADED}").split() == ["pydantic"]
