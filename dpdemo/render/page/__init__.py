"""One offline HTML page that teaches the split: a template, a style and scripts, put into one file.

The scripts are plain JavaScript in the order of `_SCRIPTS`, with no library and nothing to build. The page's
policy (its Content-Security-Policy) names them by checksum and allows nothing else, from nowhere.
"""

import base64
import hashlib
import json
import re
from dataclasses import asdict
from importlib.resources import files

from dpdemo.reports.lesson import Lesson

_SCRIPTS = ("arithmetic", "state", "drawing", "epoch", "sample", "map", "questions", "main")


def as_page(lesson: Lesson, version: str) -> str:
    """Write the page, complete in itself."""
    style = _text("page.css")
    script = "\n".join(['"use strict";', *(_text(f"{name}.js") for name in _SCRIPTS)])
    return _filled(
        _text("page.html"),
        {
            "style": style,
            "style_hash": _checksum(style),
            "script": script,
            "script_hash": _checksum(script),
            "data": _json(_data(lesson)),
            "version": version,
        },
    )


def _data(lesson: Lesson) -> dict[str, object]:
    start, model = lesson.start, lesson.model
    return {
        "start": _camel(asdict(start)),
        "model": _camel(asdict(model)),
        "cases": lesson.cases,
        "memory": lesson.memory and asdict(lesson.memory),
    }


def _camel(named: dict[str, object]) -> dict[str, object]:
    """Name things as JavaScript does: `drop_last` is dropLast."""
    return {re.sub("_(.)", lambda letter: letter[1].upper(), name): value for name, value in named.items()}


def _json(data: dict[str, object]) -> str:
    """Write data so that no text in it ends the script element that holds it."""
    return json.dumps(data, separators=(",", ":")).replace("<", r"\u003c")


def _filled(template: str, values: dict[str, str]) -> str:
    """Put each value in its place, once: what a value holds is never taken for a place."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def _checksum(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
