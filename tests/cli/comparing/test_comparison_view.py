"""The text of a comparison."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from roost.cli.comparing import comparison_view
from roost.cli.comparing.comparison_view import format_markdown, format_numbers, format_text
from roost.operations.comparing.compare import compare
from tests.operations.comparing.runs import ENVIRONMENT, STACK, edit_project, make, optimizer
from tests.operations.comparing.test_run_relation import make_fork
from tests.operations.packages import ROWS, record_rows, session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def text(paths: list[Path], *, width: int | None = None, is_all: bool = False, **options: Any) -> str:
    lines = list(format_text(compare(paths, is_all=is_all, **options), width=width, is_all=is_all))
    return click.unstyle("\n".join(lines))


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    first = make(tmp_path / "runs", "a", environment=ENVIRONMENT)
    edit_project(tmp_path / "runs", "x.py", b"one\n")
    rows = [*ROWS[:2], {**ROWS[2], "valid/loss": 0.25}, {"step": 40, "epoch": 4, "valid/loss": 0.5}]
    other = {**ENVIRONMENT, "stack": {**STACK, "torch": "2.12.0"}}
    second = make(tmp_path / "runs", "b", rows=rows, optimizers=optimizer(0.5), environment=other, extra=[1])
    found = text([first.path, second.path])
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "STARTED         ", found).splitlines() == [
        "   RUN     STATE      STEP   TIME    STARTED           SESSIONS  ABOUT",
        "A  runs/a  succeeded  30/30  1m 00s  STARTED           1         a test",
        "B  runs/b  succeeded  30/30  1m 00s  STARTED           1         a test",
        "",
        "settings",
        "  SETTING             A          B",
        "  optimizers.main.lr  0.1        0.5",
        "  extra               (not set)  [1]",
        "",
        "metrics",
        "  METRIC      LAST A  LAST B  B - A  %        BEST A   BEST B     AT 30 A  AT 30 B",
        "  valid/loss  0.75    0.5*    -0.25  -33.33%  0.5 @20  0.25* @30  0.75     0.25*",
        "  test/loss   0.7     0.7                     0.7 @30  0.7 @30    0.7      0.7",
        "  train/loss  0.5     0.5                     0.5 @30  0.5 @30    0.5      0.5",
        "  lr          0.1     0.1                                         0.1      0.1",
        "",
        "curves",
        "  equal bit for bit up to step 20; different from step 30 on:",
        "    valid/loss: 0.75 and 0.25",
        "",
        "code",
        "  FILE  CHANGE     LINES",
        "  x.py  only in B  +1 -0",
        "",
        "environment",
        "  NAME   A       B",
        "  torch  2.13.0  2.12.0",
    ]


def test_the_same_run_twice_and_the_seed(tmp_path: Path) -> None:
    a, b, c = (make(tmp_path / "runs", name, seed=int(name == "c")).path for name in "abc")
    found = text([a, b])
    assert "they have the same settings and the same code" in found
    assert "equal bit for bit: all 10 values that both have, up to step 30" in found
    assert "  the same: 6 files" in found and "settings are equal" in found
    assert "they differ only in their seed" in text([a, c])
    assert "nothing to compare" not in found


def test_a_fork_and_a_session_in_between(tmp_path: Path) -> None:
    first, fork = (make(tmp_path / "runs", name).path for name in ("first", "fork"))
    made = make_fork(make(tmp_path / "runs", "f"), make(tmp_path / "runs", "p"), 20)
    session(made, "succeeded", host="other")
    record_rows(made, 2, 20, [{**ROWS[2], "train/loss": 9.0}])
    found = text([made.path, tmp_path / "runs" / "p"])
    assert "A is a fork of B at step 20, with lr: 1 -> 2" in found
    assert "session 2 of A began at step 20 on other" in found
    assert "fork of" not in text([first, fork])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    a, b = (make(tmp_path / "runs", name).path for name in "ab")
    (b / "manifest.json").write_text("{")
    assert "B: not compared: code: manifest.json is damaged" in text([a, b])


def test_where_settings_were_set_if_that_differs(tmp_path: Path) -> None:
    a, b = (make(tmp_path / "runs", name) for name in "ab")
    b.new_session({"kind": "train", "overrides": ["optimizers.main.lr=0.5"]})
    assert re.search(r"SET IN A  +SET IN B\n.* default  +command line of session 2", text([a.path, b.path]))
    b.new_session({"kind": "train", "overrides": ["optimizers.main.lr=0.5", "+extra=1"]})
    assert re.search(r"extra +\(not set\)  1 +command line of session 3", text([a.path, b.path]))


def test_the_order_of_the_samples_and_what_is_inexact(tmp_path: Path) -> None:
    runs = [make(tmp_path / "runs", name) for name in "abc"]
    for run, order in zip(runs, ["x1", "x1", "x2"], strict=True):
        (run.path / "records" / "1.jsonl").write_text(
            f'{{"session":1,"start_step":0,"data_order":"{order}"}}\n'
        )
    runs[1].new_session({"kind": "train", "inexact": ["torch was 1, is 2"]})
    found = text([run.path for run in runs[:2]])
    assert "order of the training samples: the same (x1)" in found
    assert "B is inexact: torch was 1, is 2" in found
    assert "order of the training samples: x1 (A, B), x2 (C)" in text([run.path for run in runs])


@pytest.mark.parametrize("count", [2, 6])
def test_a_package_that_was_not_installed(tmp_path: Path, count: int) -> None:
    runs = []
    for number in range(count):
        packages = {"numpy": "2.1", **({} if number else {"x": "1.5"})}
        environment = {**ENVIRONMENT, "packages": packages}
        runs.append(make(tmp_path / "runs", f"r{number}", environment=environment).path)
    line = next(line for line in text(runs).splitlines() if "package x" in line)
    assert "1.5" in line and "not installed" in line and "unknown" not in line


@pytest.mark.parametrize("count", [6, 40])
def test_many_runs_are_lines(tmp_path: Path, count: int) -> None:
    runs = []
    for number in range(count):
        if number == count - 1:
            edit_project(tmp_path / "runs", "x.py", b"one\n")
        rows = [*ROWS[:2], {**ROWS[2], "valid/loss": 1 / (number + 1)}]
        stack = {**STACK, "torch": "2.12.0" if number == 2 else "2.13.0"}
        environment = {**ENVIRONMENT, "stack": stack}
        made = make(tmp_path / "runs", f"r{number:02}", rows=rows, seed=number, environment=environment)
        runs.append(made.path)
    found = text(runs)
    lines = found.splitlines()
    assert lines[0] == f"{count} runs, all succeeded"
    assert lines[1].split()[:4] == ["NAME", "seed", "valid/loss", "BEST"]
    assert len([line for line in lines if line.startswith("  r")]) == count
    best = [line for line in lines if "*" in line]
    assert len(best) == 1 and best[0].split()[0] == f"r{count - 1:02}"
    assert (
        f"{count - 1} runs: r00, r01" in found
        and f"1 run: r{count - 1:02}; differs from the first in x.py" in found
    )
    assert f"torch: 2.13.0 ({count - 1} runs), 2.12.0 (r02)" in found


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("count", [2, 3, 9])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int, count: int) -> None:
    runs = []
    for number in range(count):
        edit_project(tmp_path / "runs", f"{'deep/' * 9}x.py", b"%d\n" % number)
        name = "long " * 8 + f"2026-07-01_12-00-0{number}_481"
        values = {"model": {"layers": list(range(50 + number))}, f"{'key' * 12}": "text " * 30 + str(number)}
        environment = {**ENVIRONMENT, "driver": f"{number} " * 60}
        runs.append(make(tmp_path / "runs", name, environment=environment, **values).path)
    lines = text(runs, width=width, diff=None).splitlines()
    assert max(map(len, lines)) <= width
    assert all(any(f"12-00-0{number}_481" in line for line in lines) for number in range(count))


def test_a_setting_and_a_metric_of_one_name(tmp_path: Path) -> None:
    runs = []
    for number in range(6):
        rows = [{**row, "lr": 7.0} for row in ROWS]
        runs.append(make(tmp_path / "runs", f"r{number}", rows=rows, lr=number + 10, NAME=number).path)
    found = text(runs).splitlines()
    header, row = found[1].split(), next(line for line in found if line.startswith("  r3")).split()
    assert header[:3] == ["NAME", "'NAME'", "lr"] and row[:3] == ["r3", "3", "13"]
    assert row[header.index("'lr'") - 1] == "7"  # BEST valid/loss is two words


def test_states_that_differ(tmp_path: Path) -> None:
    runs = [make(tmp_path / "runs", f"r{number}") for number in range(6)]
    session(runs[3], "failed", error="ValueError: no")
    found = text([run.path for run in runs], width=60).splitlines()
    assert found[0] == "6 runs" and "STATE" in found[1]
    assert [line.split()[0] for line in found if "failed" in line] == ["r3"]


def test_of_many_damaged_runs_the_first_ones_are_named(tmp_path: Path) -> None:
    runs = [make(tmp_path / "runs", f"r{number:02}") for number in range(30)]
    for run in runs[1:]:
        (run.path / "manifest.json").write_text("{")
    found = text([run.path for run in runs])
    assert found.count("manifest.json is damaged") == 20 and "and 9 more lines; see --json" in found


def test_columns_that_do_not_fit_are_named(tmp_path: Path) -> None:
    rows = [*ROWS[:2], {**ROWS[2], "valid/loss": 0.25}]
    runs = [make(tmp_path / "runs", "a").path, make(tmp_path / "runs", "b", rows=rows).path]
    found = text(runs, width=48)
    assert "too narrow for: BEST A, BEST B; see --markdown" in " ".join(found.split())
    assert "too narrow" not in text(runs, width=80)


def test_hostile_names_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;x\x07\x1b[2J\u202e|`*<b>"
    runs = []
    for number, name in enumerate(["名前が長い実験", "evil" + evil.replace("/", "")]):
        edit_project(tmp_path / "runs", f"x{evil.replace('/', '')}.py", f"{evil}{number}\n".encode())
        rows = [{"step": 1, "epoch": 0, f"valid/{evil}": float(number), "損失": 1.0}]
        environment = {**ENVIRONMENT, "driver": evil + str(number)}
        values = {f"key{evil}": evil + str(number), "名前": number}
        runs.append(make(tmp_path / "runs", name, rows=rows, environment=environment, **values).path)
    for width in (None, 60, 200):
        found = text(runs, width=width, diff=[])
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", found) and "\\x1b" in found
    lines = list(format_markdown(compare(runs, diff=[])))
    found = "\n".join(lines)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", found)
    in_table = [line for line in lines if line.startswith("|")]
    assert not [line for line in in_table if re.search(r"(?<!\\)[`<]", line)]
    assert "名前" in found and "損失" in found


def test_markdown(tmp_path: Path) -> None:
    first = make(tmp_path / "runs", "a", one_key="a|b")
    edit_project(tmp_path / "runs", "x.md", b"```\ncode\n```\n")
    second = make(tmp_path / "runs", "b", rows=[*ROWS[:2], {**ROWS[2], "valid/loss": 0.25}], one_key="c")
    found = list(format_markdown(compare([first.path, second.path], diff=[])))
    assert "| one\\_key | a\\|b | c |" in found and "### Settings" in found
    assert next(line for line in found if line.startswith("| valid/loss")).count("**0.25**") == 2
    fence = found.index("````diff")
    assert found[fence + 1 : fence + 4] == ["--- /dev/null", "+++ B/x.md", "@@ -0,0 +1,3 @@"]
    assert found[-1] == "````"


def test_more_metrics_than_a_screen(tmp_path: Path) -> None:
    rows = [{"step": 1, "epoch": 0, **{f"valid/m{n:03}": 1.0 for n in range(100)}}]
    runs = [make(tmp_path / "runs", name, rows=rows).path for name in "ab"]
    assert "not shown: 70 metrics" in text(runs) and "m099" in text(runs, is_all=True)


def test_numbers_that_differ_look_different() -> None:
    assert format_numbers([0.5, None, 1 / 3]) == ["0.5", "", "0.333333"]
    assert format_numbers([1 / 3, 1 / 3 + 1e-8]) == ["0.333333333", "0.333333343"]
    assert format_numbers([0.1, 0.1]) == ["0.1", "0.1"]
    assert len(set(format_numbers([0.1, 0.1 + 2e-17 * 1]))) in (1, 2)
    assert format_numbers([1.0, 1.0000000000000002]) == ["1", "1.0000000000000002"]
    assert format_numbers([float("nan"), float("inf"), -0.0]) == ["nan", "inf", "-0"]
    assert comparison_view._DIGITS[-1] == 17
