import inspect

import pytest
from hypothesis import given
from strategies import configs

import dpdemo
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import Config
from dpdemo.config.keys import Keys
from dpdemo.config.load import load_config, make_config
from dpdemo.config.messages import unknown_key
from dpdemo.errors import UsageError

WHOLE = "expected a whole number of 1 or more, got "
GPUS = "expected a list of ordinals such as [0, 1, 2], a count such as 3, or `all`, got "
MOST = "expected a whole number of at most "
ITEM = "expected an ordinal from 0 to 127, got "
OWN = "`model.py:Net` or `pkg.mod:Net`"
MODEL = f"expected one of {', '.join(MODELS)}, or {OWN}, got "
TOP = "expected a whole number of at most 9223372036854775807, got "
KEYS = "the keys are " + ", ".join(Config.model_fields)
LINEAR_DIM = "the batch stands in dimension 0 unless the model says otherwise: leave `dim` out"
OWN_MODEL = (
    "for a model of your own write its file: `model.py:Net`; for one of a library `torchvision:resnet50`"
)
GPUS_EXAMPLE = "write for example `gpus: [0, 1, 2]`"


def refuse(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"^expected .*, got .* - at c\.yaml:\d") as caught:
        load_config("c.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ('batch_size: "30"', WHOLE + "'30' (text)", "write it without the quotes: `batch_size: 30`"),
        ("batch_size: many", WHOLE + "'many' (text)", "write for example `batch_size: 30`"),
        ("batch_size: 3.5", WHOLE + "3.5", "write for example `batch_size: 30`"),
        ("batch_size: 1e3", WHOLE + "1000.0", "write it without the point or exponent: `batch_size: 1000`"),
        ("batch_size: 1e30", WHOLE + "1e+30", "write for example `batch_size: 30`"),
        ("batch_size: .nan", WHOLE + "nan", "write for example `batch_size: 30`"),
        ("batch_size: .inf", WHOLE + "inf", "write for example `batch_size: 30`"),
        ("batch_size: true", WHOLE + "true", "write for example `batch_size: 30`"),
        ("batch_size:", WHOLE + "null", "leave `batch_size` out to get the default, 30"),
        ("batch_size: 0", WHOLE + "0", "write for example `batch_size: 30`"),
        ("data_size: -1", WHOLE + "-1", "write for example `data_size: 100`"),
        ("input_size: 0", WHOLE + "0", "write for example `input_size: 5`"),
        ("output_size: -3", WHOLE + "-3", "write for example `output_size: 2`"),
        ("output_size: 9223372036854775808", TOP + "9223372036854775808",
         "write for example `output_size: 2`"),
        ("output_size: 0x" + "f" * 5000, TOP + "2**19999 or more", "write for example `output_size: 2`"),
        ("batch_size: [30]", WHOLE + "[30]", "write for example `batch_size: 30`"),
        ("batch_size: {a: 1}", WHOLE + "{'a': 1} (a mapping)", "write for example `batch_size: 30`"),
        ("batch_size: 2001-01-01", WHOLE + "datetime.date(2001, 1, 1) (date)",
         "write for example `batch_size: 30`"),
        ("batch_size: !!set {a}", WHOLE + "{'a'} (set)", "write for example `batch_size: 30`"),
        ("gpus: 0", GPUS + "0", "for GPU 0 write `gpus: [0]`; for the CPU leave `gpus` out"),
        ("gpus: -1", GPUS + "-1", GPUS_EXAMPLE),
        ("gpus: true", GPUS + "true", GPUS_EXAMPLE),
        ("gpus: every", GPUS + "'every' (text)", GPUS_EXAMPLE),
        ("gpus: 0,1", GPUS + "'0,1' (text)", "write it as a list: `gpus: [0, 1]`"),
        ("gpus: '3'", GPUS + "'3' (text)", "write it without the quotes: `gpus: 3`"),
        ("gpus: 3.0", GPUS + "3.0", "write it without the point or exponent: `gpus: 3`"),
        ("gpus: {a: 1}", GPUS + "{'a': 1} (a mapping)", GPUS_EXAMPLE),
        ("gpus: []", "expected at least one GPU, got an empty list", "leave `gpus` out to run on the CPU"),
        ("gpus: 129", MOST + "128, since PyTorch can number 128 GPUs, got 129", GPUS_EXAMPLE),
        ("model: liner", MODEL + "'liner' (text)", "did you mean `linear`?"),
        ("model: RNN", MODEL + "'RNN' (text)", "did you mean `rnn`?"),
        ("model: torchvision models", MODEL + "'torchvision models' (text)", OWN_MODEL),
        ("model: ''", MODEL + "'' (text)", OWN_MODEL),
        ("model: 'a:'", MODEL + "'a:' (text)", OWN_MODEL),
        ("model: 'nets/my:Net'", MODEL + "'nets/my:Net' (text)", OWN_MODEL),
        ("model: 3", MODEL + "3", "write for example `model: linear`"),
        ("model: ~", MODEL + "null", "leave `model` out to get the default, linear"),
        ("model: !!binary aGk=", MODEL + "b'hi' (bytes)", "write for example `model: linear`"),
        ("model: " + "a" * 9000, MODEL + "'" + "a" * 27 + "..." + "a" * 28 + "' (text)", OWN_MODEL),
        ("shuffle: yes", "expected true or false, got 'yes' (text)", "write for example `shuffle: true`"),
        ("drop_last: 1", "expected true or false, got 1", "write for example `drop_last: true`"),
        ("dtype: float23", "expected one of float32, float64, bfloat16, float16, got 'float23' (text)",
         "did you mean `float32`?"),
        ("dtype: half", "expected one of float32, float64, bfloat16, float16, got 'half' (text)",
         "did you mean `float16`?"),
        ("seed: -1", "expected a whole number of 0 or more, got -1", "write for example `seed: 0`"),
        ("output_device: -1", "expected the ordinal of a GPU, 0 or more, got -1",
         "write for example `output_device: 0`"),
        ("output_device: 128", MOST + "127, since PyTorch can number 128 GPUs, got 128",
         "write for example `output_device: 0`"),
        ("dim: -1", "expected a dimension from 0 to 63, got -1", "write for example `dim: 0`"),
        ("dim: 2", "expected a dimension from 0 to 1 for this model, got 2", LINEAR_DIM),
        ("{model: 'a.b:c', dim: 2}", "expected a dimension from 0 to 1 for this model, got 2", LINEAR_DIM),
    ],
)  # fmt: skip
def test_a_bad_value_says_what_was_expected_got_and_where(tmp_path, monkeypatch, line, message, hint):
    error = refuse(tmp_path, monkeypatch, "# a comment\n" + line)
    key = "dim" if line.startswith("{") else line.partition(":")[0]
    assert (error.message, error.hint) == (f"{message} - at c.yaml:2, key `{key}`", hint)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("[0, a]", ITEM + "'a' (text) - at c.yaml:1, key `gpus`, item 2"),
        ("[0, 1, -1]", ITEM + "-1 - at c.yaml:1, key `gpus`, item 3"),
        ("[128]", ITEM + "128 - at c.yaml:1, key `gpus`, item 1"),
        ("[true]", ITEM + "true - at c.yaml:1, key `gpus`, item 1"),
        ("[[0]]", ITEM + "[0] - at c.yaml:1, key `gpus`, item 1"),
        ("&a [*a]", ITEM + "[[[...]]] - at c.yaml:1, key `gpus`, item 1"),
    ],
)
def test_a_bad_ordinal_is_found_in_its_list(tmp_path, monkeypatch, items, message):
    error = refuse(tmp_path, monkeypatch, f"gpus: {items}")
    assert (error.message, error.hint) == (message, GPUS_EXAMPLE)


