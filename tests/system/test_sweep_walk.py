"""The page docs/guide/sweep.md, as it is typed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import roost
from tests.cli.programs import ROOST
from tests.lab.labs import Lab

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "sweep.md").read_text()
RATES, SEEDS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1), 3


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "roost").write_text("#!/bin/sh\nexec " + " ".join(ROOST) + ' "$@"\n')
    (tmp_path / "bin" / "roost").chmod(0o755)
    lab = Lab(tmp_path)
    with lab.here():
        yield lab
    lab.close()


def typed(block: str, folder: Path) -> list[str]:
    """Types the lines of a block in a shell; returns what each has printed."""
    printed = []
    for line in block.splitlines():
        if line.startswith("cd "):
            folder = folder / line.removeprefix("cd ")
            continue
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        printed.append(done.stdout + done.stderr)
    return printed


def total_bytes(text: str) -> float:
    number, unit = re.search(r"total ([\d.]+) (\w+)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def read_digits_without_sklearn(folder: Path) -> None:
    """Gives the project's dataset the same digits from a file: scikit-learn takes two seconds to be imported,
    and each of twenty-one runs would import it. The walk of the README imports it."""
    images, labels = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", images=images, labels=labels)
    module = folder / "Dataset.py"
    imported, read = "from sklearn.datasets import load_digits", "load_digits(return_X_y=True)"
    text = module.read_text()
    assert imported in text and read in text
    text = text.replace(imported, "from pathlib import Path\n\nimport numpy as np")
    text = text.replace(read, 'np.load(Path(__file__).with_name("digits.npz")).values()')
    module.write_text(text)


@pytest.mark.timeout(900)  # twenty-one trainings, also on a busy machine
def test_the_walk(lab: Lab) -> None:
    train, group, compare, plot, keep = re.findall("```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    new, *rest = train.splitlines(keepends=True)
    typed(new, lab.folder)
    project = lab.folder / "digits"
    read_digits_without_sklearn(project / "Dataset")
    typed("".join(rest), lab.folder)
    with lab.store() as store:
        tasks = [task.id for task in store.tasks()]
    assert len(tasks) == len(RATES) * SEEDS
    for task in tasks:
        lab.wait_for(task, "succeeded", timeout_seconds=120)

    (table,) = typed(group, project)
    found = roost.runs(project / "runs")
    losses: dict[float, list[float]] = {}
    for rate, loss in zip(found.settings["optimizers.main.lr"], found.metrics["valid/loss"], strict=True):
        losses.setdefault(rate, []).append(loss)
    means = {rate: sum(values) / SEEDS for rate, values in losses.items()}
    order = [float(line.split()[0]) for line in table.splitlines()[1:]]
    assert order == sorted(RATES, key=means.__getitem__)
    assert f"{means[order[0]]:.4g} ± " in table.splitlines()[1]

    two, all_runs = typed(compare, project)
    settings = two[two.index("settings") : two.index("metrics")].splitlines()
    assert len(settings) == 4 and "optimizers.main.lr" in settings[2]
    assert "order of the training samples: the same" in two and "the same:" in two
    assert all(f"lr_lr-{rate}_seed-1" in all_runs for rate in ("1e-4", "1e-1"))

    typed(plot, project)
    assert (project / "lr.png").read_bytes()[:4] == b"\x89PNG"
    assert (project / "parallel.png").stat().st_size > 10_000
    assert "<svg" in (project / "by-lr.svg").read_text()[:1000]

    _, _, before, _, _, after, verified = typed(keep, project)
    assert total_bytes(after) < 0.75 * total_bytes(before)
    assert "pruned" in verified
    left = roost.runs(project / "runs", "sort:lr")
    assert len(left) == len(RATES[:5]) * SEEDS
    assert [run.tags for run in left if run.settings["optimizers"]["main"]["lr"] == 3e-3] == [["best"]] * 3
    for run in left:
        done = subprocess.run([*ROOST, "verify", str(run.path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
