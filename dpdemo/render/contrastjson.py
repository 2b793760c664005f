"""The JSON form of a comparison of both strategies, `dpdemo.comparison/1`: what stands under each key."""

import json
from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.contrast import Comparison
from dpdemo.render.jsonform import finite

SCHEMA: Literal["dpdemo.comparison/1"] = "dpdemo.comparison/1"


class FactJson(TypedDict):
    """One thing, and how it stands under each strategy, in words."""

    name: str
    dp: str
    ddp: str


class GradientJson(TypedDict):
    """How far a strategy's gradient is from one device's, relative to its largest number, and why.

    The difference is null where it is infinite or not a number.
    """

    name: str
    difference: float | None
    why: str


class ComparisonJson(TypedDict):
    """Both strategies on one config: `samples` went into the step whose gradients were computed."""

    schema: Literal["dpdemo.comparison/1"]
    title: str
    facts: list[FactJson]
    samples: int
    gradients: list[GradientJson]


def comparison_json(comparison: Comparison) -> str:
    """Write a comparison as JSON text."""
    found = ComparisonJson(
        schema=SCHEMA,
        title=comparison.title,
        facts=[FactJson(name=fact.name, dp=fact.dp, ddp=fact.ddp) for fact in comparison.facts],
        samples=comparison.samples,
        gradients=[
            GradientJson(name=check.name, difference=_short(check.difference), why=check.why)
            for check in comparison.gradients
        ],
    )
    return json.dumps(found, indent=1) + "\n"


def _short(difference: float) -> float | None:
    return finite(float(f"{difference:.3g}"))
