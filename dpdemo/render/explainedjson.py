"""The JSON form of an explanation, `dpdemo.explain/1`."""

import json
from dataclasses import asdict
from typing import Any

from dpdemo.explanation import Explanation, Part, Step
from dpdemo.render.jsonform import shapes_json
from dpdemo.render.lessons import lesson

SCHEMA = "dpdemo.explain/1"


def explanation_json(explanation: Explanation) -> str:
    """Write an explanation as JSON text."""
    found = {
        "schema": SCHEMA,
        "model": explanation.config.model,
        "wrapped": explanation.wrapped,
        "virtual": explanation.virtual,
        "devices": list(explanation.devices),
        "config": explanation.config.model_dump(mode="json"),
        "batch_size": explanation.batch_size,
        "module": asdict(explanation.module),
        "bytes_from": explanation.bytes_from,
        "steps": [_step(explanation, step) for step in explanation.steps],
        "idle": list(explanation.idle),
        "proof": asdict(explanation.proof),
    }
    return json.dumps(found, indent=1) + "\n"


def _step(explanation: Explanation, step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "call": step.call,
        "lesson": lesson(explanation, step),
        "given": [_part(part) for part in step.given],
        "made": [_part(part) for part in step.made],
        "moved": [asdict(move) for move in step.moved],
        "moved_bytes": step.moved_bytes,
    }


def _part(part: Part) -> dict[str, Any]:
    return {**asdict(part), "shapes": shapes_json(part.shapes)}
