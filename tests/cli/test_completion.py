"""The Tab key: what it offers."""

import pytest

from dpdemo.cli import completion


@pytest.mark.parametrize(
    ("offer", "typed", "offered"),
    [
        (completion.models, "", "transformer"),
        (completion.rules, "", "DP301"),
        (completion.rules, "DP2,DP30", "DP2,DP301"),
        (completion.kinds, "idle,", "idle,uneven"),
    ],
)
def test_the_tab_key_offers_words_behind_commas(offer, typed, offered):
    assert offered in dict(offer(typed))


def test_the_tab_key_offers_files_of_python(tmp_path):
    path = tmp_path / "own model.py"
    path.touch()
    assert [word for word, _ in completion.models(f"{tmp_path}/o") if "own" in word] == [str(path)]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("check --select DP20", "DP205"),
        ("simulate --strategy ", "ddp"),
        ("simulate --set se", "seed="),
        ("memory --gpu A", "A100-80GB"),
        ("speedup --link nv", "nvlink3"),
        ("memory --loss c", "cross-entropy"),
        ("sp", "speedup"),
    ],
)
def test_a_shell_gets_the_words_of_commands_and_options(program, typed, offered):
    words = f"dpdemo {typed}"
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    assert offered in program(_DPDEMO_COMPLETE="complete_bash", **place).out.split()
