"""Config keys: the values that each accepts, the wording of refusals, and keys that must fit each other."""

import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given
from strategies import configs

import dpdemo
from dpdemo.cli.edge import Edge
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import KEYS, Config, Keys
from dpdemo.config.load import load_config, make_config
from dpdemo.config.yamlfile import read_mapping
from dpdemo.errors import UsageError

WHOLE = "expected a whole number of 1 or more, got "
GPUS = "expected a list of ordinals such as [0, 1, 2], a count such as 3, or `all`, got "
ITEM = "expected an ordinal from 0 to 127, got "
TOP = "expected a whole number of at most 9223372036854775807, got "
SIZE = "write for example `batch_size: 30`"
DTYPE = "write for example `dtype: bfloat16`"
GPUS_EXAMPLE = "write for example `gpus: [0, 1, 2]`"


PAGE = Path(__file__).parent.parent.parent / "docs" / "reference.md"
HEAD = "| key | default | |\n|---|---|---|\n"


def table():
    """The table of all keys in docs/reference.md."""
    return HEAD + "".join(
        f"| `{name}` | {'' if key.default is None else str(key.default).lower()} | {key.help} |\n"
        for name, key in KEYS.items()
    )


def refuse(tmp_path, monkeypatch, text):
    """Return the message and hint of a config file that is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config("c.yaml")
    return caught.value.worded(Edge())


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ('batch_size: "30"', WHOLE + "'30'", SIZE),
        ("batch_size: many", WHOLE + "'many'", SIZE),
        ("batch_size: 3.5", WHOLE + "3.5", SIZE),
        ("batch_size: 1e3", WHOLE + "1000.0", SIZE),
        ("batch_size: .nan", WHOLE + "nan", SIZE),
        ("batch_size: true", WHOLE + "true", SIZE),
        ("batch_size:", WHOLE + "null", SIZE),
        ("batch_size: 0", WHOLE + "0", SIZE),
        ("batch_size: [30]", WHOLE + "[30]", SIZE),
        ("batch_size: 2001-01-01", WHOLE + "datetime.date(2001, 1, 1) (date)", SIZE),
        ("output_size: 9223372036854775808", TOP + "9223372036854775808",
         "write for example `output_size: 2`"),
        ("output_size: 0x" + "f" * 5000, TOP + "2**19999 or more", "write for example `output_size: 2`"),
        ("gpus: 0", GPUS + "0", GPUS_EXAMPLE),
        ("gpus: true", GPUS + "true", GPUS_EXAMPLE),
        ("gpus: 0,1", GPUS + "'0,1'", GPUS_EXAMPLE),
        ("gpus: '3'", GPUS + "'3'", GPUS_EXAMPLE),
        ("gpus: []", "expected at least one GPU, got an empty list", "leave `gpus` out to run on the CPU"),
        ("gpus: 129", "expected a whole number of at most 128, got 129",
         GPUS_EXAMPLE),
        ("gpus: [0, a]", ITEM + "'a' as item 2", GPUS_EXAMPLE),
        ("gpus: [0, 1, -1]", ITEM + "-1 as item 3", GPUS_EXAMPLE),
        ("gpus: [true]", ITEM + "true as item 1", GPUS_EXAMPLE),
        ("gpus: &a [*a]", ITEM + "[[[...]]] as item 1", GPUS_EXAMPLE),
        ("model: 3", "expected text, got 3", "write for example `model: model.py:Net`"),
        ("shuffle: yes", "expected true or false, got 'yes'", "write for example `shuffle: true`"),
        ("drop_last: 1", "expected true or false, got 1", "write for example `drop_last: true`"),
        ("dtype: float23", "expected one of float32, float64, bfloat16, float16, got 'float23'", DTYPE),
        ("strategy: fsdp", "expected one of dp, ddp, fsdp2, got 'fsdp'", "write for example `strategy: ddp`"),
        ("dim: 2", "expected dimension 0 or 1, got 2", "write for example `dim: 1`"),
    ],
)  # fmt: skip
def test_a_refused_value_is_reported_with_its_line_and_a_next_step(
    tmp_path, monkeypatch, line, message, hint
):
    key = line.partition(":")[0]
    found = refuse(tmp_path, monkeypatch, "# a comment\n" + line)
    assert found == (f"{message} - at c.yaml:2, key `{key}`", hint)


@pytest.mark.parametrize("name", ["liner", "RNN", "torchvision models", "", "a:", "nets/my:Net", "a" * 9000])
def test_an_unknown_model_is_answered_with_the_forms(name):
    with pytest.raises(UsageError, match=r"^expected one of linear, .*, or `model.py:Net` or `pkg") as caught:
        make_config({"model": name})
    assert caught.value.hint.startswith(("did you mean", "for a model of your own"))
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    ("key", "got", "hint"),
    [
        ("batch_sise", "`batch_sise`", "did you mean `batch_size`?"),
        ("BATCH-SIZE", "`BATCH-SIZE`", "did you mean `batch_size`?"),
        ("device_ids", "`device_ids`", "did you mean `gpus`?"),
        ("k" * 300, f"`{'k' * 57}...`", "the keys are " + ", ".join(KEYS)),
        ('"\\e[31m"', r"`'\x1b[31m'`", "the keys are " + ", ".join(KEYS)),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path, monkeypatch, key, got, hint):
    found = refuse(tmp_path, monkeypatch, f"data_size: 7\n{key}: 3\n")
    assert found == (f"expected a known key, got {got} - at c.yaml:2", hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("batch_size: 30\ndata_size: 10\ndrop_last: true\n",
         ("expected at least one full batch, got data_size 10 < batch_size 30 with drop_last, "
          "which leaves none - at c.yaml:3, key `drop_last`"),
         "leave drop_last out, or choose a smaller --batch-size"),
        ("output_device: 2\ngpus: 2\n",
         "expected one of the 2 GPUs, 0 to 1, got 2 - at c.yaml:1, key `output_device`",
         "to gather on a GPU that gets no chunk, list the others, such as `--gpus 0,1`"),
    ],
)  # fmt: skip
def test_conflicting_keys_are_refused(tmp_path, monkeypatch, text, message, hint):
    assert refuse(tmp_path, monkeypatch, text) == (message, hint)


def test_an_output_device_beside_a_list_may_be_any_gpu():
    assert make_config({"gpus": [0, 1], "output_device": 7}).output_device == 7


def test_the_defaults_are_the_tutorials():
    config = make_config({})
    assert (config.input_size, config.output_size, config.batch_size, config.data_size) == (5, 2, 30, 100)
    assert (config.gpus, config.model, config.dim, config.dtype) == (None, "linear", 0, "float32")


@pytest.mark.parametrize(
    "model", [*MODELS, "pkg.mod:factory", "net:Net", "a.b:Class.make", "a.b.Net", "nets/my.py:Net", "./my.py"]
)
def test_models_are_built_in_or_a_factory(model):
    assert make_config({"model": model}).is_builtin == model.isidentifier()


@pytest.mark.parametrize("size", [1, 2**63 - 1])
def test_sizes_reach_from_1_to_int64(size):
    config = make_config(dict.fromkeys(["input_size", "output_size", "batch_size", "data_size"], size))
    assert config.batch_size == config.output_size == size


def test_keywords_win_over_the_file_and_are_located_as_such(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("batch_size: 0\ndata_size: 7\n")
    config = load_config(path, batch_size=3)
    assert (config.batch_size, config.data_size) == (3, 7)
    with pytest.raises(UsageError, match=r"got 0 - at argument `data_size`$"):
        load_config(path, batch_size=3, data_size=0)


@pytest.mark.parametrize(
    ("values", "option", "argument"),
    [
        ({"batch_size": 0}, "`--batch-size 30`", "`batch_size=30`"),
        ({"gpus": 0}, "`--gpus 0,1,2`", "`gpus=[0, 1, 2]`"),
        ({"drop_last": 1}, "`--drop-last`", "`drop_last=True`"),
        ({"shuffle": 1}, "`--set shuffle=true`", "`shuffle=True`"),
        ({"strategy": 1}, "`--strategy ddp`", "`strategy='ddp'`"),
    ],
)
def test_a_hint_is_written_as_the_caller_writes_settings(values, option, argument):
    with pytest.raises(UsageError) as caught:
        make_config(values)
    assert option in caught.value.worded(Edge())[1]
    assert argument in caught.value.worded(dpdemo.errors.Caller())[1]


@given(configs)
def test_a_config_survives_its_own_values(config):
    assert make_config(config.to_dict()) == make_config(config.values()) == config
    assert hash(make_config(config.values())) == hash(config)


def test_a_config_is_frozen():
    with pytest.raises(AttributeError, match=r"cannot assign"):
        make_config({}).batch_size = 3


@pytest.mark.parametrize("name", KEYS)
def test_each_key_has_help_and_a_valid_example(name, tmp_path):
    assert KEYS[name].help.endswith(".")
    (tmp_path / "c.yaml").write_text(f"{name}: {KEYS[name].example}")
    assert name in Config(**read_mapping(tmp_path / "c.yaml")[0]).given


def test_the_page_of_options_has_the_table_of_keys():
    assert table() in PAGE.read_text()


@pytest.mark.parametrize("name", ["simulate", "run", "explain", "load_config"])
def test_a_functions_signature_lists_every_key_with_its_default(name):
    shown = inspect.signature(getattr(dpdemo, name)).parameters
    assert {name: shown[name].default for name in KEYS} == {name: key.default for name, key in KEYS.items()}
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in shown.values())


def test_the_keys_for_type_checkers_are_those_of_the_config():
    assert [*Keys.__annotations__] == [*KEYS]


@pytest.mark.parametrize(
    ("ask", "strategy"), [(dpdemo.explain, "ddp"), (dpdemo.run, "fsdp2"), (dpdemo.simulate, "fsdp2")]
)
def test_a_function_refuses_a_strategy_that_it_does_not_know(ask, strategy):
    """It would answer for DataParallel."""
    with pytest.raises(dpdemo.UsageError, match=f"the strategy {strategy} is not supported here"):
        ask(gpus=2, strategy=strategy)


if __name__ == "__main__":
    PAGE.write_text(re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), PAGE.read_text()))
