"""Saving: each ending, whole or not at all, and what is refused before anything runs."""

import dataclasses
import os
import re
import stat
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from samples import drawn, returning_a_dict, simulated

from dpdemo.errors import RunError, UsageError
from dpdemo.files import check_save_path

SUFFIXES = (".svg", ".html", ".txt", ".json", ".csv", ".md")
REPORT = simulated(gpus=8, batch_size=65, data_size=200)


@pytest.mark.parametrize(
    ("suffix", "form"), [(".txt", "table"), (".json", "json"), (".csv", "csv"), (".md", "markdown")]
)
@pytest.mark.parametrize("verbose", [False, True])
def test_a_text_file_equals_the_output_in_a_pipe(suffix, form, verbose, tmp_path):
    path = tmp_path / f"report{suffix}"
    dataclasses.replace(REPORT, verbose=verbose).save(path)

    assert path.read_text(encoding="utf-8") == drawn(REPORT, form, verbose=verbose)


@pytest.mark.parametrize("report", [REPORT, returning_a_dict()], ids=["linear", "structure"])
def test_svg_shows_the_tables_letters_each_in_its_cell(report, tmp_path):
    report.save(tmp_path / "report.svg")
    root = ET.parse(tmp_path / "report.svg").getroot()  # noqa: S314 - we wrote it
    cell = 20 * 0.602

    lines: dict[float, str] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if "textLength" not in text.attrib or not (
            letters := (text.text or "").replace("\xa0", " ").strip("\n")
        ):
            continue
        y, column = float(text.attrib["y"]), float(text.attrib["x"]) / cell
        assert column == pytest.approx(round(column), abs=0.01)
        assert float(text.attrib["textLength"]) == pytest.approx(len(letters) * cell, abs=0.01)
        lines[y] = lines.get(y, "").ljust(round(column)) + letters
    shown = [lines[y].rstrip() for y in sorted(lines)]

    assert shown == [line for line in drawn(report).splitlines() if line]


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_pictures_need_nothing_from_a_network(suffix, tmp_path):
    REPORT.save(tmp_path / f"report{suffix}")
    text = (tmp_path / f"report{suffix}").read_text(encoding="utf-8")
    text = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)

    assert "//" not in text
    assert not re.search(r"@import|@font-face|<script|<link|<img|\bsrc=|href=|url\((?!#)", text)


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "20"}, {"FORCE_COLOR": "1"}]
)
@pytest.mark.parametrize("suffix", [".svg", ".html", ".txt"])
def test_a_picture_is_the_same_from_every_terminal(suffix, environment, tmp_path, monkeypatch):
    REPORT.save(tmp_path / f"one{suffix}")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    REPORT.save(tmp_path / f"other{suffix}")

    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"other{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_interruption_before_the_replacement_leaves_the_old_file(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"report{suffix}"
    path.write_text("old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        REPORT.save(path)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interruption_while_writing_leaves_the_old_file(error, tmp_path, monkeypatch):
    def half(*_, **__):
        yield "{"
        raise error

    monkeypatch.setattr("dpdemo.results.report.json_pieces", half)
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(error):
        REPORT.save(path)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_and_leaves_the_old_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(RunError, match=r"could not save '.*report.json': No space left on device") as caught:
        REPORT.save(path)

    assert caught.value.hint == "the previous file is untouched"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_file_keeps_its_permissions_and_a_new_one_has_the_usual(tmp_path):
    usual = tmp_path / "usual"
    usual.touch()
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.touch()
    old.chmod(0o640)
    REPORT.save(old)
    REPORT.save(new)

    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_a_link_goes_on_pointing_to_its_file(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real" / "report.csv")
    REPORT.save(link)

    assert link.is_symlink()
    assert (tmp_path / "real" / "report.csv").read_text().startswith("first,count")


@pytest.mark.parametrize("name", ["r.svg", "R.SVG", "r.x.json", "r.md"])
def test_a_good_path_is_accepted_and_nothing_is_written(name, tmp_path):
    check_save_path(tmp_path / name, SUFFIXES)

    assert list(tmp_path.iterdir()) == []


ENDINGS = r"expected a file ending in \.svg, \.html, \.txt, \.json, \.csv or \.md, got "


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("report.png", ENDINGS + r"'report.png' - at argument `save`", "try save='report.svg'"),
        ("report.jsn", ENDINGS + r"'report.jsn' - at argument `save`", "try save='report.json'"),
        ("report", ENDINGS + r"'report' - at argument `save`", "try save='report.svg'"),
        (".svg", ENDINGS + r"'.svg' - at argument `save`", "try save='report.svg'"),
        ("-", ENDINGS + r"'-' - at argument `save`", "try save='-.svg'"),
        ("folder.svg", r"expected a regular file, got 'folder.svg' - at argument `save`", "for a pipe or"),
        (
            "no/such/report.svg",
            r"expected a file in an existing folder, got 'no/such/report.svg' - at argument `save`",
            "make it first: mkdir -p no/such",
        ),
        (
            "a.txt/report.svg",
            r"expected a file in an existing folder, got 'a.txt/report.svg' - at argument `save`",
            "make it first: mkdir -p a.txt",
        ),
        (
            "pipe.json",
            r"expected a regular file, got 'pipe.json' - at argument `save`",
            "for a pipe or a device",
        ),
        ("x" * 300 + ".svg", r"\(File name too long\), got .* - at argument `save`", "choose another place"),
        (
            "zero\0byte.svg",
            r"\(.*null (byte|character).*\), got .* - at argument `save`",
            "choose another place",
        ),
    ],
)
def test_a_bad_path_is_refused_with_the_next_step(path, message, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "a.txt").touch()
    os.mkfifo(tmp_path / "pipe.json")

    with pytest.raises(UsageError, match=message) as caught:
        check_save_path(path, SUFFIXES)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("locked", "message"),
    [
        (
            "report.svg",
            "expected a file that can be written (read-only), got 'report.svg' - at argument `path`",
        ),
        (".", "expected a file that can be written (read-only), got 'report.svg' - at argument `path`"),
    ],
)
def test_a_read_only_place_is_refused(locked, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.svg").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != locked)  # root may write anywhere

    with pytest.raises(UsageError, match=re.escape(message)):
        REPORT.save("report.svg")
    assert (tmp_path / "report.svg").read_text() == "old"
