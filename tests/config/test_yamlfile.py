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


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(60))


@pytest.mark.parametrize(
    ("text", "got", "place"),
    [
        ("", "a mapping of config keys, got an empty file", ""),
        ("---\n", "a mapping of config keys, got an empty file", ""),
        ("- 1\n- 2\n", "a mapping of config keys, got a list", ""),
        ("\nbatch_size=30", "a mapping of config keys, got 'batch_size=30' (text)", ""),
        ("!!set {a}", "a mapping of config keys, got !!set", ""),
        ("!!map 0", "a mapping of config keys, got '0' (a mapping)", ""),
        ("a: [1\nb: 2\n", "YAML, got broken YAML (expected ',' or ']', but got ':'", ":2"),
        ("a: 1\n  b: 2\n", "YAML, got broken YAML (mapping values are not allowed here", ":2"),
        ("a:\n\t- b\n", r"YAML, got broken YAML (found character '\t' that cannot start any token", ":2"),
        ("a: *x", "YAML, got broken YAML (found undefined alias 'x'", ":1"),
        ("a: 1\nb: 2\na: 3\n", "each key once, got `a` a second time", ":3"),
        ("a: 1\n---\nb: 2\n", "YAML, got broken YAML (but found another document", ":2"),
        ("a: 1\nb: !!python/object:os.system x", "YAML, got broken YAML (could not determine a", ":2"),
        ("!!python/object/apply:os.system [ls]", "a mapping of config keys, got !!python/object/apply", ""),
        ("a: !own x", "YAML, got broken YAML (could not determine a constructor for the tag '!own'", ":1"),
        ("b: 1\n<<: *b\n", "YAML, got broken YAML (found undefined alias 'b'", ":2"),
        ("b: &b {a: 1}\n<<: *b\n", "a value of `b`, got a mapping", ":1"),
        ("<<: [1]\n", "text as a key, got '<<' (!!merge)", ":1"),
        ("1: 2", "text as a key, got '1' (!!int)", ":1"),
        ("[1]: 2", "text as a key, got a list", ":1"),
        ("a: 1\nb: x\0", "YAML, got broken YAML (ReaderError: unacceptable character #x0000", ""),
        ("a: 2001-99-99", "YAML, got broken YAML (ValueError: month must be in 1..12", ":1"),
        ("a: !!int x", "YAML, got broken YAML (ValueError: invalid literal for int", ":1"),
        pytest.param("a: " + "[" * 2000, "YAML, got broken YAML (Recursion", "", marks=pytest.mark.slow),
        ("%YAML 3.0\n---\na: 1\n", "YAML, got broken YAML (found incompatible YAML document", ":1"),
    ],
)  # fmt: skip
def test_anything_but_a_flat_mapping_is_refused_with_its_line(text, got, place):
    with pytest.raises(UsageError) as caught:
        parse_mapping(text, "c.yaml")
    assert caught.value.message.startswith(f"expected {got}")
    assert (caught.value.place, caught.value.hint != "") == (f"c.yaml{place}", True)


def test_nested_aliases_cost_nothing():
    assert len(parse_mapping(LAUGHS, "c.yaml")[0]) == 61


@pytest.fixture
def in_tmp(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_unreadable_file_is_refused_with_the_reason(in_tmp):
    (in_tmp / "sub").mkdir()
    (in_tmp / "loop.yaml").symlink_to("loop.yaml")
    for name, why in (
        ("no/x.yaml", "none"),
        ("sub", "'Is a directory'"),
        ("loop.yaml", "'Too many levels of symbolic links'"),
    ):
        with pytest.raises(UsageError, match=f"^expected a YAML file, got {why} - at {name}$") as caught:
            load_config(name)
        assert caught.value.hint == "check the path, and who may read it"


def test_a_path_with_a_nul_is_no_file():
    with pytest.raises(UsageError, match=r"^expected a YAML file, got 'embedded null (byte|character)'"):
        load_config("a\0b")


def test_file_not_in_utf8_names_byte_and_line(in_tmp):
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


def outcome(read: Callable[[], tuple[dict, dict]]) -> Config | UsageError:
    """Read and check a config, or return its UsageError; any other exception fails the test."""
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
    assert re.match("^expected .*, got .* - at c.yaml", str(error))
    assert str(error).isprintable()
    assert len(str(error)) < 400
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
