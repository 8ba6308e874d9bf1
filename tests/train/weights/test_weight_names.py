"""What a name of a file is here."""

from __future__ import annotations

import pytest

from roost.train.weights.weight_names import (
    ModuleNames,
    format_names,
    map_name,
    propose_mappings,
    strip_wrappers,
    unused_keys,
)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("module.net.weight", "net.weight"),
        ("net._orig_mod.0.module.bias", "net.0.bias"),
        ("_fsdp_wrapped_module.a._fsdp_wrapped_module.b", "a.b"),
        ("net.module", "net.module"),  # a parameter of that name
        ("modules.0.weight", "modules.0.weight"),
    ],
)
def test_what_wrappers_add_is_taken_off(name: str, plain: str) -> None:
    assert strip_wrappers(name) == plain


@pytest.mark.parametrize(
    ("name", "mapping", "to"),
    [
        ("backbone.a.weight", {"backbone.": "net.features."}, "net.features.a.weight"),
        ("module.backbone.a", {"backbone.": "net."}, "net.a"),
        ("module.backbone.a", {"module.backbone.": "net."}, "net.a"),
        ("a.b.c", {"a.": "x.", "a.b.": "y."}, "y.c"),
        ("head.weight", {"head.": None}, None),
        ("head.weight", {"": "net."}, "net.head.weight"),
        ("head.weight", {"": None, "head.": ""}, "weight"),
        ("other.weight", {"head.": None}, "other.weight"),
        ("module.other.weight", {"head.": None}, "module.other.weight"),
    ],
)
def test_mapped(name: str, mapping: dict[str, str | None], to: str | None) -> None:
    assert map_name(name, mapping) == to


def test_keys_of_a_mapping_that_nothing_begins_with() -> None:
    assert unused_keys(["module.a.w", "b.w"], {"a.": "x.", "b.": None, "c.": "y.", "": "z."}) == ["c."]


def test_names_are_found_as_they_are_before_they_are_found_bare() -> None:
    known = ModuleNames(["net._orig_mod.w", "module.a", "a", "x.module.b", "module.x.b"])
    assert known.find("net.w") == "net._orig_mod.w"
    assert known.find("module.net.w") == "net._orig_mod.w"
    assert known.find("a") == "a" and known.find("module.a") == "module.a"
    assert known.find("_orig_mod.a") is None, "two are meant"
    assert known.find("x.b") is None and known.find("nothing") is None


def test_proposals_count_what_fits_with_its_shape() -> None:
    ours = {"net.f.0.weight": (2, 2), "net.f.0.bias": (2,), "net.f.1.weight": (2, 2), "head.weight": (1, 2)}
    theirs = {"0.weight": (2, 2), "0.bias": (2,), "1.weight": (2, 2)}
    assert propose_mappings(theirs, ours)[0] == ("", "net.f.", 3)
    with_prefix = {f"backbone.{name}": shape for name, shape in theirs.items()}
    assert propose_mappings({**with_prefix, "fc.weight": (9, 2)}, ours)[0] == ("backbone.", "net.f.", 3)
    assert propose_mappings({"0.weight": (7, 7)}, ours) == []


def test_many_names_are_grouped_by_prefix() -> None:
    assert format_names(["a.w", "b.w"]) == "a.w, b.w"
    names = [f"net.a.{n}.w" for n in range(9)] + ["net.b.w", *(f"net.c.{n}" for n in range(3))]
    assert format_names(names) == "net.a.* (9), net.b.w, net.c.* (3)"
    few = format_names([f"w{n}" for n in range(9)])
    assert few.startswith("w0, w1, w2, w3, w4, w5") and "3 more" in few
