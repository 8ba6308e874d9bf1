"""Tables on a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.display import table, terminal
from roost.display.table import Narrowing, TableColumn


def test_columns() -> None:
    red = "\x1b[31mfailed\x1b[0m"
    lines = table.format_table(
        ["NAME", "STATE", "EMPTY", "ABOUT"], [["a", red, "", "x"], ["long", "ok", "", ""]]
    )
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in lines] == [
        "NAME  STATE   ABOUT",
        "a     failed  x",
        "long  ok",
    ]
    assert table.format_table(["NAME"], []) == []


def test_a_cell_stays_in_its_line_and_moves_no_cursor() -> None:
    lines = table.format_table(["NAME", "VALUE"], [["a\nb", "1"], ["\x1b[2Jc\td", "\x1b[32m2\x1b[0m"]])
    assert lines == ["NAME         VALUE", "a\\nb         1", "\\x1b[2Jc\\td  \x1b[32m2\x1b[0m"]


def test_a_cell_that_only_looks_styled_is_escaped() -> None:
    lines = table.format_table(["A"], [["\x1b[31mred"], ["\x1b[8mhidden\x1b[0m"], ["\x1b[32mok\x1b[0m"]])
    assert lines[1:] == ["\\x1b[31mred", "\\x1b[8mhidden\\x1b[0m", "\x1b[32mok\x1b[0m"]


def test_a_state_without_a_colour_is_plain_text() -> None:
    states = ["pending", "new", "running"]
    lines = table.format_table(["STATE"], [[terminal.format_state(name)] for name in states])
    assert lines[1:] == ["pending", "new", "\x1b[36mrunning\x1b[0m"]


def test_a_narrow_table_leaves_columns_out_and_shortens_names(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["a-very-long-name-of-a-run-0", "1.65 MB", "24 kB"], ["short", "2 MB", "1 kB"]]
    for width, expected in (
        (None, ["NAME                         TOTAL    CODE", "a-very-long-name-of-a-run-0  1.65 MB  24 kB"]),
        (36, ["NAME                  TOTAL    CODE", "a-very-lo…of-a-run-0  1.65 MB  24 kB"]),
        (35, ["NAME                        TOTAL", "a-very-long-…me-of-a-run-0  1.65 MB"]),
    ):
        monkeypatch.setattr(table, "terminal_width", lambda width=width: width)
        assert table.fit_table(["NAME", "TOTAL", "CODE"], rows, left_out=["CODE"])[:2] == expected
    assert table.fit_table(["NAME", "TOTAL"], []) == []


def fit(width: int, **cells: str) -> list[str]:
    """Returns the two lines of a table of one row, without columns where it is too narrow."""
    columns = [TableColumn(name, [cell], 5 if name == "ABOUT" else None) for name, cell in cells.items()]
    return table.format_columns(columns, width, narrowing=[Narrowing(5, (("B",), ("C", "D"), ("E",)))])


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (40, "A B C D E ABOUT"),
        (23, "A C D E ABOUT"),
        (19, "A B E ABOUT"),
        (15, "A E ABOUT"),
        (13, "A B ABOUT"),
    ],
)
def test_columns_are_left_out_in_order_and_what_fits_comes_back(width: int, names: str) -> None:
    header, row = fit(width, A="1", B="22", C="3", D="4", E="5555", ABOUT="why it ended")
    assert header.split() == names.split() and len(row) <= width


def test_columns_that_can_be_shortened_share_the_rest() -> None:
    names = [f"digits_lr-{rate}_seed-{seed}" for rate in ("1e-3", "1e-4") for seed in (0, 1)]
    columns = [
        TableColumn("NAME", names, 10, "middle"),
        TableColumn("ID", ["a"] * 4),
        TableColumn("WHY", ["no " * 20] * 4, 6),
    ]
    _, *rows = table.format_columns(columns, 30)
    assert rows[0] == "digit…seed-0  a   no no no no…" and len({row.split()[0] for row in rows}) == 2
    assert table.format_columns(columns, 60)[1].startswith(f"{names[0]}  a   no")
    assert table.format_columns(columns)[1].endswith("no " * 19 + "no")


def test_a_wrapped_cell_continues_in_the_next_line() -> None:
    columns = [
        TableColumn("ID", ["1", "2"]),
        TableColumn("WHO", ["ada and bob and eve", "joe"], 8, "wrapped"),
    ]
    assert table.format_columns(columns, 14) == [
        "ID  WHO",
        "1   ada and",
        "    bob and",
        "    eve",
        "2   joe",
    ]


def test_names_in_chinese_keep_the_columns_straight() -> None:
    assert table.format_table(["NAME", "X"], [["学习率", "1"], ["abc", "2"]]) == [
        "NAME    X",
        "学习率  1",
        "abc     2",
    ]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5), st.integers(20, 60))
def test_no_line_is_wider_than_the_terminal(cells: list[str], width: int) -> None:
    columns = [
        TableColumn("A", cells, 4, "middle"),
        TableColumn("B", cells),
        TableColumn("C", cells, 3, "wrapped"),
    ]
    assert all(terminal.cell_width(line) <= width for line in table.format_columns(columns, width))


def test_a_bar_is_full_only_at_the_end() -> None:
    assert [table.format_bar(part, 4) for part in (0, 0.3, 0.999, 1)] == ["░░░░", "█░░░", "███░", "████"]


def test_a_word_without_room_is_broken_and_nothing_is_lost() -> None:
    columns = [TableColumn("ID", ["1"]), TableColumn("REASON", [f"waits for {'x' * 50}"], 10, "wrapped")]
    lines = table.format_columns(columns, 24)
    assert all(len(line) <= 24 for line in lines)
    assert "".join("".join(lines[1:]).split()) == f"1waitsfor{'x' * 50}"
