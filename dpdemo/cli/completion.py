"""Completion of option values with the Tab key: models, rules, cards, links, losses; all without torch.

`dpdemo --install-completion` teaches it to the shell. Typer itself offers choices such as the formats.
"""

from collections.abc import Iterable
from pathlib import Path

Offers = list[tuple[str, str]]


def models(incomplete: str) -> Offers:
    """Offer the built-in models and files of Python."""
    from dpdemo.config.catalogue import MODELS

    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    start = incomplete[: incomplete.rfind("/") + 1]
    files = sorted(folder.glob("*.py")) if folder.is_dir() else []
    known = [(name, shapes.summary) for name, shapes in MODELS.items()]
    return [*known, *((f"{start}{path.name}", "") for path in files)]


def keys() -> Offers:
    """Offer the keys of the config, as `--set` takes them."""
    from dpdemo.config.fields import KEYS

    return [(f"{name}=", known.help) for name, known in KEYS.items()]


def rules(incomplete: str) -> Offers:
    """Offer the codes of the rules of `check`, behind a comma too."""
    from dpdemo.checking.registry import rules as known

    return _behind_commas(incomplete, ((rule.code, rule.name) for rule in known()))


def kinds(incomplete: str) -> Offers:
    """Offer what `simulate --fail-on` can find."""
    from dpdemo.results.advice import KINDS

    return _behind_commas(incomplete, ((kind, "") for kind in KINDS))


def loaders(incomplete: str) -> Offers:
    """Offer the loaders whose rule is known."""
    from dpdemo.arithmetic.draws import RULES

    return [(name, known.source) for name, known in RULES.items() if name.startswith(incomplete)]


def _behind_commas(incomplete: str, offers: Iterable[tuple[str, str]]) -> Offers:
    before = incomplete[: incomplete.rfind(",") + 1]
    return [(before + word, meaning) for word, meaning in offers]


def cards() -> Offers:
    """Offer the cards of `--gpu`."""
    from dpdemo.arithmetic.cards import CARDS

    return [(card.name, f"{card.memory_gib:.4g} GiB") for card in CARDS]


def links() -> list[str]:
    """Offer the links of `--link`."""
    from dpdemo.timing.links import LINKS

    return list(LINKS)


def losses() -> list[str]:
    """Offer the losses that dpdemo knows by name."""
    from dpdemo.results.memorydata import LOSSES

    return list(LOSSES)
