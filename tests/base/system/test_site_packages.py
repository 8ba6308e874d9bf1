from __future__ import annotations

import pytest

from roost.base.system.site_packages import is_installed


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/venv/lib/python3.11/site-packages/numpy/__init__.py", True),
        ("/usr/lib/python3/dist-packages/numpy", True),
        ("/home/me/my-site-packages/x.py", False),
        ("None", False),
    ],
)
def test_by_its_folders(path: str, is_one: bool) -> None:
    assert is_installed(path) == is_one
