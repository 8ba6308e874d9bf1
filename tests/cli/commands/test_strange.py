"""Reading commands on packages whose JSON is torn or was edited: one clear line, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.cli.__main__ import run_command
from roost.operations.reading.logs import logs
from roost.operations.reading.package_schema import DamagedPackage
from tests.operations.packages import package, session

WHOLE = ["null", "[]", "{}", '""', '"text"', "3", "[[1, 2]]", '[["state", 3]]', "", "{", "\x00", "[" * 5000]
VALUES: list[Any] = [
    None, [], {}, "", "12", "text", "\ud800", -1, 3, 10**30, 1e300, float("nan"), True, [None], {"a": {}},
]  # fmt: skip


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, from the top down; of records with the same keys the first two."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    seen: Counter[frozenset[str]] = Counter()
    for name, inner in items:
        if isinstance(inner, dict) and inner:
            seen[frozenset(inner)] += 1
            if seen[frozenset(inner)] > 2:
                continue
        yield (*path, name)
        yield from paths(inner, (*path, name))


def mutations(text: str) -> Iterator[str]:
    """The file with another thing in place of all, of each value, and without each key."""
    yield from WHOLE
    for path in paths(json.loads(text)):
        for value in [*VALUES, ...]:
            body = json.loads(text)
            home = body
            for name in path[:-1]:
                home = home[name]
            if value is ...:
                del home[path[-1]]
            else:
                home[path[-1]] = value
            yield json.dumps(body)


def said(*arguments: object) -> tuple[int, str, str]:
    """As the real program answers; in this process, for there are thousands."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(one) for one in arguments])
        out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]


COMMANDS = ("ls", "show", "ls --json", "show --json", "verify")


def check(file: Path, changed: str, path: Path, number: int) -> None:
    """Shows the package by two of the commands, in turn: of the values at a place each command sees six."""
    for command in (COMMANDS[number % 5], COMMANDS[(number + 2) % 5]):
        name, *options = command.split()
        code, out, err = said(name, path, *options)
        about = f"{command} with {file.name} = {changed[:300]!r}: {code} {out[-300:]} {err}"
        assert code in (0, 1, 3), about
        assert "--debug" not in err and "Traceback" not in err and len(err.splitlines()) <= 1, about
        if name == "ls":
            assert code == 0 and "one" in out, about
    assert b"".join(logs(path)) == b"printed\n"


@pytest.mark.parametrize(
    "name",
    [
        "request.json",
        "args.json",
        "provenance.json",
        "manifest.json",
        "_package.json",
        "sessions/1.request.json",
        "sessions/1.json",
        "sessions/2.json",
        "Checkpoints/state_1.ckpt/MANIFEST.json",
        "Checkpoints/state_1.ckpt/model.json",
    ],
)
def test_any_value_anywhere(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = package(tmp_path / "runs", state="stopped")
    session(made, "running")
    made.output.write_bytes(b"printed\n")
    file = made.path / name
    text = file.read_text()
    for number, changed in enumerate(mutations(text)):
        file.write_text(changed, errors="surrogatepass")
        check(file, changed, made.path, number)


@pytest.mark.parametrize("name", ["_package.json", "sessions/1.json", "sessions/1.request.json"])
@pytest.mark.parametrize("value", WHOLE[:6])
def test_plot_and_a_log_that_is_followed(
    tmp_path: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "roost.operations.plots.plot_drawing.draw", lambda picture, kind: b""
    )  # half a second each
    made = package(tmp_path / "runs", state="stopped")
    request = made.path / "sessions" / "1.request.json"
    request.write_text(request.read_text().replace('"boot_id": "', '"boot_id": "an earlier one '))
    (made.path / name).write_text(value)
    code, out, err = said("plot", made.path, "-o", tmp_path / "a.png")
    assert code in (0, 1) and "--debug" not in err and len(err.splitlines()) == 1, (code, out, err)
    with contextlib.suppress(DamagedPackage):
        assert list(logs(made.path, follow=True)) == []


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    made.path.rename(tmp_path / "runs" / "one\udcff")
    for arguments in (
        ["ls", tmp_path],
        ["ls", tmp_path, "--json"],
        ["show", tmp_path / "runs" / "one\udcff"],
    ):
        code, out, err = said(*arguments)
        assert code == 0 and "one" in out and "udcff" in out and err == ""
