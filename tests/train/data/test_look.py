from __future__ import annotations

import pytest

from roost.train import seeding
from roost.train.data import look
from roost.train.data.fetch import Fetch
from tests.train.data.rings import pids
from tests.train.data.samples import Draws
from tests.train.parts import bits


@pytest.mark.parametrize(
    ("kind", "ignores", "said"),
    [
        ("seeded", False, ""),
        ("unseeded", True, ""),
        ("raises", False, ""),  # its worker says it
        ("dies", False, "is not known: the process that read a sample died\n"),
        ("hangs", False, "is not known: no sample within 0.2 s\n"),
    ],
)
def test_a_process_of_its_own_looks(
    kind: str,
    ignores: bool,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "hangs":
        monkeypatch.setattr(look, "_MOST_SECONDS", 0.2)
    dataset = Draws(kind)
    before = bits(seeding.rng_state())
    assert look.elsewhere(Fetch(dataset)) == ignores
    assert capsys.readouterr().out.endswith(said)
    assert not pids() and bits(seeding.rng_state()) == before and not dataset.was_read