@pytest.mark.parametrize(
    ("key", "got", "hint"),
    [
        ("batch_sise", "`batch_sise`", "did you mean `batch_size`?"),
        ("batch-size", "`batch-size`", "did you mean `batch_size`?"),
        ("BATCH_SIZE", "`BATCH_SIZE`", "did you mean `batch_size`?"),
        ("device_ids", "`device_ids`", "did you mean `gpus`?"),
        ("qqq", "`qqq`", KEYS),
        ("k" * 300, f"`{'k' * 57}...`", KEYS),
        ('"\\e[31m"', r"`'\x1b[31m'`", KEYS),
        ('"\\ud800"', r"`'\ud800'`", KEYS),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path, monkeypatch, key, got, hint):
    error = refuse(tmp_path, monkeypatch, f"data_size: 7\n{key}: 3\n")
    assert (error.message, error.hint) == (f"expected a known key, got {got} - at c.yaml:2", hint)
    assert unknown_key("sed", "at option `--set`").hint == "did you mean `seed`?"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("batch_size: 30\ndata_size: 10\ndrop_last: true\n",
         ("expected at least one full batch, got data_size 10 < batch_size 30 with drop_last, "
          "which leaves none - at c.yaml:3, key `drop_last`"),
         "leave drop_last out, or choose a smaller batch_size"),
        ("output_device: 2\ngpus: 2\n",
         "expected one of the 2 GPUs, 0 to 1, got 2 - at c.yaml:1, key `output_device`",
         "to gather on a GPU that gets no chunk, list the others, such as `gpus: [0, 1]`"),
    ],
)  # fmt: skip
def test_keys_that_conflict_are_an_error(tmp_path, monkeypatch, text, message, hint):
    error = refuse(tmp_path, monkeypatch, text)
    assert (error.message, error.hint) == (message, hint)


