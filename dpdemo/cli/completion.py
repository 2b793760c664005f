"""Completion of option values with the Tab key: models, rules, cards, links, losses; all without torch.

`dpdemo --install-completion` teaches it to the shell. Typer itself offers choices such as the formats.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

Offers = list[tuple[str, str]]


def models(incomplete: str) -> Offers:
    """Offer the built-in models, files of Python, and behind `model.py:` what such a file defines."""
    file, colon, _ = incomplete.partition(":")
    if colon:
        return [(f"{file}:{name}", "") for name in _defined(Path(file))]
    from dpdemo.config.catalogue import MODELS

    return [*((name, shapes.summary) for name, shapes in MODELS.items()), *_files(incomplete)]


def keys() -> Offers:
    """Offer the keys of the config, as `--set` takes them."""
    from dpdemo.config.fields import KEYS

    return [(f"{name}=", known.help) for name, known in KEYS.items()]


def _files(incomplete: str) -> Offers:
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    start = incomplete[: len(incomplete) - len(incomplete.rpartition("/")[2])]
    found = sorted(folder.glob("*.py")) if folder.is_dir() else []
    return [(f"{start}{path.name}", "") for path in found]


def _defined(file: Path) -> list[str]:
    """List the classes and functions at the top of a file, which is read and not run."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def rules(incomplete: str) -> Offers:
    """Offer the codes of the rules of `check`, behind a comma too."""
    from dpdemo.checking.registry import rules as known

    return _behind_commas(incomplete, ((rule.code, rule.name) for rule in known()))


def kinds(incomplete: str) -> Offers:
    """Offer what `simulate --fail-on` can find."""
    from dpdemo.results.advice import KINDS

    return _behind_commas(incomplete, ((kind, "") for kind in KINDS))


def _behind_commas(incomplete: str, offers: Iterable[tuple[str, str]]) -> Offers:
    before = incomplete[: incomplete.rfind(",") + 1]
    return [(before + word, meaning) for word, meaning in offers]


def cards() -> Offers:
    """Offer the cards of `--gpu`."""
    from dpdemo.arithmetic.cards import CARDS

    return [(card.name, f"{card.memory_gib:.4g} GiB") for card in CARDS]


def links() -> Offers:
    """Offer the links of `speedup`."""
    from dpdemo.timing.links import LINKS

    return [(name, "") for name in LINKS]


def losses() -> Offers:
    """Offer the losses that dpdemo knows by name."""
    from dpdemo.results.memorydata import LOSSES

    return [(name, "") for name in LOSSES]
