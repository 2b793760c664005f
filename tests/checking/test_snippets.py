"""Models that people copy: the codes that a human expects, and nothing else."""

import pytest
import snippets_outside  # noqa: F401 - it registers more
from fastpart import mostly_slow
from snippets import SNIPPETS

from dpdemo.checking import check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("factory", "codes"), mostly_slow(SNIPPETS, 3), ids=lambda one: getattr(one, "__name__", "")
)
def test_a_much_copied_model_has_the_codes_that_a_human_expects(factory, codes):
    found = {one.code for one in check(factory).findings if one.severity != "info"}
    assert found == codes
