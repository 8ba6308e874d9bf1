from __future__ import annotations

import pytest

from roost.base.errors import ContractError
from roost.train.agenda import Agenda
from roost.train.data.batches import Interrupted
from roost.train.hook import CallLists, Hook, Phase
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Steps, Still, built, plain


class Named(Steps):
    """Serves a request; may be interrupted once."""

    def __init__(self, name: str, every: object, serves: str | None = None, *, cut: str = "") -> None:
        super().__init__(Phase.EVAL, every, name)
        self.serves, self.cut = serves, cut

    def on_step(self, trainer: Trainer) -> None:
        if self.cut == "on_step":
            raise Interrupted
        super().on_step(trainer)

    def on_epoch(self, trainer: Trainer) -> None:
        if self.cut == "on_epoch":
            raise Interrupted
        super().on_epoch(trainer)


@pytest.fixture
def trainer() -> Trainer:
    """At step 7, the end of its first epoch, far from its last."""
    made = plain(built(MLP), Still(), until=100)
    made.progress.step = 7
    return made


def agenda(*hooks: Hook, step: int = 6) -> Agenda:
    found = Agenda(CallLists(hooks).step, steps_per_epoch=7, total_steps=100)
    found.begin(step, 0.0, found.calls)
    return found


def test_runs_what_is_due_or_asked_for(trainer: Trainer) -> None:
    due, asked, neither = (
        Named("due", "7"),
        Named("asked", "100", "save"),
        Named("neither", "100", "validate"),
    )
    found = agenda(due, asked, neither)
    found.requests.update({"save", "hold"})
    found.run(trainer, 0.0, found.calls)
    assert found.pending == ""
    assert [hook.steps for hook in (due, asked, neither)] == [[7], [7], []]
    assert [hook.epochs for hook in (due, asked, neither)] == [[7]] * 3
    assert found.requests == {"hold"}, "served, and what belongs to it is left to who serves it"


def test_the_alarm_is_at_the_first_thing_due() -> None:
    found = agenda(Named("a", "9"), Named("b", ["100s", "50"]), step=8)
    found.set_alarm(0.0, at_latest=1000.0)
    assert (found.wake_step, found.wake_second) == (9, 100.0)
    found.set_alarm(0.0, at_latest=0.5)
    assert found.wake_second == 0.5
    nothing = Agenda([], steps_per_epoch=7, total_steps=33)
    nothing.set_alarm(1.0, at_latest=2.0)
    assert (nothing.wake_step, nothing.wake_second) == (33, 3.0)


@pytest.mark.parametrize("cut", ["on_step", "on_epoch"])
def test_a_cut_names_the_call_and_what_was_open(cut: str, trainer: Trainer) -> None:
    before, hook, after = Named("before", "7"), Named("cut", "7", cut=cut), Named("after", "7", "save")
    found = agenda(before, hook, after)
    found.request("save", "best")
    found.run(trainer, 0.0, found.calls)
    key = "cut.on_epoch" if cut == "on_epoch" else "cut"
    assert found.state_dict() == {"pending": key, "requests": ["best", "save"]}
    assert after.steps == []


@pytest.mark.parametrize("cut", ["on_step", "on_epoch"])
def test_what_was_cut_goes_on_where_it_was_and_only_there(cut: str, trainer: Trainer) -> None:
    first = agenda(Named("before", "7"), Named("cut", "7", cut=cut), Named("after", "7"))
    first.run(trainer, 0.0, first.calls)
    fresh = Named("before", "7"), Named("cut", "7"), Named("after", "7")
    second = agenda(*fresh)
    second.load_state_dict(first.state_dict())
    second.resume(trainer, 0.0)
    assert second.pending == ""
    assert [hook.steps for hook in fresh] == [[], [] if cut == "on_epoch" else [7], [7]]
    assert [hook.epochs for hook in fresh] == [[], [7], [7]]
    trainer.progress.step = 8
    second.run(trainer, 0.0, second.calls)
    assert [hook.steps[-1:] for hook in fresh] == [[], [] if cut == "on_epoch" else [7], [7]], (
        "not made up for"
    )


def test_a_cut_call_is_due_whatever_its_interval(trainer: Trainer) -> None:
    """It came by the clock, or by a request of a hook that does not ask again."""
    fresh = Named("cut", "1000s")
    found = agenda(fresh)
    found.load_state_dict({"pending": "cut", "requests": []})
    found.resume(trainer, 0.0)
    assert fresh.steps == [7]


def test_requests_of_later_steps_are_saved_and_those_of_the_save_itself_are_not() -> None:
    found = agenda(Named("a", (), "save"), Named("b", (), "validate"))
    found.request("save", "hold", "validate", "record", "report")
    assert found.state_dict() == {"pending": "", "requests": ["validate"]}
    fresh = agenda()
    fresh.load_state_dict(found.state_dict())
    assert fresh.requests == {"validate"}


def test_a_request_without_a_serving_hook_is_refused(messages: Messages) -> None:
    with pytest.raises(ContractError, match="'save'") as refused:
        agenda(Named("b", (), "validate")).request("save")
    messages.check(refused.value)
