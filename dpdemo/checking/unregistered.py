"""What becomes of code in a replica that asks for parameters: none are registered there."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Event, Probe, Raised
from dpdemo.checking.source import function_at

# the words of 2.13, and of 2.11
_NO_INPUTS = r"argument to .?grad\(\).? cannot be empty|grad requires non-empty inputs"
NOTHING_THERE = (
    r"^(KeyError|IndexError)|empty|at least one|not enough values|'(int|float)' object has no attribute|"
    r"must be Tensor, not (int|float)"
)
"""What is raised where a list turns out to have nothing in it, or a sum to be the number 0."""
BY_NAME = r"parameters\(|state_dict\("
"""A line of the user's that asks for parameters itself."""
_EMPTY = r"empty|got 0\)"
"""Of what is raised, that which says so itself."""
_NAME_OF_ONE = r"'[\w.]*(weight|bias)[\w.]*'|'\w+(\.\w+)+'"
"""A key that is a parameter's name."""


def questions_for_parameters(call: Call) -> list[Event]:
    """List where replicas asked for parameters, or to freeze them; `zero_grad()` does so for DP311."""
    return [
        event
        for event in call.events
        if event.kind in ("named_parameters", "requires_grad_", "state_dict")
        and not (event.place and "zero_grad(" in event.place.code)
    ]


def comes_of_no_parameters(error: Raised, call: Call | None) -> bool:
    """Return whether an error is what becomes of no parameters, in a function that has asked for them."""
    if error.type == "StopIteration" or re.search(_NO_INPUTS, error.message):
        return True
    if call is None or not re.search(NOTHING_THERE, f"{error.type}: {error.message}"):
        return False
    # a package that the line calls may have asked, and knows what to do
    places = [event.place for event in questions_for_parameters(call) if event.place]
    asked = [place for place in places if re.search(BY_NAME, place.code)]
    is_name = error.type == "KeyError" and re.search(_NAME_OF_ONE, error.message)
    if asked and (re.search(_EMPTY, error.message) or is_name):
        return True  # wherever the list, or the dict, has been handed on to
    through = {(one.file, one.node.lineno): one for one in map(function_at, error.places) if one is not None}
    texts = [one.text(one.node) for one in through.values()]
    asking = [one for one in map(function_at, asked) if one is not None]
    return any(
        (one.file, one.node.lineno) in through or any(f".{one.node.name}(" in text for text in texts)
        for one in asking
    )


def numbers_for_tensors(probe: Probe, call: Call) -> Iterator[str]:
    """List the parts of a result that are a tensor on one GPU, and the number 0 where none was summed."""
    if not questions_for_parameters(call):
        return
    alone = {leaf.path for leaf in probe.single.output if leaf.is_tensor}
    parts = (leaf for replica in call.replicas for leaf in replica.output or ())
    yield from dict.fromkeys(
        leaf.path for leaf in parts if leaf.path in alone and leaf.type in ("int", "float")
    )
