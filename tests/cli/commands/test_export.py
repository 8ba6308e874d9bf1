"""`roost export`, as it is typed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from roost.package.package import PackageFolder
from tests.cli.programs import roost
from tests.messages import Messages
from tests.project.trained import trained


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    best = [{"monitor": "valid/loss", "mode": "min"}]
    return trained(tmp_path_factory.mktemp("trained"), checkpoint={"every": "2", "fast": 9, "best": best})


def test_the_file_on_stdout_and_the_rest_beside_it(
    made: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    said = roost("export", made.path, "--weights", "net.pt", "--prefix", "net.", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "net.pt\n"
    summary, prefix = said.stderr.splitlines()
    assert summary.startswith("checkpoint 2 (step 6): 4 tensors, 19 ")
    assert prefix.startswith("net. ") and "0 weights" in prefix
    messages.check(prefix)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
    net.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True), strict=True)


def test_a_format_alone_is_a_file_of_the_package(
    made: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    said = roost("export", made.path, "--weights", "safetensors", cwd=tmp_path)
    file = made.path / "exports" / "weights.safetensors"
    assert (said.returncode, said.stdout) == (0, f"{file}\n"), said.stderr
    assert file.is_file() and list(tmp_path.iterdir()) == []
    said = roost("export", made.path, "--weights", "safetensors", cwd=tmp_path)
    assert said.returncode == 5
    messages.check(said.stderr.replace(str(made.path), "<package>"))


def test_json(made: PackageFolder, tmp_path: Path) -> None:
    options = ("--average", "best:9", "--json")
    said = roost("export", made.path, "--weights", "net.safetensors", *options, cwd=tmp_path)
    found = json.loads(said.stdout)
    assert sorted(one["step"] for one in found["checkpoints"]) == [4, 6] and found["state"] == "succeeded"
    assert found["path"] == str(tmp_path / "net.safetensors")
    assert re.search(r"best:9 .*\b9 .*\b2\b", said.stderr)


def test_records(made: PackageFolder, tmp_path: Path) -> None:
    said = roost("export", made.path, "--records", "csv", "-o", "curves.csv", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "curves.csv\n"), said.stderr
    assert (tmp_path / "curves.csv").read_text().count("\n") == 7
    said = roost("export", made.path, "--records", "csv", "-o", "more.csv", "--json", cwd=tmp_path)
    assert json.loads(said.stdout)["rows"] == 6 and json.loads(said.stdout)["torn"] == 0


def test_records_with_lines_that_cannot_be_read(
    made: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    moved = shutil.copytree(made.path, tmp_path / "copy", symlinks=True)
    with (moved / "records" / "1.jsonl").open("ab") as file:
        file.write(b"garbage\n")
    options = ("--records", "csv", "-o", "curves.csv")
    said = roost("export", moved, *options, cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "curves.csv\n")
    assert said.stderr.startswith("1 line ")
    messages.check(said.stderr.splitlines()[0])
    assert roost("export", moved, *options, cwd=tmp_path).returncode == 5
    said = roost("export", moved, *options, "--overwrite", "--json", cwd=tmp_path)
    assert json.loads(said.stdout)["torn"] == 1 and said.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "--weights or --records"),
        (["--weights", "a.pt", "--records", "csv"], 2, "--weights or --records"),
        (["--weights", "a.pt", "-o", "b.pt"], 2, "--records"),
        (["--records", "csv", "-o", "x.csv", "--averaged", "ema"], 2, "--averaged: "),
        (["--weights", "a.pt", "-c", "1", "--average", "last:2"], 2, "average"),
        (["--weights", "a.pt", "--average", "last:0"], 2, "'last:0'"),
        (["--weights", "no/a.pt"], 3, "no"),
    ],
)
def test_what_is_refused(
    arguments: list[str], code: int, says: str, made: PackageFolder, tmp_path: Path, messages: Messages
) -> None:
    said = roost("export", made.path, *arguments, cwd=tmp_path)
    assert said.returncode == code and says in said.stderr, said.stderr
    assert said.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []
    messages.check(said.stderr.replace(str(made.path), "<package>"))


def test_several_packages(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    for name in ("one", "two"):
        shutil.copytree(made.path, tmp_path / "runs" / name, symlinks=True)
    said = roost("export", "runs/*", "--records", "csv", "-o", "curves", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "curves/one.csv\ncurves/two.csv\n"), said.stderr
    said = roost("export", "valid/loss<9", "--weights", "pt", "--json", cwd=tmp_path)
    paths = [tmp_path / "runs" / name / "exports" / "weights.pt" for name in ("one", "two")]
    assert [one["path"] for one in json.loads(said.stdout)] == list(map(str, paths))
    assert all(path.is_file() for path in paths)
    (tmp_path / "a_file").touch()
    for options in (("--weights", "net.pt"), ("--records", "csv", "-o", "a_file")):
        said = roost("export", "runs/*", *options, cwd=tmp_path)
        assert said.returncode == 2 and not said.stdout
        messages.check(said.stderr)
