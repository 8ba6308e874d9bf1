"""Real measurements of projects with a known bottleneck."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from roost.base.errors import Refused
from roost.package.results import check_findings
from roost.package.setting_locations import setting_locations
from roost.project import native_project
from roost.worker.tuning.candidate_rounds import MeasuredBlock
from roost.worker.tuning.measured_run import MeasuredRun
from tests.messages import Messages
from tests.worker.tuning.toys import DATASET, RUNNER, finding, toy, tuned

pytestmark = pytest.mark.usefixtures("forgotten")

STREAM = """
import torch
import roost

class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(40):
            yield torch.full((4,), float(number)), torch.tensor(1.0)

    def __len__(self):
        return 40

class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(train=SET)
"""


def test_a_slow_set_gets_more_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = toy(tmp_path, data={"batch_size": 4, "num_workers": 1}, sample_seconds=0.02)
    report = tuned(package, monkeypatch, "workers")
    found = finding(report, "workers")
    assert found.present == 1 and isinstance(found.chosen, int) and found.chosen > 1
    assert found.changes == {"data.num_workers": found.chosen} and found.is_neutral
    assert not found.consequences and report.device == "cpu" and report.seconds > 0


@pytest.mark.soak  # on a busy machine more workers may really be faster
def test_a_slow_step_keeps_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = toy(tmp_path, data={"batch_size": 4, "num_workers": 1}, step_seconds=0.03)
    found = finding(tuned(package, monkeypatch, "workers", "prefetch"), "workers")
    assert found.chosen == found.present == 1 and found.changes == {}
    assert len(found.candidates) > 1 and all(one.rates for one in found.candidates)
    output = capfd.readouterr().out
    assert "workers 1: " in output and "samples/s (round 1)" in output


def test_the_batch_size_grows_up_to_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """A step takes the same time for any batch, until the memory ends."""
    package = toy(
        tmp_path,
        data={"batch_size": 4, "num_workers": 0},
        samples=400,
        step_seconds=0.02,
        most_samples=40,
        gradient_accumulation_steps=2,
    )
    found = finding(tuned(package, monkeypatch, "batch_size"), "batch_size")
    assert found.chosen == 32 and [one.value for one in found.candidates] == [4, 8, 16, 32, 64]
    assert found.candidates[-1].note == "out of memory" and found.candidates[-1].rates == []
    assert found.changes == {"data.batch_size": 32, "gradient_accumulation_steps": 1}
    assert not found.is_neutral and found.candidates[0].memory_mb
    messages.check("\n".join(found.consequences))


def test_out_of_memory_in_the_first_step_is_the_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = toy(tmp_path, data={"batch_size": 8, "num_workers": 0}, most_samples=4)
    with pytest.raises(torch.OutOfMemoryError):
        tuned(package, monkeypatch, "batch_size")
    assert check_findings.read(package.path).last == "first step"


def test_an_error_of_the_first_step_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = toy(tmp_path, runner=RUNNER.replace("x, y = batch", "x, y, z = batch"))
    with pytest.raises(ValueError, match="not enough values"):
        tuned(package, monkeypatch)


def test_settings_that_need_a_validation_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DATASET.replace("Data(train=", "Data(valid=Points(4, 0), train=")
    monitor = {"monitor": "valid/loss", "mode": "min"}
    package = toy(tmp_path, dataset=dataset, early_stopping=monitor, checkpoint={"best": [monitor]})
    report = tuned(package, monkeypatch, "prefetch")
    assert [one.target for one in report.findings] == ["prefetch"]


def test_three_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    package = toy(tmp_path, samples=3, step_seconds=0.001, data={"batch_size": 2})
    report = tuned(package, monkeypatch, "workers", "prefetch", "batch_size", "lr")
    assert {one.value for one in finding(report, "workers").candidates} <= {0, 1, 2}
    found = finding(report, "batch_size")
    assert found.candidates == [] and found.chosen == 2
    messages.check(found.reason)
    messages.check(finding(report, "prefetch").reason)
    assert report.range_test is not None


def test_too_short_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    package = toy(tmp_path, step_seconds=0.5, data={"batch_size": 4, "num_workers": 0})
    with pytest.raises(Refused) as refused:
        tuned(package, monkeypatch, "batch_size", "lr", seconds=0.5)
    assert refused.value.setting == "--seconds" and str(refused.value.fix).startswith("give --seconds ")


@pytest.mark.parametrize(
    ("train", "targets"),
    [
        ("torch.utils.data.DataLoader(Numbers(), batch_size=4)", ("workers", "prefetch", "batch_size")),
        ("roost.Sampled(lambda *_: ((torch.zeros(4, 4), torch.zeros(4)), None))", ("batch_size",)),
    ],
)
def test_sets_that_make_their_own_batches(
    train: str, targets: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    package = toy(tmp_path, dataset=STREAM.replace("SET", train), data={"steps_per_epoch": 10})
    report = tuned(package, monkeypatch, *targets, seconds=1)
    for name in targets:
        assert finding(report, name).candidates == []
        messages.check(finding(report, name).reason)


def test_the_workers_of_a_stream_change_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(
        MeasuredRun, "block", lambda run, loader, seconds: MeasuredBlock(1.0 + loader.num_workers)
    )
    package = toy(
        tmp_path, dataset=STREAM.replace("SET", "Numbers()"), data={"batch_size": 4, "num_workers": 1}
    )
    found = finding(tuned(package, monkeypatch, "workers"), "workers")
    assert not found.is_neutral and found.changes == {"data.num_workers": found.chosen}
    (consequence,) = found.consequences
    messages.check(consequence)


def test_a_set_that_was_read_here_is_built_again_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loader workers would share the descriptor of its file, and its offset."""
    opens = DATASET.replace("time.sleep(self.seconds)", "self.file = 'open'")
    package = toy(tmp_path, dataset=opens, data={"batch_size": 4, "num_workers": 0})
    monkeypatch.chdir(package.path)
    values, settings = native_project.resolve_settings(package, "/nowhere")
    run = MeasuredRun(package, settings, values, project="/nowhere", device="cpu")
    run.warm_up()
    first = run.data.train
    assert hasattr(first, "file")
    run.block(run.loader(num_workers=0), 0.0)
    assert run.data.train is first
    run.block(run.loader(num_workers=1), 0.0)
    assert run.data.train is not first and not hasattr(run.data.train, "file")
    assert setting_locations(package)("data") is None


