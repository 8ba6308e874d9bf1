"""Data that cannot be read as they are: each ends in one clear line that says which set or sample it was,
with the right exit code, with and without loader workers, and leaves nothing in shared memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from roost.config import layers
from roost.package import snapshot
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.waiting import wait_for

CONFIG = """
runner: task.py:Runner
dataset: task.py:Dataset
threads: 1
max_steps: 6
log_every: 1
optimizers: {main: {class: torch.optim.SGD, lr: 0.1}}
checkpoint: {every: 1}
"""

CODE = """
import os
import torch
import roost
from torch.utils.data import DataLoader, IterableDataset

class Rows:
    def __init__(self, size=16): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, index): return self.read(index)
    def read(self, index): return torch.full((2,), float(index))

class Runner(roost.Runner):
    def build(self): self.net = torch.nn.Linear(2, 1)
    def loss(self, batch): return self.net(batch).square().mean()

class Dataset(roost.Dataset):
    def build(self): return data()

class Endless(IterableDataset):
    def __iter__(self):
        while True: yield torch.zeros(2)

class Finite(IterableDataset):
    def __iter__(self): return iter(torch.zeros(9, 2))
"""


class Case(NamedTuple):
    code: str
    says: list[str]
    data: str = "batch_size: 4"
    settings: str = ""
    exit_code: int = 1
    shows_lines: bool = False
    """Whether the project's own lines lead there, so that it is more than one line."""


def reads(body: str, head: str = "") -> str:
    """A training set whose samples are read by ``body``."""
    return f"""{head}
class Bad(Rows):
    def read(self, i):
        {body}
        return torch.zeros(2)
def data(): return roost.Data(train=Bad())
"""


def gives(**sets: str) -> str:
    return f"def data(): return roost.Data({', '.join(f'{name}={one}' for name, one in sets.items())})\n"


OWN = """
class Own(Exception):
    def __init__(self, path, line):
        super().__init__(f"cannot read {path} at {line}")
"""
ONCE = """
class Once:
    def __init__(self): self.rows = iter([torch.zeros(2)] * 8)
    def __iter__(self): return self.rows
"""
SAMPLE = "def sample(state, index, augment): return {}\n"
ENDED = ["loader worker 1", "exit code 3", "sample 5 ", "num_workers: 0"]
WORKERS = "batch_size: 4, num_workers: 2"

