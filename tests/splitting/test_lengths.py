"""Reading lengths: the three forms, and errors with the file and the line."""

import io
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.errors import UsageError
from dpdemo.splitting.lengths import check_lengths, read_lengths


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into the current folder."""
    monkeypatch.chdir(tmp_path)

    def put(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return put


@pytest.mark.parametrize("text", ["5\n0\n12\n", "5\n0\n12", "5\r\n0\r\n12\r\n", "\ufeff5\n 0\n12\n\n\n"])
def test_a_text_has_a_whole_number_a_line(write, text):
    found = read_lengths(write("l.txt", text))
    assert (found.values, found.source) == ([5, 0, 12], "l.txt")
    assert found.lines[2] == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.jsonl", '{"n": 5, "x": [1]}\n{"n": 0}\n{"x": null, "n": 12}\n'),
        ("l.jsonl", '{"n": [7, 7, 7, 7, 7]}\n{"n": []}\n{"n": 12}\n'),
        ("l.csv", 'text,n\n"a, b",5\n,0\n"two\nlines",12\n'),
        ("l.tsv", "text\tn\na, b\t5\n\t0\nc\t12\n"),
    ],
)
def test_a_column_is_read_from_json_lines_and_csv(write, name, text):
    assert read_lengths(write(name, text) + ":n").values == [5, 0, 12]


def test_a_file_whose_name_has_a_colon_is_that_file(write):
    assert read_lengths(write("a:n", "5\n")).values == [5]


@pytest.mark.parametrize(("text", "typed"), [("-", "5\n7\n"), ("-:n", '{"n": 5}\n{"n": 7}\n')])
def test_a_dash_is_stdin(monkeypatch, text, typed):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    found = read_lengths(text)
    assert (found.values, found.source, found.lines[1]) == ([5, 7], "stdin", 2)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("lengths") / "l.txt"
    path.write_text("\n".join(map(str, values)))
    assert read_lengths(str(path)).values == values


BAD_TEXTS = [
    ("5\n-3\n", "expected a whole number of 0 or more, got '-3' - at l.txt:2"),
    ("5\n\n7\n", "expected a whole number of 0 or more, got nothing - at l.txt:2"),
    ("5\n7.5\n", "got '7.5' - at l.txt:2"),
    ("5\n7.0\n", "got '7.0' - at l.txt:2"),
    ("5\nnan\n", "got 'nan' - at l.txt:2"),
    ("5\n1e3\n", "got '1e3' - at l.txt:2"),
    ("5\n1_000\n", "got '1_000' - at l.txt:2"),
    ("5\n٣\n", "got '٣' - at l.txt:2"),
    ("5 6\n", "got '5 6' - at l.txt:1"),
    ("5\n" + "9" * 5000, "got '9999.* - at l.txt:2"),
    (f"5\n{2**63}\n", "got '9223372036854775808' - at l.txt:2"),
    ("", "expected a length for each sample, got an empty file - at l.txt"),
    ("\n \n", "got an empty file - at l.txt"),
    (b"5\n\xff\xfe\n", "expected text, got bytes that are not UTF-8 - at l.txt:2"),
    (b"\x7fELF\x00\x01", "expected a whole number of 0 or more, got .* - at l.txt:1"),
]


@pytest.mark.parametrize(("text", "said"), BAD_TEXTS)
def test_a_bad_line_is_named(write, text, said):
    with pytest.raises(UsageError, match=said):
        read_lengths(write("l.txt", text))


BAD_COLUMNS = [
    ('{"n": 5}\n{"n": -1}\n', "got -1 - at l:2, column `n`"),
    ('{"n": 5}\n{"m": 1}\n', "expected the column `n`, got m - at l:2"),
    ('{"n": 5}\n{"n": null}\n', "got null - at l:2, column `n`"),
    ('{"n": 5}\n{"n": NaN}\n', "got nan .* - at l:2, column `n`|got nan - at l:2, column `n`"),
    ('{"n": 5}\n{"n": true}\n', "got true - at l:2, column `n`"),
    ('{"n": 5}\n{"n": 5.0}\n', "got 5.0 - at l:2, column `n`"),
    ('{"n": 5}\n{"n": "5"}\n', r"got '5' - at l:2, column `n`"),
    ('{"n": 5}\n\n{"n": 5}\n', "expected a JSON object, got nothing - at l:2"),
    ('{"n": 5}\n[5]\n', r"expected a JSON object, got '\[5\]' - at l:2"),
    ('{"n": 5}\n{"n": 5\n', "expected a JSON object, got .* - at l:2"),
    ('{"n": 5}\n' + "[" * 100_000, "expected a JSON object, got .* - at l:2"),
    ("m,k\n5,6\n", "expected the column `n`, got m, k - at l:1"),
    ("m,n\n5,6\n7\n", "got nothing - at l:3, column `n`"),
    ("m,n\n5,6\n\n7,8\n", "got nothing - at l:3, column `n`"),
    ("m,n\n5,six\n", "got 'six' - at l:2, column `n`"),
    ("m,n\n", "got the head of a table alone - at l"),
    ("m,n\n" + '5,"' + "x" * 200_000, "expected CSV, got field larger than field limit .* - at l:"),
]


@pytest.mark.parametrize(("text", "said"), BAD_COLUMNS)
def test_a_bad_row_of_a_table_is_named(write, text, said):
    with pytest.raises(UsageError, match=said):
        read_lengths(write("l", text) + ":n")


def test_a_table_without_its_column_named_says_how(write):
    with pytest.raises(UsageError) as told:
        read_lengths(write("l.csv", "text,n\na,5\n"))
    assert told.value.hint == "name the column: --lengths FILE:COLUMN"


@pytest.mark.parametrize(("name", "why"), [("none.txt", "No such file"), (".", "Is a directory")])
def test_what_is_no_file_is_refused(write, name, why):
    write("l.txt", "5\n")
    with pytest.raises(UsageError, match=f"expected a file with lengths, got .*: {why}.* - at argument"):
        read_lengths(name)


def test_a_stream_without_an_end_is_refused():
    with pytest.raises(UsageError, match="expected at most 256 MiB, got more - at /dev/zero") as told:
        read_lengths("/dev/zero")
    assert "head -n" in told.value.hint


@pytest.mark.parametrize(
    "values", [[5, 0], (5, 0), np.array([5, 0]), torch.tensor([5, 0]), iter([5, 0]), [np.int32(5), 0]]
)
def test_python_gives_any_sequence_of_whole_numbers(values):
    assert check_lengths(values).values == [5, 0]


@pytest.mark.parametrize("bad", [-1, 5.0, float("nan"), "5", None, True, 2**63, [5]])
def test_anything_else_from_python_is_refused_with_its_place(bad):
    with pytest.raises(
        UsageError, match=r"expected a whole number of 0 or more, got .* as item 2 - at argument `lengths`"
    ):
        check_lengths([5, bad])


@pytest.mark.parametrize("bad", [5, None])
def test_python_must_give_a_list(bad):
    with pytest.raises(UsageError, match=r"expected a list of whole numbers, got .* - at argument `lengths`"):
        check_lengths(bad)


def test_no_lengths_are_no_epoch():
    with pytest.raises(UsageError, match="expected a length for each sample, got none"):
        check_lengths([])
