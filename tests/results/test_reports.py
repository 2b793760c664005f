"""Every report shows itself: as text, to Rich, in a notebook, as plain data, as rows, and in a file."""

import csv
import io
import json
import re
from dataclasses import FrozenInstanceError, fields, replace
from html import unescape

import pytest
from memories import compared, fitted
from rich.console import Console
from samples import called, drawn, interrupted, observed, returning_a_dict, simulated, write
from test_executed import report as executed
from test_executed import use
from test_explained import explanation

from dpdemo.errors import UsageError
from dpdemo.files import endings
from dpdemo.results.check import CheckReport
from dpdemo.results.diagnosis import Answer, Diagnosis
from dpdemo.results.draws import DrawsReport
from dpdemo.results.findings import Finding, Place, RulePage
from dpdemo.results.ranks import (
    Collective,
    Coverage,
    Mistake,
    RankModel,
    RankResult,
    RankSamples,
    RanksResult,
)
from dpdemo.results.report import Report, TableReport
from dpdemo.results.speedup import Workload
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import predict_speedup

RULE = RulePage("DP301", "lost-state", "error", "a title", (("Before", "self.n += 1"), ("After", "return n")))
WORKLOAD = Workload(name="Net", rows=8, num_parameters=9, parameter_bytes=36, gradient_bytes=36)
CHECK = CheckReport("Net", 4, (Finding(RULE, "error", "n", "`n` is lost", Place("/m.py", 3), ("8",)),), (8,))


def ranks():
    model = RankModel("Net", "train.py:8", 4, 4, 4, {"[4, 3] → [4, 2]": 3, "[2, 3] → [2, 2]": 1})
    result = RankResult(
        0, 0, (Collective("all_reduce", 4, 96), Collective("barrier", 1, 0)), {"cuda:0": 512}, (model,),
        (RankSamples("train.py:20", 2, 8, 15),),
    )  # fmt: skip
    mistake = Mistake("2 ranks wrote m.pt", "train.py:30", "write it on rank 0 alone")
    covered = (Coverage("train.py:20", 15, 16, 1, 0),)
    return RanksResult(
        "train.py", (), (result, replace(result, rank=1)), ("rank 1 failed",), (mistake,), covered
    )


REPORTS = [
    simulated(gpus=8),
    simulated(gpus=2, nodes=2, strategy="ddp"),
    returning_a_dict(),
    interrupted(),
    observed(simulated(gpus=2), batches=(), partial=True),
    explanation([4, 4, 2]),
    fitted(),
    compared(),
    executed(use()),
    CHECK,
    predict_speedup(WORKLOAD, LINKS["pcie4"], 2),
    Diagnosis("m.py", 2, 8, (), (Answer("Is it right?", "bad", "DP301", "dpdemo check"),)),
    ranks(),
    DrawsReport("torch", "torch 2.13.0", 4, 2, (((0, 2),), ((1, 3),))),
]


def test_there_is_one_of_each_report():
    kinds = {kind.__name__ for kind in leaves(Report) if not kind.__name__.endswith("Data")}
    assert {type(report).__name__ for report in REPORTS} == kinds


def test_reports_are_frozen():
    for report in REPORTS:
        with pytest.raises(FrozenInstanceError):
            setattr(report, fields(report)[0].name, None)


def leaves(kind):
    below = kind.__subclasses__()
    return set().union(*map(leaves, below)) if below else {kind}


def test_rich_prints_a_report_as_wide_as_its_console():
    for report in REPORTS:
        for width in (60, 80, 120):
            first, other = io.StringIO(), io.StringIO()
            Console(file=first, width=width, _environ={}).print(report, crop=False)
            report.write("table", other, width=width)
            assert first.getvalue() == other.getvalue()


def test_a_pipe_gets_no_line_that_is_too_wide_or_ends_in_blanks():
    for report in REPORTS:
        for width in (60, 80, 120):
            for line in drawn(report, width=width).splitlines():
                assert len(line) <= width, line
                assert line == line.rstrip()


def test_a_very_narrow_terminal_and_one_without_unicode_are_enough():
    for report in REPORTS:
        assert all(drawn(report, width=width) for width in (1, 7, 20, 39))
        for encoding in ("ascii", "latin-1", "cp1252"):
            assert drawn(report, encoding=encoding).isascii()


def test_without_colour_the_same_letters_remain():
    def letters(report, **environment):
        options = {"force_terminal": True, "color_system": "standard", "_environ": environment}
        file = io.StringIO()
        write(report, "table", Console(file=file, width=80, **options))
        return file.getvalue()

    for report in REPORTS:
        coloured, uncoloured = letters(report), letters(report, NO_COLOR="1")
        assert "\x1b" in coloured
        assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", uncoloured)
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == re.sub(r"\x1b\[[0-9;]*m", "", uncoloured)


def test_a_users_control_characters_reach_no_form():
    named = called("evil\x1b[2J:Net")
    for report in (named, replace(fitted(), config=named.config)):
        for form in ("table", *report.FORMS):
            assert "\x1b" not in drawn(report, form)
        assert r"evil\x1b[2J:Net" in drawn(report)


def test_in_a_notebook_its_text_does_not_slip_into_the_cell(monkeypatch, tmp_path):
    report = simulated(gpus=2)
    text, page = str(report), report._repr_html_()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    assert (str(report), report._repr_html_()) == (text, page)
    report.save(tmp_path / "r.svg")


def test_a_notebook_shows_the_letters_of_the_table_and_no_background():
    for report in REPORTS:
        page = report._repr_html_()
        letters = unescape(re.sub(r"<[^>]+>", "", page))
        assert [line.rstrip() for line in letters.strip().splitlines()] == str(report).splitlines()
        assert not any(part in page for part in ("background-color: #ffffff", "<body", "<style"))


def test_plain_data_rows_and_markdown_are_those_of_the_formats():
    for report in REPORTS:
        assert json.loads(report.to_json()) == json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert next(iter(report.to_dict())) == "schema"
        if not isinstance(report, TableReport):
            assert report.FORMS[:1] == ("json",)
            assert not {"csv", "markdown"} & set(report.FORMS)
            continue
        rows = report.rows()
        read = list(csv.DictReader(io.StringIO(report.text("csv"))))
        assert [list(row) for row in read] == [list(report.columns)] * len(rows)
        assert not any(isinstance(value, list | tuple | dict) for row in rows for value in row.values())
        assert report.to_markdown().endswith("\n")
        assert "\n\n\n" not in report.to_markdown()


def test_a_report_saves_itself_by_the_ending(tmp_path):
    for report in REPORTS:
        for ending in endings(report.FORMS):
            report.save(tmp_path / f"r{ending}")
            assert (tmp_path / f"r{ending}").read_text(encoding="utf-8").strip()
        with pytest.raises(UsageError, match="expected a file ending in "):
            report.save(tmp_path / "r.pdf")


def test_a_users_names_steer_no_notebook():
    page = called("a.b:<script>alert(1)</script>")._repr_html_()

    assert "<script" not in page
