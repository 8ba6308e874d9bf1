"""What `determinism` and `threads` ask of torch, in this process and in real workers."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.analysis import analysis_folder
from roost.config.settings import Settings, parse_settings
from roost.package.package import PackageFolder
from roost.worker import analyze_task, torch_settings
from tests.cli.programs import roost
from tests.messages import Messages
from tests.project.projects import DATASET, RUNNER, VALUES, project
from tests.project.trained import trained
from tests.worker.test_analyze_task import asked
from tests.worker.test_train_task import model, train

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"

FLAGS = """
import json, os, torch
def flags():
    return {
        "algorithms": torch.get_deterministic_debug_mode(),
        "cudnn": [torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark],
        "matmul": torch.get_float32_matmul_precision(),
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "variable": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "threads": torch.get_num_threads(),
    }
"""
OFF = {
    "algorithms": 0, "cudnn": [False, True], "matmul": "high", "tf32": [True, True], "variable": None,
    "threads": 2,
}  # fmt: skip
SEEDED = {**OFF, "algorithms": 1, "cudnn": [True, False], "matmul": "highest", "tf32": [False, True]}
STRICT = {**SEEDED, "algorithms": 2, "tf32": [False, False], "variable": ":4096:8"}
"""What a session on the CPU finds; TF32 of torch's own choice is that of convolutions."""


def settings(**given: Any) -> Settings:
    return parse_settings({**VALUES, "threads": 2, **given})


def flags() -> Any:
    space: dict[str, Any] = {}
    exec(FLAGS, space)  # noqa: S102  - the same lines that the projects below hold
    return space["flags"]()


@pytest.mark.parametrize(("name", "expected"), [("off", OFF), ("seeded", SEEDED), ("strict", STRICT)])
def test_each_says_all_of_it(name: str, expected: dict[str, Any]) -> None:
    for before in ("strict", "off", "seeded"):
        os.environ.pop(VARIABLE, None)
        torch_settings.apply(settings(determinism=before), device="cpu", first=None)
        if before == "seeded":
            os.environ.pop(VARIABLE, None)
    torch_settings.apply(settings(determinism=name), device="cpu", first=None)
    found = flags()
    if name == "seeded":  # the precisions are whose they were
        found = {**found, "matmul": "highest", "tf32": [False, True]}
    assert found == expected


def test_seeded_leaves_a_gpu_its_own_algorithms() -> None:
    torch_settings.apply(settings(), device="cuda", first=None)
    assert flags() == {**SEEDED, "algorithms": 0}
    assert torch.utils.deterministic.fill_uninitialized_memory, (
        "as torch has it, if the project asks for them"
    )


