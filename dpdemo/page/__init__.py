"""One offline HTML page that teaches the split: a template, a style and scripts, put into one file.

The scripts are plain JavaScript in the order of `_SCRIPTS`, with no library and nothing to build. The page's
policy (its Content-Security-Policy) names them by checksum and allows nothing else, from nowhere.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files

_SCRIPTS = ("arithmetic", "state", "drawing", "epoch", "sample", "questions", "main")


def as_page(start: Mapping[str, int], version: str) -> str:
    """Write the page, complete in itself; `start` has the numbers that it opens with."""
    style = _text("page.css")
    script = "\n".join(['"use strict";', *(_text(f"{name}.js") for name in _SCRIPTS)])
    return _filled(
        _text("page.html"),
        {
            "style": style,
            "style_hash": _checksum(style),
            "script": script,
            "script_hash": _checksum(script),
            "data": json.dumps(start, separators=(",", ":")),
            "version": version,
        },
    )


def _filled(template: str, values: dict[str, str]) -> str:
    """Replace each `{{name}}` of the template once: a value may itself contain `{{`."""
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
