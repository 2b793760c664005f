import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import yaml_texts

from dpdemo.config.fields import Config
from dpdemo.config.load import load_config, make_config
from dpdemo.config.yamlfile import MAX_BYTES, parse_mapping, read_mapping
from dpdemo.errors import UsageError

EXAMPLE = "write `key: value` lines, such as `batch_size: 30`"
NO_TAGS = "remove the tag: a config holds numbers, text and lists, and never builds Python objects"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("batch_size: 30\ngpus: [0, 1]\n", {"batch_size": 30, "gpus": [0, 1]}),
        ('{"batch_size": 30, "gpus": [0, 1]}', {"batch_size": 30, "gpus": [0, 1]}),
        ("batch_size: 30\r\ndata_size: 60\r\n", {"batch_size": 30, "data_size": 60}),
        ("a: &x 3\nb: *x\n", {"a": 3, "b": 3}),
        ("a: !!int '30'\n", {"a": 30}),
        ("a: no\nb: 0o17\nc: 1_000\n", {"a": "no", "b": 15, "c": 1000}),
        ("%YAML 1.1\n---\na: no\n", {"a": False}),
        ("# only this\na: 1\n...\n", {"a": 1}),
        ("{}", {}),
    ],
)
def test_a_mapping_is_read_as_yaml_1_2(text, values):
    assert parse_mapping(text, "c.yaml")[0] == values


def test_each_key_comes_with_its_line():
    assert parse_mapping("# why\na: 1\n\nb:\n  - 2\n", "c.yaml")[1] == {"a": "c.yaml:2", "b": "c.yaml:4"}


