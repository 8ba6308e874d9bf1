"""Weights that are shared out: the sums are those of one process, and what is saved is read anywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.fsdp  # here, as what follows, so that no forked rank imports it by itself
import torch.distributed.tensor
from torch import Tensor, nn
from torch.nn import functional

import roost
from roost.base import safetensors_format, state_tree
from roost.base.errors import CheckpointError, ConfigError, TrainingError
from roost.package.checkpoints import checkpoint
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.fsdp import ShardedRunner, blocks, check_optimizers
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.distributed.sharded_tensors import full_tensor, is_sharded
from roost.train.evaluation import split_evaluation
from roost.train.hooks.statistics import norms
from roost.train.model import model_summary
from roost.train.model.module_state import ModuleState
from roost.train.optim.optimizer import Optim
from roost.train.optim.weight_average import Average
from roost.train.progress import Progress
from roost.train.reporting.media_files import Media
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.team import team

FUSED = functools.partial(torch.optim.AdamW, lr=0.01, fused=True)
WORDS, WIDTH = 7, 6  # 7 rows: no number of ranks divides them


class Layer(nn.Module):
    """Attention over the words, and a layer beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # that of a key has no gradient but noise
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mix(self.norm(x)).chunk(3, -1)
        return x + torch.relu(self.out(functional.scaled_dot_product_attention(query, key, value)))


class Text(roost.Runner):
    """A small language model, whose first and last weights are one; ``scale`` has one row for all ranks."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.register_buffer("words", torch.tensor(0))
        self.head = nn.Linear(WIDTH, WORDS)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)

    def logits(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x + self.frozen(x) * self.scale)

    def loss(self, batch: Tensor) -> Mapping[str, Tensor]:
        self.words += 5 * len(batch)
        return {"loss": functional.cross_entropy(self.logits(batch).flatten(0, 1), batch.flatten())}

    def other_loss(self, batch: Tensor) -> Tensor:
        return self.logits(batch).square().mean()


def built() -> Text:
    torch.manual_seed(1)
    runner = Text()
    runner.build()
    return runner


def batch_of(step: int, ranks: Ranks = ALONE) -> Tensor:
    """The rank's share of 5 lines: neither 2 nor 3 ranks have the same."""
    every = torch.randint(WORDS, (5, 4), generator=torch.Generator().manual_seed(step))
    return every[ranks.rank :: ranks.world_size]


class Run:
    """A runner in training, sharded where there are several ranks."""

    def __init__(self, ranks: Ranks, *, optimizer: Callable[..., Any] = FUSED) -> None:
        self.ranks, self.runner, self.progress = ranks, built(), Progress()
        sharded = ShardedRunner(self.runner, ranks) if ranks.are_several else None
        self.optim = Optim(optimizer(self.runner.parameters()), max_grad_norm=0.5)
        self.stepper = Stepper(
            self.optim,
            ranks=ranks,
            reduces_gradients=sharded is None,
            loss_wrapper=sharded.call if sharded else None,
        )
        self.take, self.average = self.stepper.step_function(self.runner), Average(decay=0.5)

    def steps(self, end: int) -> list[float]:
        """Trains until step ``end``; gives the norms of the gradients."""
        found = []
        for step in range(self.progress.step, end):
            values = self.take([batch_of(2 * step, self.ranks), batch_of(2 * step + 1, self.ranks)])
            found.append(float(values["grad_norm"]))  # type: ignore[arg-type]
            self.average.update(self.runner)
        self.progress.step = end
        return found

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": ModuleState(self.runner), "optimizers": self.stepper, "average": self.average}

    def save(self, folder: Path) -> None:
        Checkpoints(folder, ranks=self.ranks, asynchronous=False).save(self.parts, self.progress)

    def load(self, folder: Path) -> Run:
        Checkpoints(folder, ranks=self.ranks).load(self.parts)
        self.average.fit_to(self.runner)
        return self


def bits(state: Any) -> Any:
    """A state as plain data, in which every bit counts."""
    skeleton, leaves = state_tree.pack(state)
    return skeleton, {name: bytes(leaf.data) for name, leaf in leaves.items()}


