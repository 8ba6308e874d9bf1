"""The variants that a file or value describes, their names and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.config import variants
from roost.config.variants import DEFAULT, MAX_NAME, Variant, expand_variants, read_variants
from tests.messages import Messages


def names(spec: object, folder: Path) -> list[str]:
    return [one.name for one in expand_variants(spec, folder)]


def test_a_file_of_arguments_is_one_variant_called_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "wide.beam.yaml").write_text("beam: 5\nrate: 1e-3\n")
    assert read_variants(tmp_path / "wide.beam.yaml") == [Variant("wide.beam", {"beam": 5, "rate": 0.001})]
    assert names("wide.beam.yaml", tmp_path) == ["wide.beam"]


def test_grid_zip_and_list_with_base(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("beam: 7\n")
    (tmp_path / "all.yaml").write_text(
        "base: {len: 9}\ngrid: {beam: [1, 5]}\nzip: {a: [1, 2], b: [x, y]}\nlist: [{beam: 3}, own.yaml]\n"
    )
    found = read_variants(tmp_path / "all.yaml")
    assert [one.name for one in found] == [
        "a=1_b=x_beam=1",
        "a=2_b=y_beam=1",
        "a=1_b=x_beam=5",
        "a=2_b=y_beam=5",
        "beam=3",
        "own",
    ]
    assert found[1].arguments == {"len": 9, "beam": 1, "a": 2, "b": "y"}
    assert found[-1].arguments == {"len": 9, "beam": 7}


def test_a_list_may_give_the_names(tmp_path: Path) -> None:
    found = expand_variants({"base": {"len": 9}, "list": {"greedy": {"beam": 1}, "plain": {}}}, tmp_path)
    assert found == [Variant("greedy", {"len": 9, "beam": 1}), Variant("plain", {"len": 9})]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (None, [DEFAULT]),
        ({}, [DEFAULT]),
        ("beam5.yaml", ["beam5"]),
        (["beam5.yaml", {"b": 2, "a": 1}], ["beam5", "a=1_b=2"]),
        ({"sample": True, "beam": 5}, ["beam=5_sample=True"]),
        (
            {"shared_args": {"z": 0.5}, "exclu_args": [{"beam": 1}, {"alpha": None, "beam": 5}]},
            ["beam=1_z=0.5", "alpha=None_beam=5_z=0.5"],
        ),
    ],
)
def test_the_five_shapes_of_infer_cfg_have_the_documented_names(
    spec: object, found: list[str], tmp_path: Path
) -> None:
    (tmp_path / "beam5.yaml").write_text("beam: 5\n")
    assert names(spec, tmp_path) == found


def test_names_are_short_safe_and_different(tmp_path: Path) -> None:
    (name,) = names({"lm": "models/lm one.pt"}, tmp_path)
    assert name.startswith("lm=models-lm-one.pt-") and len(name) == len("lm=models-lm-one.pt-") + 8
    (name,) = names({f"argument_{number}": number for number in range(50)}, tmp_path)
    assert len(name) == MAX_NAME
    one, other = names([{"k": 1}, {"k": "1"}], tmp_path)
    assert one != other and one.startswith("k=1-") and other.startswith("k=1-")
    one, other = names([{"k": "a/b"}, {"k": "a b"}], tmp_path)
    assert one != other
    assert not names({"list": {"../..": {}}}, tmp_path)[0].startswith(".")


BAD: dict[str, Any] = {
    "one value": 5,
    "shared without exclusive": {"shared_args": {}},
    "exclusive without shared": {"exclu_args": []},
    "shared arguments that are no mapping": {"shared_args": [], "exclu_args": [{}]},
    "exclusive arguments that are no list": {"shared_args": {}, "exclu_args": {}},
    "an exclusive argument that is shared": {"shared_args": {"b": 1}, "exclu_args": [{"b": 2}]},
    "an argument beside the grid": {"grid": {"beam": [1]}, "len": 5},
    "a misspelt part": {"grid": {"beam": [1]}, "bas": {}},
    "a grid over one value": {"grid": {"beam": 1}},
    "an empty list in the grid": {"grid": {"beam": []}},
    "lists of zip that differ in length": {"zip": {"a": [1], "b": [1, 2]}},
    "a key in base and in grid": {"base": {"beam": 1}, "grid": {"beam": [1]}},
    "an item of another type": [3],
    "an empty list": {"list": []},
    "the same twice": [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    "two files of one name": ["one/a.yaml", "two/a.yaml"],
    "too many": {"grid": {"a": list(range(200)), "b": list(range(200))}},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_descriptions(what: str, tmp_path: Path, messages: Messages) -> None:
    for number, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.yaml").write_text(f"beam: {number}\n")
    with pytest.raises(ConfigError) as caught:
        expand_variants(BAD[what], tmp_path)
    messages.check(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "beam.yaml").write_text("beam: 5\n")
    with pytest.raises(NotFound, match=r"did you mean 'beam\.yaml'"):
        expand_variants("bean.yaml", tmp_path)
    with pytest.raises(NotFound, match="fix: correct the path; or write the file"):
        expand_variants("other.yaml", tmp_path)


def test_more_than_the_limit_are_never_built(tmp_path: Path) -> None:
    keys = {f"k{number}": list(range(100)) for number in range(20)}
    with pytest.raises(ConfigError, match=f"{variants.MAX_VARIANTS:,}"):
        expand_variants({"grid": keys}, tmp_path)