LAUGHS = "a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{<<: [*a{i}, *a{i}]}}\n" for i in range(60))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "expected a mapping of config keys, got an empty file - at c.yaml",
         "write at least one key, such as `batch_size: 30`"),
        ("# hi\n", "expected a mapping of config keys, got an empty file - at c.yaml",
         "write at least one key, such as `batch_size: 30`"),
        ("---\n", "expected a mapping of config keys, got an empty file - at c.yaml",
         "write at least one key, such as `batch_size: 30`"),
        ("- 1\n- 2\n", "expected a mapping of config keys, got a list - at c.yaml:1", EXAMPLE),
        ("\nbatch_size=30",
         "expected a mapping of config keys, got 'batch_size=30' (text) - at c.yaml:2", EXAMPLE),
        ("7", "expected a mapping of config keys, got '7' (!!int) - at c.yaml:1", EXAMPLE),
        ("!!set {a}", "expected a mapping of config keys, got !!set - at c.yaml:1", EXAMPLE),
        ("!!omap [a: 1]", "expected a mapping of config keys, got !!omap - at c.yaml:1", EXAMPLE),
        ("a: [1\nb: 2\n",
         "expected YAML, got broken YAML (expected ',' or ']', but got ':') - at c.yaml:2", EXAMPLE),
        ("a: 1\n  b: 2\n",
         "expected YAML, got broken YAML (mapping values are not allowed here) - at c.yaml:2",
         EXAMPLE),
        ("a:\n\t- b\n",
         r"expected YAML, got broken YAML (found character '\t' that cannot start any token) - at c.yaml:2",
         "indent with spaces, not tabs"),
        ("a: *x", "expected YAML, got broken YAML (found undefined alias 'x') - at c.yaml:1", EXAMPLE),
        ("a: 1\nb: 2\na: 3\n", "expected each key once, got `a` a second time - at c.yaml:3",
         "it first stands at c.yaml:1; remove one of the two lines"),
        ("a: 1\n---\nb: 2\n", "expected one YAML document, got a second one - at c.yaml:2",
         "a line `---` begins a new document; keep one"),
        ("a: 1\nb: !!python/object:os.system x",
         "expected plain YAML, got the tag 'python/object:os.system' - at c.yaml:2", NO_TAGS),
        ("!!python/object/apply:os.system [ls]",
         "expected plain YAML, got the tag 'python/object/apply:os.system' - at c.yaml:1", NO_TAGS),
        ("a: !own x", "expected plain YAML, got the tag '!own' - at c.yaml:1", NO_TAGS),
        ("!own {a: 1}", "expected plain YAML, got the tag '!own' - at c.yaml:1", NO_TAGS),
        ("b: &b {a: 1}\n<<: *b\n", "expected each key written out, got a merge key `<<` - at c.yaml:2",
         "copy the merged keys to where they are used"),
        (LAUGHS, "expected each key written out, got a merge key `<<` - at c.yaml:61",
         "copy the merged keys to where they are used"),
        ("!!map 0", "expected a mapping of config keys, got '0' (a mapping) - at c.yaml:1", EXAMPLE),
        ("? !!str [a]\n: 1", "expected text as a key, got text - at c.yaml:1", EXAMPLE),
        ("1: 2", "expected text as a key, got '1' (!!int) - at c.yaml:1", EXAMPLE),
        ("~: 2", "expected text as a key, got '~' (!!null) - at c.yaml:1", EXAMPLE),
        ("[1]: 2", "expected text as a key, got a list - at c.yaml:1", EXAMPLE),
        ("a: 1\n? {b: 2}\n: 3\n", "expected text as a key, got a mapping - at c.yaml:2", EXAMPLE),
        ("a: 1\nb: x\0", "expected text, got the control character U+0000 - at c.yaml:2",
         "is this a binary file? a config is plain text"),
        ("a: 2001-99-99",
         "expected YAML that can be read, got '2001-99-99' (!!timestamp) - at c.yaml:1", EXAMPLE),
        ("a: " + "9" * 5000,
         f"expected YAML that can be read, got '{'9' * 37}...' (!!int) - at c.yaml:1", EXAMPLE),
        ("a: !!int x", "expected YAML that can be read, got 'x' (!!int) - at c.yaml:1", EXAMPLE),
        ("a: " + "[" * 2000, "expected a flat mapping, got values nested too deep - at c.yaml", EXAMPLE),
        ("%YAML 3.0\n---\na: 1\n", ("expected YAML, got broken YAML (found incompatible YAML document "
         "(version 1.* is required)) - at c.yaml:1"), EXAMPLE),
    ],
)  # fmt: skip
def test_a_text_that_is_no_mapping_says_what_it_is(text, message, hint):
    with pytest.raises(UsageError, match=r"^expected .*, got .* - at c.yaml") as caught:
        parse_mapping(text, "c.yaml")
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_nested_aliases_that_would_fill_the_memory_cost_nothing():
    text = "a0: &a0 [x, x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(60))
    value = parse_mapping(text, "c.yaml")[0]["a60"]
    assert value[0] is value[1]


