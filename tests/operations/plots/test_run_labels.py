"""What distinguishes runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import UsageError
from roost.operations.plots.run_labels import RunLabel, group_labels, read_table, run_labels
from tests.operations.packages import VALUES, package


def made(folder: Path, name: str, **values: Any) -> Path:
    model = {"features": values.pop("features", 8)}
    return package(folder, name, values={**VALUES, **values, "model": model}, checkpoints=False, rows=[]).path


def labels(*paths: Path) -> list[str]:
    return [one.text for one in run_labels(read_table(paths))]


def test_by_what_varies_in_the_given_order(tmp_path: Path) -> None:
    paths = [made(tmp_path / "runs", f"r{n}", features=n) for n in (4, 16, 8)]
    assert labels(*paths) == ["features=4", "features=16", "features=8"]
    assert labels(*paths[:1]) == ["r4"]


def test_equal_settings_are_named_by_their_packages(tmp_path: Path) -> None:
    paths = [made(tmp_path / "runs", name) for name in ("first", "second")]
    assert labels(*paths) == ["first", "second"]
    third = made(tmp_path / "runs", "third", features=3)
    assert labels(*paths, third) == ["features=8 first", "features=8 second", "features=3"]


def test_seeds_of_a_setting_share_it(tmp_path: Path) -> None:
    paths = [made(tmp_path / "runs", f"{n}-{s}", features=n, seed=s) for n in (4, 8) for s in (0, 1)]
    assert run_labels(read_table(paths)) == [
        RunLabel(f"features={n}", f"seed={s}") for n in (4, 8) for s in (0, 1)
    ]
    assert run_labels(read_table(paths[:2])) == [RunLabel("", "seed=0"), RunLabel("", "seed=1")]


def test_too_many_settings_are_no_label(tmp_path: Path) -> None:
    many = {f"key{n}": 1 for n in range(5)}
    paths = [made(tmp_path / "runs", "a"), made(tmp_path / "runs", "b", **many)]
    assert labels(*paths) == ["a", "b"]
    seeds = [made(tmp_path / "runs", f"c{s}", seed=s, **many) for s in (1, 2)]
    found = run_labels(read_table([paths[0], *seeds]))
    assert found[1].setting == found[2].setting == "c1", "the seeds of it are still one setting"


def test_packages_of_several_folders_and_by_links(tmp_path: Path) -> None:
    one, two = made(tmp_path / "a", "one", features=1), made(tmp_path / "b", "two", features=2)
    (tmp_path / "link").symlink_to(two)
    assert labels(one, tmp_path / "link") == ["features=1", "features=2"]


def test_groups_are_those_of_the_list(tmp_path: Path) -> None:
    paths = [made(tmp_path / "runs", f"{n}-{s}", features=n, seed=s) for n in (4, 8) for s in (0, 1)]
    table = read_table(paths)
    assert group_labels(table, "seed") == ["features=4"] * 2 + ["features=8"] * 2
    assert group_labels(table, "model.features") == ["model.features=4"] * 2 + ["model.features=8"] * 2
    assert group_labels(read_table(paths[:2]), "seed") == ["all runs"] * 2
    with pytest.raises(UsageError, match="featurs"):
        group_labels(table, "model.featurs")
