"""What `dpdemo check` answers without a model: its rules, the page of one, the meaning of a traceback."""

import sys

from dpdemo.errors import UsageError
from dpdemo.reading import read_text


def explain_traceback(path: str, form: str) -> None:
    """Read an error that DataParallel raised, and say what it means."""
    from dpdemo.checking.doctor import diagnose
    from dpdemo.render import drawing_of, make_console

    try:
        text = sys.stdin.read() if path == "-" else read_text(path, errors="replace")
    except OSError as error:
        raise UsageError(f"expected a file with a traceback, got {error}", key="traceback") from error
    drawing_of(diagnose(text)).write(form, make_console())


def show_rules(code: str) -> None:
    """Print the page of a rule, or the list of all where the code is empty."""
    from dpdemo.checking import registry
    from dpdemo.render import make_console
    from dpdemo.render.check.pages import print_list, print_page

    if code:
        print_page(registry.find_rule(code), make_console())
    else:
        print_list(registry.rules(), make_console())