@pytest.fixture
def in_tmp(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_missing_file_names_those_beside_it(in_tmp):
    for name in ("a.yaml", "b.yml", "c.txt"):
        (in_tmp / name).write_text("")
    with pytest.raises(UsageError, match=r"^expected a YAML file, got none - at x.yaml$") as caught:
        load_config("x.yaml")
    assert caught.value.hint == "that folder holds a.yaml, b.yml"


@pytest.mark.usefixtures("in_tmp")
def test_a_missing_file_in_an_empty_folder_says_so():
    with pytest.raises(UsageError, match=r"^expected a YAML file, got none - at no/x.yaml$") as caught:
        load_config("no/x.yaml")
    assert caught.value.hint == "the folder no holds no YAML file"


def test_many_files_beside_a_missing_one_are_cut_short(in_tmp):
    for number in range(9):
        (in_tmp / f"{number}.yaml").write_text("")
    with pytest.raises(UsageError, match=r"got none") as caught:
        load_config("x.yaml")
    assert caught.value.hint == "that folder holds 0.yaml, 1.yaml, 2.yaml, 3.yaml, 4.yaml and 4 more"


def test_a_directory_is_no_config(in_tmp):
    (in_tmp / "sub").mkdir()
    (in_tmp / "sub" / "a.yaml").write_text("")
    with pytest.raises(UsageError, match=r"^expected a YAML file, got a directory - at sub$") as caught:
        load_config("sub")
    assert caught.value.hint == "that folder holds a.yaml"


def test_a_file_that_cannot_be_opened_says_why(in_tmp):
    """A loop of links fails for everyone, whoever runs the tests."""
    (in_tmp / "loop.yaml").symlink_to("loop.yaml")
    expected = r"^expected a readable file, got 'Too many levels of symbolic links' - at 'loop.yaml'$"
    with pytest.raises(UsageError, match=expected) as caught:
        load_config("loop.yaml")
    assert caught.value.hint == "check the path, and who may read it"


def test_a_file_without_permission_says_so(in_tmp):
    (in_tmp / "c.yaml").write_text("batch_size: 3\n")
    (in_tmp / "c.yaml").chmod(0)
    with contextlib.suppress(PermissionError):
        (in_tmp / "c.yaml").read_text()
        pytest.skip("this user may read every file")
    with pytest.raises(
        UsageError, match=r"^expected a readable file, got 'Permission denied' - at 'c.yaml'$"
    ):
        load_config("c.yaml")


@pytest.mark.usefixtures("in_tmp")
def test_a_file_whose_reading_fails_says_why(monkeypatch):
    def fail(*_args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dpdemo.config.yamlfile.read_bytes", fail)
    with pytest.raises(
        UsageError, match=r"^expected a readable file, got 'Permission denied' - at 'c.yaml'$"
    ):
        load_config("c.yaml")


def test_a_path_with_a_nul_is_no_file():
    with pytest.raises(
        UsageError, match=r"^expected a readable file, got 'embedded null (byte|character)' - at 'a\\x00b'$"
    ):
        load_config("a\0b")


def test_a_file_that_is_not_utf8_names_the_byte_and_its_line(in_tmp):
    (in_tmp / "c.yaml").write_bytes(b"batch_size: 3\n# caf\xe9\n")
    with pytest.raises(UsageError, match=r"^expected UTF-8 text, got the byte 0xe9 - at c.yaml:2$") as caught:
        load_config("c.yaml")
    assert caught.value.hint == "save the file as UTF-8"


def test_a_byte_order_mark_is_no_part_of_the_first_key(in_tmp):
    (in_tmp / "c.yaml").write_bytes(b"\xef\xbb\xbfbatch_size: 3\n")
    assert load_config("c.yaml").batch_size == 3


def test_a_huge_file_is_refused_unread(in_tmp):
    (in_tmp / "c.yaml").write_bytes(b"#" * MAX_BYTES)
    with pytest.raises(UsageError, match=r"got an empty file"):
        load_config("c.yaml")
    (in_tmp / "c.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(
        UsageError, match=r"^expected a config of at most 65536 bytes, got a larger file - at c.yaml$"
    ):
        load_config("c.yaml")


def test_a_message_cannot_steer_the_terminal():
    with pytest.raises(UsageError, match=r"a second time") as caught:
        parse_mapping('"\\e[31m": 1\n"\\e[31m": 2\n', "c.yaml")
    assert caught.value.message == r"expected each key once, got `'\x1b[31m'` a second time - at c.yaml:2"


def outcome(read: Callable[[], tuple[dict, dict]]) -> Config | UsageError:
    """What comes of reading and checking a config; any other exception fails the test."""
    try:
        values, where = read()
        assert values.keys() == where.keys()
        return make_config(values, where)
    except UsageError as error:
        return error


def config_or_usage_error(text: str) -> None:
    error = outcome(lambda: parse_mapping(text, "c.yaml"))
    if isinstance(error, Config):
        return
    assert re.match("^expected .*, got .* - at c.yaml", error.message)
    assert error.message.isprintable()
    assert len(error.message) < 400
    assert error.hint


@given(yaml_texts)
def test_any_yaml_is_a_config_or_a_usage_error(text):
    config_or_usage_error(text)


@given(st.text() | st.text(alphabet="ab:-[]{}*&!|>'\"%#? \n\t0<,~\\"))
def test_any_text_is_a_config_or_a_usage_error(text):
    config_or_usage_error(text)


@given(st.binary())
def test_any_bytes_are_a_config_or_a_usage_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(data)
    assert isinstance(outcome(lambda: read_mapping(path)), Config | UsageError)
