"""A part of PyTorch is another one than dpdemo knows, and is not observed.

dpdemo replaces functions of PyTorch to see what ranks do. Another release may have moved one.

Seen in: an attribute that a patch looks for, and does not find

Instead: use a tested release of PyTorch, or read the report as one that is silent about that part
"""

from dpdemo.ranks.events import Unobserved
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("unobserved", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name each part once."""
    found = {event.what: event for noted in evidence.ranks.values() for event in noted[Unobserved]}
    for what, event in found.items():
        advice = "Nothing is known of it: use a release of PyTorch that dpdemo was tested with."
        yield Mistake(f"Not observed: {what} ({event.error})", "dpdemo", advice, "note")
