from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from roost.base.errors import CheckpointError
from roost.project.dlnest.classes.project_object import ProcessPlace, attach
from roost.project.dlnest.classes.registered_modules import RegisteredModules
from roost.project.dlnest.classes.running_status import RunningStatus
from roost.project.dlnest.classes.torch_runner import RunnerBaseTorch
from roost.train.distributed.ranks import Ranks
from tests.messages import Messages
from tests.train.parts import bits
from tests.train.team import team


def begun(runner: RunnerBaseTorch, ranks: Ranks | None = None) -> Any:
    """A runner after its initialization, as `project_loading` does it."""
    if ranks is not None:
        status = RunningStatus("cpu", ranks)
        attach(runner, {}, [], status, ProcessPlace(ranks=ranks))
    runner.init({})
    runner._register_held()
    runner.initOptimizer()
    runner._register_held()
    return runner


class Gan(RunnerBaseTorch):
    """Modules in every place that a project may put them."""

    def init(self, args: Any, datasetInfo: Any = None) -> None:
        self.generator = nn.Linear(2, 2)
        self.discriminator = self.register(nn.Linear(2, 1), syncBN=True)
        self.loss = nn.BCEWithLogitsLoss()
        self.heads: list[Any] = []
        self.heads.append(nn.Linear(2, 3))
        self.parts = {"a": nn.Linear(1, 1), "same": self.generator, "deep": [(nn.Linear(1, 2),)]}

    def initOptimizer(self) -> None:
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=0.1)
        self.others = [torch.optim.SGD(self.heads[0].parameters(), lr=0.2, momentum=0.9)]
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)


def trained(runner: Any, steps: int = 2) -> Any:
    for _ in range(steps):
        loss = runner.heads[0](runner.generator(torch.ones(3, 2))).square().mean()
        for one in (runner.optimizer, *runner.others):
            one.zero_grad()
        loss.backward()
        for one in (runner.optimizer, *runner.others):
            one.step()
        runner.scheduler.step()
    return runner


def weights(runner: Any) -> list[torch.Tensor]:
    modules = [runner.generator, runner.discriminator, runner.heads[0], runner.parts["a"]]
    return [one for module in modules for one in module.state_dict().values()]


def test_modules_remain_those_of_the_project() -> None:
    runner = begun(Gan())
    assert type(runner.generator) is nn.Linear and type(runner.discriminator) is nn.Linear
    assert not hasattr(runner.generator, "module")


def test_the_state_has_dlnests_form() -> None:
    state = begun(Gan()).getSaveDict()
    assert list(state) == [0, 1, 2, "held_modules", "optimizer", "scheduler"]  # a loss has a number, too
    assert list(state["held_modules"]) == ["heads.0", "parts.a", "parts.deep.0.0"]
    assert list(state["optimizer"]) == ["optimizer", "others.0"]
    assert list(state["scheduler"]) == ["scheduler"]


def test_a_restored_runner_trains_on_with_the_same_bits() -> None:
    torch.manual_seed(0)
    first = begun(Gan())
    torch.manual_seed(0)
    whole = trained(trained(begun(Gan())))
    trained(first)
    second = begun(Gan())
    second.loadSaveDict(first.getSaveDict())
    assert second.scheduler.last_epoch == 2 and second.scheduler.get_last_lr() == [0.025]
    assert bits(weights(trained(second))) == bits(weights(whole))


def test_a_gradient_scaler_is_saved_too() -> None:
    class Scaled(RunnerBaseTorch):
        def initOptimizer(self) -> None:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    runner, other = begun(Scaled()), begun(Scaled())
    runner.scaler.scale(torch.ones(1))
    runner.scaler.update(2.0)
    other.loadSaveDict(runner.getSaveDict())
    assert other.scaler.get_scale() == 2.0


