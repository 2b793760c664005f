"""`load_state_dict(strict=False)` took none of the keys, or few.

The keys of a checkpoint begin with the names of the wrappers that saved it: `module.`, `_orig_mod.`.

Seen in: the keys that were missing and unexpected

Instead: save the inner module's state, or cut the wrappers' names off; look at what `load_state_dict` returns
"""

from dpdemo.ranks.events import StateLoaded
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_FEW = 0.1
_OWN = (
    "look for a wrapper's name (`module.`, `_orig_mod.`) that is in the keys of one side alone; and keep "
    "copy.deepcopy(model.state_dict()), whose tensors no step changes"
)


@mistake("nothing-loaded", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Look for states whose keys hardly fit, or would fit without a wrapper's name."""
    told = set()
    filled = {
        (event.at, event.number)
        for noted in evidence.ranks.values()
        for event in noted[StateLoaded]
        if not event.is_own  # a broadcast leaves one rank's own tensors as they were
    }
    for noted in evidence.ranks.values():
        for event in noted[StateLoaded]:
            if event.is_own and event.at not in told and (event.at, event.number) not in filled:
                told.add(event.at)
                yield Mistake("load_state_dict was given the module's own tensors: it changed nothing",
                              event.at, _OWN)  # fmt: skip
            is_few = event.taken <= _FEW * min(event.given, event.wanted)
            if event.at in told or not (is_few or event.prefix):
                continue
            told.add(event.at)
            took = f"none of the {event.given}" if not event.taken else f"{event.taken} of the {event.given}"
            yield Mistake(
                f"load_state_dict took {took} saved tensors{_keys(event)}", event.at, _remedy(event)
            )


def _keys(event: StateLoaded) -> str:
    if event.prefix:
        key = next((key for key in event.keys if event.prefix in key), "")
        which = "saved" if key in event.keys[:1] else "the module's"
        return f": {which} keys have `{event.prefix}` in them, as {key}"
    return f": it was given {event.keys[0]} and wants {event.keys[-1]}" if event.keys else ""


def _remedy(event: StateLoaded) -> str:
    if event.prefix:
        parts = "".join(f".{part}" for part in event.prefix.split(".") if part)
        return (
            f"cut it off, {{key.replace('{event.prefix}', ''): value for key, value in state.items()}}, "
            f"or save model{parts}.state_dict()"
        )
    return "load with strict=True, which names the keys, and rename them"
