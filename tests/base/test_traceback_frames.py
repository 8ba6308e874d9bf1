from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from traceback import FrameSummary
from types import ModuleType
from typing import Any

import pytest
import torch

from roost.base import traceback_frames
from roost.base.exception_record import record_exception
from roost.base.traceback_frames import ProjectFiles
from tests.messages import Messages


def module(folder: Path, code: str, name: str = "net.py") -> ModuleType:
    """Code of a person, imported from a file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def traceback_lines(folder: Path, function: Any, *arguments: object) -> list[str]:
    with pytest.raises(BaseException) as found:
        function(*arguments)
    return list(traceback_frames.format_chain(record_exception(found.value), ProjectFiles([folder])))


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_own_lines_with_code_and_the_others_as_a_count(tmp_path: Path) -> None:
    code = (
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return self.inner(x)\n"
        "    def inner(self, x):\n"
        "        return torch.nn.functional.cross_entropy(x, x, reduction='no such')\n"
    )
    net = module(tmp_path, code, "Model/net.py").Net()
    first, second, third, *rest = [traceback_lines(tmp_path, net, torch.ones(2, 2))[n] for n in (0, 2, 4, 5)]
    assert (first, second) == ("  Model/net.py:4 in forward", "  Model/net.py:6 in inner")
    assert third.startswith("  … ") and " torch" in third
    assert rest == ["ValueError: no such is not a valid value for reduction"]


def test_foreign_code_between_own_lines_is_counted(tmp_path: Path, messages: Messages) -> None:
    net = module(tmp_path, "import json\ndef f():\n    json.dumps(1, cls=C)\n\n"
                 "class C(json.JSONEncoder):\n    def encode(self, o):\n        return super().encode({1})\n"
                 "    def default(self, o):\n        raise ValueError('x')\n")  # fmt: skip
    shown = traceback_lines(tmp_path, net.f)
    messages.check(shown[2])
    assert shown[0] == "  net.py:3 in f" and shown[2].startswith("  … 1 ") and "Python" in shown[2]
    assert shown[3:5] == ["  net.py:7 in encode", "    return super().encode({1})"]
    assert shown[5].startswith("  … ") and "Python" in shown[5] and shown[6] == "  net.py:9 in default"


def test_without_an_own_line(tmp_path: Path) -> None:
    shown = traceback_lines(tmp_path, json.loads, "{")
    assert "Python" in shown[0] and "test_traceback_frames" in shown[0]
    assert shown[1].startswith("json.decoder.JSONDecodeError: Expecting property name")


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (torch.__file__, "torch"),
        (traceback_frames.__file__, "roost"),
        (json.__file__, "Python"),
        ("<frozen runpy>", "Python"),
        ("<string>", "generated code"),
        ("/venv/lib/python3.11/site-packages/six.py", "six"),
        ("/venv/lib/python3.11/dist-packages/a/b/c.py", "a"),
        ("/home/me/tool.py", "tool"),
    ],
)
def test_whose_code_it_is(file: str, whose: str) -> None:
    assert traceback_frames.library_name(file) == whose


def test_a_library_beside_the_project_goes_by_its_package(tmp_path: Path) -> None:
    for part in ("mylib", "mylib/inner"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "__init__.py").touch()
    assert traceback_frames.library_name(str(tmp_path / "mylib" / "inner" / "x.py")) == "mylib"


def test_what_is_own(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    own = ProjectFiles([tmp_path / "link", tmp_path / "other"])
    assert (
        own.relative_name(str(tmp_path / "link" / "a.py"))
        == own.relative_name(str(tmp_path / "real" / "a.py"))
        == "a.py"
    )
    assert own.relative_name(str(tmp_path / "other" / "b" / "c.py")) == "b/c.py"
    assert own.relative_name(str(tmp_path / "real" / ".venv" / "site-packages" / "x.py")) is None
    assert own.relative_name(str(tmp_path / "elsewhere.py")) is None and own.relative_name("<string>") is None
    assert (
        ProjectFiles([Path(traceback_frames.__file__).parent]).relative_name(traceback_frames.__file__)
        is None
    ), "roost itself never is"


def test_a_recursion_is_one_entry(tmp_path: Path) -> None:
    net = module(tmp_path, "def f(n):\n    return f(n + 1)\n")
    shown = traceback_lines(tmp_path, net.f, 0)
    assert shown[:2] == ["  net.py:2 in f", "    return f(n + 1)"]
    assert re.fullmatch(r"    … \D*\d+\D* …", shown[2])
    assert shown[3].startswith("RecursionError: maximum recursion depth exceeded") and len(shown) == 4


def test_a_recursion_of_two_is_capped(tmp_path: Path) -> None:
    net = module(tmp_path, "def f(n):\n    return g(n + 1)\ndef g(n):\n    return f(n + 1)\n")
    shown = traceback_lines(tmp_path, net.f, 0)
    assert len(shown) < 50 and any(re.fullmatch(r"\s*… \D*\d+\D* …", line) for line in shown)
    assert shown[-1].startswith("RecursionError")


def test_a_syntax_error_shows_its_line_and_a_caret(tmp_path: Path) -> None:
    shown = traceback_lines(tmp_path, module, tmp_path, "x = 1\n    y = = 2\n")
    assert shown == ["  net.py:2", "    y = = 2", "IndentationError: unexpected indent"]
    shown = traceback_lines(tmp_path, module, tmp_path, "if x:\n    y = = 2\n")
    assert shown == ["  net.py:2", "    y = = 2", "        ^", "SyntaxError: invalid syntax"]


def test_chains_are_told_oldest_first(tmp_path: Path) -> None:
    net = module(tmp_path, "def f():\n    try:\n        {}['a']\n    except KeyError as error:\n"
                 "        raise ValueError('no a') from error\n")  # fmt: skip
    shown = traceback_lines(tmp_path, net.f)
    assert shown[2] == "KeyError: 'a'" and "direct cause" in shown[4] and shown[-1] == "ValueError: no a"
    net = module(
        tmp_path, "def f():\n    try:\n        {}['a']\n    except KeyError as error:\n        error.x\n"
    )
    assert "During handling" in traceback_lines(tmp_path, net.f)[4]


def test_groups_show_each_of_theirs(tmp_path: Path) -> None:
    net = module(tmp_path, "def one():\n    raise ValueError('a')\n"
                 "def f():\n    try:\n        one()\n    except ValueError as error:\n"
                 "        raise ExceptionGroup('both', [error, TypeError('b')]) from None\n")  # fmt: skip
    shown = traceback_lines(tmp_path, net.f)
    assert shown[2] == "ExceptionGroup: both (2 sub-exceptions)"
    assert "    net.py:5 in f" in shown and "  ValueError: a" in shown and shown[-1] == "  TypeError: b"


def test_a_huge_message_and_one_of_many_lines_are_cut(messages: Messages) -> None:
    own = ProjectFiles([])
    (line,) = traceback_frames.format_chain(record_exception(ValueError("x" * 10**6)), own)
    assert len(line) < 500
    shown = list(
        traceback_frames.format_chain(record_exception(ValueError("\n".join(map(str, range(100))))), own)
    )
    messages.check(shown[-1])
    assert len(shown) == 13 and shown[-1].startswith("… 88 ")
    shown = list(
        traceback_frames.format_chain(record_exception(ValueError("a\nb")), own, first_line_only=True)
    )
    assert shown[0] == "ValueError: a" and shown[1].startswith("… 1 ") and len(shown) == 2


def test_nothing_gets_at_the_terminal() -> None:
    text = "\x1b]0;title\x07 \x1b[31mred \udcff \u202e rtl \x9b\r"
    shown = traceback_frames.escape_control(text)
    assert shown == "\\x1b]0;title\\x07 \\x1b[31mred \\udcff \\u202e rtl \\x9b\\r"
    assert traceback_frames.escape_control("straße 数据\u3000ok\n\t") == "straße 数据\u3000ok\n\t"
    (line,) = traceback_frames.format_chain(record_exception(ValueError("\x1b[2J")), ProjectFiles([]))
    assert line == "ValueError: \\x1b[2J"


def test_an_empty_traceback() -> None:
    assert traceback_frames.format_project_frames(record_exception(ValueError("x")), ProjectFiles([])) == []
    assert list(traceback_frames.format_chain(record_exception(ValueError()), ProjectFiles([]))) == [
        "ValueError"
    ]


def test_a_file_that_is_gone_has_no_code(tmp_path: Path) -> None:
    file = str(tmp_path / "gone.py")
    found = replace(record_exception(ValueError("x")), frames=(FrameSummary(file, 3, "f"),))
    assert traceback_frames.format_project_frames(found, ProjectFiles([tmp_path])) == ["  gone.py:3 in f"]


def test_in_one_line() -> None:
    error = ValueError("first\nsecond \x1b[2J")
    error.add_note("noted")
    assert traceback_frames.exception_summary(record_exception(error)) == "ValueError: first; noted"
    assert len(traceback_frames.exception_summary(record_exception(ValueError("x" * 10**6)))) < 510
    assert traceback_frames.exception_summary(record_exception(ValueError())) == "ValueError"
