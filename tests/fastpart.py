"""Split a long list of cases between the fast suite and the slow rest."""

import pytest


def mostly_slow(cases, every):
    """Mark all cases `slow` except the first of each `every`."""
    return [case if number % every == 0 else _slow(case) for number, case in enumerate(cases)]


def _slow(case):
    if hasattr(case, "marks"):  # a pytest.param
        return pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.slow))
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
