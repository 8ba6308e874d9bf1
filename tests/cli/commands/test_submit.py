"""What `roost submit` takes and prints; tests/operations/queue/test_submit.py tests what it does."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.cli.commands import submit as submitting
from roost.cli.commands.submit import command
from tests.cli.programs import Terminal
from tests.lab.labs import Lab, two_card_lab
from tests.messages import Messages
from tests.operations.packages import package, project


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Lab]:
    with two_card_lab(tmp_path) as here:
        yield here


def submit(*arguments: str) -> int:
    """Types it, to begin when no test runs any more."""
    return int(command.main(["--begin", "+2h", *arguments], standalone_mode=False))


def test_one_task_is_one_line(here: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    project(here.folder / "p")
    options = ["--name", "one", "-m", "4GB", "--whole", "--priority", "-3", "--retry", "2", "--opportunistic"]
    assert submit("p/config.yaml", "max_epochs=1", *options, "--time-limit", "1h30m") == 0
    (task,) = here.tasks()
    output = capsys.readouterr()
    assert output.out == f"{task.id}  p/runs/one\n"
    when = time.strftime("%A %Y-%m-%d %H:%M:%S", time.localtime(task.begin))
    assert when in output.err
    need = task.need
    assert (need.cards, need.memory_mb, need.whole, need.opportunistic) == (1, 4096, True, True)
    assert (need.time_limit, task.priority, task.retries) == (5400.0, -3, 2)
    assert task.begin is not None and task.begin - task.submitted == pytest.approx(7200, abs=60)


def test_a_sweep_is_a_count_and_the_first_ones(here: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    project(here.folder / "p")
    assert submit("-c", "p/config.yaml", "seed=0..6", "-CPU", "--max-parallel", "2") == 0
    tasks = here.tasks()
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tasks[0].sweep}  ") and "7 tasks" in first
    assert " 2 " in last and "roost tasks" in last
    assert lines == [f"{task.id}  p/runs/seed-{seed}" for seed, task in enumerate(tasks[:5])]
    assert {(task.need.cards, task.most_parallel) for task in tasks} == {(0, 2)}


def test_the_fix_of_a_sweep_has_all_its_values(here: Lab) -> None:
    project(here.folder / "p")
    for key in ("lr", "+lr"):
        with pytest.raises(ConfigError) as refused:
            submit("p/config.yaml", f"{key}=1e-3,2e-3", "seed=0..1")
        assert "write optimizers.main.lr=1e-3,2e-3, or" in str(refused.value.fix)
    assert here.tasks() == []


def test_so_many_tasks_are_asked_about(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(submitting, "_CONFIRM_ABOVE", 3)
    project(here.folder / "p")
    typed = ["p/config.yaml", "seed=0..3", "-CPU"]
    with pytest.raises(Refused, match=r"4 tasks.*--yes") as refused:
        submit(*typed)
    messages.check(refused.value)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, err: asked.append(text))
    asked: list[str] = []
    assert submit(*typed) == 1 and here.tasks() == []
    assert len(asked) == 1 and "4 tasks" in asked[0]
    messages.check(asked[0])
    assert submit(*typed[:1], "seed=0..2", "-CPU") == 0 and submit(*typed, "--yes") == 0
    assert len(asked) == 1 and len(here.tasks()) == 7


def test_at_a_terminal_no_means_no(here: Lab) -> None:
    project(here.folder / "p")
    typing = Terminal("submit", "p/config.yaml", "seed=0..1000", "-CPU", cwd=here.folder)
    try:
        typing.wait_for("[y/N]")
        typing.type("n")
        code, shown = typing.end()
    finally:
        typing.kill()
    assert code == 1 and "1,001 tasks" in shown and here.tasks() == []


def test_json(here: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("--json", "--gpus", "2", "--", "sh", "-c", "true", "--json") == 0
    (task,) = here.tasks()
    (output,) = json.loads(capsys.readouterr().out)
    without_sweep = {"label": "C_1", "sweep": None, "begin": task.begin}
    assert output == {"id": task.id, "name": task.name, "package": task.package, **without_sweep}
    assert task.plan == {} and task.need.cards == 2
    assert here.one(task.id).plan["request"]["command"] == ["sh", "-c", "true", "--json"]


def test_cores_and_the_end_of_others(
    here: Lab, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    assert submit("--name", "first", "-CPU", "--", "true") == 0
    assert submit("--name", "second", "-CPU", "--cpus", "1", "--after-any", "first", "--", "true") == 0
    first, second = here.tasks()
    assert (second.after, second.after_any) == ((), (first.id,))
    assert (first.need.cores, second.need.cores) == (None, 1)
    with pytest.raises(NotFound, match="nowhere"):
        submit("-CPU", "--after-any", "nowhere", "--", "true")
    with pytest.raises(Refused, match="100000 cores"):
        submit("-CPU", "--cpus", "100000", "--", "true")
    with pytest.raises(Refused, match="--host-memory") as refused:
        submit("--host-memory", "100000GB", "--", "true")
    messages.check(re.sub(r"tasks may have .* here", "tasks may have <this> here", str(refused.value)))
    assert len(here.tasks()) == 2


def test_a_task_with_cards_requests_cores_and_memory_of_the_host(here: Lab) -> None:
    assert submit("--gpus", "1", "--cpus", "1", "--host-memory", "512MB", "--", "true") == 0
    (task,) = here.tasks()
    assert (task.need.cards, task.need.cores, task.need.host_memory_mb) == (1, 1, 512)
    with here.store() as store:
        plan = store.task(task.id).plan
    assert plan["limits"]["host_memory_mb"] == 512
    with pytest.raises(UsageError, match=r"--host-memory: .* too little"):
        submit("--host-memory", "8", "--", "true")


def test_a_package_goes_on_after_another_task(here: Lab) -> None:
    made = package(here.folder / "runs", state="stopped")
    assert submit("--name", "first", "--", "true") == 0
    assert submit("continue", str(made.path), "max_epochs=9", "--after", "first", "--time-limit", "2h") == 0
    first, second = here.tasks()
    assert second.after == (first.id,) and second.need.time_limit == 7200.0
    overrides = here.one(second.id).plan["request"]["overrides"]
    assert overrides == ["max_epochs=9", "roost.limits.wall_time=2h"]


def test_a_check_that_fails_lets_nothing_wait(here: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    config = project(here.folder / "p")
    with (config.parent / "Model" / "Runner.py").open("a") as file:
        file.write("import nothing_of_this_name\n")
    assert submit("p/config.yaml", "--check") not in (0, None)
    found = capfd.readouterr()
    assert "nothing_of_this_name" in found.err and found.out == ""
    assert here.tasks() == [] and not (config.parent / "runs").exists()


@pytest.mark.parametrize(
    ("typed", "error", "said"),
    [
        (["--gpus", "3"], Refused, "3 cards.* 2 "),
        (["--max-parallel", "2"], UsageError, "--max-parallel"),
        (["--name", "taken"], Refused, "taken"),
        (["max_epochs=none"], ConfigError, "max_epochs"),
    ],
)
def test_what_needs_no_check_is_refused_before_the_check(
    here: Lab, typed: list[str], error: type[RoostError], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config = project(here.folder / "p")
    package(config.parent / "runs", "taken")
    with pytest.raises(error, match=said):
        submit("p/config.yaml", "--check", *typed)
    shown = capfd.readouterr()
    assert shown.out == shown.err == "", "no check was started"


def test_an_option_of_a_command_without_dashes_suggests_them(here: Lab, messages: Messages) -> None:
    Path("train.py").touch()
    with pytest.raises(click.UsageError) as caught:
        submit("python", "train.py", "--epochs", "3")
    assert "--epochs" in caught.value.format_message()
    assert "roost submit -- python" in caught.value.format_message()
    messages.check(caught.value.format_message())


def test_each_value_of_a_sweep_is_checked(here: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    project(here.folder / "p")
    sweep = ["max_epochs=1", "seed=0..1", "optimizers.main.class=torch.optim.SGD,torch.optim.Nope"]
    assert submit("p/config.yaml", *sweep, "--check") not in (0, None)
    said = capfd.readouterr().err
    assert re.search(r"2 .*2: max_epochs=1 seed=0 optimizers\.main\.class=torch\.optim\.Nope", said)
    assert here.tasks() == []


def test_a_package_whose_name_looks_like_a_setting_goes_on(here: Lab) -> None:
    package(here.folder / "runs", "seed=0", state="stopped")
    assert submit("continue", "runs/seed=0", "max_epochs=9") == 0
    assert [task.name for task in here.tasks()] == ["seed=0"]


@pytest.mark.parametrize(
    ("typed", "error", "said"),
    [
        ([], UsageError, "roost submit config.yaml"),
        (["continue"], UsageError, "roost submit continue"),
        (["continue", "max_epochs=2"], UsageError, "roost submit continue"),
        (["continue", "nowhere"], NotFound, "'nowhere'"),
        (["continue", "x", "--check", "--name", "y"], UsageError, "--name and --check"),
        (["--"], UsageError, "--"),
        (["a=1", "--", "true"], UsageError, "'a=1'"),
        (["-f", "x.yaml", "--check", "--", "true"], UsageError, "-f and --check"),
        (["-DDP", "--", "true"], UsageError, "--max-parallel"),
        (["c.yaml", "--force"], UsageError, "--force"),
        (["c.yaml"], NotFound, r"c\.yaml.*roost new my-project"),
        (["c.yaml", "--begin", "tomorrow", "08:00"], UsageError, '--begin "tomorrow 08:00"'),
        (["c.yaml", "-CPU", "--gpus", "1"], UsageError, "-CPU .*--gpus 0"),
        (["c.yaml", "-DDP", "-FSDP"], UsageError, "-DDP and -FSDP"),
        (["c.yaml", "-CPU", "-mc"], UsageError, "-mc .*-CPU"),
        (["python", "fail.py"], UsageError, r"roost submit .*-- python fail\.py`"),
        (["fail.py", "a b"], UsageError, r"roost submit .*-- python fail\.py 'a b'"),
        (["c.yaml", "--devices", "2"], UsageError, "--devices: .*--gpus N"),
        (["c.yaml", "-m", "20"], UsageError, "-m: .*20 MB.*20GB"),
        (["--", "no-such-program", "x"], NotFound, "'no-such-program'"),
        (["c.yaml", "-m", "0GB"], UsageError, "-m: "),
        (["c.yaml", "--time-limit", "1h,2h"], UsageError, "--time-limit: .*'1h,2h'"),
        (["--begin", "noon", "--", "true"], UsageError, "--begin: .*'noon'"),
        (["--after", "nobody", "--", "true"], NotFound, "nobody"),
        (["--priority", "9999999", "--", "true"], UsageError, "9999999"),
        (["--gpus", "3", "--", "true"], Refused, "3 cards.* 2 "),
        (["c.yaml", "-d", "afterok:12"], UsageError, "-d: .*--after 12"),
        (["c.yaml", "-d", "singleton"], UsageError, "-d: .*--after TASK"),
        (["c.yaml", "-m", "lr=1,2"], UsageError, "-m: .*roost submit CONFIG lr=1,2"),
        (["-c", "4", "a=1"], NotFound, "--cpus 4"),
        (
            ["--retry", "2", "-DDP", "fail.py", "3"],
            UsageError,
            r"submit --begin \+2h --retry 2 -DDP -- python",
        ),
        (["--retry", "2", "-CPU", "python", "fail.py"], UsageError, "submit --begin .* -CPU -- python fail"),
        (["-cn", "small", "a=1"], NotFound, r"-c small\.yaml"),
        (["fork", "runs/a", "seed=3"], UsageError, "roost fork runs/a seed=3`.*submit continue"),
    ],
)
def test_misuse(
    here: Lab,
    typed: list[str],
    error: type[RoostError],
    said: str,
    messages: Messages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # it has a `python`
    Path("fail.py").touch()
    with pytest.raises(error, match=said) as refused:
        submit(*typed)
    messages.check(refused.value)
    assert here.tasks() == [] and not (here.folder / "runs").exists()


def test_a_trial_and_a_name_from_the_description(here: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    project(here.folder / "p")
    for _ in range(2):
        assert submit("p/config.yaml", "-ns") == 0
        assert submit("p/config.yaml", "-sd", "-d", "more dropout") == 0
    names = sorted(Path(task.package).name for task in here.tasks())
    assert names == ["NOSAVE", "NOSAVE-2", "more dropout", "more dropout-2"]
    for typed, expected in (
        (["p/config.yaml", "-sd"], "-sd"),
        (["p/config.yaml", "-ns", "--name", "x"], "-ns"),
        (["continue", "p/runs/NOSAVE", "-ns"], "-ns"),
    ):
        with pytest.raises(UsageError, match=expected):
            submit(*typed)
