"""Fills of repairs: functions that rewrite a line of the user's if it has a known form."""

import ast
import re
from collections.abc import Callable, Mapping

Names = Mapping[str, str]
Fill = Callable[[str, Names], str]
"""Takes a line and the user's names; returns the new line, or "" for a line of another form."""


def statement(line: str) -> ast.stmt | None:
    """Parse a line that is one simple statement; None for any other."""
    try:
        body = ast.parse(line).body
    except (SyntaxError, ValueError):
        return None
    simple = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert)
    return body[0] if len(body) == 1 and isinstance(body[0], simple) else None


def _replaced(line: str, node: ast.AST, text: str) -> str:
    """Replace a part of a line; ast counts in bytes."""
    data = line.encode()
    start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
    return (data[:start] + text.encode() + data[end:]).decode()


def _source(line: str, node: ast.AST) -> str:
    return ast.get_source_segment(line, node) or ast.unparse(node)


_A_DEVICE = r"""["']cuda(:\d+)?["']"""
_PUT = rf"\.cuda\(\d*\)|\.to\((device=)?({_A_DEVICE}|torch\.device\({_A_DEVICE}\))\)"
_MADE = rf",\s*device=({_A_DEVICE}|torch\.device\({_A_DEVICE}\))"


def as_buffer(line: str, names: Names) -> str:
    """Rewrite `self.NAME = EXPR` as a buffer, without its device."""
    match statement(line) if names["in_init"] else None:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value) if (
            name == names["name"]
            and not isinstance(value, (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.Lambda))
        ):
            code = re.sub(f"{_PUT}|{_MADE}", "", _source(line, value))
            return f'self.register_buffer("{name}", {code}, persistent=False)'
    return ""


def as_modules(line: str, _: Names) -> str:
    """Rewrite a list or dict of modules, or of parameters, as the container of PyTorch that registers it."""
    match statement(line):
        case ast.Assign(targets=[ast.Attribute()], value=value):
            is_list = isinstance(value, (ast.List, ast.ListComp, ast.Tuple))
            if is_list or isinstance(value, (ast.Dict, ast.DictComp)):
                made = f"nn.{'ModuleList' if is_list else 'ModuleDict'}({_source(line, value)})"
                return _replaced(line, value, made) + "   # state_dict() has its keys from now on"
    return ""


def on_inputs_device(line: str, names: Names) -> str:
    """Replace the device that a line names by that of an input of forward."""
    if not names["in_forward"] or statement(line) is None:
        return ""
    x = f"{names['x']}.device"
    line, by_call = re.subn(r"\.cuda\(\d*\)", f".to({x})", line)
    line, by_name = re.subn(rf"torch\.device\({_A_DEVICE}\)|{_A_DEVICE}|\bself\.device\b", x, line)
    return line if by_call or by_name else ""


def after_the_call(line: str, names: Names) -> str:
    """Move a statement that reads nothing but `self` behind the call."""
    if statement(line) is None:
        return ""
    outside = re.sub(r"\bself\b", "model.module", line)
    return f"y = {names['call']}\n{outside}   # after the call, not in forward"


def _part(line: str, path: str) -> ast.expr | None:
    """Find the part of a `return` line at a path of the result: "[1]", "['loss']", "" for all of it."""
    line_of_return = statement(line) if line.startswith("return") else None
    node = line_of_return.value if isinstance(line_of_return, ast.Return) else None
    for step in re.findall(r"\[([^\]]+)\]", path):
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if step.isdigit() and int(step) < len(parts):
                node = parts[int(step)]
            case ast.Dict(keys=keys, values=values):
                node = {key and ast.unparse(key): value for key, value in zip(keys, values, strict=True)}.get(
                    step
                )
            case _:
                return None
    return node


def returned(change: Callable[[str, Names], str], note: str = "") -> Fill:
    """Make a fill that rewrites one part of a `return` line."""

    def fill(line: str, names: Names) -> str:
        node = _part(line, names["result"])
        text = change(_source(line, node), names) if node is not None else ""
        return _replaced(line, node, text) + note if node is not None and text else ""

    return fill


def bracketed(code: str) -> str:
    """Put an expression in parentheses where a method call needs them."""
    node = ast.parse(code.strip(), mode="eval").body
    return code if isinstance(node, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)) else f"({code})"


def swapped(pattern: str, text: str) -> Fill:
    """Make a fill that replaces what a pattern finds in a line; names in braces are filled in."""

    def fill(line: str, names: Names) -> str:
        after, number = re.subn(pattern.format(**{key: re.escape(name) for key, name in names.items()}),
                                text.format(**names), line)  # fmt: skip
        return after if number == 1 else ""

    return fill
