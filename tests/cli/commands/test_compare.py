"""`roost compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_strange import mutations, said
from tests.cli.programs import Terminal, roost
from tests.operations.comparing.runs import ENVIRONMENT, edit_project, make, optimizer
from tests.operations.comparing.test_run_relation import make_fork
from tests.operations.packages import ROWS, package


def two(folder: Path) -> tuple[Path, Path]:
    """Two runs that differ in a setting, a file and their newest rows."""
    first = make(folder / "runs", "a", environment=ENVIRONMENT)
    edit_project(folder / "runs", "x.py", b"one\n")
    rows = [*ROWS[:2], {**ROWS[2], "valid/loss": 0.25}]
    second = make(folder / "runs", "b", rows=rows, optimizers=optimizer(0.5), environment=ENVIRONMENT)
    return first.path, second.path


def test_text_json_and_markdown(tmp_path: Path) -> None:
    two(tmp_path)
    done = roost("compare", "a", "b", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert "optimizers.main.lr  0.1  0.5" in done.stdout and "different from step 30 on" in done.stdout
    assert "\x1b" not in done.stdout
    body = json.loads(roost("compare", "runs/a", "runs/b", "--json", cwd=tmp_path).stdout)
    assert body["curves"]["step"] == 30 and [one["summary"]["name"] for one in body["runs"]] == ["a", "b"]
    shown = roost("compare", "runs", "--markdown", cwd=tmp_path).stdout
    assert "| optimizers.main.lr | 0.1 | 0.5 |" in shown and "**0.25**" in shown


def test_the_lines_of_the_code(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    lines = roost("compare", first, second, "--diff").stdout.splitlines()
    assert lines[-4:] == ["--- /dev/null", "+++ B/x.py", "@@ -0,0 +1 @@", "+one"]
    code, shown = Terminal("compare", first, second, "--diff", "--file", "x*", NO_COLOR="").end()
    assert code == 0 and "\x1b[32m+one" in shown
    code, shown = Terminal("compare", first, second, "--diff", NO_COLOR="1").end()
    assert code == 0 and "\x1b[32m" not in shown
    assert roost("compare", first, second, "--diff", "--file", "none.py").returncode == 3


def test_one_package(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    done = roost("compare", first)
    assert done.returncode == 2 and "name a second package" in done.stderr
    assert roost("compare", first, first).returncode == 2
    fork = make_fork(package(tmp_path / "runs", "c", checkpoints=False), package(tmp_path / "runs", "p"), 20)
    assert "B is a fork of A at step 20" in roost("compare", fork.path).stdout
    assert roost("compare", second, "nothing", cwd=tmp_path).returncode == 3


def test_options_that_need_another(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    assert roost("compare", first, second, "--file", "x.py").returncode == 2
    assert roost("compare", first, second, "--json", "--markdown").returncode == 2
    done = roost("compare", first, second, "-m", "valid/los")
    assert done.returncode == 3 and "valid/loss" in done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "request.json",
        "args.json",
        "provenance.json",
        "manifest.json",
        "environment.json",
        "_package.json",
        "sessions/1.request.json",
        "sessions/1.json",
        "records/1.jsonl",
    ],
)
def test_any_value_anywhere_in_a_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have written it: each run is shown with what can be known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    good = make(tmp_path / "runs", "good", environment=ENVIRONMENT)
    edit_project(tmp_path / "runs", "x.py", b"one\n")
    made = package(tmp_path / "runs", "made", state="stopped")
    (made.path / "environment.json").write_text(json.dumps(ENVIRONMENT))
    file = made.path / name
    first, *rest = file.read_text().splitlines() if name.endswith("l") else [file.read_text()]
    for number, changed in enumerate(mutations(first)):
        file.write_text("\n".join([changed, *rest]), errors="surrogatepass")
        form = ["--json", "--markdown", "--diff", "--all"][number % 4]
        code, out, err = said("compare", good.path, made.path, form)
        about = f"{form} with {name} = {changed[:300]!r}: {code} {out[-300:]} {err}"
        assert code == 0 and err == "" and "good" in out, about
