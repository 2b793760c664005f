"""Lines that ask a module for its parameters, which replicas do not list, written with what replicas have."""

import re

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.looking import entered_at, parameters_at
from dpdemo.checking.source import attribute_of, function_at
from dpdemo.reports.check import Place

_FEW = 8
"""So many parameters can be written out."""
_OWNER = r"(?<![\w.\])])([a-zA-Z_]\w*(?:\.\w+|\[\d+\])*?)"
"""A module, as a line names it: `self`, `self.layers[0]`, `layer`."""
_FIRST = re.compile(rf"next\((?:iter\()?{_OWNER}\.parameters\(\)\)?\)")
_ALL = re.compile(rf"(?:list|tuple)\({_OWNER}\.parameters\(\)\)|{_OWNER}\.parameters\(\)")
_NAMED = re.compile(
    rf"(?P<as_dict>(?P<dict>dict)|list|tuple)\({_OWNER}\.named_parameters\(\)\)|{_OWNER}\.named_parameters\(\)"
)
_OF_REPLICAS = (
    "list(dict.fromkeys(one for part in {}.modules() for one in "
    'getattr(part, "_former_parameters", part._parameters).values() if one is not None))'
)
"""What replicas have in place of parameters, where these are too many to be written out."""
_NAMED_OF_REPLICAS = (
    '{{f"{{at}}.{{name}}".lstrip("."): one for at, part in {}.named_modules() for name, one in '
    'getattr(part, "_former_parameters", part._parameters).items() if one is not None}}'
)


def without_state(place: Place) -> tuple[str, str]:
    """Write a line that looks a parameter up in a state_dict, and one that reads the attribute."""
    found = re.search(r"(self[\w.\[\]]*)\.state_dict\(\)\[[\"']([\w.]+)[\"']\]", place.code)
    return (place.code, place.code.replace(found[0], attribute_of(found[2], found[1]))) if found else ("", "")


def with_replicas_own(place: Place | None, evidence: Evidence) -> tuple[str, str]:
    """Write a line that asks for parameters, and one that asks for what replicas have, or "" for both.

    The device of a parameter is that of an input; few parameters are written out by their names.
    """
    code = after = place.code if place else ""
    given = (*evidence.scan.inputs, "x")[0]
    function = function_at(place)
    if function is not None and given in function.arguments():
        after = re.sub(rf"{_FIRST.pattern}\.device", f"{given}.device", after)
    after = _FIRST.sub(lambda found: _first(found, place, evidence), after)
    after = _NAMED.sub(lambda found: _by_name(found, place, evidence), after)
    after = _ALL.sub(lambda found: _listed(found[1] or found[2], place, evidence), after)
    return (code, after) if after != code else ("", "")


def _first(found: re.Match[str], place: Place | None, evidence: Evidence) -> str:
    names = _parameters_of(found[1], place, evidence)
    if found[1] == "self" and not names and (own := _own_parameter(place, evidence)):
        return own
    return attribute_of(names[0]) if names else f"{found[1]}.weight"


def _listed(owner: str, place: Place | None, evidence: Evidence) -> str:
    names = _parameters_of(owner, place, evidence)
    few = 0 < len(names) <= _FEW
    return f"[{', '.join(map(attribute_of, names))}]" if few else _OF_REPLICAS.format(owner)


def _by_name(found: re.Match[str], place: Place | None, evidence: Evidence) -> str:
    owner = found[3] or found[4]
    inside = owner.partition(".")[2]
    dot = f"{_as_path(inside)}." if inside else ""
    names = _parameters_of(owner, place, evidence)
    few = 0 < len(names) <= _FEW
    items = ", ".join(f'"{name.removeprefix(dot)}": {attribute_of(name)}' for name in names)
    named = f"{{{items}}}" if few else _NAMED_OF_REPLICAS.format(owner)
    if found["dict"]:
        return named
    return f"list({named}.items())" if found["as_dict"] else f"{named}.items()"


def _parameters_of(owner: str, place: Place | None, evidence: Evidence) -> list[str]:
    """List the parameters of `self.layer`, as the module names them whose method a line stands in."""
    me, _, path = _as_path(owner).partition(".")
    own, known = _own_parameter(place, evidence), parameters_at(place, evidence)
    if me != "self" or (own and own not in map(attribute_of, known)):
        return []  # the line is a base class's, of which a part of the model is one
    return [name for name in known if name.startswith(f"{path}." if path else "")]


def _own_parameter(place: Place | None, evidence: Evidence) -> str:
    """Write the first parameter that a method's module had in a plain call; "" where that is not known."""
    seen = entered_at(function_at(place), evidence)
    return next((one for one in seen.tensors if one.startswith("self.")), "") if seen is not None else ""


def _as_path(owner: str) -> str:
    return re.sub(r"\[(\d+)\]", r".\1", owner)
