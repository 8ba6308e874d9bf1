"""`roost ls`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from roost.lab.queue import task_file
from roost.package import labels
from tests.cli.programs import Terminal, roost
from tests.lab import queued
from tests.messages import Messages
from tests.operations.packages import ROWS, VALUES, package, session
from tests.package.remote import statuses


def test_a_table(tmp_path: Path) -> None:
    package(tmp_path / "runs", "first")
    made = package(tmp_path / "runs", "second", state="stopped")
    session(made, "failed", error="ValueError: " + "long " * 30)
    said = roost("ls", cwd=tmp_path)
    header, first, second = said.stdout.splitlines()
    assert header.split()[:5] == ["NAME", "STATE", "max_epochs", "STEP", "EPOCH"]
    assert first.split()[:4] == ["first", "succeeded", "3", "30/30"] and "a test" in first and "0.75" in first
    session(package(tmp_path / "runs", "third"), "succeeded", reason="early stop")
    assert "early stop; a test" in roost("ls", cwd=tmp_path).stdout
    assert "failed" in second and "ValueError: long" in second and second.endswith("…")


def test_colours_on_a_terminal_only(tmp_path: Path) -> None:
    package(tmp_path / "runs")
    for no_color, coloured in (("1", False), ("", True)):
        code, shown = Terminal("ls", tmp_path, NO_COLOR=no_color).end()
        assert code == 0 and ("\x1b[32m" in shown) == coloured
    assert "\x1b" not in roost("ls", tmp_path, NO_COLOR="").stdout


def shown(folder: Path, width: int) -> list[str]:
    """The lines on a terminal of this width."""
    terminal = Terminal("ls", folder, NO_COLOR="", COLUMNS=str(width))
    code, text = terminal.end()
    assert code == 0
    return click.unstyle(text).splitlines()


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (130, "NAME STATE STEP EPOCH METRIC LAST BEST STARTED TIME SESSIONS ABOUT"),
        (113, "NAME STATE STEP METRIC LAST BEST STARTED TIME SESSIONS ABOUT"),
        (106, "NAME STATE STEP EPOCH METRIC LAST BEST STARTED TIME ABOUT"),
        (96, "NAME STATE STEP EPOCH METRIC LAST BEST TIME ABOUT"),
        (87, "NAME STATE STEP METRIC LAST TIME ABOUT"),
        (81, "NAME STATE STEP METRIC LAST BEST ABOUT"),
        (72, "NAME STATE STEP EPOCH TIME ABOUT"),
    ],
)
def test_columns_go_where_the_terminal_is_narrow(tmp_path: Path, width: int, names: str) -> None:
    package(tmp_path / "runs", "2026-07-01_12-00-00_481", state="failed", error="the disk is full")
    header, row = shown(tmp_path / "runs", width)
    assert header.split() == names.split()
    assert ("STARTED" in names) == bool(re.search(r" (now|\d+s ago) ", row))
    assert row.endswith("the disk is full") and len(row) <= width


def test_what_does_not_fit_even_then_is_cut(tmp_path: Path) -> None:
    package(tmp_path / "runs", "2026-07-01_12-00-00_481", state="failed", error="the disk is full")
    _, row = shown(tmp_path / "runs", 52)
    assert len(row) == 52 and row.endswith("the disk is…")


def test_a_long_error_leaves_the_metrics(tmp_path: Path) -> None:
    package(tmp_path / "runs", "2026-07-01_12-00-00_481", state="failed", error="the disk is full " * 4)
    header, row = shown(tmp_path / "runs", 90)
    assert "METRIC LAST BEST" in " ".join(header.split()) and row.endswith("…") and len(row) == 90


def test_json(tmp_path: Path) -> None:
    package(tmp_path / "runs")
    (row,) = json.loads(roost("ls", tmp_path / "runs", "--json").stdout)
    assert row["name"] == "one" and row["state"] == "succeeded" and row["best"] == 0.5


def test_no_packages(tmp_path: Path, messages: Messages) -> None:
    said = roost("ls", tmp_path)
    assert said.returncode == 0 and said.stdout == "" and str(tmp_path) in said.stderr
    messages.check(said.stderr)
    assert json.loads(roost("ls", tmp_path, "--json").stdout) == []
    package(tmp_path / "runs")
    said = roost("ls", "description:foo", cwd=tmp_path)
    assert f"{tmp_path}/runs" in said.stderr and "description:foo" in said.stderr
    messages.check(said.stderr)


def test_a_query(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.001), ("c", 0.01)):
        values = {**VALUES, "optimizers": {"main": {"lr": rate}}}
        package(tmp_path / "runs", name, values=values, checkpoints=False)

    def listed(*words: str) -> list[str]:
        return [row["name"] for row in json.loads(roost("ls", "--json", *words, cwd=tmp_path).stdout)]

    assert listed("lr<0.05 status:succeeded", "sort:-lr") == ["c", "b"]
    assert listed("runs", "lr<0.05") == ["b", "c"] and listed("B", "test") == ["b"]
    said = roost("ls", "lr<1e-9", cwd=tmp_path)
    assert said.returncode == 0 and not said.stdout and "lr<1e-9" in said.stderr
    wrong = roost("ls", "valid/los<1", cwd=tmp_path)
    assert wrong.returncode == 2 and "'valid/loss'" in wrong.stderr


@pytest.mark.parametrize("word", ["nowhere", "./nowhere", "/no/where"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_folder_that_is_not_there(
    tmp_path: Path, word: str, options: tuple[str, ...], messages: Messages
) -> None:
    said = roost("ls", *options, word, cwd=tmp_path)
    assert said.returncode == 3 and word.removeprefix(".") in said.stderr and not said.stdout
    messages.check(said.stderr)


def test_mean_and_deviation_over_the_seeds_of_a_sweep(tmp_path: Path) -> None:
    for seed in range(3):
        rows = [{**one, "valid/loss": one["valid/loss"] + seed} for one in ROWS]
        made = package(tmp_path / "runs", f"lr=1 seed={seed}", rows=rows, values={**VALUES, "seed": seed})
        task_file.write(queued.task(package=str(made.path), sweep="7sweep"), tmp_path / "lab")
    *table, empty, header, over = roost("ls", cwd=tmp_path).stdout.splitlines()
    assert len(table) == 4 and not empty
    assert header.split() == ["OVER", "SEEDS", "RUNS", "METRIC", "LAST", "BEST", "FIRST"]
    assert re.split(" {2,}", over) == ["all", "3", "valid/loss", "1.75 ± 1", "1.5 ± 1", "lr=1 seed=0"]


def sweep(folder: Path) -> None:
    """Two learning rates with two seeds each."""
    for number in range(4):
        rate, seed = (0.1, 0.01)[number % 2], number // 2
        values = {**VALUES, "seed": seed, "optimizers": {"main": {"class": "torch.optim.SGD", "lr": rate}}}
        rows = [{**one, "valid/loss": one["valid/loss"] + number} for one in ROWS]
        package(folder, f"run{number}", rows=rows, values=values, checkpoints=False)


def test_what_varies_and_what_was_asked_for(tmp_path: Path) -> None:
    sweep(tmp_path / "runs")
    header, *rows = roost("ls", "--sort", "-lr", cwd=tmp_path).stdout.splitlines()
    assert header.split()[:5] == ["NAME", "STATE", "lr", "seed", "STEP"]
    assert [row.split()[0] for row in rows] == ["run0", "run2", "run1", "run3"]
    header, row = roost("ls", "run1", "--columns", "valid/loss,lr,size", cwd=tmp_path).stdout.splitlines()
    assert header.split() == ["NAME", "STATE", "valid/loss", "lr", "size"]
    assert re.split(" {2,}", row)[2:4] == ["1.75", "0.01"] and row.endswith("kB")
    wrong = roost("ls", "--columns", "lrr", cwd=tmp_path)
    assert wrong.returncode == 2 and "'lr'" in wrong.stderr


def test_a_limit_and_a_screenful(tmp_path: Path) -> None:
    sweep(tmp_path / "runs")
    said = roost("ls", "--limit", "3", cwd=tmp_path)
    assert len(said.stdout.splitlines()) == 4 and "1 more: --limit 0" in said.stderr
    assert len(roost("ls", cwd=tmp_path).stdout.splitlines()) == 5
    code, text = Terminal("ls", tmp_path / "runs", LINES="6").end()
    assert code == 0 and len(click.unstyle(text).splitlines()) == 4 and "2 more" in text
    assert len(json.loads(roost("ls", "--json", cwd=tmp_path).stdout)) == 4


def test_groups(tmp_path: Path) -> None:
    sweep(tmp_path / "runs")
    header, first, second = roost(
        "ls", "--group-by", "seed", "--sort", "valid/loss", cwd=tmp_path
    ).stdout.splitlines()
    assert re.split(" {2,}", header) == ["lr (over seeds)", "RUNS", "METRIC", "LAST", "FIRST"]
    assert re.split(" {2,}", first) == ["0.1", "2", "valid/loss", "1.75 ± 1.4", "run0"]
    assert second.split()[0] == "0.01"
    found = json.loads(roost("ls", "--group-by", "lr", "--json", cwd=tmp_path).stdout)
    assert [(one["values"], one["runs"]) for one in found] == [({"lr": 0.1}, 2), ({"lr": 0.01}, 2)]
    said = roost("ls", "nothing-like-it", "--group-by", "lr", cwd=tmp_path)
    assert said.returncode == 0 and "no packages match" in said.stderr


def test_groups_show_the_metric_by_which_they_are_sorted(tmp_path: Path) -> None:
    for number in range(4):
        rows = [{**one, "valid/accuracy": number / 4} for one in ROWS]
        values = {**VALUES, "seed": number // 2, "width": number % 2}
        package(tmp_path / "runs", f"run{number}", rows=rows, values=values, checkpoints=False)
    query = ("--group-by", "seed", "--sort", "-valid/accuracy")
    header, first, second = roost("ls", *query, cwd=tmp_path).stdout.splitlines()
    assert re.split(" {2,}", header)[:4] == ["width (over seeds)", "RUNS", "valid/accuracy", "METRIC"]
    assert [re.split(" {2,}", one)[:3] for one in (first, second)] == [
        ["1", "2", "0.5 ± 0.35"],
        ["0", "2", "0.25 ± 0.35"],
    ]


def test_groups_of_several_projects_show_what_tells_them_apart(tmp_path: Path) -> None:
    sweep(tmp_path / "runs")
    for seed in range(2):
        values = {**VALUES, "seed": seed, "model": {"own": "x", "other": 1}}
        package(tmp_path / "other", f"other{seed}", values=values, checkpoints=False)
    header, *groups = roost("ls", "runs", "other", "--group-by", "seed", cwd=tmp_path).stdout.splitlines()
    assert header.startswith("OVER SEEDS ") and len(groups) == 3
    assert "own=x" in groups[2] and not any("own" in one for one in groups[:2])  # one rate of both has it
    both = roost("ls", "--group-by", "seed", cwd=tmp_path).stdout
    assert both.startswith("lr (over seeds) ") and "own" not in both


def test_groups_of_sweeps_have_their_names(tmp_path: Path) -> None:
    for number, (id, name) in enumerate((("7one", "lr"), ("7two", None), ("7six", "lr"), ("7ten", "width"))):
        made = package(tmp_path / "runs", f"run{number}", checkpoints=False)
        task_file.write(queued.task(package=str(made.path), sweep=id, sweep_name=name), tmp_path / "lab")
    _, *groups = roost("ls", "--group-by", "sweep", cwd=tmp_path).stdout.splitlines()
    assert [re.split(" {2,}", one)[0] for one in groups] == ["lr (7one)", "7two", "lr (7six)", "width"]
    (found,) = json.loads(roost("ls", "sweep_name=width", "--json", cwd=tmp_path).stdout)
    assert found["name"] == "run3"
    compared = roost("compare", "runs/run3", "runs/run3", "--json", cwd=tmp_path)
    assert compared.returncode == 2  # one run
    package(tmp_path / "runs", "run4", checkpoints=False, values={**VALUES, "seed": 1})
    task = queued.task(package=str(tmp_path / "runs/run4"), sweep="7ten", sweep_name="width")
    task_file.write(task, tmp_path / "lab")
    assert "of the sweep width\n" in roost("compare", "runs/run3", "runs/run4", cwd=tmp_path).stdout


def test_a_sweep_fits_into_a_screen(tmp_path: Path) -> None:
    for number in range(12):
        values = {**VALUES, "seed": number % 2, "width": number // 2}
        made = package(tmp_path / "runs", f"run{number:02}", values=values, checkpoints=False)
        task_file.write(queued.task(package=str(made.path), sweep="7one"), tmp_path / "lab")
    code, text = Terminal("ls", tmp_path / "runs", LINES="18").end()
    lines = click.unstyle(text).splitlines()
    assert code == 0 and len(lines) < 18
    rows, over = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert rows[-1].startswith("run05") and over[0].startswith("width (over seeds)")
    assert over[-2:] == ["… and 1 more of these: --group-by seed", "… and 6 more: --limit 0"]
    _, text = Terminal("ls", tmp_path / "runs", LINES="60").end()
    assert len(click.unstyle(text).splitlines()) == 1 + 12 + 2 + 6


def test_columns_limits_and_keys_of_ones_choice(tmp_path: Path) -> None:
    sweep(tmp_path / "runs")
    said = roost("ls", "--columns", " lr, status,best", "--sort", "status", cwd=tmp_path)
    assert said.stdout.splitlines()[0].split() == ["NAME", "STATE", "lr", "status"]
    assert said.stderr == "no package shown has a value: best\n"
    said = roost("ls", "--group-by", "lr", "--limit", "1", cwd=tmp_path)
    assert len(said.stdout.splitlines()) == 2 and "1 more: --limit 0" in said.stderr
    _, only = roost("ls", "--group-by", "status", cwd=tmp_path).stdout.splitlines()
    assert only.split()[:2] == ["succeeded", "4"]
    _, size, *_ = roost("ls", "--group-by", "size", cwd=tmp_path).stdout.splitlines()
    assert size.split()[1] == "kB"
    refused = roost("ls", "--group-by", "lr", "--columns", "lr", cwd=tmp_path)
    assert refused.returncode == 2 and "--columns" in refused.stderr
    wrong = roost("ls", "--sort", "-lr desc", cwd=tmp_path)
    assert wrong.returncode == 2 and "'lr desc'" in wrong.stderr
    wrong = roost("ls", "--group-by", "lrr", cwd=tmp_path)
    assert wrong.returncode == 2 and "'lr'" in wrong.stderr and "query" not in wrong.stderr


def test_a_setting_with_the_name_of_a_column_replaces_it_not(tmp_path: Path) -> None:
    for name in ("one", "two"):
        package(tmp_path / "runs", name, values={**VALUES, "NAME": f"own {name}"}, checkpoints=False)
    header, *rows = roost("ls", cwd=tmp_path).stdout.splitlines()
    assert header.split()[:3] == ["NAME", "STATE", "'NAME'"]
    assert [re.split(" {2,}", row)[:3:2] for row in rows] == [["one", "own one"], ["two", "own two"]]


def test_several_folders_and_all_that_are_known(tmp_path: Path) -> None:
    for name in ("one", "two"):
        package(tmp_path / name, "same", checkpoints=False)
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    _, *rows = roost("ls", "one", "two", "same", cwd=tmp_path, **cache).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["one/same", "two/same"]
    _, *rows = roost("ls", "--all", cwd=tmp_path, **cache).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["one/same", "two/same"]
    (tmp_path / "link").symlink_to("one")
    _, *rows = roost("ls", "one", "two/../one", "link", "one/same", cwd=tmp_path, **cache).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["one/same"]
    said = roost("ls", "one", "--all", cwd=tmp_path)
    assert said.returncode == 2 and "--all" in said.stderr


def test_tags_a_star_and_a_note(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "one", checkpoints=False)
    package(tmp_path / "runs", "two", checkpoints=False)
    labels.add_tags(made.path, ["baseline", "lr"])
    labels.set_starred(made.path, True)
    labels.set_note(made.path, "kept for\n\x1b[2Jthe paper")
    header, first, second = roost("ls", cwd=tmp_path).stdout.splitlines()
    cells = dict(zip(re.split(" {2,}", header), re.split(" {2,}", first), strict=True))
    assert cells["TAGS"] == "★ baseline, lr" and "★" not in second
    assert cells["ABOUT"].endswith("; kept for \\x1b[2Jthe paper")
    assert roost("ls", cwd=tmp_path, PYTHONIOENCODING="ascii").stdout.count("* baseline") == 1
    _, row = roost("ls", "tag:lr", "--columns", "tags", cwd=tmp_path).stdout.splitlines()
    assert row.endswith("baseline, lr")


def test_how_far_the_remote_copies_are(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("plain", "good", "bad", "begun"):
        package(runs, name, checkpoints=False)
    assert "DURABLE" not in roost("ls", tmp_path / "runs").stdout
    statuses.write(runs / "good", step=20)
    statuses.failing(runs / "bad", seconds=100, step=10)
    statuses.write(runs / "begun", step=None, taken=None)
    lines = roost("ls", runs, "--columns", "durable_step").stdout.splitlines()
    assert [line.split()[2:] for line in lines if line.split()[0] == "good"] == [["20"]]
    shown = {line.split()[0]: line for line in roost("ls", runs).stdout.splitlines()}
    assert " DURABLE " in shown["NAME"]
    assert " 20 " in shown["good"] and " not since 10 " in shown["bad"] and " no step " in shown["begun"]
    rows = {row["name"]: row for row in json.loads(roost("ls", runs, "--json").stdout)}
    assert (rows["good"]["durable_step"], rows["good"]["remote"]) == (20, "s3://bucket/runs")
    assert rows["bad"]["durability"] == "NOT durable since step 10: the store does not answer"
    assert rows["bad"]["remote_error"] == "the store does not answer"
    assert rows["plain"]["durability"] is None and rows["plain"]["remote"] is None
    assert [row["name"] for row in json.loads(roost("ls", runs, "durable_step<15", "--json").stdout)] == [
        "bad"
    ]
    statuses.write(runs / "bad", step=30)
    assert " 30 " in roost("ls", runs).stdout, "the list is a cache"
    said = roost("show", runs / "good").stdout
    assert "remote copy: durable up to step 20  s3://bucket/runs" in said