@pytest.mark.parametrize(
    ("values", "gpus"), [({}, None), ({"gpus": 3}, 3), ({"gpus": [2, 0]}, (2, 0)), ({"gpus": "all"}, "all")]
)
def test_gpus_are_a_count_a_list_or_all(values, gpus):
    assert make_config(values).gpus == gpus


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
    config = make_config({"model": model})
    assert config.is_builtin == model.isidentifier()


@pytest.mark.parametrize("size", [1, 2**63 - 1])
def test_sizes_reach_from_one_to_what_torch_can_count(size):
    config = make_config(dict.fromkeys(["input_size", "output_size", "batch_size", "data_size"], size))
    assert config.batch_size == config.output_size == size


def test_keywords_win_over_the_file_and_are_located_as_such(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("batch_size: 0\ndata_size: 7\n")
    config = load_config(path, batch_size=3)
    assert (config.batch_size, config.data_size) == (3, 7)
    with pytest.raises(
        UsageError, match=r"^expected a whole number of 1 or more, got 0 - at argument `data_size`$"
    ):
        load_config(path, batch_size=3, data_size=0)


def test_options_are_located_as_such():
    with pytest.raises(UsageError, match=r"got 0 - at option `--batch-size`$"):
        make_config({"batch_size": 0}, {"batch_size": "option `--batch-size`"})
    with pytest.raises(UsageError, match=r"got 0 - at key `batch_size`$"):
        make_config({"batch_size": 0})


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        ("option `--batch-size`", "write for example `--batch-size 30`"),
        ("argument `batch_size`", "write for example `batch_size=30`"),
        ("c.yaml:1", "write for example `batch_size: 30`"),
    ],
)
def test_a_hint_is_written_as_the_value_was_set(place, hint):
    with pytest.raises(UsageError, match=r"got 0 - at ") as caught:
        make_config({"batch_size": 0}, {"batch_size": place})
    assert caught.value.hint == hint


@given(configs)
def test_a_config_survives_its_own_values(config):
    assert make_config(config.model_dump()) == make_config(config.model_dump(exclude_unset=True)) == config


def test_a_config_is_frozen():
    with pytest.raises(ValueError, match=r"frozen"):
        make_config({}).batch_size = 3


def test_every_key_has_a_description():
    assert all(field.description for field in Config.model_fields.values())


@pytest.mark.parametrize("name", ["simulate", "run", "explain", "load_config"])
def test_a_functions_signature_lists_every_key_with_its_default(name):
    shown = inspect.signature(getattr(dpdemo, name)).parameters
    assert {name: shown[name].default for name in Config.model_fields} == {
        name: field.default for name, field in Config.model_fields.items()
    }
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in shown.values())


def test_the_keys_for_type_checkers_are_those_of_the_config():
    assert [*Keys.__annotations__] == [*Config.model_fields]


@pytest.mark.parametrize(
    ("key", "near"), [("gpu", "gpus"), ("batchsize", "batch_size"), ("batch-size", "batch_size")]
)
def test_a_wrong_keyword_is_answered_with_the_nearest(key, near):
    with pytest.raises(dpdemo.UsageError) as caught:
        dpdemo.simulate(**{key: 8})
    assert caught.value.hint == f"did you mean `{near}`?"
