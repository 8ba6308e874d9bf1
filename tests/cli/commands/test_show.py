"""`roost show`: what cannot be meant; tests/system/test_show_data.py looks at data."""

from __future__ import annotations

import pytest

from tests.cli.programs import roost


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no package is named. To mend it: roost show runs/NAME"),
        (["a", "b"], "shows one package; received 'a b'"),
        (["a", "-f", "b.yaml"], "-f is for --data"),
        (["--data"], "no config is named. To mend it: roost show --data config.yaml"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], said: str) -> None:
    came = roost("show", *arguments)
    assert came.returncode == 2 and said in came.stderr and came.stdout == ""


def test_its_help_has_examples() -> None:
    assert "roost show --data config.yaml data.num_workers=4" in roost("show", "--help").stdout
