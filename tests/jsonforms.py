"""Whether a JSON text is what `dpdemo schema` publishes: no key less, none more, and no other type."""

import json

import pydantic
import pytest

from dpdemo.render.schemas import FORMS


def keeps_to(form, text):
    """Read a text by the type that the published schema is made of, and give it as plain data."""
    adapter = pydantic.TypeAdapter(FORMS[form])
    read = adapter.validate_json(text, strict=True)
    written = json.loads(text, parse_constant=pytest.fail)  # NaN is not JSON
    # what the type does not know was dropped on reading, at any depth
    assert json.loads(adapter.dump_json(read, by_alias=True)) == written
    return written
