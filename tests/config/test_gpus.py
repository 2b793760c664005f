"""`--gpus` in all its forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.cli.edge import Edge
from dpdemo.config.gpus import parse_gpus, parse_num_virtual
from dpdemo.errors import UsageError


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("8", 8),
        (" 8 ", 8),
        ("007", 7),
        ("128", 128),
        ("3,", (3,)),
        ("0,", (0,)),
        ("0,1,2", (0, 1, 2)),
        ("0, 1, 2", (0, 1, 2)),
        ("0,1,", (0, 1)),
        ("2,0", (2, 0)),
        ("0,0,0", (0, 0, 0)),
        ("0-3", (0, 1, 2, 3)),
        ("2-2", (2,)),
        ("0-1,6", (0, 1, 6)),
        ("all", "all"),
        (" ALL ", "all"),
    ],
)
def test_gpus_are_a_count_ordinals_a_range_or_all(text, gpus):
    assert parse_gpus(text) == gpus


ANY = "expected a count such as 3, ordinals such as 0,2 or 0-3, or `all`, got "
COMMAS = "separate ordinals by single commas: 0,1,2"
MOST = "expected at most 128 GPUs, numbered 0 to 127, got "
NO_MORE = "PyTorch can number no more; --strategy ddp with --set nodes=4 previews several machines"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", ANY + "''", COMMAS),
        ("0,,1", ANY + "'0,,1'", COMMAS),
        ("-1", ANY + "'-1'", COMMAS),
        ("1.5", ANY + "'1.5'", COMMAS),
        ("cuda:0", ANY + "'cuda:0'", "write the ordinals alone: `--gpus 0,`"),
        ("cuda:0,1", ANY + "'cuda:0,1'", "write the ordinals alone: `--gpus 0,1`"),
        ("0-", ANY + "'0-'", COMMAS),
        ("2-0", "expected a range that goes up, got '2-0'",
         "write 0-2, or list the ordinals in the order you want"),
        ("0-128", MOST + "'128'", NO_MORE),
        ("³", ANY + "'³'", COMMAS),
        ("129", MOST + "'129'", NO_MORE),
        ("0," + "9" * 5000, MOST + f"'{'9' * 27}...{'9' * 28}'", NO_MORE),
        ("0", "expected a count of 1 or more, got '0'",
         "for the GPU with ordinal 0 write `--gpus 0,`; leave `--gpus` out for the CPU"),
    ],
)  # fmt: skip
def test_other_texts_are_refused(text, message, hint):
    with pytest.raises(UsageError) as caught:
        parse_gpus(text)
    assert caught.value.worded(Edge()) == (f"{message} - at option `--gpus`", hint)


@given(st.text() | st.text(alphabet="0123456789,- al"))
def test_any_text_is_gpus_or_a_usage_error(text):
    try:
        gpus = parse_gpus(text)
    except UsageError as error:
        assert len(error.message) < 300  # noqa: PT017 - the test is of both ends
        assert error.hint  # noqa: PT017
    else:
        assert gpus == "all" or gpus


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("0,1,2", 3), ("0-2", 3), ("0,", 1), ("128", 128)])
def test_a_program_finds_as_many_virtual_gpus_as_named(text, count):
    assert parse_num_virtual(text) == count


@pytest.mark.parametrize("text", ["all", "5,6", "3,", "1-2", "0,0", "129"])
def test_virtual_gpus_are_a_count_from_0(text):
    with pytest.raises(UsageError, match=r"^expected .*, got .* - at argument `gpus`$"):
        parse_num_virtual(text)
