"""Tags, references, and lists and mappings in texts: each value keeps its type, and nothing is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.operations.converting.speechain_values import find_file, parse_value, read_file, rewrite
from tests.messages import Messages


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("1e-3", 1e-3),
        ("[a,[b]]", ["a", ["b"]]),
        ("[-1, 1e-3, true, null, x]", [-1, 1e-3, True, None, "x"]),
        ("(valid, accuracy, max, 10)", ["valid", "accuracy", "max", 10]),
        ("[(a,max,1),(b,min,2)]", [["a", "max", 1], ["b", "min", 2]]),
        ("{a:{b:1}}", {"a": {"b": 1}}),
        ("{a:[1,{b:2}],c:'x,y'}", {"a": [1, {"b": 2}], "c": "x,y"}),
        ("[]", []),
        ("{}", {}),
        ("[0.5]", [0.5]),
        ("tcp://127.0.0.1", "tcp://127.0.0.1"),
        ("a b", "a b"),
        ("[a b, c]", ["a b", "c"]),
    ],
)
def test_a_text_has_its_types(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value and repr(found) == repr(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a:{b:1}", {"a": {"b": 1}}), ("a:-1,b:1e-3", {"a": -1, "b": 1e-3}), ("x.yaml", "x.yaml")],
)
def test_a_mapping_needs_no_braces(text: str, value: Any) -> None:
    assert parse_value(text, is_mapping=True) == value


@pytest.mark.parametrize("text", ["[a", "[a]]", "{a}", "{a:1", "[[a] b]", "[" * 200 + "]" * 200])
def test_brackets_that_do_not_match(text: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as error:
        parse_value(text)
    messages.check(error.value)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "exp.yaml"
    file.write_text(text)
    return file


def test_each_tag(tmp_path: Path) -> None:
    text = """
root: data
size: 8
sizes: [2, [3, 4]]
rate: 1e-3
whole: !ref <size>
rates: {deep: !ref <rate>}
item: !ref <sizes[1][0]>
text: !ref <root>/<size>/x
plain: !ref no brackets
number: !str 10
listed: !list [-1, 1e-3, [a, 0.5]]
tuple: !tuple (random, 0.5)
dumped: !!python/tuple [a, 1]
later: !ref <end>
end: !ref <whole>
costs: ${size} dollars
"""
    found = read_file(written(tmp_path, text))
    assert found.values == {
        "root": "data",
        "size": 8,
        "sizes": [2, [3, 4]],
        "rate": 1e-3,
        "whole": 8,
        "rates": {"deep": 1e-3},
        "item": 3,
        "text": "data/8/x",
        "plain": "no brackets",
        "number": "10",
        "listed": [-1, 1e-3, ["a", 0.5]],
        "tuple": ["random", 0.5],
        "dumped": ["a", 1],
        "later": 8,
        "end": 8,
        "costs": "${size} dollars",  # not a reference there
    }


def test_references_become_those_of_a_config(tmp_path: Path) -> None:
    found = read_file(
        written(tmp_path, "a: 1\nseed: 3\nb: !ref <a>/<seed>\nc: [!ref <seed>, !ref <a>]\nd: ${a}\n")
    )
    kept = {name: found.written[name] for name in ("b", "c", "d")}
    assert rewrite(kept, lambda name: f"own.{name}" if name == "a" else None, found.values) == {
        "b": "${own.a}/3",
        "c": [3, "${own.a}"],
        "d": "$${a}",
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [touch hacked]",
        "a: !!python/name:os.system",
        "a: !!python/object/new:pathlib.Path [x]",
        "a: !exec rm",
        "a: !tuple {b: 1}",
        "a: !ref <b>\nb: !ref <a>",
        "a: !ref <a>",
        "a: !ref <missing>",
        "a: !ref <b[3]>\nb: [1]",
        "a: !ref <x.y>",
        "a: !tuple (b, (c)",
        "a: &a [*a]",
    ],
    ids=range(12),
)
def test_refused(tmp_path: Path, text: str, messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        read_file(written(tmp_path, text))
    messages.check(error.value)
    assert not (tmp_path / "hacked").exists()


def test_bombs_are_refused(tmp_path: Path, messages: Messages) -> None:
    anchors = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    references = "a0: [x]\n" + "".join(
        f"a{n}: [{', '.join([f'!ref <a{n - 1}>'] * 10)}]\n" for n in range(1, 9)
    )
    texts = "a0: xxxxxxxxxx\n" + "".join(f"a{n}: !ref {f'<a{n - 1}>' * 10}\n" for n in range(1, 9))
    for text in (anchors, references, texts, "a: " + "[" * 100 + "]" * 100):
        with pytest.raises(ConfigError) as error:
            read_file(written(tmp_path, text))
        messages.check(error.value)


def test_a_path_is_looked_up_around_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "root" / "recipes" / "exp_cfg" / "exp.yaml"
    file = tmp_path / "root" / "recipes" / "data.yaml"
    config.parent.mkdir(parents=True)
    file.write_text("")
    assert find_file("recipes/data.yaml", config, "data_cfg", None) == file
    assert find_file(str(file), config, "data_cfg", None) == file
    elsewhere = tmp_path / "elsewhere" / "exp.yaml"
    with pytest.raises(NotFound) as error:
        find_file("recipes/data.yaml", elsewhere, "data_cfg", "exp.yaml:3")
    assert error.value.setting == "data_cfg" and "SPEECHAIN_ROOT" in str(error.value)
    monkeypatch.setenv("SPEECHAIN_ROOT", str(tmp_path / "root"))
    assert find_file("recipes/data.yaml", elsewhere, "data_cfg", None) == file
