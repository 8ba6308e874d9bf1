"""The other commands that read or draw, through the real program."""

from __future__ import annotations

import json
import re
from pathlib import Path

from roost.package.seals import session_seal
from tests.cli.programs import Terminal, roost
from tests.operations.packages import package, record_rows, session
from tests.package.dlnest.original import original


def test_show(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    body = json.loads(roost("show", made.path, "--json").stdout)
    assert body["summary"]["name"] == "one" and body["checkpoints"][2]["newest"]
    assert "succeeded" in roost("show", "runs/one", cwd=tmp_path).stdout


def test_logs(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    made.output.write_bytes(b"one\n\x1b[2Jtwo \x1b[32mgreen\x1b[0m\n")
    assert roost("logs", made.path).stdout == "one\n\x1b[2Jtwo \x1b[32mgreen\x1b[0m\n"
    assert roost("logs", made.path, "-n", "1").stdout.startswith("\x1b[2Jtwo")
    code, shown = Terminal("logs", made.path, "-f").end()
    assert code == 0 and "\\x1b[2Jtwo \x1b[32mgreen\x1b[0m" in shown and "\x1b[2J" not in shown


def test_verify_several(tmp_path: Path) -> None:
    for name in "abc":
        made = package(tmp_path / "runs", name, state="stopped" if name == "c" else "succeeded")
        session_seal.write(session_seal.seal_path(made.path, 1))
    original(tmp_path / "runs" / "old")
    damaged = tmp_path / "runs" / "b" / "Checkpoints" / "state_1.ckpt" / "model.json"

    def verdicts(*words: str, code: int) -> list[tuple[str, str]]:
        said = roost("verify", *words, cwd=tmp_path)
        assert said.returncode == code and "Traceback" not in said.stderr, said.stderr
        lines = [line.split() for line in said.stdout.splitlines()]
        return [(one[0], Path(one[1].rstrip(":")).name) for one in lines]

    assert verdicts("runs", code=0) == [("good", "a"), ("good", "b"), ("good", "c")]
    damaged.write_text("{}")
    said = roost("verify", "runs", cwd=tmp_path)
    bad, more = (line for line in said.stdout.splitlines() if not line.startswith("good"))
    assert re.match(r"bad +\S+/b: \d+ good, 1 damaged$", bad) and more.startswith("  damaged ")
    assert said.returncode == 1 and "1 of 3 packages is not" in said.stderr
    assert [name for _, name in verdicts("runs/[ac]", code=0)] == ["a", "c"]
    assert [name for _, name in verdicts("runs/c", "a", code=0)] == ["c", "a"]
    assert verdicts("runs", "state:stopped", code=0) == [("good", "c")]
    body = json.loads(roost("verify", "runs", "state:stopped", "--json", cwd=tmp_path).stdout)
    assert [(Path(one["package"]).name, one["error"]) for one in body] == [("c", None)]
    assert {one["verdict"] for one in body[0]["findings"]} == {"good"}
    said = roost("verify", "runs/old", "runs/old", cwd=tmp_path)
    assert said.returncode == 3 and "DLNest" in said.stderr


def test_verify(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    session_seal.write(session_seal.seal_path(made.path, 1))
    said = roost("verify", made.path)
    words = [line.split()[0] for line in said.stdout.splitlines()]
    assert said.returncode == 0 and set(words) == {"good"}
    (made.checkpoints / "state_1.ckpt" / "model.json").write_text("{}")
    said = roost("verify", made.path)
    assert (
        said.returncode == 1
        and re.search(r"^damaged .* Checkpoints/state_1\.ckpt", said.stdout, re.MULTILINE)
        and "error: 1 " in said.stderr
        and "newest good checkpoint" in said.stderr
    )
    body = json.loads(roost("verify", made.path, "--json").stdout)
    assert [one["path"] for one in body if one["verdict"] != "good"] == ["Checkpoints/state_1.ckpt"]


def test_plot(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    said = roost("plot", made.path, "-o", "a.png", cwd=tmp_path)
    assert said.returncode == 0 and said.stdout == "a.png\n"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_new(tmp_path: Path) -> None:
    said = roost("new", "mine", "--template", "clean", cwd=tmp_path)
    assert said.returncode == 0 and "\n  cd mine\n  roost check" in said.stdout
    assert roost("new", "-d", "other", cwd=tmp_path).returncode == 0
    assert (tmp_path / "other" / "Model" / "Net.py").is_file()


def test_stop_of_what_does_not_run(tmp_path: Path) -> None:
    said = roost("stop", package(tmp_path / "runs").path)
    assert said.returncode == 0 and "succeeded" in said.stderr and "roost continue" not in said.stderr


def test_continue_of_what_is_finished(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    for arguments in ([made.path], ["-r", made.path]):
        said = roost("continue", *arguments)
        assert said.returncode == 0 and "finished" in said.stderr
    said = roost("continue", made.path, "-c", "9")
    assert said.returncode == 3 and " 0, 1, 2" in said.stderr
    said = roost("continue", made.path, "model.features=9")
    assert said.returncode == 5 and "model.features: 8 -> 9" in said.stderr


def test_each_reader_says_that_rows_are_missing(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    record_rows(made, session(made, "succeeded"), 30, [{"step": 40, "epoch": 4, "train/loss": 0.1}])
    (made.path / "records" / "1.jsonl").unlink()
    for arguments in (
        ["ls", tmp_path / "runs"],
        ["show", made.path],
        ["plot", made.path, "-o", tmp_path / "a.png"],
        ["export", made.path, "--records", "csv", "-o", tmp_path / "a.csv"],
    ):
        said = roost(*arguments)
        together = " ".join((said.stdout + said.stderr).split())
        assert said.returncode == 0 and "up to step 30" in together, (arguments, together)


def test_a_session_record_that_cannot_be_read_is_said_to_be(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "sessions" / "1.json").write_text('{"state": "succ')
    for command in ("ls", "show", "verify"):
        said = roost(command, tmp_path / "runs" if command == "ls" else made.path)
        together = said.stdout + said.stderr
        assert said.returncode == (1 if command == "verify" else 0)
        assert "damaged" in together and "machine went down" not in together
