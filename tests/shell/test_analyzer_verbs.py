"""The verbs of analyzers on a real one, over the server and without."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from roost.analysis import analysis_folder
from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.shell.completion import VerbCompletion
from roost.shell.lab_connection import LabConnection
from roost.shell.verb_runner import VerbRunner
from tests.project.trained import trained
from tests.serve.servers import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

FOREVER = "def experience(self):\n    print('begins', flush=True)\n    while True: pass\n"

SLOW_SWITCH = """
def experience(self):
    made = type(self.runner)
    usual = made.build

    def build(runner):
        print("builds", flush=True)
        while True: pass

    made.build = build
    self.unslow = lambda: setattr(made, "build", usual)
    return self.checkpoint.id, None
"""


@pytest.fixture(scope="module")
def scripts(server: Server) -> Path:
    """The folder of scripts of a project with a trained package."""
    project = server.folder / "project"
    (project / "AnalyzeScripts").mkdir(parents=True)
    trained(project)
    return project / "AnalyzeScripts"


@pytest.fixture(scope="module")
def analyzer(server: Server, connection: LabConnection, scripts: Path) -> Iterator[str]:
    """The label of an analyzer that was started by the verb."""
    (package,) = (path.parent for path in scripts.parent.rglob("args.json"))
    said = "".join(VerbRunner(connection).run(f"analyze -r '{package}' -CPU"))
    label = said.splitlines()[-1].split()[0]
    yield label
    "".join(VerbRunner(connection).run(f"kill {label}"))


@pytest.fixture
def runner(connection: LabConnection, analyzer: str) -> VerbRunner:
    return VerbRunner(connection, analyzer)


def shown(runner: VerbRunner, line: str) -> str:
    return "".join(runner.run(line))


def test_a_script_is_followed_to_its_end_and_edits_are_seen(
    runner: VerbRunner, analyzer: str, scripts: Path
) -> None:
    (scripts / "look.py").write_text("def experience(self):\n    print('\\x1b[31mfirst\\x1b[0m')\n")
    said = shown(runner, "runExp look")
    assert "\x1b[31mfirst\x1b[0m\n" in said and "succeeded in" in said.splitlines()[-1]
    (scripts / "look.py").write_text(
        "def experience(self):\n    print('\\x1b]0;second\\x07')\n    return 7\n"
    )
    said = shown(runner, f"runExp {analyzer} look")
    assert "\\x1b]0;second\\x07\n" in said and "first" not in said and "7" in said
    whole = shown(runner, "showAN")
    assert "\nfirst\n" in whole and "second" in whole
    assert "\x1b[31mfirst\x1b[0m\n" in shown(runner, f"showAN -t {analyzer} -s")
    assert click.unstyle(shown(runner, f"logs {analyzer} -n 3")).splitlines() == whole.splitlines()[-3:]


def test_a_script_is_followed_while_the_server_is_killed_and_started(
    server: Server, runner: VerbRunner, scripts: Path
) -> None:
    lines = [
        "import time",
        "from pathlib import Path",
        "def experience(self):",
        "    print('begins', flush=True)",
        f"    while not Path({str(server.folder / 'go')!r}).exists(): time.sleep(0.01)",
        "    print('ends')",
    ]
    (scripts / "waits.py").write_text("\n".join(lines))
    pieces = runner.run("runExp waits")
    seen = ""
    while "begins" not in seen:
        seen += next(pieces)
    server.kill()
    start = threading.Thread(target=server.start)
    start.start()
    (server.folder / "go").touch()
    seen += "".join(pieces)
    start.join()
    (server.folder / "go").unlink()
    assert seen.count("begins") == seen.count("ends") == 1 and "succeeded in" in seen.splitlines()[-1]


def test_ctrl_c_interrupts_the_script_and_not_the_analyzer(runner: VerbRunner, scripts: Path) -> None:
    (scripts / "forever.py").write_text(FOREVER)
    pieces = runner.run("runExp forever")
    seen = ""
    while "begins" not in seen:
        seen += next(pieces)
    seen += pieces.throw(KeyboardInterrupt())
    seen += "".join(pieces)
    last = click.unstyle(seen).splitlines()[-1]
    assert re.fullmatch(r"analysis \d+: interrupted after .*", last), seen
    (scripts / "after.py").write_text("def experience(self):\n    print('alive')\n")
    assert "alive\n" in shown(runner, "runExp after")


def test_ctrl_c_ends_ones_own_script_and_no_other(
    connection: LabConnection, runner: VerbRunner, scripts: Path
) -> None:
    (scripts / "forever.py").write_text(FOREVER)
    (scripts / "after.py").write_text("def experience(self):\n    print('alive')\n")
    other = VerbRunner(connection, runner.watched, follows=False)
    analysis = int(shown(other, "runExp forever").split()[2])
    wait_for(lambda: "begins" in shown(other, "showAN").splitlines()[-1])
    pieces = runner.run("runExp after")
    assert next(pieces) == f"waiting for analysis {analysis} (forever) in {runner.watched} to end ...\n"
    said = pieces.throw(KeyboardInterrupt()) + "".join(pieces)
    assert re.fullmatch(r"analysis \d+: stopped\n", said), said
    calls = {row.analysis: row for row in connection.list_calls(str(runner.watched))}
    assert calls[analysis].state == "running", "it is another person's"
    assert f"analysis {analysis} is interrupted" in shown(other, "interrupt")
    # Otherwise the next test's interrupt, which names none, would mean this one again.
    wait_for(lambda: "interrupted" in shown(other, "showAN").splitlines()[-1])


def test_without_following_a_script_is_interrupted_by_its_verb(
    connection: LabConnection, analyzer: str, scripts: Path
) -> None:
    (scripts / "forever.py").write_text(FOREVER)
    quick = VerbRunner(connection, analyzer, follows=False)
    assert f"{analyzer}: analysis " in shown(quick, "runExp forever")
    assert "is interrupted" in shown(quick, "interrupt")
    follower = VerbRunner(connection, analyzer)
    (scripts / "after.py").write_text("def experience(self):\n    print('alive')\n")
    assert "alive\n" in shown(follower, "runExp after")
    assert shown(quick, "interrupt") == "no script runs\n"


def test_a_script_that_ends_its_analyzer(connection: LabConnection, scripts: Path) -> None:
    (scripts / "exits.py").write_text("import os\ndef experience(self):\n    os._exit(3)\n")
    (package,) = (path.parent for path in scripts.parent.rglob("args.json"))
    runner = VerbRunner(connection)
    label = shown(runner, f"analyze -r '{package}' -CPU -c -2").splitlines()[-1].split()[0]
    said = shown(runner, f"runExp {label} exits")
    assert f"crashed: {analysis_folder.LOST}; fix: `analyze -r {package}` starts another one\n" in said


def test_a_switch_of_the_checkpoint_is_interrupted(runner: VerbRunner, scripts: Path) -> None:
    (scripts / "slow.py").write_text(SLOW_SWITCH)
    (scripts / "which.py").write_text("def experience(self):\n    return self.checkpoint.id, self.unslow()\n")
    before = shown(runner, "runExp slow").splitlines()[-2]
    shown(runner, "checkpoint 1")
    wait_for(lambda: "builds" in shown(runner, "showAN").splitlines()[-1])
    assert shown(runner, "interrupt") == "checkpoint 1 is not loaded; the former one stays\n"
    assert before in shown(runner, "runExp which")
    assert "not switched: interrupted; still checkpoint" in shown(runner, "showAN")
    assert shown(runner, "interrupt") == "no script runs\n"


def test_another_checkpoint_is_loaded(runner: VerbRunner, analyzer: str, scripts: Path) -> None:
    (scripts / "which.py").write_text(
        "def experience(self):\n    return self.checkpoint and self.checkpoint.id\n"
    )
    assert shown(runner, "checkpoint -2") == f"{analyzer} loads untrained\n"
    untrained = shown(runner, "runExp which")
    assert "succeeded" in untrained and not re.search(r"(?m)^\d+$", untrained)
    assert shown(runner, f"checkpoint {analyzer} last").startswith(f"{analyzer} loads ")
    assert re.search(r"(?m)^\d+$", shown(runner, "runExp which"))
    with pytest.raises(RoostError):
        shown(runner, "checkpoint 987654")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("runExp nosuch", NotFound),
        ("runExp /etc/passwd", Refused),
        ("runExp ../../outside", (Refused, NotFound)),
        ("runExp broken", RoostError),
        ("runExp without", RoostError),
    ],
)
def test_a_script_that_cannot_run_is_one_clear_line(
    line: str, kind: type[RoostError], runner: VerbRunner, scripts: Path
) -> None:
    (scripts / "broken.py").write_text("def experience(self:\n")
    (scripts / "without.py").write_text("x = 1\n")
    with pytest.raises(kind) as error:
        shown(runner, line)
    assert "\n" not in str(error.value)


def test_watch_and_withdraw(connection: LabConnection, analyzer: str) -> None:
    watcher = VerbRunner(connection)
    assert shown(watcher, f"watch {analyzer}").startswith(f"{analyzer} is watched")
    assert watcher.watched == analyzer
    assert shown(watcher, "withdraw").startswith(f"{analyzer} is no longer watched")
    with pytest.raises(UsageError):
        shown(watcher, "runExp look")


def test_analyzers_and_scripts_are_completed(connection: LabConnection, analyzer: str, scripts: Path) -> None:
    (scripts / "look.py").write_text("def experience(self):\n    pass\n")
    completion = VerbCompletion(connection, lambda: analyzer)
    assert analyzer in [one.text for one in completion.complete("watch A")]
    assert [one.text for one in completion.complete(f"runExp {analyzer} lo")] == ["look"]
    found = [one.text for one in completion.complete("runExp ")]
    assert analyzer in found and "look" in found
    alone = VerbCompletion(connection)
    assert "look" not in [one.text for one in alone.complete("runExp ")]


def test_an_analyzer_that_ends_ends_the_following(
    connection: LabConnection, server: Server, scripts: Path
) -> None:
    (scripts / "forever.py").write_text(FOREVER)
    (package,) = (path.parent for path in scripts.parent.rglob("args.json"))
    code = package / "Model" / "Runner.py"
    hold = package / "hold"
    hold.touch()
    wait = f"import os, time\nwhile os.path.exists({str(hold)!r}): time.sleep(0.01)\n"
    code.write_text(wait + code.read_text())
    own = VerbRunner(connection)
    label = shown(own, f"analyze -r '{package}' -CPU").splitlines()[-1].split()[0]
    pieces = own.run(f"runExp {label} forever")
    seen = next(pieces)
    while seen.startswith(f"{label} has not started yet"):
        seen = next(pieces)
    assert seen == f"waiting for {label} to load {package.name} ...\n"
    hold.unlink()
    while "begins" not in seen:
        seen += next(pieces)
    own.watched = label
    shown(own, f"kill {label}")
    assert own.watched is None
    seen += "".join(pieces)
    assert re.search(rf"{label} has stopped|analysis \d+: (crashed|stopped)", seen.splitlines()[-1]), seen
    with pytest.raises(Refused):
        shown(own, f"runExp {label} forever")
    with pytest.raises(Refused, match="runs no more scripts"):
        shown(own, f"watch {label}")
    own.watched = label
    assert shown(own, "withdraw") == f"{label} is no longer watched, and had ended\n"
    own.watched = label
    with pytest.raises(Refused):
        shown(own, "runExp forever")
    assert own.watched is None, "another person has ended it"
