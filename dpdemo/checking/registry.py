"""The rules: each a function with `@rule(...)`, whose docstring is its page.

Rules lie in `dpdemo/checking/rules/`; every module there is found by itself, so adding a rule touches
nothing else.
"""

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.repairs import Hit, repair_of
from dpdemo.errors import UsageError
from dpdemo.results.findings import SECTIONS, Finding, RulePage, Severity

Look = Callable[[Evidence], Iterable[Hit]]

SYMPTOMS = (
    "moved",  # a tensor comes to another GPU
    "cut",  # chunks that are not those of the batch
    "argument",  # so for one argument, which is named: "argument mask"
    "missing",  # an argument that a replica does not get, and fails without
    "parameters",  # parameters that forward changes
    "assigned",  # so where forward sets them; or one, which is named
    "loss",  # gradients that are not those of one GPU's loss
    "vector",  # a loss that is one number for each GPU
    "result",  # a part of the result, which is named
    "rows",  # results that are those of other rows
    "raises",  # exceptions of replicas; or one, which is named
    "devices",  # exceptions about tensors on two GPUs
    "difference",  # results or gradients that are not one GPU's, or cannot be joined; or those of one probe
)
"""Kinds of symptom that a finding is about and another can explain, from special to general."""


@dataclass(frozen=True, slots=True)
class Rule(RulePage):
    """One rule: its page, and the function that looks at the evidence.

    It names no other rule: a finding is dropped if one of its symptoms is among those that another explains.
    """

    look: Look
    symptoms: tuple[str, ...]
    """Symptoms that all its findings are about; () for a rule whose findings are always causes."""
    explains: tuple[str, ...]
    """The symptoms that its errors and warnings explain."""
    of_training: bool
    """Whether forward may have the pitfall in training alone."""

    def finding(self, found: Hit, split_by: str = "") -> Finding:
        """Add the rule and the repair to what was found."""
        repair = repair_of(found, self.section("After"), split_by)
        return Finding(
            self,
            found.severity or self.severity,
            found.subject,
            found.message,
            found.place,
            (str(found.probe),) if found.probe else (),
            repair.before,
            repair.after,
            repair.is_example,
            set_at=found.set_at,
        )


_RULES: dict[str, Rule] = {}


def rule(  # noqa: PLR0913 - each is a field of a rule
    code: str,
    name: str,
    severity: Severity,
    *,
    symptoms: tuple[str, ...] = (),
    explains: tuple[str, ...] = ("difference",),
    of_training: bool = False,
) -> Callable[[Look], Look]:
    """Register a function as the rule `code`; the other fields are those of `Rule`."""

    def register(look: Look) -> Look:
        assert code not in _RULES, f"two rules are called {code}"  # noqa: S101 - our own mistake
        title, page = _read_page(inspect.getdoc(look) or "")
        _RULES[code] = Rule(code, name, severity, title, page, look, symptoms, explains, of_training)
        return look

    return register


def _read_page(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    parts = re.split(rf"^({'|'.join(SECTIONS)}):[ \n]", text, flags=re.MULTILINE)
    sections = zip(parts[1::2], parts[2::2], strict=True)
    return parts[0].strip(), tuple((name, _tidy(name, inspect.cleandoc(body))) for name, body in sections)


def _tidy(name: str, text: str) -> str:
    """Undo the alignment of comments, which only makes sense in the source."""
    return re.sub(r" {2,}#", "  #", text) if name in ("Before", "After") else text


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, by code."""
    from dpdemo.checking import rules as home

    for module in pkgutil.iter_modules(home.__path__):
        importlib.import_module(f"{home.__name__}.{module.name}")
    return tuple(_RULES[code] for code in sorted(_RULES))


def rule_of(code: str) -> Rule:
    """Return the rule of this very code."""
    rules()
    return _RULES[code]


def find_rule(code: str) -> Rule:
    """Look a rule up by its code or name.

    Raises:
        UsageError: if there is none.

    """
    for known in rules():
        if code.upper() == known.code or code == known.name:
            return known
    raise _unknown(code, "explain")


def choose(select: Iterable[str], ignore: Iterable[str]) -> tuple[Rule, ...]:
    """Keep the rules whose code starts with one of `select` and none of `ignore`; no `select` means all.

    Raises:
        UsageError: for a code or prefix that fits no rule.

    """
    select, ignore = tuple(select), tuple(ignore)
    for key, prefixes in (("select", select), ("ignore", ignore)):
        for prefix in prefixes:
            if not any(is_named(known, prefix) for known in rules()):
                raise _unknown(prefix, key)
    return tuple(
        known
        for known in rules()
        if (not select or any(is_named(known, prefix) for prefix in select))
        and not any(is_named(known, prefix) for prefix in ignore)
    )


def is_named(known: RulePage, prefix: str) -> bool:
    """Return whether a name or the beginning of a code means this rule."""
    return prefix == known.name or (prefix.upper().startswith("DP") and known.code.startswith(prefix.upper()))


def _unknown(code: str, key: str) -> UsageError:
    names = [name for known in rules() for name in (known.code, known.name)]
    near = difflib.get_close_matches(code, names, n=1) or difflib.get_close_matches(code.upper(), names, n=1)
    return UsageError(
        f"expected the code of a rule or its beginning, got {code[:60]!r}",
        key=key,
        hint=(f"did you mean {near[0]}? " if near else "") + "`dpdemo check --list` lists all rules",
    )