def test_a_parameter_in_no_module_is_saved() -> None:
    class Latent(RunnerBaseTorch):
        def init(self, args: Any, datasetInfo: Any = None) -> None:
            self.z = nn.Parameter(torch.rand(2))
            self.others = {"a": nn.Parameter(torch.rand(1))}

    runner, other = begun(Latent()), begun(Latent())
    z = other.z
    other.loadSaveDict(runner.getSaveDict())
    assert other.z is z and bits([z, other.others["a"]]) == bits([runner.z, runner.others["a"]])


def test_a_project_that_saves_its_optimizer_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """As those of 0.3.0 had to."""

    class Own(Gan):
        def getSaveDict(self) -> Any:
            return {**super().getSaveDict(), "optimizer": self.optimizer.state_dict()}

        def loadSaveDict(self, saveDict: Any) -> None:
            super().loadSaveDict(saveDict)
            self.optimizer.load_state_dict(saveDict["optimizer"])

    runner, other = trained(begun(Own())), begun(Own())
    other.loadSaveDict(runner.getSaveDict())
    assert (
        other.optimizer.state_dict()["state"].keys() == runner.optimizer.state_dict()["state"].keys() != set()
    )
    assert capsys.readouterr().out == ""


class Repeated(RunnerBaseTorch):
    """The ways in which projects register a module more than once."""

    def init(self, args: Any, datasetInfo: Any = None) -> None:
        net = self.register(nn.Linear(1, 1))
        self.net = self.register(net)
        self.alias = self.net
        self.second = nn.Linear(2, 1)
        self.second = nn.Linear(3, 1)


def test_a_module_is_registered_once() -> None:
    state = begun(Repeated()).getSaveDict()
    assert [key for key in state if isinstance(key, int)] == [0, 1]
    assert state[1]["weight"].shape == (1, 3)


def test_a_module_that_two_attributes_have_keeps_its_number() -> None:
    class Runner(RunnerBaseTorch):
        def init(self, args: Any, datasetInfo: Any = None) -> None:
            self.a = self.b = nn.Linear(1, 1)
            self.a = nn.Linear(2, 1)

    state = begun(Runner()).getSaveDict()
    assert [state[number]["weight"].shape[1] for number in (0, 1)] == [1, 2]


def state_of(value: float, inputs: int = 1) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((1, inputs), value), "bias": torch.zeros(1)}


def test_duplicates_in_checkpoints_of_0_3_2() -> None:
    """There each registration has a number: two calls of register, two assignments, and a module that was
    replaced later."""
    runner = begun(Repeated())
    saved = {number: state_of(7.0) for number in range(4)} | {4: state_of(1.0, 2), 5: state_of(8.0, 3)}
    runner.loadSaveDict(saved)
    assert runner.net.weight.item() == 7.0 and runner.second.weight[0, 0].item() == 8.0


def test_checkpoints_of_0_3_0_have_what_was_given_to_register() -> None:
    class Older(RunnerBaseTorch):
        def init(self, args: Any, datasetInfo: Any = None) -> None:
            self.frozen = nn.Linear(2, 1)
            self.net = self.register(nn.Linear(1, 1))

    runner = begun(Older())
    prefixed = {f"module.{name}": one for name, one in state_of(5.0).items()}  # by DistributedDataParallel
    runner.loadSaveDict({0: prefixed})
    assert runner.net.weight.item() == 5.0


def test_a_checkpoint_without_optimizers(capsys: pytest.CaptureFixture[str]) -> None:
    runner = begun(Gan())
    state = runner.getSaveDict()
    del state["optimizer"], state["scheduler"]
    other = begun(Gan())
    other.loadSaveDict(state)
    other.loadSaveDict(state)
    expected = "the checkpoint has no state of optimizer, others.0, scheduler, which begin anew\n"
    assert capsys.readouterr().out == expected


def test_a_checkpoint_without_modules(capsys: pytest.CaptureFixture[str]) -> None:
    """A project's own getSaveDict may leave them out."""

    class Assigned(RunnerBaseTorch):
        def init(self, args: Any, datasetInfo: Any = None) -> None:
            self.net = nn.Linear(1, 1)

    begun(Assigned()).loadSaveDict({})
    assert capsys.readouterr().out == "the checkpoint has no state of net, which begin anew\n"


