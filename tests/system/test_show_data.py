"""`roost show --data`, as a person types it who wants to know what a run would train on."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.programs import Terminal, roost
from tests.messages import Messages
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

CONFIG = """
dataset: Dataset.py:Dataset
data: {batch_size: 8, valid: {max_tokens: 60}}
gradient_accumulation_steps: 2
"""

DATASET = """
import threading
import torch
from torch.utils.data import IterableDataset
import roost

class Images(torch.utils.data.Dataset):
    classes = ["cat", "dog"]

    def __init__(self, mode):
        self.mode = mode
        self.targets = [index % 2 for index in range(20)]

    def __len__(self):
        return len(self.targets) if self.mode != "empty" else 0

    def __getitem__(self, index):
        if index == 3 and self.mode == "raises":
            raise ValueError("no third picture")
        if self.mode == "hangs":
            threading.Event().wait()
        return {"image": torch.rand(3, 8, 8), "label": self.targets[index]}

class Speech(torch.utils.data.Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.zeros(self.lengths[index])

class Endless(IterableDataset):
    def __iter__(self):
        yield from torch.arange(12)

def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

class Dataset(roost.Dataset):
    def build(self):
        print("reading pictures")
        return roost.Data(
            train=Images(self.args.get("mode")),
            valid={"clean": Speech([10, 20, 30, 20, 10]), "noisy": Speech([40, 15])},
            test=Endless(),
            collate={"valid": pad},
        )
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a project without a Runner."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    made = tmp_path / "project" / "config.yaml"
    made.parent.mkdir()
    made.write_text(CONFIG)
    (made.parent / "Dataset.py").write_text(DATASET)
    return made


def nothing_is_left(config: Path) -> bool:
    names = sorted(path.name for path in config.parent.iterdir())
    return names == ["Dataset.py", "config.yaml"] and not any((config.parent.parent / "tmp").iterdir())


def test_each_set(config: Path) -> None:
    came = roost("show", "--data", config)
    assert came.returncode == 0, came.stdout + came.stderr
    train, clean, noisy, test = (part.splitlines() for part in came.stdout.split("\n\n"))
    assert train[0].startswith("train  Images, ") and "20 samples" in train[0]
    assert train[1].startswith("  plan     ") and "8 samples" in train[1] and "3 batches" in train[1]
    assert train[2].startswith("  epoch    2 steps") and "3 batches" in train[2]
    assert train[3] == "  batch    8 samples, 6.21 kB"
    assert [line.split(maxsplit=1)[1] for line in train[4:6]] == ["float32 (8, 3, 8, 8)", "int64 (8)"]
    assert train[6].startswith("  time     ")
    assert train[7].startswith("  workers  ") and train[8].startswith("  seeds    followed: ")
    assert train[9].startswith("  classes  2 ") and train[9].endswith(": cat, dog")
    assert clean[0].startswith("valid/clean  Speech, ") and "5 samples" in clean[0]
    assert "60 tokens" in clean[1]
    at = clean.index("  lengths  min 10, median 20, mean 18, max 30")
    assert clean[at + 1].split() == ["10-12", "█" * 30, "2"] and len(clean) - at == 8
    assert noisy[0].startswith("valid/noisy") and test[0].startswith("test  Endless, ")
    assert "int64 (8)" in test[3] and "2 batches" in test[4]
    stages = [line.split()[0] for line in came.stderr.splitlines() if not line.startswith("num_workers")]
    assert stages == ["copy", "imports", "reading", "data", "train", "valid/clean", "valid/noisy", "test"]
    assert nothing_is_left(config)


def test_a_sample_that_raises_is_named_and_the_rest_is_json(config: Path) -> None:
    came = roost("show", "--data", config, "+mode=raises", "data.num_workers=1", "--json")
    assert came.returncode == 1
    assert "ValueError" in came.stderr and "no third picture" in came.stderr
    assert re.search(r"\bsample 3 .*\(Images\)", came.stderr)
    (line,) = (n for n, text in enumerate(DATASET.splitlines(), 1) if "raise ValueError" in text)
    assert f"  Dataset.py:{line} in __getitem__" in came.stderr
    assert re.search(r"^failed\b.* train\b", came.stderr, re.MULTILINE)
    found = json.loads(came.stdout)
    assert (found["state"], found["failed"], found["exit_code"]) == ("failed", "train", 1)
    (train,) = found["splits"]
    assert train["num_batches"] == 3 and train["num_workers"] == 1
    assert nothing_is_left(config)


def test_an_empty_set(config: Path, messages: Messages) -> None:
    came = roost("show", "--data", config, "+mode=empty")
    assert came.returncode == 1 and came.stdout == ""
    (error,) = (one for one in came.stderr.splitlines() if one.startswith("error: "))
    assert "train" in error and "Dataset.build()" in error
    messages.check(error)
    assert re.search(r"\nfailed\b.* data\n$", came.stderr) and nothing_is_left(config)


def test_ctrl_c_ends_it(config: Path) -> None:
    terminal = Terminal("show", "--data", config, "+mode=hangs", "data.num_workers=1")
    try:
        terminal.wait_for("train … 1 s")
        terminal.press_ctrl_c()
        code, shown = terminal.end()
    finally:
        terminal.kill()
    assert code == 130 and re.search(r"stopped\b.* train\b", shown)
    assert "Images, " in shown and "20 samples" in shown, "what was known already"
    wait_for(lambda: nothing_is_left(config), 10)
