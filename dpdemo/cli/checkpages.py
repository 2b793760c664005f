"""Answers of `dpdemo check` that need no model: the rules, a rule's page, the meaning of a traceback."""

import sys
from functools import partial

from dpdemo.errors import UsageError
from dpdemo.files import read_text


def explain_traceback(path: str, form: str) -> None:
    """Read an error that DataParallel raised, and explain it."""
    from dpdemo.checking.doctor import diagnose

    try:
        text = sys.stdin.read() if path == "-" else read_text(path, errors="replace")
    except OSError as error:
        raise UsageError(f"expected a file with a traceback, got {error}", key="traceback") from error
    diagnose(text).write(form)


def show_rules(code: str) -> None:
    """Print the page of a rule, or the list of all if the code is empty."""
    from dpdemo.checking import registry
    from dpdemo.results.console import write_blocks
    from dpdemo.results.rulepages import rule_list, rule_page

    if code:
        write_blocks(partial(rule_page, registry.find_rule(code)))
    else:
        write_blocks(partial(rule_list, registry.rules()))