def test_checkpoints_of_other_runners(messages: Messages) -> None:
    runner = begun(Gan())
    state = runner.getSaveDict()
    for wrong in (
        {**state, 3: {}, 4: {}},
        {**state, "held_modules": {"other": {}}},
        {**state, "optimizer": {"second": {}}},
    ):
        with pytest.raises(CheckpointError) as refused:
            runner.loadSaveDict(wrong)
        messages.check(refused.value)


class Trained(RunnerBaseTorch):
    def init(self, args: Any, datasetInfo: Any = None) -> None:
        torch.manual_seed(self._rank)
        self.nets = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1)])
        self.norm = self.register(nn.BatchNorm1d(2), syncBN=True)
        self.held = [nn.Linear(1, 1)]
        self.loss = nn.MSELoss()

    def initOptimizer(self) -> None:
        every = [*self.nets.parameters(), *self.norm.parameters(), *self.held[0].parameters()]
        self.optimizer = torch.optim.SGD(every, lr=0.1)

    def runOneStep(self, data: Any, log: Any, iter: int, epoch: int) -> None:
        self.optimizer.zero_grad()
        found = self.held[0](self.nets[1](self.norm(self.nets[0](data))))
        loss = self.loss(found, torch.ones_like(found))
        loss.backward()
        self.optimizer.step()
        log["loss"].append(self._reduceMean(loss).detach().item())


def test_ranks_stay_equal_whatever_part_of_a_module_is_called() -> None:
    def work(ranks: Ranks) -> Any:
        runner = begun(Trained(), ranks)
        assert len(runner.nets) == 2 and [type(one) for one in runner.nets] == [nn.Linear] * 2
        assert isinstance(runner.nets, nn.ModuleList) and runner.norm.module is runner.norm
        log: dict[str, Any] = {"loss": []}
        for step in range(3):
            data = torch.randn(4, 2, generator=torch.Generator().manual_seed(10 * step + ranks.rank))
            runner.runOneStep(data, log, step, 0)
            runner._synchronize_ranks()
        state = runner.getSaveDict()
        modules = [*state[0].values(), *state[1].values(), *state["held_modules"]["held.0"].values()]
        return modules, log["loss"], runner._status.env, runner._rank, runner._worldSize

    first, second = team(2, work)
    assert bits(first[0]) == bits(second[0])
    assert first[1] == second[1] and len(set(first[1])) == 3
    assert (first[2:], second[2:]) == (("DDP", 0, 2), ("DDP", 1, 2))


def test_batch_statistics_of_all_ranks_that_torch_does_not_have_are_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    modules = RegisteredModules(ProcessPlace(ranks=Ranks(rank=0, world_size=2)))
    for _ in range(2):
        found = modules.register(nn.BatchNorm1d(2), sync_batch_norm=True)
        assert type(found) is nn.BatchNorm1d
    assert capsys.readouterr().out.count("batch statistics are those of each rank") == 1


def test_all_ranks_get_reduced_values() -> None:
    def work(ranks: Ranks) -> Any:
        runner = begun(Trained(), ranks)
        own = torch.tensor(1.0 + ranks.rank, requires_grad=True)
        mean = runner._reduceMean(own * 2)
        mean.backward()
        whole = torch.tensor(3 + ranks.rank)
        return [
            mean.item(), own.grad.item(), runner._reduceSum(own).item(), runner._reduceMean(whole).item(),
            runner._reduceSum(torch.tensor(True)).item(), runner._reduceMean(0.5 + ranks.rank), whole.item(),
        ]  # fmt: skip

    first, second = team(2, work)
    assert first == [3.0, 2.0, 3.0, 3.5, 2, 1.0, 3]
    assert second[:-1] == first[:-1]


def test_with_one_process_a_reduced_value_is_the_value() -> None:
    runner, value = begun(Gan()), torch.ones(2)
    assert runner._reduceMean(value) is value and runner._reduceSum(value) is value
