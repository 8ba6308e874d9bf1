"""What a package of DLNest's own programs says about itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.package.dlnest import original_package
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.package import PackageFolder
from tests.package.dlnest.original import STALE, original


@pytest.mark.parametrize("track", [5, "ab", {"a": 1}, [[1], {}, None, True, "3"]])
def test_tracks_of_wrong_types_are_not_read(tmp_path: Path, track: object) -> None:
    path = original(tmp_path / "old")
    (path / "_package.json").write_text(json.dumps({"ckpt_fast": track, "ckpt_consistent": [0]}))
    assert "do not exist: 0;" in OriginalPackage.open(path).describe_content()


def test_what_it_says_about_itself(tmp_path: Path) -> None:
    package = OriginalPackage.open(original(tmp_path / "Saves" / "old"))
    assert package.project == tmp_path
    assert list(package.files()) == [2, 3] and package.file(None)[0] == 3
    assert package.state == "new" and package.settings["epochs"] == 4
    missing, stale = package.notes()
    assert missing.endswith("do not exist: 0") and STALE in stale
    assert package.describe_content().startswith("a package of DLNest: Runner, checkpoints: 2, 3; ")
    with pytest.raises(NotFound, match="there are: 2, 3"):
        package.file(7)
    with pytest.raises(NotFound):
        OriginalPackage.open(tmp_path)
    assert isinstance(original_package.open_any(package.path), OriginalPackage)
    own = PackageFolder.create(tmp_path, values={}, request={})
    assert not isinstance(original_package.open_any(own.path), OriginalPackage)
