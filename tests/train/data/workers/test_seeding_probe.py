from __future__ import annotations

import pytest

from roost.train.data.fetch import BatchFetcher
from roost.train.data.workers import seeding_probe
from roost.train.step import seeding
from tests.messages import Messages
from tests.train.data.pools import pids
from tests.train.data.samples import Draws
from tests.train.parts import bits


@pytest.mark.parametrize(
    ("kind", "ignores"),
    [
        ("seeded", False),
        ("unseeded", True),
        ("raises", False),  # its worker says it
        ("dies", False),
        ("hangs", False),
    ],
)
def test_a_process_of_its_own_looks(
    kind: str,
    ignores: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    if kind == "hangs":
        monkeypatch.setattr(seeding_probe, "_TIMEOUT_SECONDS", 0.2)
    dataset = Draws(kind)
    before = bits(seeding.rng_state())
    finding = seeding_probe.probe_seeding(BatchFetcher(dataset))
    assert finding.ignores_seeding == ignores and bool(finding.unknown_reason) == (kind in ("dies", "hangs"))
    out = capsys.readouterr().out
    assert out.count("\n") == (kind in ("dies", "hangs")) and ("0.2 s" in out) == (kind == "hangs")
    if out:
        messages.check(out)
    assert not pids() and bits(seeding.rng_state()) == before and not dataset.was_read
