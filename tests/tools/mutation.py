"""Switch each rule of `check` off: the findings of some case must change.

`python tests/tools/mutation.py` lists the rules that survive; with --quick it looks at one case a rule. Each
case is run once, and its evidence is judged again without each rule.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "checking"))

from cases import TRIGGERS, TWINS

from dpdemo.checking import check, engine, precedence, registry


def evidence_of(case) -> tuple:
    """Run a case, and return what its report is judged by."""
    seen = []
    judge = engine.judge

    def kept(evidence, chosen, sizes=()):
        seen.append(evidence)
        return judge(evidence, chosen, sizes)

    engine.judge = kept
    try:
        check(case.factory, **case.options)
    finally:
        engine.judge = judge
    return seen[0]


def outline(evidence, rules) -> list[tuple[str, str, str]]:
    """List the findings of a case by code, severity and subject."""
    return [(item.code, item.severity, item.subject) for item in precedence.findings_of(evidence, rules)]


def survivors(cases) -> list[str]:
    """Name the rules that change the findings of none of these cases."""
    rules = registry.rules()
    known = [evidence_of(case) for case in cases]
    genuine = [outline(item, rules) for item in known]

    def survives(left) -> bool:
        return all(outline(item, left) == told for item, told in zip(known, genuine, strict=True))

    return [rule.code for rule in rules if survives(tuple(item for item in rules if item is not rule))]


def main(arguments: list[str]) -> int:
    """Print the survivors, and return how the program ends."""
    warnings.simplefilter("ignore")
    first = {case.code: case for case in reversed(TRIGGERS)}
    left = survivors(first.values() if "--quick" in arguments else (*TRIGGERS, *TWINS))
    print("\n".join(left) or "no rule can be switched off unseen")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
