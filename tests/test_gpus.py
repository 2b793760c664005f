import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.errors import UsageError
from dpdemo.gpus import parse_gpus


@pytest.mark.parametrize(
    ("text", "as_count", "as_ordinals"),
    [
        ("8", 8, (8,)),
        (" 8 ", 8, (8,)),
        ("0,1,2", (0, 1, 2), (0, 1, 2)),
        ("0, 1, 2", (0, 1, 2), (0, 1, 2)),
        ("2,0", (2, 0), (2, 0)),
        ("0,0,0", (0, 0, 0), (0, 0, 0)),
        ("007", 7, (7,)),
        ("2147483647", 2147483647, (2147483647,)),
        ("all", "all", "all"),
    ],
)
def test_gpus_are_a_count_or_ordinals(text, as_count, as_ordinals):
    assert parse_gpus(text, lone_number_is_count=True) == as_count
    assert parse_gpus(text, lone_number_is_count=False) == as_ordinals


COUNT = "expected a count such as 8, or ordinals such as 0,1,2, got "
AT = " - at option `--gpus`"
COMMAS = "separate ordinals by single commas: --gpus 0,1,2"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", COUNT + "''" + AT, "leave `--gpus` out to choose none"),
        ("a", COUNT + "'a'" + AT, COMMAS),
        ("0,,1", COUNT + "'0,,1'" + AT, COMMAS),
        ("0,1,", COUNT + "'0,1,'" + AT, COMMAS),
        ("-1", COUNT + "'-1'" + AT, COMMAS),
        ("0 1", COUNT + "'0 1'" + AT, COMMAS),
        ("1.5", COUNT + "'1.5'" + AT, COMMAS),
        ("cuda:0", COUNT + "'cuda:0'" + AT, COMMAS),
        ("0-2", COUNT + "'0-2'" + AT, "spans are not known here; write --gpus 0,1,2"),
        ("2-0", COUNT + "'2-0'" + AT, COMMAS),
        ("٣", COUNT + "'٣'" + AT, COMMAS),
        ("³", COUNT + "'³'" + AT, COMMAS),
        ("8\n", COUNT + "'8\\n'" + AT, COMMAS),
        ("x" * 5000, COUNT + "'" + "x" * 57 + "...'" + AT, COMMAS),
        (
            "2147483648",
            "expected numbers of at most 2147483647, got '2147483648'" + AT,
            "real machines have 16 GPUs at most; a preview reads well up to some thousands",
        ),
        (
            "0," + "9" * 5000,
            "expected numbers of at most 2147483647, got '" + "9" * 57 + "...'" + AT,
            "real machines have 16 GPUs at most; a preview reads well up to some thousands",
        ),
        ("0", "expected a count of 1 or more, got 0" + AT, "leave `--gpus` out for the CPU"),
    ],
)
def test_anything_else_says_what_was_expected(text, message, hint):
    with pytest.raises(UsageError, match=r"^expected .*, got .* - at option `--gpus`$") as caught:
        parse_gpus(text, lone_number_is_count=True)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_where_devices_are_touched_the_message_speaks_of_ordinals():
    with pytest.raises(UsageError, match=r"^expected ordinals such as 0,1,2, or `all`, got 'a' - at option"):
        parse_gpus("a", lone_number_is_count=False)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=2))
def test_any_list_of_ordinals_is_read_back(numbers):
    assert parse_gpus(",".join(map(str, numbers)), lone_number_is_count=True) == tuple(numbers)


@given(st.text() | st.text(alphabet="0123456789,- al"), st.booleans())
def test_any_text_is_gpus_or_a_usage_error(text, lone_number_is_count):
    try:
        gpus = parse_gpus(text, lone_number_is_count=lone_number_is_count)
    except UsageError as error:
        assert len(error.message) < 300  # noqa: PT017 - the test is of both ends
        assert error.hint  # noqa: PT017
    else:
        assert gpus == "all" or gpus
