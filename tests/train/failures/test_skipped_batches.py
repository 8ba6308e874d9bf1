"""Validations whose batches fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import roost
from roost.base.errors import PeerLost, TrainingError
from roost.package.results import skipped_steps
from roost.train.checkpointing.checkpointer import Checkpoints
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.failures.recovery import Recovery
from roost.train.hooks import Records, Save, Validate
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import (
    MLP,
    Still,
    StopAt,
    assert_equal,
    built,
    guard_of,
    loader,
    outcome,
    plain,
    rows_of,
)
from tests.train.team import team


class FailsOn(MLP):
    """Its `evaluate` fails for batches with certain samples."""

    error: ClassVar[Exception] = ValueError("no good")
    bad: ClassVar[set[int]] = set()

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        for index in self.bad:
            if any(torch.equal(x, Still().x[index]) for x in batch[0]):
                raise self.error
        return super().evaluate(batch)


class Unreadable(Still):
    """One of its samples cannot be read."""

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise OSError("sample 9 is damaged")
        return super().__getitem__(index)


@pytest.fixture(autouse=True)
def _sample_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOn, "bad", {9})


def trainer_of(
    folder: Path,
    *hooks: Any,
    runner: type[roost.Runner] = FailsOn,
    valid: Any = None,
    ranks: Ranks = ALONE,
    until: str = "2ep",
    **options: Any,
) -> Trainer:
    made, policy = built(runner), {"on_step_error": "skip", **options}
    log = folder / "skipped.jsonl" if ranks.is_main else None
    return plain(
        made,
        Still(),
        [Records(folder / "records"), Validate("1ep"), *hooks],
        until=until,
        loaders={"valid": valid or loader(Still(), 8, shuffle=False)},
        stepper=Stepper(torch.optim.SGD(made.parameters(), lr=0.1), guard=guard_of(made, policy)),
        recovery=Recovery(log=log, session=1, **policy),
        checkpoints=Checkpoints(folder / "Checkpoints", ranks=ranks),
        ranks=ranks,
    )


def test_the_others_count(tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages) -> None:
    trainer_of(tmp_path).fit()
    expected = trainer_of(tmp_path / "other", runner=MLP, valid=loader(_without_second(), 8, shuffle=False))
    expected.fit()
    found, good = (
        [row for row in rows_of(folder) if "valid/loss" in row] for folder in (tmp_path, tmp_path / "other")
    )
    assert [row["valid/skipped"] for row in found] == [1.0, 1.0]
    assert [row["valid/loss"] for row in found] == pytest.approx(
        [row["valid/loss"] for row in good], rel=1e-6
    )
    first, second = skipped_steps.read(tmp_path / "skipped.jsonl")
    assert (first.split, first.batch, first.samples, first.step) == ("valid", 1, list(range(8, 16)), 7)
    assert second.step == 14 and not first.is_step and "no good" in first.error
    said = [text for text in capsys.readouterr().out.splitlines() if text.startswith("skipped")]
    assert len(said) == 2
    messages.check("\n".join(said))


def _without_second() -> Still:
    kept = Still()
    rest = [index for index in range(len(kept.x)) if not 8 <= index < 16]
    kept.x, kept.y = kept.x[rest], kept.y[rest]
    return kept


def test_without_the_setting_it_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no good"):
        trainer_of(tmp_path, on_step_error="raise").fit()


def test_a_sample_that_cannot_be_read(tmp_path: Path) -> None:
    trainer_of(tmp_path, runner=MLP, valid=loader(Unreadable(), 8, shuffle=False), until="1ep").fit()
    [skipped] = skipped_steps.read(tmp_path / "skipped.jsonl")
    assert skipped.batch == 1 and 9 in skipped.samples and "damaged" in skipped.error
    assert skipped.ids == []
    assert rows_of(tmp_path)[-1]["valid/skipped"] == 1.0


def test_the_ids_of_a_set_are_recorded(tmp_path: Path) -> None:
    named = Unreadable()
    named.ids = [f"utterance {index}" for index in range(len(named.x))]  # type: ignore[attr-defined]
    valid = loader(torch.utils.data.Subset(named, range(1, 17)), 8, shuffle=False)
    trainer_of(tmp_path, runner=MLP, valid=valid, until="1ep").fit()
    [skipped] = skipped_steps.read(tmp_path / "skipped.jsonl")
    assert skipped.samples == list(range(8, 16))
    assert skipped.ids == [f"utterance {1 + index}" for index in skipped.samples]


def test_too_many(tmp_path: Path, messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOn, "bad", {1, 9})
    with pytest.raises(TrainingError) as refused:
        trainer_of(tmp_path, max_skipped_steps=3).fit()
    assert refused.value.setting == "max_skipped_steps"
    messages.check(refused)
    assert len(skipped_steps.read(tmp_path / "skipped.jsonl")) == 4, "each is logged, the last one too"


def test_none_is_left(tmp_path: Path, messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOn, "bad", set(range(26)))
    with pytest.raises(TrainingError) as refused:
        trainer_of(tmp_path).fit()
    messages.check(refused)


def test_a_mistake_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOn, "error", PeerLost("rank 1 has failed"))
    with pytest.raises(PeerLost):
        trainer_of(tmp_path).fit()


def test_they_are_counted_over_all_sessions_and_the_rest_is_the_same(tmp_path: Path) -> None:
    whole = trainer_of(tmp_path / "whole", Save("3"))
    whole.fit()
    for hooks in ([StopAt(8)], []):
        cut = trainer_of(tmp_path / "cut", Save("3"), *hooks)
        cut.fit()
    assert cut.recovery.num_skipped == whole.recovery.num_skipped == 2
    assert_equal(outcome(cut, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_ranks_agree(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> Any:
        trainer = trainer_of(tmp_path, ranks=ranks)
        return trainer.evaluate("valid"), trainer.recovery.num_skipped

    (found, first), (other, second) = team(2, work)
    assert found == other and found["valid/skipped"] == first == second == 1
    [skipped] = skipped_steps.read(tmp_path / "skipped.jsonl")
    assert skipped.batch == 1, "that of rank 1, logged by rank 0"
    alone = trainer_of(tmp_path / "alone").evaluate("valid")
    assert found == alone, "bit for bit"


@pytest.mark.parametrize("kind", [RuntimeError, getattr(torch, "AcceleratorError", RuntimeError)])
def test_a_device_that_broke_skips_no_batch(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsOn, "error", kind("CUDA error: device-side assert triggered"))
    with pytest.raises(kind, match="device-side assert"):
        trainer_of(tmp_path).fit()
    assert not skipped_steps.read(tmp_path / "skipped.jsonl")
