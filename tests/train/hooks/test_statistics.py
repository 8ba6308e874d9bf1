from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roost
from roost.base import durable
from roost.base.errors import ConfigError
from roost.package import records
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Records, Save, Statistics
from roost.train.optim.optimizer import Optim
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import (
    MLP,
    Crash,
    CrashAt,
    Gan,
    Points,
    Recipe,
    Still,
    StopAt,
    assert_equal,
    bits,
    built,
    outcome,
    plain,
    rows_of,
    weights,
)
from tests.train.reads import CountsReads

ALL = {"gradients": True, "weights": True, "updates": True}


def rows(folder: Path) -> dict[int, dict[str, Any]]:
    return {row["step"]: row for row in rows_of(folder)}


def stats(row: dict[str, Any]) -> set[str]:
    return {name for name in row if name.startswith("stats/")}


class Plainly(Hook):
    """The same with a loop over the parameters: the content of ``grad`` after the step, and copies."""

    phase = Phase.REPORT

    def __init__(self) -> None:
        self.found: dict[int, dict[str, float]] = {}

    def before_step(self, trainer: Trainer) -> None:
        self.before = {n: p.detach().clone() for n, p in trainer.runner.named_parameters()}

    def on_step(self, trainer: Trainer) -> None:
        named = dict(trainer.runner.named_parameters())
        values = {n: p.detach() for n, p in named.items()}
        self.found[trainer.progress.step] = {
            **{f"stats/grad_norm/{n}": float(p.grad.norm()) for n, p in named.items() if p.grad is not None},
            **{f"stats/weight_norm/{n}": float(p.norm()) for n, p in values.items()},
            **{f"stats/update_norm/{n}": float((p - self.before[n]).norm()) for n, p in values.items()},
        }


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("norm", [None, 0.1])
def test_norms_are_those_of_a_plain_loop(accumulation: int, norm: float | None, tmp_path: Path) -> None:
    runner = built(MLP)
    optim = Optim(torch.optim.AdamW(runner.parameters(), lr=0.1), max_grad_norm=norm)
    hooks = [Records(tmp_path / "records", "1"), Statistics("2", **ALL), truth := Plainly()]
    stepper = Stepper(optim, accumulation=accumulation)
    plain(runner, Points(), hooks, until=5, stepper=stepper).fit()
    found = rows(tmp_path)
    assert [bool(stats(found[step])) for step in range(1, 6)] == [False, True, False, True, False]
    for step in (2, 4):
        for name, value in truth.found[step].items():
            assert found[step][name] == pytest.approx(value, rel=1e-5), name
        for kind in ("grad", "weight", "update"):
            of_all = [v for n, v in truth.found[step].items() if n.startswith(f"stats/{kind}_norm/")]
            assert found[step][f"stats/{kind}_norm"] == pytest.approx(np.linalg.norm(of_all), rel=1e-5)
        assert norm is None or found[step]["stats/grad_norm"] <= norm * 1.001, "clipped"


def test_a_row_has_the_mean_of_its_looks_and_globs_choose(tmp_path: Path) -> None:
    hook = Statistics(1, "*.bias", gradients=False)
    plain(built(MLP), Still(), [Records(tmp_path / "records", "4"), hook, truth := Plainly()], until=4).fit()
    row = rows(tmp_path)[4]
    assert stats(row) == {f"stats/weight_norm{rest}" for rest in ("", "/net.0.bias", "/net.3.bias")}
    mean = np.mean([truth.found[step]["stats/weight_norm/net.0.bias"] for step in range(1, 5)])
    assert row["stats/weight_norm/net.0.bias"] == pytest.approx(mean, rel=1e-6)


def test_globs_that_match_nothing(messages: Messages) -> None:
    hook = Statistics(1, ["net.*", "head.*"], where=lambda key: "config.yaml:7")
    with pytest.raises(ConfigError) as refused:
        plain(built(MLP), Still(), [hook]).fit()
    assert refused.value.setting == "statistics.params"
    assert all(fact in str(refused.value) for fact in ("'head.*'", "net.0.weight"))
    messages.check(refused.value)


