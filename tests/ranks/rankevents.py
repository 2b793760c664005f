"""Events of ranks for tests: short ways to write them, and hypothesis strategies that make any."""

import typing
from dataclasses import fields

from hypothesis import strategies as st

from dpdemo.ranks.events import Epoch, Event, Loss, ModelMade, Parameters, Rows
from dpdemo.ranks.mistakes import find_mistakes

AT, DATA_AT = "train.py:9", "train.py:5"
MODEL = "DistributedDataParallel on [0, 1] #1"
MADE = ModelMade(MODEL, "Net", "DistributedDataParallel", (0, 1), "train.py:4")


def mistakes(*events_of_ranks):
    """Return the mistakes of ranks 0, 1, … that noted these events."""
    return find_mistakes(dict(enumerate(events_of_ranks)))


def texts(*events_of_ranks):
    """Return the sentences of `mistakes`."""
    return [each.text for each in mistakes(*events_of_ranks)]


def epoch(*drawn, number=1, **values):
    """Return an epoch of training with these indices, or with the rows in `values`."""
    count = len(drawn)
    values = {"sampler": "SequentialSampler", "length": len(set(drawn)), "count": count, **values}
    names = drawn if values.get("is_indexed", True) else values.get("rows")
    values = {"sum": hash(names), "trained": values["count"] * values.get("was_trained", True), **values}
    return Epoch(DATA_AT, number, drawn=drawn if values.get("is_indexed", True) else None, **values)


def rows(*sums, number=16, drawn=()):
    """Return training calls of the model with inputs of these checksums."""
    return [Rows(MODEL, each, number, AT, drawn) for each in sums]


def loss(count, weight, *, number=1, name="MeanBackward0"):
    """Return a reduction of the loss over `count` elements."""
    return Loss(AT, number, 0, name, count, weight)


def parameters(*sums):
    """Return checks of the model's parameters before the first step and after steps 1, 2, …."""
    return [Parameters(MODEL, each, steps, AT) for steps, each in enumerate(sums)]


TRAINED = [MADE, *rows(1)]
"""The events of a rank that trains the model together with others."""
_NUMBERS = st.integers(-1, 4)
_TEXTS = st.sampled_from(["", "a", MODEL, AT, "groups of 0,1", "0 of 0,1"])


def _values(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return st.lists(_values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(_TEXTS, _values(arguments[1]), max_size=2)
    if arguments:  # a union
        return st.one_of(map(_values, arguments))
    simple = {int: _NUMBERS, str: _TEXTS, bool: st.booleans(), type(None): st.none()}
    simple |= {float: st.floats(), typing.Any: _NUMBERS}
    return simple[hint]


def events_of(kind):
    """Return a strategy of events of one kind, whose fields hold whatever their types allow."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: _values(hints[field.name]) for field in fields(kind)})


EVENTS = st.one_of(
    events_of(kind) for kind in Event.KINDS.values() if kind.__module__ == "dpdemo.ranks.events"
)