def read(folder: Path) -> Any:
    """The newest checkpoint, as a process reads it that is alone."""
    return checkpoint.read(checkpoint.checkpoint_folder(folder, checkpoint.ids(folder)[-1]))[1]


# --- training ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
def test_goes_on_bit_for_bit_and_as_one_process_would(world: int, tmp_path: Path) -> None:
    def uninterrupted(ranks: Ranks) -> list[float]:
        run = Run(ranks)
        found = run.steps(3)
        run.save(tmp_path / "cut")
        found += run.steps(6)
        run.save(tmp_path / "whole")
        return found

    def resumed(ranks: Ranks) -> None:
        run = Run(ranks).load(tmp_path / "cut")
        run.progress.step = 3
        run.steps(6)
        run.save(tmp_path / "resumed")

    found = team(world, uninterrupted)
    team(world, resumed)
    there, here = read(tmp_path / "whole"), read(tmp_path / "resumed")
    assert bits(there) == bits(here)
    assert all(norms == found[0] for norms in found), "the norm is that of all shards, on each rank"

    alone = Run(ALONE)
    assert found[0] == pytest.approx(alone.steps(6), rel=1e-5)
    state = there["model"]["state"]
    for name, value in alone.runner.named_parameters():
        torch.testing.assert_close(state[name], value.detach(), rtol=1e-4, atol=1e-6, msg=name)
    for name, value in alone.average.state_dict()["weights"].items():
        if name != "words":  # that of rank 0's batches
            torch.testing.assert_close(there["average"]["weights"][name], value, rtol=1e-4, atol=1e-6)


# --- from one number of ranks to another ------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of three ranks."""
    folder: Path = tmp_path_factory.mktemp("three")

    def work(ranks: Ranks) -> None:
        run = Run(ranks)
        run.steps(2)
        run.save(folder)

    team(3, work)
    return folder


def test_names_are_bare_and_each_tensor_is_stored_once(of_three: Path) -> None:
    state, plain = read(of_three), built()
    assert list(state["model"]["state"]) == list(plain.state_dict())
    assert {name: value.shape for name, value in state["model"]["state"].items()} == {
        name: value.shape for name, value in plain.state_dict().items()
    }
    assert state["model"]["state"]["head.weight"] is state["model"]["state"]["embed.weight"]
    files = [of_three / "state_0.ckpt" / f"model.shard-{rank}.safetensors" for rank in range(3)]
    stored = [safetensors_format.parse(bytearray(file.read_bytes())) for file in files]
    sizes = [sum(leaf.data.nbytes for leaf in leaves.values()) for leaves in stored]
    whole = sum(one.numel() * one.element_size() for one in plain.parameters())
    assert sum(sizes) == whole and max(sizes) < whole / 2


def test_numpy_reads_shards_too(of_three: Path) -> None:
    found = checkpoint.read(checkpoint.checkpoint_folder(of_three, 0), only=["model"], to="numpy")[1]
    wanted = read(of_three)["model"]["state"]
    assert all((found["model"]["state"][name] == value.numpy()).all() for name, value in wanted.items())


def test_one_process_and_two_ranks_take_over_what_three_have_left(of_three: Path, tmp_path: Path) -> None:
    def loaded_and_saved(ranks: Ranks) -> None:
        Run(ranks).load(of_three).save(tmp_path / "two")

    team(2, loaded_and_saved)
    Run(ALONE).load(of_three).save(tmp_path / "one")
    assert bits(read(tmp_path / "two")) == bits(read(of_three)) == bits(read(tmp_path / "one"))


def test_ranks_take_over_what_one_process_has_left(tmp_path: Path) -> None:
    alone = Run(ALONE, optimizer=functools.partial(torch.optim.Adagrad, lr=0.01, fused=True))
    alone.steps(2)
    alone.save(tmp_path / "one")

    def loaded_and_saved(ranks: Ranks) -> bool:
        run = Run(ranks, optimizer=functools.partial(torch.optim.Adagrad, lr=0.01))
        run.load(tmp_path / "one").save(tmp_path / "two")
        run.steps(3)  # by the kernels of its own: the fused one of one process moves no shards
        with pytest.raises(CheckpointError, match=r"head\.bias\b.*\[7\].*\[8\]"):
            Refused(ranks).load(tmp_path / "one")
        return True

    assert team(2, loaded_and_saved) == [True, True]
    there, here = read(tmp_path / "one"), read(tmp_path / "two")
    assert bits(there["model"]) == bits(here["model"]) and bits(there["average"]) == bits(here["average"])
    states = [one["optimizers"]["main"]["optimizer"]["state"] for one in (there, here)]
    assert bits(states[0]) == bits(states[1])