CASES = {
    "its own exception": Case(
        reads("if i == 5: raise Own('a.png', 7)", OWN),
        ["Own: cannot read a.png at 7", "sample 5 ", "(Bad)"],
        shows_lines=True,
    ),
    "its own exception in a worker": Case(
        reads("if i == 5: raise Own('a.png', 7)", OWN),
        ["cannot read a.png at 7", "loader worker 1", "sample 5 ", "(Bad)", "in read"],
        WORKERS,
        shows_lines=True,
    ),
    "samples of different shapes in a worker": Case(
        reads("return torch.zeros(i + 1)"),
        ["Bad (Tensor)", "Data(collate=...)"],
        WORKERS,
    ),
    "it ends the worker": Case(reads("if i == 5: os._exit(3)"), ENDED, WORKERS),
    "it ends the worker politely": Case(reads("if i == 5: raise SystemExit(3)"), ENDED, WORKERS),
    "it crashes the worker": Case(
        reads("if i == 5: import ctypes; ctypes.string_at(0)"),
        ["loader worker 1", "(SIGSEGV)", "sample 5", "num_workers: 0"],
        WORKERS,
    ),
    "it hangs": Case(
        reads("if i == 5: import signal; signal.pause()"),
        ["data.loader_timeout", "0.5 s", "sample 5 ", "stacks"],
        WORKERS + ", loader_timeout: 0.5",
        shows_lines=True,
    ),
    "fewer samples than it says": Case(
        reads("return torch.zeros(12, 2)[i]"),
        ["IndexError", "sample 12 ", "(Bad)"],
        "batch_size: 4, shuffle: false",
        shows_lines=True,
    ),
    "it becomes shorter": Case(
        reads("self.size = 8\n        if i >= 8: raise IndexError(i)"),
        ["16 samples", " 8 "],
        "batch_size: 4, shuffle: false",
    ),
    "a length that is none": Case(
        "class Bad(Rows):\n    def __len__(self): return 4.5\n" + gives(train="Bad()"),
        ["len()", "(Bad)", "'float'"],
    ),
    "the class itself": Case(gives(train="Rows"), ["Rows", "Rows(...)"]),
    "weights of another count": Case(
        "class Bad(Rows):\n    weights = [1.0] * 10\n" + gives(train="Bad()"),
        ["data.weighted: ", "16 samples", "10 weights", "config.yaml:"],
        "weighted: true",
        exit_code=4,
    ),
    "weights that take an argument": Case(
        "class Bad(Rows):\n    def weights(self, index): return 1.0\n" + gives(train="Bad()"),
        ["weights()", "(Bad)", "config.yaml:"],
        "weighted: true",
    ),
    "a sample that is too long": Case(
        "class Bad(Rows):\n    lengths = [3] * 15 + [50]\n" + gives(train="Bad()"),
        ["data.max_tokens: ", "sample 15", "50 tokens", " 12"],
        "max_tokens: 12",
        exit_code=4,
    ),
    "an endless training set": Case(gives(train="Endless()"), ["data.steps_per_epoch: "], exit_code=4),
    "a sampler without an end": Case(
        "class All(torch.utils.data.Sampler):\n    def __iter__(self):\n        while True: yield 3\n"
        + gives(train="DataLoader(Rows(), sampler=All())"),
        ["data.steps_per_epoch: ", "DataLoader"],
        exit_code=4,
    ),
    "a share of an unknown length": Case(
        gives(train="Rows()", valid="Endless()"),
        ["data.limit_valid_batches: ", " 0.5"],
        "limit_valid_batches: 0.5",
        exit_code=4,
    ),
    "a function without an end to evaluate": Case(
        SAMPLE.format("torch.zeros(4, 2), index + 1") + gives(train="Rows()", valid="roost.Sampled(sample)"),
        ["data.limit_valid_batches: "],
        exit_code=4,
    ),
    "a function that ends": Case(
        SAMPLE.format("next(iter(()))") + gives(train="roost.Sampled(sample, length=3)"),
        ["sample()", "StopIteration"],
    ),
    "a generator": Case(gives(train="(row for row in Rows())"), ["'generator'"]),
    "iterated only once": Case(
        ONCE + gives(train="Once()"),
        ["pass 1 ", "iter()"],
        "steps_per_epoch: 4, batch_size: 4",
    ),
    "evaluated only once": Case(
        ONCE + gives(train="Rows()", valid="Once()"),
        ["pass 0 ", "iter()"],
        settings="validate_every: 1",
    ),
    "an iterable of nothing": Case(
        gives(train="type('Nothing', (), {'__iter__': lambda self: iter(())})()"),
        ["pass 0 "],
        "steps_per_epoch: 3",
    ),
    "no iterator": Case(
        gives(train="type('No', (), {'__iter__': lambda self: 3})()"),
        ["'No'", "yield"],
        "steps_per_epoch: 3",
    ),
    "batches that are all empty": Case(
        gives(train="Rows()", collate="lambda samples: None"),
        ["epoch", "collate"],
    ),
    "a state that cannot be saved": Case(
        SAMPLE.format("torch.zeros(4, 2), index")
        + gives(train="roost.Sampled(sample, {'file': open(__file__)}, length=3)"),
        ["TextIOWrapper", "state_dict()"],
    ),
    # ---- what goes well ----
    "no room in shared memory": Case(
        "import resource\n"
        + reads("return torch.zeros(150_000, 2)")
        + "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n",
        ["a batch of 4,800,", "without workers", "step 6"],
        WORKERS,
        exit_code=0,
    ),
    "a validation set without a length": Case(
        gives(train="Rows()", valid="Finite()"), ["step 6"], exit_code=0
    ),
    "processes of its own": Case(
        reads(
            "with multiprocessing.get_context('fork').Pool(1) as pool: pool.map(abs, [1])",
            "import multiprocessing",
        ),
        ["step 6"],
        "batch_size: 16, num_workers: 0, limit_train_batches: 1, shuffle: false",
        settings="max_steps: 6",
        exit_code=0,
    ),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, PackageFolder]]:
    """Every case's session, run, with its exit code."""
    made = {}
    for number, (name, case) in enumerate(CASES.items()):
        project = tmp_path_factory.mktemp(f"case{number}")
        data = f"data: {{num_workers: 0, {case.data}}}" if "num_workers" not in case.data else ""
        data = data or f"data: {{{case.data}}}"
        keys = [line.split(":")[0] for line in case.settings.splitlines()]
        lines = [line for line in CONFIG.splitlines() if line.split(":")[0] not in keys]
        (project / "config.yaml").write_text("\n".join([*lines, data, case.settings]))
        (project / "task.py").write_text(CODE + case.code)
        config = layers.load(project / "config.yaml")
        made[name] = PackageFolder.create(
            project / "runs",
            values=config.values,
            provenance=config.provenance,
            selection=snapshot.select(project),
        )
    paths = [str(package.path) for package in made.values()]
    forked = Path(__file__).parent / "forked.py"
    result = subprocess.run(
        [sys.executable, forked, *paths], capture_output=True, text=True, timeout=120, check=True
    )
    codes = [int(line) for line in result.stdout.splitlines()]
    return {name: (code, made[name]) for name, code in zip(made, codes, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_line_and_the_right_exit_code(
    packages: dict[str, tuple[int, PackageFolder]], name: str, messages: Messages
) -> None:
    (code, package), case = packages[name], CASES[name]
    output = package.output.read_text()
    assert code == case.exit_code, output
    for words in case.says:
        assert words in (output if case.shows_lines or not code else output.splitlines()[-1]), output
    if code and not case.shows_lines:
        assert "Traceback" not in output
        if case.data != WORKERS:
            messages.check(output.splitlines()[-1].replace(str(package.path.parent.parent), "<project>"))


def test_nothing_stays_in_shared_memory(packages: dict[str, tuple[int, PackageFolder]]) -> None:
    memory = Path("/dev/shm")
    wait_for(lambda: not list(memory.glob("roost-*")))  # another run's, this very moment
