"""Loading a user's own model."""

import sys

import pytest
from torch import nn

from dpdemo.cli.edge import Edge
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.models.user import find_object, load_with_inputs, make_model

SOURCE = """
import torch.nn as nn

class Tutorial(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc = nn.Linear(input_size, output_size)

def no_parameters():
    return nn.Linear(2, 3)

def raises():
    raise RuntimeError("no weights here")

def gives_text():
    return "a model"

def wants_more(depth):
    return nn.Linear(depth, depth)

class Zoo:
    @staticmethod
    def small():
        return nn.Linear(1, 1)

ready = nn.Linear(4, 4)
number = 3
"""


@pytest.fixture
def folder(users_folder):
    broken = "import nothing_of_that_name\n"
    return users_folder({"own_models.py": SOURCE, "broken_models.py": broken, "mistyped.py": "def f(:\n"})


def _load(target, config):
    return load_with_inputs(target, config)[0]


@pytest.mark.usefixtures("folder")
class TestLoading:
    def test_the_current_folder_is_importable(self):
        assert isinstance(_load("own_models:no_parameters", Config()), nn.Linear)

    def test_parameters_named_like_config_keys_get_their_values(self):
        model = _load("own_models:Tutorial", Config(input_size=7, output_size=9))
        assert (model.fc.in_features, model.fc.out_features) == (7, 9)

    def test_a_dotted_factory_is_found_inside_its_class(self):
        assert isinstance(_load("own_models:Zoo.small", Config()), nn.Linear)

    def test_a_ready_module_is_taken_as_it_is(self):
        assert _load("own_models:ready", Config()) is sys.modules["own_models"].ready

    def test_a_factory_that_raises_shows_the_users_own_frame(self):
        with pytest.raises(
            UsageError, match=r"got RuntimeError: no weights here - at argument `model`"
        ) as caught:
            _load("own_models:raises", Config())
        assert "own_models.py:13 in raises" in str(caught.value)
        assert "dpdemo/models" not in str(caught.value)

    def test_a_factory_that_wants_more_than_the_config_has_is_an_error(self):
        with pytest.raises(UsageError, match="missing 1 required positional argument: 'depth'") as caught:
            _load("own_models:wants_more", Config())
        hint = "write a function that gives them, `def make(): return wants_more(depth=...)`"
        assert caught.value.worded(Edge())[1] == f"{hint}, and name it: `own_models:make`"

    @pytest.mark.parametrize(("name", "got"), [("gives_text", "str"), ("number", "int")])
    def test_what_is_no_module_is_an_error(self, name, got):
        with pytest.raises(UsageError, match=f"own_models:{name}`, got {got} - at"):
            _load(f"own_models:{name}", Config())

    def test_an_unknown_factory_is_answered_with_those_there_are(self):
        with pytest.raises(UsageError, match=r"expected `Tutoral` in .*own_models.py, got none") as caught:
            _load("own_models:Tutoral", Config())
        assert "Tutorial" in caught.value.hint

    def test_an_unknown_module_is_answered_with_where_it_was_looked_for(self, folder):
        with pytest.raises(
            UsageError, match="importable module `nowhere`, got ModuleNotFoundError"
        ) as caught:
            _load("nowhere:f", Config())
        assert str(folder) in caught.value.hint

    def test_a_failing_import_names_the_missing_module(self):
        with pytest.raises(UsageError, match="No module named 'nothing_of_that_name'") as caught:
            _load("broken_models:f", Config())
        assert "broken_models.py:1" in str(caught.value)

    def test_a_syntax_error_is_the_users_and_no_traceback_of_ours(self):
        with pytest.raises(UsageError, match="got SyntaxError"):
            _load("mistyped:f", Config())

    @pytest.mark.parametrize("target", [":f", "own_models:", ":"])
    def test_half_a_name_is_an_error(self, target):
        with pytest.raises(UsageError, match=r"expected a model as `model\.py:Net` or `pkg\.mod:Net`"):
            _load(target, Config())


PACKAGED = """
from torch import nn
from .sizes import WIDTH

class Net(nn.Linear):
    def __init__(self):
        super().__init__(WIDTH, WIDTH)
"""


