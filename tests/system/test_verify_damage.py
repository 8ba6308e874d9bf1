"""Random damage of real packages: `roost verify` finds each, or it changes nothing that anything reads."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import RoostError
from roost.operations.listing.package_summary import summarize
from roost.operations.reading import package_schema
from roost.operations.reading.show import show
from roost.operations.reading.verify import Finding, verify
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder
from roost.package.resume import resume_gate
from tests.cli.programs import roost
from tests.operations.packages import project

pytestmark = pytest.mark.timeout(1200)

_RUNNER = """
    def predict(self, batch):
        return {"error": self.evaluate(batch)["loss"], "twice": batch[0].repeat(1, 2)}

    def visualize(self, batch):
        return {"weight": roost.Media("matrix", self.net.weight), "note": "text of step"}
"""
_FAILS = """        if self.args.get("fail_at") == self.progress.step:
            raise ValueError("as the config says")
"""
_BY_HAND = """
import sys, torch, roost
package = roost.Package.new({"lr": 0.1}, root=sys.argv[1], name="by_hand")
for first in (0, 3):
    with package as run:
        for step in range(first + 1, first + 4):
            run.save({"weight": torch.full((3,), float(step))}, step=step, metrics={"loss": 1.0 / step})
"""


def _ok(*arguments: object, cwd: Path, code: int = 0) -> None:
    said = roost(*arguments, cwd=cwd)
    assert said.returncode == code, (arguments, said.stdout + said.stderr)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages: of sessions that finished, failed with a black box and were continued, of two
    ranks, of a Python program; with media, analyses, predictions and evaluations."""
    folder = tmp_path_factory.mktemp("made")
    config = project(folder / "p", save_root="../runs", max_epochs="2", threads="1")
    runner = config.parent / "Model" / "Runner.py"
    text = runner.read_text().rstrip("\n") + "\n" + _RUNNER
    runner.write_text(text.replace("        x, y = batch\n", "        x, y = batch\n" + _FAILS, 1))
    config.write_text(config.read_text() + "\nvisualize_every: 1ep\nfail_at: null\n")
    runs, cwd = folder / "runs", folder / "p"
    _ok("run", "config.yaml", "--name", "three", "-CPU", cwd=cwd)
    _ok("continue", runs / "three", "max_epochs=4", "fail_at=100", "--force", "-CPU", cwd=cwd, code=1)
    _ok("continue", runs / "three", "fail_at=null", "--force", "-CPU", cwd=cwd)
    for _ in range(2):
        _ok("analyze", "-r", runs / "three", "-s", "weights", "-CPU", cwd=cwd)
    _ok("predict", "-r", runs / "three", "--data", "valid", "-CPU", "--limit", "40", cwd=cwd)
    evaluated = ["--checkpoints", "best,last", "--datasets", "valid", "-CPU"]
    _ok("evaluate", runs / "three", *evaluated, cwd=cwd)
    _ok("run", "config.yaml", "--name", "ranks", "-CPU", "--devices", "2", cwd=cwd)
    by_hand = [sys.executable, "-c", _BY_HAND, str(runs)]
    said = subprocess.run(by_hand, cwd=cwd, capture_output=True, text=True, timeout=90)
    assert said.returncode == 0, said.stderr
    return runs


# --- damage -------------------------------------------------------------------------------------------------


