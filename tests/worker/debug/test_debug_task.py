"""A step that failed fails again, in pdb; its keys come from a stdin that is no terminal. On a real one, by
the real program: tests/system/test_debug.py."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.package.package import PackageFolder
from roost.package.results import black_box
from roost.package.results.black_box import DebugTarget
from roost.project import native_project, trainer_assembly
from roost.project.package_context import package_code
from roost.worker.debug import debug_task
from tests.messages import Messages
from tests.project.projects import DATASET, RUNNER, project
from tests.worker.debug.test_replay import files

Go = Callable[..., tuple[int, str]]


def runner(*lines: str) -> str:
    """A Runner whose loss begins with these lines; ``n`` is the number of its step."""
    body = "".join(f"        {line}\n" for line in ("n = self.progress.step + 1", *lines))
    return RUNNER.replace("        x, y = batch\n", f"        x, y = batch\n{body}")


def failed(folder: Path, code: str, **settings: Any) -> PackageFolder:
    """A package whose training, in this very process, ended by an error."""
    made = project(folder, runner=code, **{"max_steps": 12, "validate_every": 4, **settings})
    number = made.new_session({"project": str(folder)})
    with package_code(made), pytest.raises(Exception):  # noqa: B017  - which one says each test
        trainer_assembly.assemble(
            native_project.load(made, project=str(folder), device="cpu"), made, session=number
        ).fit()
    return made


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Go]:
    """Debugs a package with these keys, which changes nothing; gives the exit code and what was shown."""
    hook, handlers = sys.breakpointhook, {n: signal.getsignal(n) for n in (signal.SIGHUP, signal.SIGTERM)}

    def gone(made: PackageFolder, *keys: str, **fields: Any) -> tuple[int, str]:
        if "step" not in fields:
            box = black_box.newest_box(made.blackbox)
            assert box is not None
            fields = {"step": box.note.step, "session": box.note.session, "box": box.path.name, **fields}
        target = DebugTarget(**{"session": 1, "device": "cpu", "project": str(made.path), **fields})
        before = files(made.path)
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
        capsys.readouterr()
        with package_code(made):
            code = debug_task.main(str(made.path), msgspec.json.encode(target).decode())
        said = capsys.readouterr()
        assert files(made.path) == before
        print(said.err + said.out)  # shown when a test fails
        return code, said.err + said.out

    yield gone
    sys.breakpointhook = hook
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_an_error_with_its_batch_and_its_random_numbers(tmp_path: Path, go: Go) -> None:
    code = runner("drop = self.net(x).sum().item()", "if n == 7: raise ValueError(f'sum {drop!r}')")
    made = failed(tmp_path, code)
    box = black_box.newest_box(made.blackbox)
    assert box is not None and box.has_state
    code, text = go(made, "p x.shape, n + 1", "u", "d", "q")
    lines = text.splitlines()
    assert code == 0
    assert re.match(r"step 7 .*session 1\b", lines[0]) and lines[0].endswith(f": {box.note.error}")
    assert lines[1].startswith("epoch 2, batch 3, ")
    assert lines[2].endswith(": blackbox/state_0.ckpt")
    assert any(line.endswith(f": {box.note.error}") for line in lines[3:])
    assert "Model/Runner.py:14 in loss" in text and "batch (list of 2)" in text
    assert "(torch.Size([10, 4]), 8)" in text


def test_a_replay_goes_before_the_box_where_it_was_asked_for(tmp_path: Path, go: Go) -> None:
    code = runner("drop = self.net(x).sum().item()", "if n == 7: raise ValueError(f'sum {drop!r}')")
    made = failed(tmp_path, code, checkpoint={"every": "2", "fast": 9})
    box = black_box.newest_box(made.blackbox)
    assert box is not None
    ways: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": 1}, r"\b2 .*checkpoint 1\b"),
        ({"replay": True}, r"checkpoint 2\b"),
    ]
    for asked, said in ways:
        code, text = go(made, "q", **asked)
        assert code == 0 and re.search(said, text) and text.count(f": {box.note.error}") == 2


def test_before_the_step_pdb_goes_on_into_the_error(tmp_path: Path, go: Go) -> None:
    made = failed(tmp_path, runner("if n == 7: raise ValueError('no')"))
    code, text = go(made, "p x", "n", "p x.shape", "c", "q", begin=True)
    assert code == 0 and text.count("pdb is at Model/Runner.py") == 2
    assert (
        "*** NameError: name 'x' is not defined" in text
        and "torch.Size([10, 4])" in text
        and text.count(": ValueError: no\n") == 2
    )
    assert go(made, "q", begin=True)[0] == 0


def test_a_loss_that_is_not_finite(tmp_path: Path, go: Go) -> None:
    made = failed(
        tmp_path,
        runner("if n == 7: y = (x.sum(1) - 1e3).log()"),
        log_every=5,
        checkpoint={"every": "4"},
    )
    code, text = go(made, "p y[0].isfinite()", "q")
    assert code == 0
    assert re.match(r"step 7 .*session 1 .*train/loss .*nan .*step 8\n", text)
    assert re.search(r"\b2 .*checkpoint 0\b", text)
    assert re.search(r"\n  Model/Runner\.py:13: log .*nan", text)
    assert "Model/Runner.py:13 in loss" in text and "tensor(True)" in text


def test_a_gradient_that_was_not_finite_a_step_earlier(tmp_path: Path, go: Go) -> None:
    """The first loss that shows it is that of the step after, whose weights are gone already."""
    made = failed(
        tmp_path, runner("extra = 0", "if n == 6: extra = (self.net(x) * 0).sum().sqrt()", "y = y + extra")
    )
    box = black_box.newest_box(made.blackbox)
    assert box is not None and box.note.step == 7 and box.note.kind == "nonfinite"
    code, text = go(made, "q")
    assert code == 0 and "step 6 " in text
    assert re.search(r"NotFinite: .*\bsqrt\b", text)
    assert "Model/Runner.py:14 in loss" in text


def test_weights_that_an_optimizer_breaks(tmp_path: Path, go: Go) -> None:
    made = failed(
        tmp_path,
        runner("y = y if n < 6 else y * 1e38"),
        optimizers={"main": {"class": "torch.optim.SGD", "lr": 1e3}},
    )
    code, text = go(made, "q")
    assert code == 0 and text.count("finite") > 1


def test_any_step_of_a_run_that_is_well(tmp_path: Path, go: Go) -> None:
    made = project(tmp_path, runner=runner("print('seen', n)", "if n == 3: breakpoint()"), max_steps=4)
    code, text = go(made, "n", "n", "p 'at', n", "c", step=4, begin=True)
    assert code == 0, text
    assert re.search(r"\b3 .*\bseed\b", text) and "('at', 4)" in text
    assert re.search(r"step 4\b.*epoch 1, batch 4, ", text) and re.search(r"step 4 .* 0\.\d", text)
    assert "seen 3" not in text and "seen 4" in text  # nor did the breakpoint stop it on the way
    code, text = go(made, step=5, begin=True)
    assert code == 2 and "step 4" in text


def test_a_step_that_does_not_fail_any_more(tmp_path: Path, go: Go, messages: Messages) -> None:
    there = tmp_path / "there"
    there.touch()
    code = (
        f"import pathlib\n{runner(f'if n == 6 and pathlib.Path({str(there)!r}).exists(): raise OSError(5)')}"
    )
    made = failed(tmp_path, code)
    there.unlink()
    code, text = go(made)
    assert code == 1 and re.search(r"step 6 .* 0\.\d", text) and "(Pdb)" not in text
    messages.check(text.splitlines()[-1])  # that nothing differs from then


def test_a_sample_that_cannot_be_read(tmp_path: Path, go: Go) -> None:
    reading = "\n        data = Reading(data)\n        return"
    dataset = (
        DATASET.replace("\n        return", reading, 1)
        + """
