"""A person's mistakes that only the worker can see: each gives one clear line and the right exit code, and
the package stays."""

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

CONFIG = """
runner: task.py:Runner
dataset: task.py:Dataset
threads: 1
max_steps: 4
log_every: 1
data: {batch_size: 4}
optimizers: {main: {class: torch.optim.SGD, lr: 0.1}}
checkpoint: {every: 1}
"""

CODE = """
import torch
import roost

class Dataset(roost.Dataset):
    def build(self):
        x = torch.randn(8, 2)
        return roost.Data(train=torch.utils.data.TensorDataset(x), valid=torch.utils.data.TensorDataset(x))

class Runner(roost.Runner):
    def build(self):
        self.net = torch.nn.Linear(2, 1)

    def loss(self, batch):
        return self.net(batch[0]).square().mean()
"""


class Case(NamedTuple):
    code: str
    settings: str
    exit_code: int
    says: list[str]


def without(text: str) -> str:
    return CODE.replace(text, "")


CASES = {
    "class missing": Case(
        CODE.replace("class Runner", "class Runer"), "", 4, ["task.py", "'Runner'", "Runer"]
    ),
    "no loss": Case(CODE.replace("def loss", "def lose"), "", 1, ["loss()", "def loss"]),
    "method assigned over": Case(
        CODE.replace("self.net = torch", "self.loss = torch.nn.MSELoss(); self.net = torch"),
        "",
        1,
        ["self.loss ", "self.loss_module"],
    ),
    "dataset returns a tuple": Case(
        CODE.replace("return roost.Data(train=", "return (").replace("valid=", ""),
        "",
        1,
        ["roost.Data", "tuple"],
    ),
    "an iterator is no set": Case(
        CODE.replace("train=torch.utils.data.TensorDataset(x)", "train=iter([x])"),
        "",
        1,
        ["iterator"],
    ),
    "empty set": Case(CODE.replace("torch.randn(8, 2)", "torch.randn(0, 2)"), "", 1, ["train"]),
    "not one batch": Case(
        CODE, "data: {batch_size: 16, drop_last: true}", 4, ["data.batch_size", "8 samples"]
    ),
    "samples that are None": Case(
        CODE.replace("train=torch.utils.data.TensorDataset(x)", "train=[None] * 8"),
        "",
        1,
        ["NoneType", "batch"],
    ),
    "loss is a vector": Case(CODE.replace(".square().mean()", ".square()"), "", 1, ["loss", "(4, 1)"]),
    "loss without grad": Case(CODE.replace(".mean()", ".mean().detach()"), "", 1, ["loss", "parameter"]),
    "loss is NaN": Case(
        CODE.replace(".mean()", ".mean() * float('nan')"), "", 1, ["train/loss", "nan", "step 1"]
    ),
    "unknown monitor": Case(
        CODE,
        "early_stopping: {monitor: valid/accuracy}\nvalidate_every: 1",
        4,
        ["valid/accuracy", "valid/loss"],
    ),
    "unknown best monitor": Case(
        CODE,
        "checkpoint: {best: [{monitor: valid/bleu, mode: max}]}\nvalidate_every: 1",
        4,
        ["valid/bleu", "valid/loss"],
    ),
    "no validation to decide by": Case(
        CODE.replace(", valid=torch.utils.data.TensorDataset(x)", ""),
        "early_stopping: {monitor: valid/loss}",
        1,
        ["validation", "early_stopping"],
    ),
    "glob matches nothing": Case(
        CODE,
        "optimizers: {main: {class: torch.optim.SGD, lr: 0.1, params: 'encoder.*'}}",
        4,
        ["encoder.*", "net.weight"],
    ),
    "unknown argument": Case(
        CODE,
        "optimizers: {main: {class: torch.optim.SGD, learning_rate: 0.1}}",
        4,
        ["learning_rate", "lr=0.001"],
    ),
    "argument of a wrong type": Case(
        CODE,
        "optimizers: {main: {class: torch.optim.SGD, lr: '0.1'}}",
        4,
        ["optimizers.main.lr: ", "config.yaml:", "0.1"],
    ),
    "schedule that fails at its second step": Case(
        CODE,
        "optimizers: {main: {class: torch.optim.SGD, lr: 0.1, "
        "scheduler: {class: torch.optim.lr_scheduler.StepLR, step_size: 0}}}",
        4,
        ["optimizers.main.scheduler.step_size: ", "config.yaml:"],
    ),
    "function that is not there": Case(
        CODE + "\ndef noam(step):\n    return 1 / (1 + step)\n",
        "optimizers: {main: {class: torch.optim.SGD, lr: 0.1, "
        "scheduler: {class: torch.optim.lr_scheduler.LambdaLR, lr_lambda: 'task.py:naom'}}}",
        4,
        ["optimizers.main.scheduler.lr_lambda: ", "task.py", "'naom'", "'noam'"],
    ),
    "class path outside": Case(CODE, "optimizers: {main: {class: os.system, lr: 0.1}}", 4, ["os.system"]),
    "sample raises": Case(
        CODE.replace("train=torch.utils.data.TensorDataset(x)", "train=Broken()")
        + "\nclass Broken:\n    def __len__(self): return 8\n"
        + "    def __getitem__(self, i): return {0: 1}[i]\n",
        "data: {batch_size: 4, shuffle: false}",
        1,
        ["KeyError: 1", "sample 1 ", "(Broken)"],
    ),
    "nothing is frozen by it": Case(CODE, "freeze: encoder.*", 4, ["freeze: ", "net.weight"]),
    "all is frozen": Case(CODE, "freeze: '*'", 4, ["freeze: ", "config.yaml:"]),
    "weights that are nowhere": Case(CODE, "init_from: {path: nowhere.pt}", 3, ["nowhere.pt"]),
    "statistics of no parameter": Case(
        CODE, "statistics: {params: head.*}", 4, ["statistics.params: ", "config.yaml:"]
    ),
    "a model of no library": Case(
        CODE,
        "runner: {model: {class: os.system}, losses: {a: {class: torch.nn.MSELoss}}}",
        4,
        ["runner.model.class: ", "'os.system'", "config.yaml:"],
    ),
    "a model that takes other inputs": Case(
        CODE,
        "runner: {model: {class: torch.nn.Linear, in_features: 2, out_features: 1}, inputs: [], "
        "losses: {a: {class: torch.nn.MSELoss}}}",
        4,
        ["runner.inputs: ", "torch.nn.Linear", " 0 ", "config.yaml:"],
    ),
    "visualize raises": Case(
        CODE + "\n    def visualize(self, batch):\n        raise ValueError('no picture')\n",
        "visualize_every: 2",
        0,
        ["visualize", "step 2", "ValueError: no picture", "step 4"],
    ),
    "metric is a vector": Case(
        CODE.replace(
            "return self.net(batch[0]).square().mean()",
            "l = self.net(batch[0]).square(); return {'loss': l.mean(), 'all': l}",
        ),
        "",
        1,
        ["train/all"],
    ),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, PackageFolder]]:
    """Every case's session, run, with its exit code."""
    made = {}
    for number, (name, case) in enumerate(CASES.items()):
        project = tmp_path_factory.mktemp(f"case{number}")
        keys = [line.split(":")[0] for line in case.settings.splitlines()]
        lines = [line for line in CONFIG.splitlines() if line.split(":")[0] not in keys]
        (project / "config.yaml").write_text("\n".join([*lines, case.settings]))
        (project / "task.py").write_text(case.code)
        config = layers.load(project / "config.yaml")
        made[name] = PackageFolder.create(
            project / "runs",
            values=config.values,
            provenance=config.provenance,
            selection=snapshot.select(project),
        )
    forked = Path(__file__).parent / "forked.py"
    paths = [str(package.path) for package in made.values()]
    result = subprocess.run(
        [sys.executable, forked, *paths], capture_output=True, text=True, timeout=120, check=True
    )
    codes = [int(line) for line in result.stdout.splitlines()]
    return {name: (code, made[name]) for name, code in zip(made, codes, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_line_and_the_right_exit_code(
    packages: dict[str, tuple[int, PackageFolder]], name: str, messages: Messages
) -> None:
    code, package = packages[name]
    case, output = CASES[name], package.output.read_text()
    assert code == case.exit_code, output
    last = output.rstrip().splitlines()[-1] if code == 4 or "error:" in output else output
    for words in case.says:
        assert words in last, output
    if "error:" in output:
        assert "Traceback" not in output
        messages.check(last.replace(str(package.path.parent.parent), "<project>"))
    assert package.settings["max_steps"] == 4


def test_a_loss_that_becomes_nan_keeps_the_row_and_saves_nothing_bad(
    packages: dict[str, tuple[int, PackageFolder]],
) -> None:
    _, package = packages["loss is NaN"]
    assert str(package.records().rows[-1]["train/loss"]) == "nan"
    assert package.store().lineage() == []