def _flip(data: bytes, random: random.Random, other: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _truncate(data: bytes, random: random.Random, other: bytes) -> bytes:
    if random.random() < 0.5:  # at the end of a line, where nothing is torn
        lines = data.splitlines(keepends=True)
        return b"".join(lines[: random.randrange(len(lines))])
    return data[: random.randrange(len(data))]


def _zero(data: bytes, random: random.Random, other: bytes) -> bytes:
    at = random.randrange(len(data))
    size = min(len(data) - at, random.choice([1, 16, 512, 4096, len(data)]))
    return data[:at] + bytes(size) + data[at + size :]


def _garbage(data: bytes, random: random.Random, other: bytes) -> bytes:
    at = random.randrange(len(data))
    size = min(len(data) - at, random.choice([1, 8, 512]))
    return data[:at] + random.randbytes(size) + data[at + size :]


def _append(data: bytes, random: random.Random, other: bytes) -> bytes:
    return data + random.choice([b"\n", b"\0", b"{}\n", random.randbytes(40), data[-200:]])


def _digit(data: bytes, random: random.Random, other: bytes) -> bytes:
    """Changes a digit, after which JSON is still JSON."""
    digits = [at for at, byte in enumerate(data) if 48 <= byte < 58]
    if not digits:
        return data
    at = random.choice(digits)
    return data[:at] + bytes([48 + (data[at] - 48 + random.randrange(1, 10)) % 10]) + data[at + 1 :]


def _replace(data: bytes, random: random.Random, other: bytes) -> bytes:
    return other


_DAMAGES: list[Callable[[bytes, random.Random, bytes], bytes]] = [
    _flip, _truncate, _zero, _garbage, _append, _digit, _replace,
]  # fmt: skip


def _files(package: Path) -> dict[str, list[Path]]:
    """The plain files of a package by their top folder, each as likely to be hit."""
    found: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*")):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(package)
            found.setdefault(name.parts[0] if len(name.parts) > 1 else "", []).append(path)
    return found


def _damage(package: Path, random: random.Random) -> tuple[str, dict[Path, bytes]]:
    """Damages one file, or swaps two; returns a description and the bytes of before."""
    files = _files(package)
    while True:
        path = random.choice(files[random.choice(sorted(files))])
        other = random.choice(files[random.choice(sorted(files))])
        before = {one: one.read_bytes() for one in (path, other)}
        name, kind = str(path.relative_to(package)), random.randrange(9)
        if kind == 0:
            path.unlink()
            return f"delete {name}", {path: before[path]}
        if kind == 1 and before[path] != before[other]:
            path.write_bytes(before[other])
            other.write_bytes(before[path])
            return f"swap {name} and {other.relative_to(package)}", before
        if kind > 1 and before[path]:
            how = _DAMAGES[kind - 2]
            after = how(before[path], random, before[other])
            if after != before[path]:
                path.write_bytes(after)
                return f"{how.__name__[1:]} {name}", {path: before[path]}


# --- what is read -------------------------------------------------------------------------------------------


def _verdicts(package: Path) -> set[tuple[str, str]] | None:
    """What is not good; None if the folder is no package any more."""
    try:
        return {(one.path, one.verdict) for one in verify(package) if one.verdict != "good"}
    except RoostError:
        return None


def _read(package: Path) -> dict[str, Any]:
    """All that the commands read from a package, or the errors by which they refuse it."""
    opened = PackageFolder(package)

    def attempt(read: Callable[[], Any]) -> Any:
        try:
            return repr(read())
        except (RoostError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    return {
        "ls": attempt(lambda: summarize(package)),
        "show": attempt(lambda: show(package)),
        "rows": attempt(lambda: (opened.records().rows, opened.records().series, opened.records().starts)),
        "gate": attempt(lambda: resume_gate.check(opened, ["max_epochs=9"])),
        "continue": attempt(lambda: package_schema.open_checked(package, to_continue=True).path),
        "newest": attempt(lambda: opened.store().lineage()),
        "output": attempt(opened.output.read_bytes),
        "files": [attempt(file.read_bytes) for file in sorted(package.glob("analysis/*/*"))],
        "predictions": [attempt(file.read_bytes) for file in sorted(package.glob("predictions/*/*"))],
        "evaluations": [
            (one.path, [attempt(file.read_bytes) for file in sorted(one.path.rglob("*.*"))])
            for folder in evaluation_folder.read_all(package)
            for one in folder.cells()
        ],
        "reports": [attempt(file.read_bytes) for file in sorted(package.glob("evaluations/*/*.*"))],
    }


def _find(runs: Path, number: int, seed: int) -> Counter[str]:
    """Damages packages ``number`` times, and counts what was found; a miss fails."""
    chance, counts = random.Random(seed), Counter[str]()
    packages = sorted(path for path in runs.iterdir() if path.is_dir())
    before = {path: (_verdicts(path), _read(path)) for path in packages}
    missed = []
    for _ in range(number):
        package = chance.choice(packages)
        what, bytes_before = _damage(package, chance)
        try:
            if _verdicts(package) != before[package][0]:
                counts["found"] += 1
            elif _read(package) == before[package][1]:
                counts["harmless"] += 1
                counts[f"harmless: {what.partition(' ')[2]}"] += 1
            else:
                missed.append(f"{package.name}: {what}")
        finally:
            for path, data in bytes_before.items():
                path.write_bytes(data)
    assert missed == [], (seed, missed, counts)
    return counts


@pytest.fixture
def packages(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of them: a package that was moved and copied is as good as before."""
    shutil.copytree(made, tmp_path / "runs", symlinks=True)
    yield tmp_path / "runs"


def _not_good(package: Path) -> list[Finding]:
    return [one for one in verify(package) if one.verdict != "good"]


def test_what_is_whole_is_good(packages: Path) -> None:
    assert sorted(path.name for path in packages.iterdir()) == ["by_hand", "ranks", "three"]
    for package in packages.iterdir():
        assert _not_good(package) == []
    found = Counter(one.what for one in verify(packages / "three"))
    assert found.keys() >= {
        "settings", "code", "session", "records", "output", "media", "analysis", "prediction", "evaluation",
        "checkpoint", "black box",
    }  # fmt: skip


def test_each_random_damage_is_found(packages: Path) -> None:
    assert _find(packages, 60, seed=1)["found"] > 50


@pytest.mark.soak
def test_each_of_a_thousand(packages: Path) -> None:
    print(_find(packages, 1000, seed=2))


def test_a_package_that_was_continued_after_a_copy_is_good(packages: Path, made: Path) -> None:
    """Times of files say nothing of a copy; the project is where it was."""
    _ok("continue", packages / "three", "max_epochs=5", "-CPU", "--force", cwd=made.parent / "p")
    assert _not_good(packages / "three") == []
    seals = sorted(path.name for path in (packages / "three" / "sessions").glob("*.seal.json"))
    assert seals == [f"{n}.seal.json" for n in (1, 2, 3, 4)]


def test_what_an_edit_of_the_code_means(packages: Path, made: Path) -> None:
    package = packages / "ranks"
    file, original = package / "Model" / "Runner.py", made.parent / "p" / "Model" / "Runner.py"
    file.write_text("pass")
    said = roost("verify", package)
    assert said.returncode == 1 and "refuses without --force" in said.stderr
    assert "newest good checkpoint" not in said.stderr
    assert f"cp {original} {file}" in said.stdout
    shutil.copyfile(original, file)
    assert roost("verify", package).returncode == 0


def test_each_file_with_its_verdict_as_json(packages: Path) -> None:
    package = packages / "three"
    (package / "records" / "2.jsonl").unlink()
    found = {one["path"]: one for one in json.loads(roost("verify", package, "--json").stdout)}
    assert found["records/2.jsonl"]["verdict"] == "missing"
    assert found["records/1.jsonl"]["verdict"] == found["Model/Runner.py"]["verdict"] == "good"
    assert all(one.keys() == {"what", "path", "verdict", "reason"} for one in found.values())
