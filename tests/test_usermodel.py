"""Loading a user's own model."""

import sys

import pytest
from torch import nn

from dpdemo.config import Config
from dpdemo.errors import UsageError
from dpdemo.usermodel import load_factory

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
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(SOURCE)
    (tmp_path / "broken_models.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "mistyped.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_models", "broken_models", "mistyped"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("folder")
class TestLoading:
    def test_the_current_folder_is_importable(self):
        assert isinstance(load_factory("own_models:no_parameters", Config()), nn.Linear)

    def test_parameters_named_like_config_keys_get_their_values(self):
        model = load_factory("own_models:Tutorial", Config(input_size=7, output_size=9))
        assert (model.fc.in_features, model.fc.out_features) == (7, 9)

    def test_a_dotted_factory_is_found_inside_its_class(self):
        assert isinstance(load_factory("own_models:Zoo.small", Config()), nn.Linear)

    def test_a_ready_module_is_taken_as_it_is(self):
        assert load_factory("own_models:ready", Config()) is sys.modules["own_models"].ready

    def test_a_factory_that_raises_shows_the_users_own_frame(self):
        with pytest.raises(UsageError, match=r"got RuntimeError: no weights here - at key `model`") as caught:
            load_factory("own_models:raises", Config())
        assert "own_models.py:13 in raises" in str(caught.value)
        assert "usermodel.py" not in str(caught.value)

    def test_a_factory_that_wants_more_than_the_config_has_is_an_error(self):
        with pytest.raises(UsageError, match="missing 1 required positional argument: 'depth'"):
            load_factory("own_models:wants_more", Config())

    @pytest.mark.parametrize(("name", "got"), [("gives_text", "str"), ("number", "TypeError")])
    def test_what_is_no_module_is_an_error(self, name, got):
        with pytest.raises(UsageError, match=f"own_models:{name}`, got {got}"):
            load_factory(f"own_models:{name}", Config())

    def test_an_unknown_factory_is_answered_with_those_there_are(self):
        with pytest.raises(
            UsageError, match=r"expected a factory `Tutoral` in .*own_models.py, got none"
        ) as caught:
            load_factory("own_models:Tutoral", Config())
        assert "Tutorial" in caught.value.hint

    def test_an_unknown_module_is_answered_with_where_it_was_looked_for(self, folder):
        with pytest.raises(
            UsageError, match="importable module `nowhere`, got ModuleNotFoundError"
        ) as caught:
            load_factory("nowhere:f", Config())
        assert str(folder) in caught.value.hint

    def test_a_module_that_breaks_on_import_names_what_it_lacks(self):
        with pytest.raises(UsageError, match="No module named 'nothing_of_that_name'") as caught:
            load_factory("broken_models:f", Config())
        assert "broken_models.py:1" in str(caught.value)

    def test_a_syntax_error_is_the_users_and_no_traceback_of_ours(self):
        with pytest.raises(UsageError, match="got SyntaxError"):
            load_factory("mistyped:f", Config())

    @pytest.mark.parametrize("target", [":f", "own_models:", ":"])
    def test_half_a_name_is_an_error(self, target):
        with pytest.raises(UsageError, match=r"expected `pkg\.mod:factory`"):
            load_factory(target, Config())
