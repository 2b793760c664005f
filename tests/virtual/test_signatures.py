"""A function that goes around another takes every call of it."""

import inspect
from inspect import Parameter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpdemo.virtual.applying import Patches
from dpdemo.virtual.signatures import check_fits

KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@st.composite
def functions(draw, kinds=KINDS, first=()):
    """Make a function that returns its arguments by name, of up to three parameters from five names."""
    names = draw(st.lists(st.sampled_from("abcde"), max_size=3, unique=True))
    chosen = sorted(draw(st.lists(st.sampled_from(kinds), min_size=len(names), max_size=len(names))))
    made = [Parameter(name, kind) for name, kind in zip(names, chosen, strict=True)]
    needed = draw(st.integers(0, len(made)))
    made = [
        each if place < needed and each.kind is not Parameter.KEYWORD_ONLY else each.replace(default=0)
        for place, each in enumerate(made)
    ]
    rest = [Parameter("rest", Parameter.VAR_POSITIONAL)] if draw(st.booleans()) else []
    more = [Parameter("more", Parameter.VAR_KEYWORD)] if draw(st.booleans()) else []
    by_name = [each for each in made if each.kind is Parameter.KEYWORD_ONLY]
    by_place = [each for each in made if each not in by_name]

    def function(*args, **kwargs):
        return function.__signature__.bind(*args, **kwargs)

    function.__signature__ = inspect.Signature([*first, *by_place, *rest, *by_name, *more])
    return function


RUN = Parameter("run", Parameter.POSITIONAL_ONLY)
AROUND = functions(KINDS[1:], first=[RUN])


@given(functions(), AROUND, st.integers(0, 4), st.sets(st.sampled_from("abcde")))
def test_what_fits_takes_every_call_that_the_original_takes(original, around, number, names):
    known = original.__signature__.parameters.values()
    assume([each.name for each in known] != ["rest", "more"])  # which tells nothing
    by_place = {
        each.name for each in known if each.kind is Parameter.POSITIONAL_ONLY
    }  # and so free for `**more`
    args, kwargs = range(number), dict.fromkeys(names - by_place)
    try:
        check_fits(original, around)
        original(*args, **kwargs)
    except TypeError:
        return
    around(original, *args, **kwargs)


@given(functions())
def test_a_function_of_the_same_parameters_fits(original):
    def around(run):
        return run

    around.__signature__ = inspect.Signature([RUN, *original.__signature__.parameters.values()])
    check_fits(original, around)


def shard(module, mesh=None, *, plan=None):
    return module, mesh, plan


@pytest.mark.parametrize(
    ("around", "why"),
    [
        (lambda run, model, mesh=None, **more: run(model, mesh, **more), "takes `model` for `module`"),
        (lambda run, module, mesh, **more: run(module, mesh, **more), "missing a required argument: 'mesh'"),
        (lambda run, module, mesh=None: run(module, mesh), "unexpected keyword argument 'plan'"),
        (lambda run, module, **more: run(module, **more), "too many positional arguments"),
    ],
)
def test_another_name_or_a_missing_parameter_is_refused_and_the_function_stays_as_it_is(around, why):
    class Parallel:
        run = staticmethod(shard)

    with pytest.raises(TypeError, match=why):
        Patches().around(Parallel, "run", why="it is watched")(around)
    assert Parallel.run is shard


def test_an_argument_may_have_the_name_by_which_the_original_comes():
    def forward(self, *args, **kwargs):
        return self, args, kwargs

    with pytest.raises(TypeError, match="multiple values for argument 'run'"):
        check_fits(forward, lambda run, self, *args, **kwargs: run(self, *args, **kwargs))
    check_fits(forward, lambda run, /, self, *args, **kwargs: run(self, *args, **kwargs))


def test_all_arguments_by_place_and_by_name_fit_any_function():
    check_fits(shard, lambda run, *args, **kwargs: run(*args, **kwargs))
    check_fits(max, lambda run, number: run(number))  # C++ and C do not tell
    check_fits(lambda *args, **kwargs: (args, kwargs), lambda run, /, module: run(module))  # nor does this
