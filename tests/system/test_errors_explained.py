"""The end of a failed run, as a person sees it who typed `roost run`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.messages import Messages

DATASET = """
import torch
from torch.utils.data import TensorDataset
import roost

class Dataset(roost.Dataset):
    def build(self):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, (x.sum(1) > 0).float())
        return roost.Data(train=data, valid=data)
"""

RUNNER = """
from torch import nn
import roost

class Runner(roost.Runner):
    def build(self):
        self.net = nn.Linear(4, 1)

    def loss(self, batch):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)
"""

CONFIG = """
runner: Model/Runner.py:Runner
dataset: Dataset.py:Dataset
max_steps: 8
log_every: 1
checkpoint: {every: "2"}
data: {batch_size: 10, num_workers: 0}
optimizers: {main: {class: torch.optim.SGD, lr: 0.1}}
"""

LAST = re.compile(r".*: (\S+/sessions/1\.traceback\.txt)")


def roost(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "roost.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=120)


class Ended:
    """A run of the real program that has failed."""

    def __init__(self, folder: Path, *options: str, dataset: str = DATASET, runner: str = RUNNER) -> None:
        (folder / "Model").mkdir(parents=True, exist_ok=True)
        (folder / "Model" / "Runner.py").write_text(runner)
        (folder / "Dataset.py").write_text(dataset)
        (folder / "config.yaml").write_text(CONFIG)
        done = roost("run", "-c", folder / "config.yaml", "-CPU", *options, cwd=folder)
        self.code, self.talk = done.returncode, done.stderr.decode()
        (self.package,) = (folder / "runs").iterdir()
        self.output = (self.package / "_output.txt").read_text()
        self.record = json.loads((self.package / "sessions" / "1.json").read_bytes())
        assert done.stdout.decode() == self.output

    @property
    def end(self) -> list[str]:
        """The last lines of the output, from the first that reports the failure on."""
        lines = self.output.rstrip("\n").split("\n")
        first = next(i for i, line in enumerate(lines) if line.startswith(("error:", "Traceback")))
        return lines[first:]

    @property
    def whole(self) -> str:
        match = LAST.fullmatch(self.end[-1])
        assert match is not None, self.end
        return Path(match[1]).read_text()


def with_loss(line: str, imports: str = "") -> str:
    return imports + RUNNER.replace("        x, y = batch\n", f"        x, y = batch\n        {line}\n")


def test_a_plain_error_of_the_project(tmp_path: Path) -> None:
    run = Ended(tmp_path / "p", runner=with_loss("raise ValueError('upside\\ndown')"))
    assert run.code == 1 and run.record["error"] == "ValueError: upside"
    *lines, _ = run.end
    assert lines[0].startswith("Traceback ")
    assert lines[1:] == [
        "  Model/Runner.py:11 in loss",
        "    raise ValueError('upside\\ndown')",
        "ValueError: upside",
        "down",
    ]
    assert (
        run.whole.startswith("Traceback (most recent call last):\n")
        and "roost/worker/__main__.py" in run.whole
    )
    assert run.whole.endswith("ValueError: upside\ndown\n")


def test_out_of_memory_with_numbers(tmp_path: Path, messages: Messages) -> None:
    text = (
        "CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 GiB of which "
        "1.58 GiB is free. Including non-PyTorch memory, this process has 12.98 GiB memory in use. Of the "
        "allocated memory 11.07 GiB is allocated by PyTorch, and 33.93 MiB is reserved by PyTorch but "
        "unallocated."
    )
    run = Ended(
        tmp_path / "p",
        runner=with_loss(f"if self.training: raise torch.OutOfMemoryError({text!r})", "import torch\n"),
    )
    words = run.record["error"]
    numbers = ("1.95 GiB", "1.58 GiB", "14.57 GiB", "11.07 GiB", "33.93 MiB")
    assert run.end[0] == f"error: {words}" and all(one in words for one in ("GPU 0", *numbers))
    messages.check(words)
    assert re.search(r"data\.batch_size .*\b10\b.*gradient_accumulation_steps", run.end[1])
    assert run.end[3] == "  Model/Runner.py:12 in loss" and text in run.whole


def test_a_module_that_is_not_installed(tmp_path: Path) -> None:
    run = Ended(tmp_path / "p", runner="import no_such_module\n" + RUNNER)
    words = run.record["error"]
    assert run.end[0] == f"error: {words}" and " no_such_module " in words and sys.executable in words
    assert run.end[3:5] == ["  Model/Runner.py:1 in <module>", "    import no_such_module"]
    assert run.end[5] == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.soak
def test_a_module_that_was_written_after_the_package_was_made(tmp_path: Path) -> None:
    run = Ended(tmp_path / "p", runner="import Model.late\n" + RUNNER)
    (tmp_path / "p" / "Model" / "late.py").touch()
    again = roost("continue", run.package)
    error = json.loads((run.package / "sessions" / "2.json").read_bytes())["error"]
    assert again.returncode == 1
    assert error.startswith("Model/late.py ")


@pytest.mark.soak
def test_an_error_in_a_loader_worker_is_that_of_the_dataset(tmp_path: Path) -> None:
    dataset = DATASET + (
        "\nclass Bad:\n    def __len__(self): return 40\n    def __getitem__(self, index):\n"
        "        return [1, 2][index + 2]\n"
    )
    run = Ended(tmp_path / "p", "data.num_workers=1", dataset=dataset.replace("train=data", "train=Bad()"))
    said, _, where = run.record["error"].partition("; ")
    assert said == "IndexError: list index out of range"
    assert re.search(r"sample \d+ .*\(Bad\).*loader worker 0", where)
    assert run.end[1:3] == ["  Dataset.py:15 in __getitem__", "    return [1, 2][index + 2]"]
    assert "loader worker 0" in run.whole


def test_a_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "p" / "Model").mkdir(parents=True)
    (tmp_path / "p" / "Model" / "net.py").write_text("def more(self:\n    pass\n")
    run = Ended(tmp_path / "p", runner="import Model.net\n" + RUNNER)
    assert run.end[1:3] == ["  Model/Runner.py:1 in <module>", "    import Model.net"]
    assert run.end[-5:-1] == [
        "  Model/net.py:1",
        "    def more(self:",
        "            ^",
        "SyntaxError: '(' was never closed",
    ]
    assert run.record["error"] == "SyntaxError: '(' was never closed"


def test_a_path_that_was_right_in_the_project(tmp_path: Path) -> None:
    dataset = DATASET.replace("        x =", "        open('data/x.csv')\n        x =")
    run = Ended(tmp_path / "p", dataset=dataset)
    assert "data/x.csv" in run.record["error"]
    assert "${project}/data/x.csv" in run.end[1] and run.end[3] == "  Dataset.py:8 in build"


def test_a_loss_that_became_nan(tmp_path: Path) -> None:
    line = "if self.training and self.progress.step == 4: self.net.weight.data.fill_(float('nan'))"
    run = Ended(tmp_path / "p", runner=with_loss(line))
    assert re.search(r"train/loss .*\bnan\b.* step 5\b.* step 5 \(epoch 2, batch 1, ", run.end[0])
    assert len(run.end) == 1 and run.record["reason"] == "error", "a mistake needs no traceback"


@pytest.mark.soak
def test_debug_prints_the_whole_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_DEBUG", "1")
    run = Ended(tmp_path / "p", runner=with_loss("raise ValueError('no')"))
    assert run.output.count("ValueError: no\n") == 2 and run.whole.rstrip() in run.output


def test_a_message_that_would_move_the_cursor(tmp_path: Path) -> None:
    run = Ended(tmp_path / "p", runner=with_loss("raise ValueError('\\x1b[2J\\x1b]0;title\\x07 \\udc80')"))
    assert "\x1b" not in run.output + run.talk + run.whole + json.dumps(run.record)
    assert run.record["error"] == "ValueError: \\x1b[2J\\x1b]0;title\\x07 \\udc80"


def test_a_failed_run_can_be_shown_and_continued(tmp_path: Path) -> None:
    run = Ended(tmp_path / "p", runner=with_loss("if self.progress.step == 4: 1 / 0"))
    assert b"error: ZeroDivisionError: division by zero\n" in roost("show", run.package).stdout
    assert roost("continue", run.package).returncode == 1
    assert (run.package / "sessions" / "2.traceback.txt").exists()
