"""Reading the JSON of a report: NaN is refused, and the form is named with its version."""

import json
import re

import pytest


def read_json(form, text):
    """Read a report's JSON as plain data."""
    written = json.loads(text, parse_constant=pytest.fail)  # NaN is not JSON
    assert re.fullmatch(rf"dpdemo\.{form}/[0-9]", written["schema"])
    return written
