"""The tuning file, and a config that is read with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.config import layers
from roost.config.settings import parse_settings
from roost.operations.tuning.tuning_file import TuningContext, is_own_file, tuning_text
from roost.package.results.tuning_report import (
    CandidateRates,
    RangeTestFinding,
    TargetFinding,
    TuningReport,
)
from tests.messages import Messages

CONFIG = """
runner: a.py:A
dataset: b.py:B
max_steps: 5
data: {batch_size: 16, num_workers: 1}
optimizers: {main: {class: torch.optim.SGD, lr: 0.1, momentum: 0.9}}
"""
CONTEXT = TuningContext("2026-11-29 12:00:00", "somewhere", "config.yaml", ("width=3",), "tuned.yaml")


def report() -> TuningReport:
    def rates(value: int | str, rate: float) -> CandidateRates:
        return CandidateRates(value=value, rates=[rate] * 3)

    return TuningReport(
        device="cpu",
        num_cores=2,
        num_threads=1,
        seconds=58.2,
        findings=[
            TargetFinding(
                target="workers",
                setting="data.num_workers",
                present=1,
                chosen=4,
                reason="3.90 times as fast as 1",
                candidates=[rates(1, 100.0), rates(4, 390.0)],
                changes={"data.num_workers": 4},
                is_neutral=True,
            ),
            TargetFinding(
                target="prefetch",
                setting="data.prefetch",
                present=2,
                chosen=2,
                reason="no other is faster by 5 % or more (4: 1.01)",
                candidates=[rates(2, 390.0), rates(4, 394.0)],
                is_neutral=True,
            ),
            TargetFinding(
                target="batch_size",
                setting="data.batch_size",
                present=16,
                chosen=64,
                reason="1.50 times as fast as 16",
                candidates=[rates(16, 390.0), rates(64, 585.0)],
                changes={"data.batch_size": 64, "gradient_accumulation_steps": 2},
                consequences=["a step has more samples"],
            ),
        ],
        range_test=RangeTestFinding(
            optimizer="main",
            present=0.1,
            rates=[1e-3, 1e-2, 1e-1],
            losses=[2.0, 1.0, 3.0],
            smoothed=[2.0, 1.0, 3.0],
            reason="the rule",
            steepest=0.01,
            divergence=0.3,
            suggestion=0.01,
            changes={"optimizers.main.lr": 0.01},
        ),
    )


def loaded(folder: Path, text: str) -> layers.Config:
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "tuned.yaml").write_text(text)
    config = layers.load(folder / "config.yaml", tuning=folder / "tuned.yaml")
    parse_settings(config.values, where=config.where)
    return config


def test_what_changes_no_bit_is_written_plainly(tmp_path: Path, messages: Messages) -> None:
    text = tuning_text(report(), (), CONTEXT)
    messages.check(text)
    config = loaded(tmp_path, text)
    assert config.values["data"]["num_workers"] == 4 and config.values["data"]["batch_size"] == 16
    assert config.values["optimizers"]["main"]["lr"] == 0.1
    label, value = config.explain("data.num_workers")[-1]
    assert value == 4 and "tuned.yaml:" in label


def test_what_is_applied_changes_the_run(tmp_path: Path, messages: Messages) -> None:
    text = tuning_text(report(), ("batch_size", "lr"), CONTEXT)
    config = loaded(tmp_path, text)
    assert config.values["data"] == config.values["data"] | {"num_workers": 4, "batch_size": 64}
    assert config.values["gradient_accumulation_steps"] == 2
    main = config.values["optimizers"]["main"]
    assert (main["lr"], main["momentum"]) == (0.01, 0.9), "the other arguments remain"
    messages.check(text)


def test_the_marks_can_be_removed(tmp_path: Path) -> None:
    """Where they are, without another change of the indentation."""
    lines = tuning_text(report(), (), CONTEXT).splitlines()
    keys = ("batch_size:", "gradient_accumulation_steps:", "optimizers:", "main:", "lr:")
    body = lines[lines.index("") :]
    used = [
        line.replace("# ", "", 1) if line.strip().startswith(tuple(f"# {key}" for key in keys)) else line
        for line in body
    ]
    config = loaded(tmp_path, "\n".join([*lines[: lines.index("")], *used]) + "\n")
    assert config.values["optimizers"]["main"]["lr"] == 0.01 and config.values["data"]["batch_size"] == 64


def test_a_file_without_any_change_is_a_config(tmp_path: Path) -> None:
    config = loaded(tmp_path, tuning_text(TuningReport(), (), CONTEXT))
    assert config.values["data"]["num_workers"] == 1
    only_comments = report()
    only_comments.findings = only_comments.findings[1:]
    config = loaded(tmp_path, tuning_text(only_comments, (), CONTEXT))
    assert config.values["data"]["batch_size"] == 16


@pytest.mark.parametrize(("text", "own"), [("", True), ("lr: 1\n", False), (None, False)])
def test_only_tuning_files_are_replaced(text: str | None, own: bool, tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    assert is_own_file(path) is own
    (tmp_path / "own.yaml").write_text(tuning_text(report(), (), CONTEXT))
    assert is_own_file(tmp_path / "own.yaml")
