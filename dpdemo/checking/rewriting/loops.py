"""State that a loop of forward writes, an entry in each turn: what it is made of kept by turn and GPU."""

import ast
from collections.abc import Mapping, Sequence

from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.forwards import Forward, free_names, stored
from dpdemo.checking.rewriting.keeping import free_name, made_with
from dpdemo.checking.rewriting.taking import for_each, way_to
from dpdemo.checking.source import Function, attribute_of, names_in


def kept_in_a_loop(
    forward: Forward,
    found: Sequence[ast.stmt],
    owners: Sequence[str],
    methods: Mapping[str, Function],
    names: str = "result",
) -> Repair | None:
    """Write a loop that keeps what its statement reads, and that statement in a loop behind the call.

    Args:
        forward: the method that the loop stands in.
        found: the statement that writes state.
        owners: the modules that run the method, by their paths.
        methods: the methods of those modules, by their names.
        names: what the program calls the result.

    Returns:
        None where it reads several values of forward's, or none that is known by the loop's own names.

    """
    made = made_with(methods.get("__init__"), free_name(methods))
    way = way_to(forward.body, found[0]) if len(found) == 1 else []
    loops = [one for one in way if isinstance(one, ast.For)]
    if made is None or len(loops) != 1 or stored(found[0]) or forward.runs_layer(found[0]):
        return None
    if not all(isinstance(one, (ast.For, ast.If)) for one in way[:-1]):
        return None
    statement, turns = found[0], {one.id for one in ast.walk(loops[0].target) if isinstance(one, ast.Name)}
    read = [name for name in free_names([statement], forward) if name not in turns]
    used = sorted(turns & names_in(statement))
    if len(read) != 1 or not used:
        return None
    value, kept = read[0], attribute_of(free_name(methods), forward.me)
    own = forward.function.whole(statement, f"{kept}[{', '.join(used)}, {value}.get_device()] = {value}")
    turn = ", ".join(used)
    parts = f"{kept}[key] for key in sorted({kept}, key=lambda key: key[-1]) if key[:-1] == ({turn},)"
    lines = [
        f"for {turn}{',' if len(used) == 1 else ''} in dict.fromkeys(key[:-1] for key in {kept}):",
        f"    {value} = nn.parallel.gather([{parts}], model.output_device)",
        *(f"    {line}" for line in forward.function.own(statement).after.splitlines()),
        f"{kept}.clear()",
    ]
    call = around_call(forward.call, names, then=[for_each(owners, "\n".join(lines), forward.me)])
    return own._replace(also=(made, call))