def test_the_range_test_starts_from_the_initial_weights_and_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = toy(
        tmp_path, samples=400, optimizers={"main": {"class": "torch.optim.SGD", "lr": 1e-6, "momentum": 0.9}}
    )
    found = tuned(package, monkeypatch, "lr").range_test
    assert found is not None and found.optimizer == "main" and found.present == 1e-6
    assert found.rates[0] == 1e-7 and found.rates == sorted(found.rates)
    assert found.suggestion is not None and 1e-4 < found.suggestion <= 10
    assert found.changes == {"optimizers.main.lr": float(f"{found.suggestion:.2g}")}
    again = tuned(package, monkeypatch, "batch_size", "lr").range_test
    assert again is not None and again.losses[0] == found.losses[0], "steps before it were undone"


def test_restored_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = toy(tmp_path, optimizers={"main": {"class": "torch.optim.Adam", "lr": 0.1}})
    monkeypatch.chdir(package.path)
    values, settings = native_project.resolve_settings(package, "/nowhere")
    run = MeasuredRun(package, settings, values, project="/nowhere", device="cpu")
    run.keep_initial()
    before = {name: value.clone() for name, value in run.runner.state_dict().items()}
    run.warm_up()
    run.ramp(run.loader(), [0.1, 1.0], lambda losses: False)
    assert not all(torch.equal(value, before[name]) for name, value in run.runner.state_dict().items())
    run.restore()
    assert all(torch.equal(value, before[name]) for name, value in run.runner.state_dict().items())
    (optim,) = run.trainer.stepper.optimizers.values()
    assert optim.lr == 0.1 and not optim.optimizer.state and run.trainer.progress.batch == 0


def test_several_optimizers_have_no_range_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    two = RUNNER.replace("self.net = nn.Linear(4, 1)", "self.net = nn.Linear(4, 1); self.b = nn.Linear(4, 1)")
    sgd = {"class": "torch.optim.SGD", "lr": 0.1}
    package = toy(
        tmp_path, runner=two, optimizers={"main": {**sgd, "params": "net.*"}, "b": {**sgd, "params": "b.*"}}
    )
    found = finding(tuned(package, monkeypatch, "lr", seconds=1), "lr")
    assert not found.is_late
    messages.check(found.reason)
