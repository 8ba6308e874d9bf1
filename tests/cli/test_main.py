"""The program as a whole: help, errors, exit codes, what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.cli.__main__ import COMMANDS, main
from roost.operations.reading import show
from tests.cli.programs import ROOST, roost
from tests.lab.notices.lost import GONE, leave
from tests.lab.notices.receivers import Web
from tests.messages import Messages
from tests.operations.packages import package, project
from tests.waiting import wait_for

NEVER = ("torch", "numpy", "psutil", "asyncio", "importlib.metadata", "httpx", "rich", "starlette", "yaml")
"""What neither help nor a listing may import."""


def imported(*arguments: object) -> set[str]:
    argv = [sys.executable, "-X", "importtime", "-m", "roost.cli", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help"), ("show", "--help")])
def test_help_imports_next_to_nothing(arguments: tuple[str, ...]) -> None:
    assert not imported(*arguments) & {*NEVER, "msgspec"}


def test_a_listing_imports_little(tmp_path: Path) -> None:
    package(tmp_path / "runs")
    assert roost("ls", tmp_path).returncode == 0  # fills the index
    assert not imported("ls", tmp_path) & set(NEVER)


@pytest.mark.parametrize("command", ["show", "verify", "logs"])
def test_readers_do_without_torch_and_numpy(tmp_path: Path, command: str) -> None:
    assert not imported(command, package(tmp_path / "runs").path) & {"torch", "numpy", "rich"}


@pytest.mark.parametrize("module", ["lifecycle.run", "lifecycle.continue_", "queue.submit"])
def test_what_starts_runs_imports_neither_torch_nor_numpy(module: str) -> None:
    code = f"import sys, roost.operations.{module}; print({{'torch', 'numpy'}} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_help_names_every_command() -> None:
    said = roost("--help")
    assert said.returncode == 0 and said.stderr == ""
    assert all(f"  {name} " in said.stdout and line in said.stdout for name, line in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    said = roost(name, "--help")
    assert (
        said.returncode == 0 and f"roost {name} " in said.stdout.partition("Options:")[0].partition("\n")[2]
    )


def test_the_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> str:
        number = str(words.count(" "))
        return roost(_ROOST_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number).stdout

    assert completed("roost tas") == "plain,tasks\n"
    assert completed("roost run --devi") == "plain,--device\nplain,--devices\n"
    assert "_ROOST_COMPLETE=bash_complete" in roost(_ROOST_COMPLETE="bash_source").stdout


def test_version() -> None:
    assert roost("--version").stdout == "roost 0.1.0\n"
    done = subprocess.run([sys.executable, "-m", "roost", "--version"], capture_output=True, text=True)
    assert done.stdout == "roost 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["rnu"], 2, "'run'"),
        (["cancel", "01m7"], 2, "`roost stop 01m7`"),
        (["queue"], 2, "`roost tasks`"),
        (["delete", "one"], 2, "`roost rm one`"),
        (["fit", "--config", "p/config.yaml"], 2, "`roost run p/config.yaml`"),
        (["train.py", "--lr", "1"], 2, "`roost submit -- python train.py --lr 1`"),
        (["run", "train.py"], 2, "`roost run -- python train.py`"),
        (["run", "train.py", "--lr", "0.1"], 2, "`roost submit -- python train.py --lr 0.1`"),
        (["run", "p"], 2, "`roost run p/config.yaml`"),
        (["run", "seed=3"], 2, "`roost run config.yaml seed=3`"),
        (["run", "p/conf.yaml"], 3, "'p/config.yaml'"),
        (["run", "p/config.yaml", "--optimizers.main.lr", "0.1"], 2, "optimizers.main.lr=0.1"),
        (["run", "p/config.yaml", "--lr=0.1"], 2, "optimizers.main.lr=0.1"),
        (["run", "p/config.yaml", "--max-epochs", "2"], 2, "max_epochs=2"),
        (["run", "p/config.yaml", "--multirun"], 2, "roost submit"),
        (["run", "p/config.yaml", "--ckpt_path", "last"], 2, "roost continue"),
        (["run", "p/config.yaml", "trainer.max_epochs=5"], 4, "max_epochs=5"),
        (["run", "p/config.yaml", "seed=0,1"], 4, "`roost submit CONFIG seed=0,1`"),
        (["run", "p/config.yaml", "seed=0...4"], 4, "seed=0..4"),
        (["run", "p/config.yaml", "seed=0-4"], 4, "seed=0..4"),
        (["run", "p/config.yaml", "optimizers.main.lr=1,2"], 4, "optimizers.main.lr=1,2`"),
        (["run", "p/config.yaml", "--explain", ""], 2, "--explain seed"),
        (["lease", "--", ""], 2, "roost lease -- python train.py"),
        (["run", "tab.yaml"], 4, "tab.yaml:2"),
        (["run", "list.yaml"], 4, "a list"),
        (["run", "lightning.yaml"], 4, "docs/coming-from.md#lightning"),
        (["check", "lightning.yaml"], 4, "docs/coming-from.md#lightning"),
        (["submit", "lightning.yaml"], 4, "docs/coming-from.md#lightning"),
        (["run", "lightning.yaml", "--print-config"], 4, "docs/coming-from.md#lightning"),
        (["run"], 2, "config"),
        (["run", "--nonsense"], 2, "--nonsense"),
        (["continue"], 2, "package"),
        (["new"], 2, "folder"),
        (["plot", "x", "y"], 3, "'x'"),
        (["run", "nowhere.yaml"], 3, "nowhere.yaml"),
        (["run", "-c", "nowhere.yaml"], 3, "nowhere.yaml"),
        (["continue", "nowhere"], 3, "nowhere"),
        (["continue", "."], 3, "package"),
        (["stop", "."], 3, "package"),
        (["show", "."], 3, "package"),
        (["logs", "."], 3, "package"),
        (["verify", "."], 3, "package"),
        (["plot", ".", "-o", "a.png"], 3, "package"),
        (["ls", "nowhere"], 3, "nowhere"),
        (["new", "x", "--template", "nothing"], 3, "clean, digits"),
        (["run", "p/config.yaml", "max_epoch=3"], 4, "'max_epochs'"),
        (["run", "p/config.yaml", "max_epochs=many"], 4, "max_epochs"),
        (["run", "p/config.yaml", "runner=Model/No.py:Runner"], 4, "Model/No.py"),
        (["run", "p/config.yaml", "--explain", "max_epoch"], 4, "max_epochs"),
        (["run", "bad.yaml"], 4, "bad.yaml:2"),
        (["run", "cycle.yaml"], 4, "cycle.yaml"),
        (["new", "p"], 5, " p"),
    ],
)
def test_a_mistake_is_one_clear_line(
    tmp_path: Path, arguments: list[str], code: int, says: str, messages: Messages
) -> None:
    project(tmp_path / "p")
    (tmp_path / "bad.yaml").write_text("a: 1\na: 2\n")
    (tmp_path / "tab.yaml").write_text("data:\n\tbatch_size: 3\n")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "train.py").touch()
    (tmp_path / "lightning.yaml").write_text("trainer: {max_epochs: 3}\nmodel: {class_path: a.B}\n")
    (tmp_path / "cycle.yaml").write_text("include: cycle.yaml\n")
    said = roost(*arguments, cwd=tmp_path)
    assert said.returncode == code, said.stderr
    assert says in said.stderr and said.stdout == "" and "Traceback" not in said.stderr
    assert [line for line in said.stderr.splitlines() if line.lower().startswith("error: ")]
    messages.check(said.stderr)
    assert not list(tmp_path.glob("**/request.json"))


def test_debug_shows_where(tmp_path: Path) -> None:
    for arguments in (["--debug", "show", "."], ["show", ".", "--debug"]):
        said = roost(*arguments, cwd=tmp_path)
        assert said.returncode == 3 and "Traceback" in said.stderr and "error: " in said.stderr


def test_an_error_of_the_system_is_one_line(tmp_path: Path) -> None:
    project(tmp_path / "p")
    (tmp_path / "p" / "runs").write_text("a file")
    said = roost("run", "p/config.yaml", cwd=tmp_path)
    assert said.returncode == 1 and "Traceback" not in said.stderr and "p/runs" in said.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "much.txt").write_bytes(bytes(3 << 20))
    (tmp_path / "p" / "runs").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path / "p" / "runs")]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        said = roost("run", config)
        assert said.returncode == 1 and "No space left on device" in said.stderr
        assert "Traceback" not in said.stderr and list((tmp_path / "p" / "runs").iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path / "p" / "runs")], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk takes root")
@pytest.mark.parametrize("name", [[], ["--name", "one"]])
def test_a_project_that_cannot_be_written_names_save_root(
    tmp_path: Path, name: list[str], messages: Messages
) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "runs").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path / "p" / "runs")]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        said = roost("run", config, *name)
        assert said.returncode == 5 and "save_root=~/runs" in said.stderr
        messages.check(said.stderr)
        elsewhere = roost("run", config, f"save_root={tmp_path / 'mine'}", "max_epochs=1", *name)
        assert elsewhere.returncode == 0, elsewhere.stderr
    finally:
        subprocess.run(["umount", str(tmp_path / "p" / "runs")], check=True)


def test_a_defect_of_ours_names_debug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: Path) -> None:
        raise KeyError("host")

    monkeypatch.setattr(show, "show", broken)
    with pytest.raises(SystemExit) as exit:
        main(["show", str(tmp_path)])
    said = capsys.readouterr().err
    assert exit.value.code == 1 and "--debug" in said and "Traceback" not in said


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    made.output.write_bytes(b"line\n" * 1_000_000)
    command = f"{' '.join(ROOST)} logs {made.path} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stdout == "line\n" and done.stderr == "" and done.returncode == 1


def test_debug_reaches_the_worker(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    runner = tmp_path / "p" / "Model" / "Runner.py"
    runner.write_text(f"import os\nprint('asked:', os.environ.get('ROOST_DEBUG'))\n{runner.read_text()}")
    assert "asked: 1\n" in roost("run", config, "max_epochs=1", "--debug").stdout
    assert "asked: None\n" in roost("run", config, "max_epochs=1").stdout


def test_the_next_command_sends_for_a_run_that_was_killed_with_its_guard(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "ROOST_STATE": str(tmp_path / "state")}
    entry, web = Path(leave(tmp_path / "run", env, **GONE)), Web()
    file = tmp_path / "config" / "roost" / "notices.yaml"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    file.write_text(f"least_minutes: 0\nreceivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")
    assert roost("--version", **env).returncode == 0
    wait_for(lambda: not entry.exists())
    web.close()
    assert [one.body["event"] for one in web.asked] == ["fail"]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_the_encoding_of_the_terminal_lacks_becomes_an_escape(tmp_path: Path, encoding: str) -> None:
    package(tmp_path / "runs", "日本", state="failed", error="ギリシャ …")
    for arguments in (["ls", tmp_path / "runs"], ["show", tmp_path / "runs" / "日本"], ["show", "無い"]):
        said = roost(*arguments, PYTHONIOENCODING=encoding)
        assert "Encode" not in said.stderr and said.returncode == (3 if "無い" in arguments else 0)


def test_the_current_folder_was_removed(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", 'rmdir "$0" && exec "$@"', str(tmp_path / "gone"), *ROOST, "ls"]
    said = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True, timeout=100)
    assert said.returncode == 1
    messages.check(said.stderr)
