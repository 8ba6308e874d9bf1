"""`roost show`: what cannot be meant; tests/system/test_show_data.py looks at data."""

from __future__ import annotations

import pytest

from tests.cli.programs import roost
from tests.messages import Messages


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "roost show runs/NAME"),
        (["a", "b"], "'a b'"),
        (["a", "-f", "b.yaml"], "-f"),
        (["--data"], "roost show --data config.yaml"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], said: str, messages: Messages) -> None:
    came = roost("show", *arguments)
    assert came.returncode == 2 and said in came.stderr and came.stdout == ""
    messages.check(came.stderr)


def test_its_help_has_examples() -> None:
    assert "roost show --data config.yaml data.num_workers=4" in roost("show", "--help").stdout
