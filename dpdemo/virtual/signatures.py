"""Check that a function can go around another: every call that suits the one has to suit the other."""

import inspect
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from inspect import Parameter, Signature
from typing import Any

_BY_PLACE = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
_SINGLE = {*_BY_PLACE, Parameter.KEYWORD_ONLY}
_ANY = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
_OTHER = "another argument"
_MANY = [_OTHER] * 9


def check_fits(original: Callable[..., Any], around: Callable[..., Any]) -> None:
    """Check a function that gets `original`, and then the arguments of each call of it, by some calls.

    Raises:
        TypeError: if it cannot take one of them, or would take an argument by another name than `original`.

    """
    try:
        theirs = inspect.signature(original)
    except ValueError:  # C++ does not tell
        return
    if {each.kind for each in theirs.parameters.values()} == _ANY:  # nor does a wrapper of `*args, **kwargs`
        return
    ours = inspect.signature(around)
    for args, kwargs in _calls(theirs, ours.parameters.keys() - theirs.parameters.keys()):
        try:
            taken = ours.bind(original, *args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{around.__qualname__} is called as {original.__qualname__}: {error}") from None
        for name, value in list(taken.items())[1:]:
            their = theirs.parameters.get(value) if ours.parameters[name].kind in _SINGLE else None
            if their is not None and name != value and their.kind is not Parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"{around.__qualname__} takes `{name}` for `{their}` of {original.__qualname__}"
                )


def _calls(signature: Signature, others: AbstractSet[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield calls with all arguments and with as few as can be, by place and by name: each is its own name.

    Where the function takes any further arguments, there are calls with some, under `others` too.
    """
    known = list(signature.parameters.values())
    kinds = {each.kind for each in known}
    for wanted in (known, [each for each in known if each.default is each.empty]):
        for places in (_BY_PLACE, {Parameter.POSITIONAL_ONLY}):
            args = [each.name for each in wanted if each.kind in places]
            kwargs = {each.name: each.name for each in wanted if each.kind in _SINGLE - places}
            more = dict.fromkeys(others | {_OTHER}, _OTHER) if Parameter.VAR_KEYWORD in kinds else {}
            yield args, kwargs
            yield args, {**kwargs, **more}
            if Parameter.VAR_POSITIONAL in kinds and places is _BY_PLACE and wanted is known:
                yield [*args, *_MANY], {**kwargs, **more}
