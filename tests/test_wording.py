"""Text from outside is shown on one line, and controls neither a terminal nor a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.wording import counted, fit, harmless, printable


@given(st.text())
def test_printable_removes_control_characters(text):
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize("text", ["plain", "Größe 10 × 5", "std::vector", "test_a.py::test_b", "a\\b"])
def test_harmless_text_stays_as_it_is(text):
    assert printable(text) == harmless(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("a\nb", r"a\nb"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("lone \udce9", r"lone \udce9"),
        ("::error file=a::b", ": :error file=a::b"),
        ("x::add-mask::y", "x: :add-mask::y"),
        ("##[error]no", "## [error]no"),
    ],
)
def test_control_sequences_are_escaped(text, shown):
    assert printable(text) == shown


def test_a_message_keeps_its_lines_and_the_indent_of_code():
    assert (
        harmless("first\n\tsecond\x07\r\n::error::third") == "first\n        second\\x07\\r\n: :error::third"
    )


@given(st.text(), st.sampled_from(["ascii", "latin-1", "utf-8", "cp1252"]))
def test_fit_text_can_be_encoded(text, encoding):
    assert fit(text, encoding).encode(encoding) or not text


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "batch", "1 batch"),
        (3, "batch", "3 batches"),
        (0, "copy", "0 copies"),
        (2, "process", "2 processes"),
    ],
)
def test_things_are_counted(number, noun, said):
    assert counted(number, noun) == said
