"""The layout: what gives way, and in which order, as a terminal narrows."""

from dpdemo.render.layout import Cells, choose

CELLS = [Cells("cuda:0", "10", ("[10, 5]",), ("[10, 2]",), "→", 1), Cells("cuda:1", "idle", (), (), "→", 1)]
HEADING = "In Model: input → output"


def kind(width: int) -> str:
    layout = choose(CELLS, HEADING, width)
    if layout.stacked:
        return "stacked"
    return ("one line" if layout.one_line else "two lines") + (", bar" if layout.bar else "")


def test_columns_give_way_one_after_another_as_the_terminal_narrows():
    kinds = list(dict.fromkeys(kind(width) for width in range(80, 10, -1)))

    assert kinds == ["one line, bar", "two lines, bar", "two lines", "stacked"]


def test_no_layout_is_wider_than_the_terminal():
    for width in range(20, 200):
        layout = choose(CELLS, HEADING, width)
        columns = [layout.shapes] if layout.stacked else [layout.label, layout.rows, layout.shapes]
        columns += [layout.bar] if layout.bar else []

        assert sum(columns) + 2 * (len(columns) - 1) <= width


def test_a_structure_has_a_line_a_tensor():
    cells = Cells("cuda:0", "2", ("ids [2]", "mask [2]"), ("logits [2]", "state [2]"), "→", 1)

    assert cells.on_lines() == ("ids [2]", "mask [2]", "→ logits [2]", "  state [2]")
    assert cells.on_one_line() == "ids [2], mask [2] → logits [2], state [2]"
