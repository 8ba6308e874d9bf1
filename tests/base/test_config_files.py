"""Reading JSON and YAML: values by the core schema of YAML 1.2, lines of keys, and refused files."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.config_files import MAX_BYTES, Location, parse_scalar, read_config_file
from roost.base.errors import ConfigError, NotFound, RoostError
from tests.messages import Messages


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def values(folder: Path, text: str, name: str = "config.yaml") -> dict[str, Any]:
    return read_config_file(write(folder, name, text)).values


def refusal(folder: Path, text: str | bytes, name: str = "config.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        read_config_file(write(folder, name, text))
    assert caught.value.exit_code == 4
    return str(caught.value)


SCALARS = [
    ("1e-3", 0.001),
    ("1E3", 1000.0),
    ("-.5", -0.5),
    ("5.", 5.0),
    ("+1.5e+2", 150.0),
    (".inf", math.inf),
    ("-.Inf", -math.inf),
    ("010", 10),
    ("+3", 3),
    ("-7", -7),
    ("0o17", 15),
    ("0x1f", 31),
    ("1_000", "1_000"),
    ("0b1", "0b1"),
    ("no", "no"),
    ("yes", "yes"),
    ("on", "on"),
    ("Off", "Off"),
    ("y", "y"),
    ("true", True),
    ("False", False),
    ("tRUE", "tRUE"),
    ("null", None),
    ("~", None),
    ("nil", "nil"),
    ("12:30", "12:30"),
    ("2026-01-01", "2026-01-01"),
    ("2026-01-01 10:00:00", "2026-01-01 10:00:00"),
    ("=", "="),
    ("1.2.3", "1.2.3"),
    ("e5", "e5"),
    ("0x", "0x"),
    ("90min", "90min"),
    ("10/ep", "10/ep"),
]


@pytest.mark.parametrize(("text", "expected"), SCALARS)
def test_core_scalars(tmp_path: Path, text: str, expected: object) -> None:
    for value in (values(tmp_path, f"a: {text}\n")["a"], parse_scalar(text)):
        assert value == expected
        assert type(value) is type(expected)


def test_nan_and_empty_values(tmp_path: Path) -> None:
    read_back = values(tmp_path, "a: .nan\nb:\nc: ''\nd: {}\ne: []\n")
    assert math.isnan(read_back.pop("a"))
    assert read_back == {"b": None, "c": "", "d": {}, "e": []}


def test_quoted_and_block_texts_stay_texts(tmp_path: Path) -> None:
    read_back = values(tmp_path, "a: '1'\nb: \"no\"\nc: |\n  1\n  2\nd: >\n  x\n  y\n'<<': 1\n")
    assert read_back == {"a": "1", "b": "no", "c": "1\n2\n", "d": "x y\n", "<<": 1}


def test_keys_are_texts_as_they_stand(tmp_path: Path) -> None:
    assert values(tmp_path, "1: a\ntrue: b\n1e-3: c\nno: d\n") == {
        "1": "a",
        "true": "b",
        "1e-3": "c",
        "no": "d",
    }


def test_core_tags(tmp_path: Path) -> None:
    text = "a: !!str 1\nb: !!int '3'\nc: !!float 3\nd: !!map {x: 1}\ne: !!seq [1]\nf: ! 5\ng: !!null ''\n"
    read_back = values(tmp_path, text)
    assert read_back == {"a": "1", "b": 3, "c": 3.0, "d": {"x": 1}, "e": [1], "f": "5", "g": None}
    assert type(read_back["c"]) is float


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("a: 1\nb: !!python/object/apply:os.system [x]\n", "!!python/object/apply:os.system"),
        ("a: 1\nb: !!python/name:os.system ''\n", "!!python/name:os.system"),
        ("a: 1\nb: !mine x\n", "!mine"),
        ("a: 1\nb: !ref <a>\n", "!ref"),
        ("a: 1\nb: !!set {x}\n", "!!set"),
        ("a: 1\nb: !!timestamp 2026-01-01\n", "!!timestamp"),
        ("a: 1\n!mine b: x\n", "!mine"),
        ("a: 1\nb: !!binary aGk=\n", "!!binary"),
    ],
)
def test_other_tags_are_refused(tmp_path: Path, text: str, tag: str, messages: Messages) -> None:
    message = refusal(tmp_path, text)
    assert f" {tag} " in message and "config.yaml:2" in message
    messages.check(message)


def test_a_core_tag_must_fit(tmp_path: Path, messages: Messages) -> None:
    message = refusal(tmp_path, "a: !!int x")
    messages.check(message)
    assert "config.yaml:1" in message and "'x'" in message


YAML = """\
# a comment
data:
  batch_size: 4   # line 3
  valid: {batch_size: 8,
          num_workers: 2}