class Reading(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return len(self.data)
    def __getitem__(self, index):
        if index == 17:
            raise KeyError(index)
        return self.data[index]
"""
    )
    made = failed(tmp_path, RUNNER, dataset=dataset.replace("valid=data", "valid=None"))
    box = black_box.newest_box(made.blackbox)
    assert box is not None and 17 in box.note.samples and not box.has_batch
    code, text = go(made, "p index", "q")
    assert code == 0 and " Dataset.py:" in text and "in __getitem__" in text and "(Pdb) 17\n" in text


def test_a_batch_that_the_step_had_changed(tmp_path: Path, go: Go) -> None:
    made = failed(
        tmp_path,
        runner("x.mul_(0)", "if n == 7: raise ValueError('no')").replace(
            "x.mul_", "before = x.abs().sum().item(); x.mul_"
        ),
    )
    code, text = go(made, "p 'before', before > 0", "q")
    assert code == 0 and "('before', True)" in text


def test_a_set_that_is_gone_leaves_the_batch_of_the_box(tmp_path: Path, go: Go) -> None:
    there = tmp_path / "there"
    there.touch()
    reading = "\n        data = Reading(data)\n        return"
    dataset = (
        DATASET.replace("\n        return", reading, 1)
        + f"""
import pathlib
class Reading(torch.utils.data.Dataset):
    draws_randomness = False
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return len(self.data)
    def __getitem__(self, index):
        if not pathlib.Path({str(there)!r}).exists():
            raise FileNotFoundError(2)
        return self.data[index]
"""
    ).replace("valid=data", "valid=None")
    made = failed(tmp_path, runner("if n == 7: raise ValueError('no')"), dataset=dataset)
    there.unlink()
    code, text = go(made, "q")
    assert code == 0 and "FileNotFoundError" in text
    assert text.count(": ValueError: no\n") == 2


def test_an_error_before_the_step_is_reported_and_stopped_at(tmp_path: Path, go: Go) -> None:
    made = failed(
        tmp_path, runner("if n == 7: raise ValueError('no')", "if n == 5 and self.args['width'] == 4: 1 / 0")
    )
    code, text = go(made, "q", step=9, session=1, box=None)
    assert code == 1 and "ValueError: no" in text and "Model/Runner.py:13" in text


def test_after_one_of_two_optimizers_has_moved_the_steps_are_taken_again(tmp_path: Path, go: Go) -> None:
    code = (
        RUNNER
        + """
    def second(self, batch):
        found = self.loss(batch) * 2
        if self.progress.step == 6:
            raise ValueError(f"loss {found.item()!r}")
        return found

    def update(self, stepper, batches):
        return {
            **stepper.run(self.loss, batches, optimizer="one"),
            **stepper.run(self.second, batches, optimizer="two"),
        }
"""
    )
    optimizers = {
        "one": {"class": "torch.optim.SGD", "lr": 0.1, "params": "net.0.*"},
        "two": {"class": "torch.optim.SGD", "lr": 0.1, "params": "net.2.*"},
    }
    settings: dict[str, Any] = {"gradient_accumulation_steps": 2, "data": {"batch_size": 5}}
    made = failed(tmp_path, code, optimizers=optimizers, checkpoint={"every": "4"}, **settings)
    box = black_box.newest_box(made.blackbox)
    assert box is not None and not box.has_state and box.has_batch
    code, text = go(made, "q")
    assert code == 0 and re.search(r"\b2 .*checkpoint 0\b", text)
    assert text.count(f": {box.note.error}") == 2 and re.search(r"\b2 batches .*\b5\b", text)


def test_a_norm_that_overflows_though_the_gradients_do_not(tmp_path: Path, go: Go) -> None:
    code = runner("scale = 1e25 if n == 7 else 1.0").replace("return nn", "return scale * nn")
    clipped = {"main": {"class": "torch.optim.SGD", "lr": 0.1, "max_grad_norm": 1.0}}
    made = failed(tmp_path, code, optimizers=clipped, log_every=1)
    found = go(made, "p scale", "q")
    assert found[0] == 0
    assert re.search(r"gradient.*norm.*\n  Model/Runner\.py:14: .*loss", found[1])
    assert "Model/Runner.py:14 in loss" in found[1] and "1e+25" in found[1]


def test_a_package_that_names_no_such_box(tmp_path: Path, go: Go) -> None:
    made = project(tmp_path)
    code, text = go(made, step=3, box="state_7.ckpt")
    assert code == 3 and "state_7.ckpt" in text
