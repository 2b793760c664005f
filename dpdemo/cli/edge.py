"""How errors are worded on the command line: options by their names, keys of a file by its line."""

from collections.abc import Mapping

from dpdemo.cli.streams import say
from dpdemo.errors import Caller, DpdemoError

OPTIONS_OF_CONFIG = ("gpus", "batch_size", "data_size", "drop_last", "model", "weights", "chunks", "strategy")
"""Config keys that are options of their own; `--set KEY=VALUE` sets any key."""
_ARGUMENTS = {"target": "TARGET", "gpus_argument": "GPUS", "program": "SCRIPT", "folder": "FOLDER"}


class CommandLine(Caller):
    """Names keys as options and writes settings as a user types them."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}

    def name(self, key: str) -> str:
        """Name a key: ``option `--gpus` ``, ``option `--set seed` `` or `argument TARGET`."""
        key = self._names.get(key, key)
        if key in _ARGUMENTS:
            return f"argument {_ARGUMENTS[key]}"
        return f"option `{_option(key)}`"

    def setting(self, key: str, value: str) -> str:
        """Write `--gpus 0,1`, `--set seed=1` or `--drop-last`."""
        if value.startswith("["):
            value = value.strip("[]").replace(" ", "")
            value += "" if "," in value else ","  # `3,` is a list of one
        option = _option(key)
        if not value or (value == "true" and key in OPTIONS_OF_CONFIG):
            return option
        return f"{option}{'=' if option.startswith('--set ') else ' '}{value}"


def _option(key: str) -> str:
    from dpdemo.config.fields import KEYS

    is_set = key in KEYS and key not in OPTIONS_OF_CONFIG
    return f"--set {key}" if is_set else f"--{key.replace('_', '-')}"


def print_error(error: DpdemoError, names: Mapping[str, str] | None = None) -> None:
    """Write an error and its next step to stderr; `names` maps keys to the arguments that set them."""
    message, hint = error.worded(CommandLine(names))
    say("error", message)
    if hint:
        say("hint", hint)
