"""`roost predict`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.package.package import PackageFolder
from roost.package.results import predictions
from tests.cli.programs import Terminal, roost
from tests.messages import Messages
from tests.project.predicting import PREDICTS, predicting

WAITS = PREDICTS.replace(
    "assert not self.training",
    "import threading\n        print('waiting', flush=True)\n        threading.Event().wait()",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    return predicting(tmp_path_factory.mktemp("trained"))


def test_the_files_on_stdout_and_the_rest_beside_it(made: PackageFolder) -> None:
    said = roost("predict", "-r", "run", "--data", "valid", "-CPU", cwd=made.path.parent)
    assert said.returncode == 0, said.stderr
    place = "run/predictions/1"
    assert said.stdout.splitlines() == [f"{place}/predictions.jsonl", f"{place}/features.npy"]
    assert any(line.endswith(" checkpoint 2, step 6; cpu") for line in said.stderr.splitlines())
    last = said.stderr.splitlines()[-1]
    assert last.startswith("succeeded ") and last.endswith(f": 40 samples; {place}")
    shown = roost("show", "run", cwd=made.path.parent).stdout
    (line,) = [line.split() for line in shown.splitlines() if "score label features" in line]
    assert line[:4] == ["1", "valid", "2", "40"]


def test_json_and_an_error_shown_once(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    said = roost("predict", made.path, "--data", "valid", "-o", "out", "--limit", "3", "--json", cwd=tmp_path)
    found = json.loads(said.stdout)
    assert found["meta"]["count"] == 3 and found["folder"] == str(tmp_path / "out")
    said = roost("predict", made.path, "--data", "tets", "-o", "other", cwd=tmp_path)
    assert said.returncode == 3 and said.stdout == "" and said.stderr.count("'tets'") == 1
    assert said.stderr.splitlines()[-1].startswith("failed; ")
    messages.check(said.stderr.splitlines()[-1])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_which_package(made: PackageFolder) -> None:
    for arguments in (["--data", "valid"], [made.path, "-r", made.path, "--data", "valid"]):
        said = roost("predict", *arguments)
        assert said.returncode == 2 and "roost predict -r runs/NAME" in said.stderr


def test_ctrl_c_ends_it_and_nothing_is_kept(tmp_path: Path) -> None:
    package = predicting(tmp_path)
    (package.path / "Model" / "Runner.py").write_text(WAITS)
    program = Terminal("predict", "-r", package.path, "--data", "valid", "-CPU")
    try:
        program.wait_for("waiting")
        program.wait_for("building")
        program.press_ctrl_c()
        code, seen = program.end()
    finally:
        program.kill()
    assert code not in (0, 75) and "Traceback" not in seen, (code, seen)
    assert list((package.path / predictions.NAME).iterdir()) == []