@pytest.mark.parametrize("every", ["10min", "often", "0"])
def test_an_interval_that_is_none(every: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        Statistics(every)
    assert refused.value.setting == "statistics.every" and repr(every) in str(refused.value)
    messages.check(refused.value)


def test_training_is_the_same_with_and_without_it(tmp_path: Path) -> None:
    made = []
    for hooks in ([], [Statistics(1, **ALL, histograms=tmp_path)]):
        runner = built(MLP)
        stepper = Stepper(torch.optim.AdamW(runner.parameters(), lr=0.1))
        trainer = plain(runner, Points(), hooks, until=9, stepper=stepper)
        trainer.fit()
        made.append(
            (weights(runner), bits(stepper.state_dict()), bits(trainer.parts()["rank-0"].state_dict()))
        )
    assert made[0] == made[1]


def test_each_optimizer_has_the_gradient_that_it_moved_with(tmp_path: Path) -> None:
    """The loss of the generator goes through the discriminator, whose gradients it adds to: the content of
    ``grad`` when the step is over is not what the discriminator moved with. With a rate of 1 that is the
    update."""
    runner = built(Gan)
    stepper = Stepper(
        {
            "d": Optim(torch.optim.SGD(runner.d.parameters(), lr=1.0)),
            "g": Optim(torch.optim.SGD(runner.g.parameters(), lr=1.0), every_n_steps=2),
        }
    )
    hooks = [Records(tmp_path / "records", "1"), Statistics(1, **ALL), truth := Plainly()]
    plain(runner, Still(), hooks, until=4, stepper=stepper).fit()
    for step, row in rows(tmp_path).items():
        moved = ("d", "g") if step % 2 == 0 else ("d",)
        assert {name.rpartition("/")[2][0] for name in row if name.startswith("stats/grad_norm/")} == {*moved}
        for name in moved:
            got, update = (row[f"stats/{kind}_norm/{name}.weight"] for kind in ("grad", "update"))
            assert got == pytest.approx(update, rel=1e-4)
        standing = truth.found[step]["stats/grad_norm/d.weight"]
        if "g" in moved:
            assert standing != pytest.approx(row["stats/grad_norm/d.weight"], rel=1e-3)


def test_of_scaled_losses_the_gradient_is_unscaled_and_skipped_steps_are_left_out(tmp_path: Path) -> None:
    """The first scales of fp16 are too large for this loss, so the first steps are kept back."""

    class Large(MLP):
        def loss(self, batch: Any) -> Any:
            return {**super().loss(batch), "loss": 30 * super().loss(batch)["loss"]}

    runner = built(Large)
    optim: Any = torch.optim.SGD(runner.parameters(), lr=0.001, fused=True)
    hooks = [Records(tmp_path / "records", "1"), Statistics(1, **ALL)]
    plain(runner, Still(), hooks, until=12, stepper=Stepper(optim, precision="fp16")).fit()
    found = rows(tmp_path)
    skipped = [step for step, row in found.items() if row.get("train/skipped")]
    assert skipped and len(skipped) < 12
    for step, row in found.items():
        assert bool(stats(row)) == (step not in skipped)
        if stats(row):
            assert row["stats/grad_norm"] * 0.001 == pytest.approx(row["stats/update_norm"], rel=1e-3)
            assert row["stats/grad_norm"] < 1000


def test_a_bad_gradient_does_not_end_a_run_that_skips_it(tmp_path: Path) -> None:
    class Bad(MLP):
        def loss(self, batch: Any) -> Any:
            values = super().loss(batch)
            return {**values, "loss": values["loss"] * (float("nan") if self.progress.step == 2 else 1.0)}

    runner = built(Bad)
    optim: Any = torch.optim.SGD(runner.parameters(), lr=0.1, fused=True)
    stepper, recovery = Stepper(optim, guard=NonfiniteGuard(runner)), Recovery(on_non_finite="skip")
    hooks = [Records(tmp_path / "records", "3"), Statistics(1, **ALL)]
    assert plain(runner, Still(), hooks, until=6, stepper=stepper, recovery=recovery).fit() == "finished"
    assert all(np.isfinite(row[name]) for row in rows(tmp_path).values() for name in stats(row))
    assert rows(tmp_path)[3]["train/skipped"] == 1


def test_an_infinite_norm_does_not_end_a_run(tmp_path: Path) -> None:
    """The square of a number of float32 that is large enough is infinite; the weights go on."""

    class Far(MLP):
        def build(self) -> None:
            super().build()
            self.far = torch.nn.Parameter(torch.full((2,), 3e38))

        def loss(self, batch: Any) -> Any:
            return {**super().loss(batch), "far": (self.far * 0).sum().detach()}

    hooks = [Records(tmp_path / "records", "2"), Statistics(1, "far")]
    assert plain(built(Far), Still(), hooks, until=4).fit() == "finished"
    assert rows(tmp_path)[2]["stats/weight_norm"] > 1e38


def test_nothing_moves_so_there_are_weights_alone(tmp_path: Path) -> None:
    runner = built(MLP)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), mode="no_optim")
    hooks = [Records(tmp_path / "records", "1"), Statistics(1, "net.0.*", **ALL)]
    plain(runner, Still(), hooks, until=1, stepper=stepper).fit()
    assert {name.split("/")[1] for name in stats(rows(tmp_path)[1])} == {"weight_norm"}


def test_an_optimizer_that_evaluates_the_loss_by_itself(tmp_path: Path) -> None:
    runner = built(MLP)
    hooks = [Records(tmp_path / "records", "1"), Statistics(1, **ALL)]
    stepper = Stepper(torch.optim.LBFGS(runner.parameters(), lr=0.1, max_iter=2))
    plain(runner, Still(), hooks, until=2, stepper=stepper).fit()
    assert all(row["stats/grad_norm"] > 0 and row["stats/update_norm"] > 0 for row in rows(tmp_path).values())