class Refused(Run):
    """With another head."""

    def __init__(self, ranks: Ranks) -> None:
        runner = built()
        runner.head.bias = nn.Parameter(torch.zeros(WORDS + 1))
        ShardedRunner(runner, ranks)
        self.ranks, self.runner, self.progress = ranks, runner, Progress()

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": ModuleState(self.runner)}


# --- around a step ----------------------------------------------------------------------------------------


def test_functions_of_the_runner_compute_with_whole_weights(tmp_path: Path) -> None:
    class Shown(Text):
        def visualize(self, batch: Tensor) -> Mapping[str, Any]:
            assert not is_sharded(self.scale) and self.evaluate(batch)["loss"].shape == ()
            return {"scale": Media("histogram", self.scale), "words": [self.embed.weight.view(-1)]}

        def loss(self, batch: Tensor) -> Mapping[str, Tensor]:
            return {**super().loss(batch), "scale": self.scale.detach().view(())}

    def work(ranks: Ranks) -> None:
        plain = built()
        torch.manual_seed(1)
        runner = Shown()
        runner.build()
        sharded = ShardedRunner(runner, ranks)
        optim = torch.optim.SGD(runner.parameters(), lr=0.1)
        stepper = Stepper(optim, ranks=ranks, reduces_gradients=False, loss_wrapper=sharded.call)
        batch = batch_of(0, ranks)
        with split_evaluation.evaluation_mode(runner):
            found, shown = runner.evaluate(batch), runner.visualize(batch)
        wanted = plain.evaluate(batch)["loss"].detach()
        torch.testing.assert_close(found["loss"], wanted)
        kinds = {row.name: row.kind for row in model_summary.module_rows(runner)}
        assert kinds["layers.0"] == "Layer" and kinds["(all)"] == "Shown"
        # Their results remain, though the weights are not gathered any more.
        assert is_sharded(runner.scale) and shown["scale"].data.tolist() == [1.0]
        assert shown["words"][0].equal(plain.embed.weight.detach().view(-1))
        values = stepper.step_function(runner)([batch])
        assert is_sharded(runner.scale) and float(values["scale"]) == 1.0  # type: ignore[arg-type]
        stepper.run(lambda words: runner.logits(words).square().mean(), [batch, batch[:1]])

    team(2, work)


def test_norms_checks_and_averages_are_those_of_the_whole() -> None:
    def work(ranks: Ranks) -> None:
        run = Run(ranks)
        run.steps(2)
        own = {name: full_tensor(one).clone() for name, one in run.runner.named_parameters()}
        for name, norm in norms(dict(run.runner.named_parameters())).items():
            torch.testing.assert_close(norm.float(), own[name].norm())
        gradients = [full_tensor(one.grad) for one in run.optim.parameters if one.grad is not None]
        for kind in (1.0, 2.0, float("inf")):
            wanted = torch.nn.utils.get_total_norm(gradients, kind)
            torch.testing.assert_close(run.optim.gradient_norm(kind), wanted)

        averaged = {name: full_tensor(one) for name, one in run.average.state_dict()["weights"].items()}
        batch, plain = batch_of(0), built()
        with run.average.swapped(run.runner), split_evaluation.evaluation_mode(run.runner):
            found = run.runner.evaluate(batch)["loss"]
        plain.load_state_dict(averaged)
        torch.testing.assert_close(found, plain.loss(batch)["loss"].detach())
        assert all(full_tensor(one).equal(own[name]) for name, one in run.runner.named_parameters())

        ModuleState(run.runner).check_finite()
        if ranks.rank == 1:
            run.runner.layers[0].out.weight.data.to_local()[0, 0] = torch.nan
        with pytest.raises(TrainingError, match=r"\b1\b.*layers\.0\.out\.weight"):
            ModuleState(run.runner).check_finite()

    team(2, work)


