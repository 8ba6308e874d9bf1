"""pdb in the person's own code; its keys come from a stdin that is no terminal."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from roost.base.traceback_frames import ProjectFiles
from roost.worker.debug import post_mortem
from tests.messages import Messages

CODE = """
from torch import nn

def inner(x, n):
    y = x + n
    return nn.functional.linear(y, nn.Linear(3, 2).weight)

def outer(x):
    a = 5
    return inner(x, a)

def chained(x):
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ValueError("wrapped") from error

def fine(x):
    b = 6
    return x + b
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    file = tmp_path / "own" / "code.py"
    file.parent.mkdir()
    file.write_text(CODE)
    spec = importlib.util.spec_from_file_location("code_of_a_person", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def own(tmp_path: Path) -> ProjectFiles:
    return ProjectFiles([tmp_path / "own"])


def type_in(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys)))


def shown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    own: ProjectFiles,
    *keys: str,
) -> str:
    type_in(monkeypatch, *keys)
    post_mortem.inspect_error(error, own)
    return capsys.readouterr().out


def failed(module: ModuleType, name: str = "outer") -> Exception:
    try:
        getattr(module, name)(torch.ones(4))
    except Exception as error:  # noqa: BLE001  - which one says the test
        return error
    raise AssertionError


def test_it_opens_at_the_innermost_own_line_of_an_error(
    module: ModuleType,
    own: ProjectFiles,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(monkeypatch, capsys, failed(module), own, "p 'n', n + 1", "u", "p 'a', a + 2", "d", "q")
    head, *rest = text.splitlines()
    assert head.endswith(" code.py:6 in inner")
    assert rest[0].endswith(": x (float32 (4,)), n (5), y (float32 (4,))")
    assert "('n', 6)" in text and "('a', 7)" in text
    assert text.count("-> return nn.functional.linear") == 2 and "-> return inner(x, a)" in text


def test_of_a_chain_it_takes_what_has_own_lines(
    module: ModuleType, own: ProjectFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "code.py:16 in chained" in shown(monkeypatch, capsys, failed(module, "chained"), own, "q")
    try:
        try:
            module.outer(torch.ones(4))
        except RuntimeError as error:
            raise KeyError("ours") from error
    except KeyError as error:
        assert "code.py:6 in inner" in shown(monkeypatch, capsys, error, own, "q")


def test_without_an_own_line_it_says_so(
    own: ProjectFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    try:
        torch.ones(2) @ torch.ones(3)
    except RuntimeError as error:
        text = shown(monkeypatch, capsys, error, own, "q")
    assert "code.py" not in text and "(Pdb)" in text
    messages.check(text.splitlines()[0])


def test_it_stops_before_the_first_own_line_and_goes_on(
    module: ModuleType, own: ProjectFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def step() -> torch.Tensor:
        before = 1 + 1
        return module.fine(torch.ones(1) * before)

    type_in(monkeypatch, "p x", "n", "p 'b', b + 1", "c")
    assert post_mortem.stop_at_first_own_line(own, step).item() == 8
    text = capsys.readouterr().out
    assert re.match(r".* code\.py:19 in fine\n.*: x \(float32 \(1,\)\)\n", text)
    assert "tensor([2.])" in text and "('b', 7)" in text and "--Call--" not in text
    assert sys.gettrace() is None


def test_quitting_there_is_no_error_of_the_step(
    module: ModuleType, own: ProjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "q")
    with pytest.raises(post_mortem.DebuggerQuit):
        post_mortem.stop_at_first_own_line(own, lambda: module.fine(torch.ones(1)))


def test_an_error_after_it_is_the_steps(
    module: ModuleType, own: ProjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "c")
    with pytest.raises(RuntimeError, match="shapes"):
        post_mortem.stop_at_first_own_line(own, lambda: module.outer(torch.ones(4)))


def test_a_long_or_strange_variable_is_shown_by_its_kind(
    module: ModuleType, own: ProjectFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Rude:
        def __repr__(self) -> str:
            raise AssertionError("not requested")

    def raising(text: str, rude: Rude, nest: list[int]) -> None:
        raise ValueError

    try:
        raising("x\x1b[31m" * 100, Rude(), [1, 2])
    except ValueError as error:
        text = shown(monkeypatch, capsys, error, ProjectFiles([Path(__file__).parent]), "q")
    line = next(one for one in text.splitlines() if "rude" in one)
    assert "rude (Rude), nest (list of 2)" in line and "\x1b" not in line and len(line) < 150