list:
  - a
  - b: 1
    c: 2
"""


def test_lines_of_yaml_keys(tmp_path: Path) -> None:
    located = read_config_file(write(tmp_path, "config.yaml", YAML))
    expected = {
        ("data",): 2,
        ("data", "batch_size"): 3,
        ("data", "valid"): 4,
        ("data", "valid", "num_workers"): 5,
        ("list",): 6,
        ("list", 0): 7,
        ("list", 1, "c"): 9,
    }
    for path, line in expected.items():
        assert str(located.where(path)) == f"config.yaml:{line}"


def test_lines_of_json_keys(tmp_path: Path) -> None:
    text = '{\n"a": 1, "b\\n":\n {"c": [1,\n {"d": "x\\"}"}, []]},\n\n"e": true}'
    located = read_config_file(write(tmp_path, "config.json", text))
    assert located.values == json.loads(text)
    expected = {
        ("a",): 2,
        ("b\n",): 2,
        ("b\n", "c"): 3,
        ("b\n", "c", 1): 4,
        ("b\n", "c", 1, "d"): 4,
        ("e",): 6,
    }
    for path, line in expected.items():
        assert str(located.where(path)) == f"config.json:{line}"


def test_where_falls_back_to_the_section_around(tmp_path: Path) -> None:
    located = read_config_file(write(tmp_path, "config.yaml", YAML))
    assert located.where(("data", "shuffle")) == Location(tmp_path / "config.yaml", 2, "config.yaml")
    assert located.where(("optimizers", "main")) is None
    assert located.where(()) is None


def test_a_file_can_be_shown_by_another_name(tmp_path: Path) -> None:
    located = read_config_file(write(tmp_path, "x.yaml", "a: 1\n"), display_name="conf/x.yaml")
    assert str(located.where(("a",))) == "conf/x.yaml:1"
    assert str(Location(tmp_path / "x.yaml", 3)) == "x.yaml:3"


def test_merge_keys(tmp_path: Path, messages: Messages) -> None:
    text = (
        "base: &b {x: 1, y: {z: 1}}\nother: &o {x: 5, w: 6}\none:\n  x: 2\n  <<: *b\ntwo:\n  <<: [*b, *o]\n"
    )
    located = read_config_file(write(tmp_path, "config.yaml", text))
    assert located.values["one"] == {"x": 2, "y": {"z": 1}}
    assert located.values["two"] == {"x": 1, "y": {"z": 1}, "w": 6}
    assert str(located.where(("one", "x"))) == "config.yaml:4"
    assert str(located.where(("one", "y", "z"))) == "config.yaml:5"
    message = refusal(tmp_path, "<<: 3\n")
    messages.check(message)
    assert "`<<`" in message and "config.yaml:1" in message


def test_duplicate_keys_are_refused_with_both_lines(tmp_path: Path, messages: Messages) -> None:
    message = refusal(tmp_path, "x:\n  a: 1\n  b: 1\n  a: 2\n")
    messages.check(message)
    assert all(fact in message for fact in ("'a'", "config.yaml:2", "config.yaml:4"))
    message = refusal(tmp_path, '{"x":\n{"a": 1,\n"b": 1,\n"a": 2}}', "config.json")
    messages.check(message)
    assert all(fact in message for fact in ("'a'", "config.json:2", "config.json:4"))
    messages.check(refusal(tmp_path, "1: a\n'1': b\n"))
    message = refusal(tmp_path, "a: &a {}\nb:\n  <<: *a\n  <<: *a\n")
    messages.check(message)
    assert "'<<'" in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_json_refuses_what_is_no_number(tmp_path: Path, number: str, messages: Messages) -> None:
    message = refusal(tmp_path, f'{{"a":\n [1, {number}]}}', "config.json")
    messages.check(message)
    assert number in message and "config.json:2" in message


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("config.yaml", "a: 1e999\n", ["1e999", "config.yaml:1"]),
        ("config.yaml", "a: *b\n", ["config.yaml:1"]),
        ("config.yaml", "a: &a [*a]\n", ["config.yaml:1"]),
        ("config.yaml", "? [a]\n: 1\n", ["config.yaml:1"]),
        ("config.yaml", "a: &x b\n*x : 1\n", ["config.yaml:2"]),
        ("config.yaml", "a: 1\n---\nb: 1\n", ["config.yaml:2"]),
        ("config.yaml", "- a\n", ["config.yaml:1"]),
        ("config.yaml", "text", []),
        ("config.yaml", "", ["config.yaml"]),
        ("config.yaml", "# nothing\n", ["config.yaml"]),
        ("config.json", "[1]", []),
        ("config.toml", "a = 1\n", [".yaml", ".yml", ".json"]),
        ("config.yaml", b"a: 1\nb: \xff\n", ["UTF-8", "config.yaml:2"]),
    ],
)
def test_bad_files(
    tmp_path: Path, name: str, text: str | bytes, facts: list[str], messages: Messages
) -> None:
    message = refusal(tmp_path, text, name)
    messages.check(message)
    assert name in message and all(fact in message for fact in facts)


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("config.yaml", "a: [1, 2\nb: 3\n", r"YAML.*config\.yaml:[23]\)"),
        ("config.yaml", "a: 'x\n", r"YAML.*quoted scalar.*config\.yaml:"),
        ("config.yaml", "a: \x00\n", r"YAML.*config\.yaml:1"),
        ("config.json", "", r"JSON: the file is empty.*config\.json:1\)"),
        ("config.json", '{"a": 1,\n}', r"JSON.*config\.json:[12]\)"),
        ("config.json", r'{"a": "\ud800"}', r"surrogates not allowed.*config\.json:1"),
    ],
)
def test_bad_files_in_the_words_of_the_library(tmp_path: Path, name: str, text: str, facts: str) -> None:
    assert re.search(facts, refusal(tmp_path, text, name), re.DOTALL)


@pytest.mark.parametrize(
    ("name", "begin", "end", "line"),
    [
        ("config.yaml", "a:\n  b: ", "", 2),
        ("config.yaml", "a: !!int ", "", 1),
        ("config.yaml", "a: 0x", "", 1),
        ("config.yaml", "a: ", ".0", 1),
        ("config.json", '{"a": -', "}", 1),
    ],
)
def test_a_number_of_5000_digits(
    tmp_path: Path, name: str, begin: str, end: str, line: int, messages: Messages
) -> None:
    message = refusal(tmp_path, begin + "7" * 5000 + end, name)
    messages.check(message)
    assert "777… is too long for a number" in message and f"{name}:{line}" in message


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    located = read_config_file(write(tmp_path, "config.yaml", b"\xef\xbb\xbfa: 1\r\nb: x\r\n"))
    assert located.values == {"a": 1, "b": "x"}
    assert str(located.where(("b",))) == "config.yaml:2"
    assert read_config_file(
        write(tmp_path, "config.json", b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}')
    ).values == {"a": "😀"}


@pytest.mark.parametrize("name", ["config.yaml", "config.json"])
@pytest.mark.parametrize("depth", [65, 1_000, 500_000])
def test_depth_is_limited(tmp_path: Path, name: str, depth: int, messages: Messages) -> None:
    # `depth` mappings and lists, the outermost mapping included.
    text = '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"
    message = refusal(tmp_path, text, name)
    messages.check(message)
    assert "64" in message


@pytest.mark.parametrize("name", ["config.yaml", "config.json"])
def test_depth_64_is_fine(tmp_path: Path, name: str) -> None:
    text = '{"a": ' + "[" * 63 + "]" * 63 + "}"
    assert read_config_file(write(tmp_path, name, text)).values == json.loads(text)


def test_aliases_cannot_multiply(tmp_path: Path, messages: Messages) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(9)
    )
    message = refusal(tmp_path, bomb)
    messages.check(message)
    assert "1000000" in message


def test_aliases_cannot_nest(tmp_path: Path, messages: Messages) -> None:
    chain = "a0: &a0 []\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))
    message = refusal(tmp_path, chain)
    messages.check(message)
    assert "64" in message and "config.yaml:6" in message


def test_size_is_limited(tmp_path: Path, messages: Messages) -> None:
    message = refusal(tmp_path, b"#" * (MAX_BYTES + 1))
    messages.check(message)
    assert "10 MiB" in message


def test_what_is_no_file(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as caught:
        read_config_file(tmp_path / "none.yaml")
    messages.check(caught.value)
    assert caught.value.exit_code == 3
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    for name in ("folder", "fifo", "zero"):
        with pytest.raises(ConfigError) as refused:
            read_config_file(tmp_path / f"{name}.yaml")
        messages.check(refused.value)
        assert f"{name}.yaml" in str(refused.value)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(RoostError) as unreadable:
        read_config_file(tmp_path / "loop.yaml")
    messages.check(unreadable.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 1e-3, no]", [1, 0.001, "no"]),
        ("{b: 1, c: {d: x}}", {"b": 1, "c": {"d": "x"}}),
        ("text", "text"),
        ("'1'", "1"),
        ('"a\\nb"', "a\nb"),
        ("*.bias", "*.bias"),
        ("run: #3", "run: #3"),
        ("@x", "@x"),
        ("%", "%"),
        ("a b", "a b"),
        (" 3 ", 3),
        ("", ""),
        ("- a", "- a"),
        ("&x", "&x"),
        ("!!str 3", "!!str 3"),
        ("a=b", "a=b"),
        ("${total_steps}", "${total_steps}"),
        ("Model/Net.py:Net", "Model/Net.py:Net"),
    ],
)
def test_values_of_the_command_line(text: str, expected: object) -> None:
    assert parse_scalar(text) == expected


@pytest.mark.parametrize(
    "text", ["[1, 2", "{a: 1", "'x", "[1] 2", "[!!python/name:os.system '']", "{a: 1, a: 2}"]
)
def test_bad_values_of_the_command_line(text: str) -> None:
    with pytest.raises(ConfigError, match="at command line"):
        parse_scalar(text)


def test_a_value_that_is_no_text_at_all(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_scalar("[\udcff]")
    messages.check(refused.value)
    assert "YAML" in str(refused.value)


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
trees = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(tree=trees)
def test_json_round_trip(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    text = json.dumps(tree, indent=1)
    assert read_config_file(write(tmp_path_factory.getbasetemp(), "round.json", text)).values == tree


plain_trees = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.from_regex(r"[a-z ]{0,9}", fullmatch=True),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner, max_size=3)
        ),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(tree=plain_trees)
def test_yaml_round_trip(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    path = write(tmp_path_factory.getbasetemp(), "round.yaml", yaml.dump(tree))
    assert read_config_file(path).values == tree


def test_a_file_that_is_nearly_named_is_suggested(tmp_path: Path) -> None:
    write(tmp_path, "freq_config.json", "{}")
    with pytest.raises(NotFound, match=r"did you mean 'freq_config\.json'"):
        read_config_file(tmp_path / "frq_config.json")
    with pytest.raises(NotFound) as refused:
        read_config_file(tmp_path / "elsewhere" / "freq_config.json")
    assert refused.value.fix is None