def test_a_step_that_is_not_finite_on_one_rank_moves_nothing_on_any() -> None:
    class Broken(Text):
        breaks = False

        def loss(self, batch: Tensor) -> Mapping[str, Tensor]:
            loss = super().loss(batch)["loss"]
            return {"loss": loss * torch.nan if self.breaks else loss}

    def work(ranks: Ranks) -> None:
        for kind in (FUSED, functools.partial(torch.optim.AdamW, lr=0.01, fused=False)):
            torch.manual_seed(1)
            runner = Broken()
            runner.build()
            sharded = ShardedRunner(runner, ranks)
            stepper = Stepper(
                kind(runner.parameters()),
                guard=NonfiniteGuard(runner),
                ranks=ranks,
                reduces_gradients=False,
                loss_wrapper=sharded.call,
            )
            take, before = stepper.step_function(runner), bits(runner.state_dict())
            runner.breaks = ranks.rank == 1
            assert float(take([batch_of(0, ranks)])["skipped"]) == 1.0  # type: ignore[arg-type]
            assert bits(runner.state_dict()) == before
            runner.breaks = False
            assert float(take([batch_of(0, ranks)])["skipped"]) == 0.0  # type: ignore[arg-type]
            assert bits(runner.state_dict()) != before

    team(2, work)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_takes_steps_in_sixteen_bits(precision: Any) -> None:
    def work(ranks: Ranks) -> list[float]:
        runner = built()
        sharded = ShardedRunner(runner, ranks)
        optim = Optim(FUSED(runner.parameters()), max_grad_norm=1.0)
        stepper = Stepper(
            optim, precision=precision, ranks=ranks, reduces_gradients=False, loss_wrapper=sharded.call
        )
        take = stepper.step_function(runner)
        assert {one.dtype for one in runner.parameters()} == {torch.float32}
        return [float(take([batch_of(0, ranks)])["loss"]) for _ in range(4)]  # type: ignore[arg-type]

    for losses in team(2, work):
        assert losses[3] < losses[0]


# --- what is shared out, and what is refused --------------------------------------------------------------


def test_blocks_are_the_layers_that_are_alike() -> None:
    runner = built()
    assert blocks(runner) == list(runner.layers)
    runner.layers[1].out.weight = runner.layers[0].out.weight  # would be two weights
    assert blocks(runner) == []
    runner.layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))  # type: ignore[assignment]
    assert blocks(runner) == []
    runner.layers = nn.Sequential(nn.ReLU(), nn.ModuleList([Layer(), Layer()]), Layer())  # type: ignore[assignment]
    assert blocks(runner) == list(runner.layers[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda runner: setattr(runner, "one", nn.Parameter(torch.tensor(1.0))), r"\bone\b"),
        (lambda runner: setattr(runner, "far", nn.Embedding(3, 2, sparse=True)), r"\bfar\.weight\b"),
        (
            lambda runner: setattr(runner, "wide", nn.Linear(2, 2).double()),
            r"torch\.float32, torch\.float64",
        ),
    ],
)
def test_says_which_weights_cannot_be_shared_out(
    change: Callable[[Text], None], said: str, messages: Messages
) -> None:
    runner = built()
    change(runner)
    with pytest.raises(ConfigError, match=said) as refused:
        ShardedRunner(runner, ALONE)
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (functools.partial(torch.optim.Adafactor, lr=0.1), "Adafactor"),
        (functools.partial(torch.optim.SGD, lr=0.1, fused=True), r"\bfused\b.*\bSGD\b"),
    ],
)
def test_says_which_optimizers_cannot_move_shards(
    make: Callable[..., Any], said: str, messages: Messages
) -> None:
    check_optimizers({"main": Optim(FUSED(built().parameters()))})
    with pytest.raises(ConfigError, match=said) as refused:
        check_optimizers({"main": Optim(make(built().parameters()))})
    messages.check(refused.value)