@pytest.mark.parametrize("level", ["off", "seeded", "strict"])
def test_the_device_becomes_the_current_one_when_all_is_set(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever its number: checkpoints hold the generator of the current device."""
    found: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.append((device, flags())))
    torch_settings.apply(settings(determinism=level), device="cuda:1", first=None)
    assert found == [(torch.device("cuda", 1), flags())], "cuBLAS reads its variable when CUDA starts"
    torch_settings.apply(settings(determinism=level), device="cuda", first=None)
    assert len(found) == 1, "without a number it is the current one, and CUDA need not start"


@pytest.mark.parametrize("name", ["off", "seeded", "strict"])
@pytest.mark.parametrize("kind", ["old", "new"])
def test_the_project_may_ask_torch_by_either_name(name: str, kind: str) -> None:
    """torch refuses to read what was set by the other name; torch.compile reads by the old one."""
    torch_settings.apply(settings(determinism=name), device="cuda", first=None)
    if kind == "old":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        assert torch.get_float32_matmul_precision() == "high"
    else:
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        torch.backends.cudnn.rnn.fp32_precision = "ieee"
    assert torch.backends.cudnn.conv.fp32_precision == ("tf32" if kind == "old" else "ieee")
    assert torch.backends.cuda.matmul.fp32_precision in ("none", "ieee", "tf32")


def test_threads_are_those_of_the_beginning() -> None:
    auto = parse_settings(VALUES)
    torch_settings.apply(auto, device="cpu", first=None)
    assert torch.get_num_threads() == 1, "auto: as it is"
    torch_settings.apply(auto, device="cpu", first={"stack": {"threads": 2}})
    assert torch.get_num_threads() == 2
    torch_settings.apply(settings(threads=3), device="cpu", first={"stack": {"threads": 2}})
    assert torch.get_num_threads() == 3


def test_threads_fit_the_quota_unless_the_user_has_set_them(monkeypatch: pytest.MonkeyPatch) -> None:
    auto, quota = parse_settings(VALUES), "roost.worker.torch_settings.cpu_cores.usable_cores"
    monkeypatch.setattr(quota, lambda: 1)
    for variable, expected in (("2", 2), (None, 1)):
        torch.set_num_threads(2)
        if variable is None:
            monkeypatch.delenv("OMP_NUM_THREADS")
        else:
            monkeypatch.setenv("OMP_NUM_THREADS", variable)
        torch_settings.apply(auto, device="cpu", first=None)
        assert torch.get_num_threads() == expected


@pytest.mark.parametrize(
    ("own", "before", "found", "said"),
    [
        (None, None, ":4096:8", ""),
        ("", None, ":4096:8", ""),
        (":16:8", ":4096:8", ":16:8", ""),
        (":4096:8", None, ":4096:8", ""),
        (None, ":16:8", ":16:8", ""),
        (None, ":0:0", ":4096:8", ""),
        (":0:0", None, ":4096:8", f"{VARIABLE}=:0:0 .*:4096:8.*determinism: strict"),
    ],
)
def test_the_workspace_of_cublas(
    own: str | None,
    before: str | None,
    found: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    if own is not None:
        monkeypatch.setenv(VARIABLE, own)
    first = {"stack": {"cublas_workspace": before}}
    torch_settings.apply(settings(), device="cuda", first=first)
    assert os.environ.get(VARIABLE) == own, "only strict asks for it"
    torch_settings.apply(settings(determinism="strict"), device="cuda", first=first)
    assert os.environ[VARIABLE] == found
    printed = capsys.readouterr().out
    assert re.match(said, printed) and bool(printed) == bool(said)
    if said:
        messages.check(printed)


def test_what_may_give_other_bits_is_named(messages: Messages) -> None:
    named = torch_settings.inexact_reasons
    torch.set_num_threads(2)
    (of_cuda,), (of_threads,) = named("cuda:1"), named("cpu")
    assert "CUDA" in of_cuda and "threads" in of_threads and named("mps") == []
    messages.check(f"{of_cuda}\n{of_threads}")
    torch.set_deterministic_debug_mode("warn")
    (that_warn,) = named("cuda")
    assert "CUDA" in that_warn and "warn" in that_warn and named("cpu") == []
    messages.check(that_warn)
    torch.set_deterministic_debug_mode("error")
    assert not named("cuda") and not named("cpu")
    torch.set_deterministic_debug_mode("default")
    torch.set_num_threads(1)
    assert named("cpu") == [], "one thread has one order"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads take turns on one core")
def test_a_gradient_that_differs_each_time_and_does_not() -> None:
    x = torch.randn(200, 16, requires_grad=True)
    rows, factors = torch.randint(0, 200, (20_000,)), torch.randn(20_000, 16)

    def differs(tries: int) -> bool:
        def gradient() -> torch.Tensor:
            (found,) = torch.autograd.grad((x[rows] * factors).sum(), x)
            return found

        first = gradient()
        return any(not torch.equal(gradient(), first) for _ in range(tries))

    torch_settings.apply(settings(determinism="off"), device="cpu", first=None)
    assert differs(1000)
    for name in ("seeded", "strict"):
        torch_settings.apply(settings(determinism=name), device="cpu", first=None)
        assert not differs(20)


LOOKS_UP = """
import torch
from torch import nn
import roost

class Runner(roost.Runner):
    def build(self):
        self.table = nn.Parameter(torch.randn(200, 16))
        self.register_buffer("rows", torch.randint(0, 200, (20_000,)))
        self.register_buffer("factors", torch.randn(20_000, 16))

    def loss(self, batch):
        x, _ = batch
        return (self.table[self.rows] * self.factors - x.sum()).square().mean()
"""


def test_a_run_on_two_threads_comes_out_the_same(tmp_path: Path) -> None:
    ended = []
    for name in ("one", "two", "three"):
        package = project(tmp_path / name, runner=LOOKS_UP, threads=2)
        assert train(package) == "finished" and package.derived["inexact"] == []
        ended.append(model(package))
    assert ended[0] == ended[1] == ended[2]


CONFIG = """
runner: Model/Runner.py:Runner
dataset: Dataset.py:Dataset
threads: 2
max_steps: 4
width: 3
data: {batch_size: 10, num_workers: 0}
optimizers: {main: {class: torch.optim.SGD, lr: 0.1}}
"""
TELLS = RUNNER.replace("import roost\n", "import roost\n" + FLAGS).replace(
    "    def build(self):\n", '    def build(self):\n        print("flags " + json.dumps(flags()))\n'
)
ASKS = TELLS.replace("        width =", "        torch.use_deterministic_algorithms(False)\n        width =")
UNPOOLS = TELLS.replace(
    "        x, y = batch",
    "        x, y = batch\n        index = torch.arange(len(x)).reshape(1, -1)\n"
    "        nn.functional.max_unpool1d(y.reshape(1, -1), index, 1)",
)


class Ran:
    """A run of the real program."""

    def __init__(self, place: Path, *overrides: str, runner: str = TELLS, **env: str) -> None:
        (place / "Model").mkdir(parents=True)
        (place / "Model" / "Runner.py").write_text(runner)
        (place / "Dataset.py").write_text(DATASET)
        (place / "config.yaml").write_text(CONFIG)
        done = roost("run", "-c", place / "config.yaml", "-CPU", *overrides, cwd=place, **env)
        self.code, self.output = done.returncode, done.stdout
        (self.path,) = (place / "runs").iterdir()
        self.environment = json.loads((self.path / "environment.json").read_bytes())

    def flags(self) -> Any:
        (line,) = (line for line in self.output.splitlines() if line.startswith("flags "))
        return json.loads(line.removeprefix("flags "))

    def shown(self) -> str:
        (line,) = (
            line for line in roost("show", self.path).stdout.splitlines() if line.startswith("determinism ")
        )
        return line


@pytest.mark.parametrize(
    ("asked", "runner"), [("off", RUNNER), ("seeded", ASKS)], ids=["off", "seeded, but not by the project"]
)
def test_a_session_without_deterministic_algorithms(
    asked: str, runner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = project(tmp_path, runner=runner, threads=2, determinism=asked)
    assert train(package) == "finished"
    said = capsys.readouterr().out
    assert re.search("inexact: .*threads .*determinism: seeded", said)
    found = json.loads((package.path / "environment.json").read_bytes())
    assert found["determinism"] == asked and not found["stack"]["deterministic"]


def test_a_worker_by_itself(tmp_path: Path) -> None:
    ran = Ran(tmp_path / "plain", OMP_DISPLAY_ENV="verbose")
    assert ran.code == 0 and ran.flags() == SEEDED and "inexact" not in ran.output
    if sys.platform == "linux":
        assert "GOMP_SPINCOUNT = '1000'" in ran.output, "OpenMP was loaded with the limit"
    assert ran.environment["determinism"] == "seeded" and ran.environment["stack"]["deterministic"]
    state, _, flags = ran.shown().partition(": ")
    assert state == "determinism seeded" and flags.startswith("2 threads") and "TF32" in flags
    refused = roost("continue", ran.path, "+determinism=strict", "max_steps=6")
    assert refused.returncode == 5 and "determinism: seeded -> strict" in refused.stderr
    forced = roost("continue", ran.path, "+determinism=strict", "max_steps=6", "--force")
    assert forced.returncode == 0 and "inexact: determinism: seeded -> strict" in forced.stdout
    state, _, after = ran.shown().partition(": ")
    assert state.startswith("determinism seeded") and state.endswith(" strict") and after == flags


def test_a_strict_worker(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "+determinism=strict", runner=UNPOOLS, CUBLAS_WORKSPACE_CONFIG=":0:0")
    assert ran.code == 1 and ran.flags() == STRICT
    assert re.search(f"{VARIABLE}=:0:0 .*:4096:8", ran.output)
    assert ran.environment["variables"][VARIABLE] == ":4096:8"
    state, _, flags = ran.shown().partition(": ")
    assert state == "determinism strict" and flags.startswith("2 threads") and "TF32" in flags
    assert re.search(r"nn\.MaxUnpool2d .*determinism: strict", ran.output)
    # What the error proposes; without a checkpoint nothing went before that the rest must fit.
    again = roost("continue", ran.path, "+determinism=seeded")
    assert again.returncode == 0 and "does not have a deterministic implementation" in again.stdout
    assert "inexact" not in again.stdout
    assert ran.shown().startswith("determinism seeded: 2 threads")


def test_an_analysis_is_as_strict_as_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package: PackageFolder = trained(tmp_path, determinism="strict", threads=2)
    monkeypatch.chdir(package.path)
    place = asked(package, FLAGS + "def experience(self):\n    return flags()")
    analyze_task.analyze(package, place)
    assert analysis_folder.read_result(place)["value"] == STRICT