@pytest.fixture
def package(folder):
    (folder / "ownpkg").mkdir()
    (folder / "ownpkg" / "__init__.py").write_text("")
    (folder / "ownpkg" / "sizes.py").write_text("WIDTH = 6\n")
    (folder / "ownpkg" / "nets.py").write_text(PACKAGED)
    (folder / "code.py").write_text("from torch import nn\nclass Net(nn.Identity): pass\n")
    yield folder
    for name in [name for name in sys.modules if name == "_code" or name.split(".")[0] == "ownpkg"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
class TestWaysToNameAModel:
    @pytest.mark.parametrize(
        "target",
        ["ownpkg.nets:Net", "ownpkg.nets.Net", "ownpkg/nets.py:Net", "ownpkg/nets.py", "./ownpkg/nets.py"],
    )
    def test_each_way_to_name_a_class_finds_it(self, target):
        assert _load(target, Config()).in_features == 6

    def test_an_absolute_file_is_found_from_any_folder(self, folder, monkeypatch):
        monkeypatch.chdir("/")
        assert _load(f"{folder}/ownpkg/nets.py:Net", Config()).in_features == 6

    def test_a_file_named_like_a_module_of_python_is_taken_all_the_same(self):
        assert isinstance(_load("code.py", Config()), nn.Identity)
        assert sys.modules["_code"].Net is find_object("./code.py:Net")

    def test_a_script_as_model_gets_a_hint_at_exec(self, folder):
        (folder / "train.py").write_text("import sys\nif sys.argv:\n    sys.exit(2)\n")
        with pytest.raises(UsageError, match="got SystemExit: 2") as caught:
            _load("train.py", Config())
        assert caught.value.hint == "`dpdemo exec --check train.py` runs a program and checks what it calls"

    def test_a_file_with_several_models_is_answered_with_their_names(self):
        expected = r"expected one torch\.nn\.Module in own_models\.py, got Tutorial, ready"
        with pytest.raises(UsageError, match=expected) as caught:
            _load("own_models.py", Config())
        assert caught.value.hint == "name one: `own_models.py:Tutorial`"

    def test_a_file_that_is_not_there_is_said_to_be_missing(self):
        with pytest.raises(UsageError, match=r"expected a Python file, got `nets\.py`, which does not exist"):
            _load("nets.py:Net", Config())

    def test_a_wrong_dotted_name_reports_its_first_wrong_part(self):
        with pytest.raises(UsageError, match=r"expected `Nest` in .*nets\.py, got none"):
            _load("ownpkg.nets.Nest", Config())


@pytest.mark.usefixtures("folder")
class TestTheContractOfFactories:
    def test_inputs_beside_the_model_are_handed_on(self):
        model, inputs = make_model(lambda: (nn.Linear(2, 2), "inputs"), "f")
        assert isinstance(model, nn.Linear)
        assert inputs == "inputs"

    def test_without_a_config_only_what_has_no_default_is_given(self):
        def factory(input_size, output_size=9):
            return nn.Linear(input_size, output_size)

        model, _ = make_model(factory, "f")
        assert (model.in_features, model.out_features) == (5, 9)

    @pytest.mark.parametrize("status", [0, 3])
    def test_a_module_that_exits_on_import_is_an_error(self, folder, status):
        (folder / "exits.py").write_text(f"import sys\nsys.exit({status})\n")
        with pytest.raises(UsageError, match=rf"got SystemExit: {status}") as caught:
            find_object("exits.py:Net")
        assert "exits.py:2" in str(caught.value)

    def test_a_factory_that_exits_is_an_error(self):
        with pytest.raises(UsageError, match=r"expected a model from `f`, got SystemExit: 0"):
            make_model(lambda: sys.exit(0), "f")


def test_a_factory_without_a_target_is_told_no_target_to_name():
    with pytest.raises(UsageError) as caught:
        make_model(lambda width: nn.Linear(width, 1), "Net")
    assert caught.value.worded(Edge())[1].endswith("`def make(): return Net(width=...)`, and give that")