def test_sparse_gradients_and_short_numbers(tmp_path: Path) -> None:
    class Words(roost.Runner):
        def build(self) -> None:
            self.words = torch.nn.Embedding(4, 3, sparse=True)
            self.short = torch.nn.Parameter(torch.full((1000,), 1.0, dtype=torch.bfloat16))

        def loss(self, batch: Any) -> Any:
            # The same word twice: its two gradients add up.
            return self.words(torch.tensor([1, 1])).sum() + 0.001 * self.short.float().sum()

    runner = built(Words)
    stepper = Stepper(
        {
            "main": torch.optim.SparseAdam(runner.words.parameters()),
            "half": torch.optim.SGD([runner.short], lr=0.0),
        }
    )
    hooks = [Records(tmp_path / "records", "1"), Statistics(1)]
    plain(runner, Still(), hooks, until=1, stepper=stepper).fit()
    row = rows(tmp_path)[1]
    assert row["stats/grad_norm/words.weight"] == pytest.approx((3 * 4) ** 0.5)
    assert row["stats/weight_norm/short"] == pytest.approx(1000**0.5, rel=1e-6), "not rounded to 8 bits"


def test_histograms(tmp_path: Path) -> None:
    hook = Statistics(2, "net.3.*", **ALL, histograms=tmp_path)
    plain(built(MLP), Still(), [hook], until=3).fit()
    names = [
        f"2/{kind}.net.3.{one}.json"
        for kind in ("gradients", "updates", "weights")
        for one in ("bias", "weight")
    ]
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.json")) == sorted(names)
    body = json.loads((tmp_path / "2" / "weights.net.3.weight.json").read_text())
    assert sum(body["counts"]) == 16 and len(body["edges"]) == len(body["counts"]) + 1


def test_what_a_killed_session_left_of_a_histogram_goes_with_the_step_that_comes_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "2").mkdir()
    left = durable.staging_name(tmp_path / "2" / "weights.net.3.weight.json")
    left.write_text("half")
    plain(built(MLP), Still(), [Statistics(2, histograms=tmp_path)], until=3).fit()
    assert not left.exists() and (tmp_path / "2" / "weights.net.3.weight.json").exists()


def test_histograms_that_cannot_be_written_are_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "media").write_text("a file")
    hook = Statistics(1, histograms=tmp_path / "media")
    assert plain(built(MLP), Still(), [hook], until=3).fit() == "finished"
    assert capsys.readouterr().out.count(str(tmp_path / "media")) == 1


def test_a_step_that_failed_leaves_nothing_behind() -> None:
    class Fails(MLP):
        def loss(self, batch: Any) -> Any:
            if self.progress.step == 1:
                raise ZeroDivisionError
            return super().loss(batch)

    runner = built(Fails)
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError):
        plain(runner, Still(), [Statistics(1, **ALL)], stepper=Stepper(optimizer)).fit()
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


@pytest.mark.parametrize("ends", [[StopAt(5)], [CrashAt(7)], [StopAt(3, Phase.MODEL), CrashAt(10)]])
def test_they_are_the_same_however_often_the_run_is_cut(ends: Sequence[Hook], tmp_path: Path) -> None:
    recipe = Recipe(hooks=(lambda: Statistics(3, **ALL),), log="5")
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    for end in ends:
        trainer = recipe.make(tmp_path / "cut", end)
        if isinstance(end, CrashAt):
            with pytest.raises(Crash):
                trainer.fit()
        else:
            assert trainer.fit() == "test"
    last = recipe.make(tmp_path / "cut")
    assert last.fit() == "finished"
    assert any(stats(row) for row in rows_of(tmp_path / "cut"))
    assert_equal(outcome(last, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_nothing_is_read_back_between_rows(tmp_path: Path) -> None:
    class Looks(Hook):
        phase = Phase.REPORT

        def on_start(self, trainer: Trainer) -> None:
            self.counter, self.seen = CountsReads(), [0]
            self.counter.__enter__()

        def on_step(self, trainer: Trainer) -> None:
            self.seen.append(self.counter.reads)

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            self.counter.__exit__(None, None, None)

    hooks = [Records(tmp_path / "records", "10"), Statistics(2, **ALL), looks := Looks()]
    plain(built(MLP), Still(), hooks, until=20).fit()
    read = [n for n, (a, b) in enumerate(zip(looks.seen, looks.seen[1:], strict=False), 1) if b > a]
    assert read == [10, 20]


def test_a_list_of_values_has_no_statistics(tmp_path: Path) -> None:
    hooks = [Records(tmp_path / "records", "1"), Statistics(1), Save("100")]
    plain(built(MLP), Still(), hooks, until=2, checkpoints=Checkpoints(tmp_path / "c")).fit()
    columns = records.fold(tmp_path / "records")
    assert set(columns.last()) == {"train/loss", "train/accuracy", "lr"}
    assert columns.stats["stats/grad_norm"][0] == [1, 2]
    assert records.metrics(columns.rows[0]).keys() == set(columns.last())
