"""How many processes a session has, and on which devices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, Refused, RoostError, UsageError
from roost.base.system import cpu_cores
from roost.config import layers
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.config.settings import Settings, parse_settings
from roost.devices import visible_cards
from roost.devices.card import Card, CardProcess
from roost.devices.resource_request import TaskOptions
from roost.operations.sessions.rank_layout import (
    RankLayout,
    RankRequest,
    cards_of_this_machine,
    one_process_notes,
    plan_ranks,
    queued_ranks,
    rank_environments,
    with_previous_layout,
)
from roost.package.package_draft import prepare_training
from roost.package.session_schema import SessionRequest
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import VALUES, package

FOUR = [
    Card(0, "GPU-a", "H100", 80_000, 10_000, (CardProcess(7, "anna", 70_000),)),
    *(Card(number, f"GPU-{number}", "H100", 80_000, 79_000) for number in (1, 2, 3)),
]


def has(monkeypatch: pytest.MonkeyPatch, cards: list[Card]) -> None:
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: True)
    monkeypatch.setattr(visible_cards, "cards", lambda: cards)


def settings(**values: Any) -> Settings:
    return parse_settings({**VALUES, **values})


def decided(
    asked: RankRequest | None = None, *, device: str = "auto", terminal: str = "", **values: Any
) -> RankLayout:
    return plan_ranks(
        asked or RankRequest(),
        settings(**values),
        device=device,
        terminal=terminal,
        where=lambda key: f"c.yaml:{key}",
    )


def short(found: RankLayout) -> tuple[Any, ...]:
    return tuple(found.request[key] for key in ("device", "strategy", "ranks", "cards"))


def test_one_process_does_not_query_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError("a run in one process starts without a look at the driver")

    monkeypatch.setattr(visible_cards, "cards", fail)
    found = decided()
    assert short(found) == ("auto", "single", 1, None) and found.notes == []
    assert found.request["devices"] == "auto" and found.request["restart"] == 0


@pytest.mark.parametrize(
    ("asked", "values", "ranks", "strategy", "cards"),
    [
        ({"strategy": "ddp"}, {}, 4, "ddp", None),
        ({"devices": 2}, {}, 2, "ddp", ["GPU-1", "GPU-2"]),
        ({"devices": 2}, {"strategy": "fsdp"}, 2, "fsdp", ["GPU-1", "GPU-2"]),
        ({}, {"devices": [3, 0]}, 2, "ddp", ["GPU-3", "GPU-a"]),
        ({"devices": 3}, {"devices": [0, 1], "strategy": "ddp"}, 3, "ddp", ["GPU-1", "GPU-2", "GPU-3"]),
        ({"strategy": "single"}, {"devices": 2}, 1, "single", ["GPU-1", "GPU-2"]),
        ({"devices": [2]}, {}, 1, "single", ["GPU-2"]),
        ({"devices": 1}, {}, 1, "single", ["GPU-1"]),
    ],
    ids=str,
)
def test_one_rank_for_each_card(
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    values: dict[str, Any],
    ranks: int,
    strategy: str,
    cards: list[str] | None,
) -> None:
    has(monkeypatch, FOUR)
    assert short(decided(RankRequest(**asked), **values)) == ("cuda", strategy, ranks, cards)


def test_on_the_cpu_a_number_of_processes(messages: Messages) -> None:
    for strategy in ("ddp", "fsdp"):
        found = decided(RankRequest(devices=2, strategy=strategy), device="cpu")
        assert short(found) == ("cpu", strategy, 2, None)
    assert short(decided(RankRequest(devices=1), device="cpu")) == ("cpu", "single", 1, None)
    assert found.notes[0].startswith("fsdp: 2 ranks ")
    messages.check(found.notes[0])


def test_without_a_gpu_it_is_the_cpu_and_said(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: False)
    found = decided(devices=2)
    assert short(found) == ("cpu", "ddp", 2, None)
    assert found.notes[0].startswith("ddp: 2 ranks ") and "CUDA" in found.notes[0]
    messages.check(found.notes[0])


def test_no_session_computes_on_simulated_cards(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    has(monkeypatch, FOUR)
    monkeypatch.setenv("ROOST_DEVICES", "sim:4x24GB")
    found = decided(devices=2)
    assert short(found) == ("cpu", "ddp", 2, None)
    assert found.notes[0].startswith("ddp: 2 ranks ") and "ROOST_DEVICES" in found.notes[0]
    messages.check(found.notes[0])


def test_what_is_said(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    has(monkeypatch, FOUR)
    for asked, ranks, rest in (
        (RankRequest(strategy="ddp"), 4, ""),
        (RankRequest(devices=[0, 2]), 2, " 0, 2"),
        (RankRequest(devices=2, num_nodes=3, rendezvous="one:29500"), 2, " 1, 2 "),
    ):
        (note,) = decided(asked).notes
        assert note.startswith(f"ddp: {ranks} ranks ") and rest in note
        messages.check(note)
    alone = decided(RankRequest(devices=1, strategy="ddp"), sync_batch_norm=True)
    assert alone.request["ranks"] == 1
    assert ["ddp" in alone.notes[0], "sync_batch_norm" in alone.notes[1]] == [True] * len(alone.notes)
    for note in alone.notes:
        messages.check(note)
    monkeypatch.setattr(cpu_cores, "usable_cores", lambda: 1)
    assert decided(RankRequest(devices=2), device="cpu").notes[1].startswith("2 ranks ")


SEEN = "0: H100, 9.8 GB of 78.1 GB free (used by pid 7 of anna, 68.4 GB)"
"""Of a card: its number, name and memory, and who uses it."""


@pytest.mark.parametrize(
    ("asked", "device", "values", "error", "facts"),
    [
        ({"devices": 5}, "auto", {}, Refused,
         ["devices: ", f"{SEEN}; 1: H100", " 5 ", "(at command line)", " 4,"]),
        ({}, "auto", {"devices": 5}, Refused, ["devices: ", "(at c.yaml:devices)"]),
        ({"devices": [0, 4, 9]}, "auto", {}, Refused, ["devices: ", "GPU 4, 9 ", "0: H100"]),
        ({"devices": [1, 1]}, "auto", {}, Refused, ["devices: ", "[1, 1]"]),
        ({"strategy": "ddp"}, "cpu", {}, UsageError, ["ddp", "-CPU --devices 2"]),
        ({"devices": [0, 1]}, "cpu", {}, Refused, ["devices: ", "[0, 1]", "--devices 2"]),
        ({"devices": 2, "strategy": "single"}, "cpu", {}, Refused, ["devices: ", "single", "ddp"]),
        ({"devices": 2}, "auto", {"data": {"batch_size": 1}}, ConfigError,
         ["data.batch_size: ", "2 ranks ", "(at c.yaml:data.batch_size)", "data.batch_size: 2"]),
        ({"devices": 2, "strategy": "fsdp"}, "auto", {"on_step_error": "skip"}, ConfigError,
         ["on_step_error: ", "strategy: fsdp", "'skip'"]),
        ({"devices": 2}, "cpu", {"sync_batch_norm": True}, Refused, ["sync_batch_norm: ", "torch"]),
        ({"num_nodes": 2}, "cpu", {}, UsageError, ["--rendezvous: ", "2 "]),
        ({"num_nodes": 2, "rendezvous": "one"}, "cpu", {}, UsageError, ["'one'", "node1:29500"]),
        ({"num_nodes": 2, "rendezvous": "one:70000"}, "cpu", {}, UsageError, ["--rendezvous", "one:70000"]),
        ({"rendezvous": "one:29500"}, "cpu", {}, UsageError, ["--rendezvous", "--num-nodes N"]),
        ({"num_nodes": 2, "rendezvous": "a:1", "strategy": "single"}, "cpu", {}, UsageError,
         ["single", "--num-nodes"]),
        ({"num_nodes": 2, "rendezvous": "a:1", "restart": 1}, "cpu", {}, UsageError,
         ["--restart", "--num-nodes"]),
    ],
)  # fmt: skip
def test_one_clear_error(
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    device: str,
    values: dict[str, Any],
    error: type[RoostError],
    facts: list[str],
    messages: Messages,
) -> None:
    has(monkeypatch, FOUR)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(error) as caught:
        decided(RankRequest(**asked), device=device, **values)
    for text in facts:
        assert text in str(caught.value)
    messages.check(caught.value)


def test_a_gpu_that_is_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    has(monkeypatch, [])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(Refused) as refused:
        decided(RankRequest(strategy="ddp"), device="cuda")
    assert refused.value.setting == "--device" and "CUDA_VISIBLE_DEVICES" in refused.value.detail
    assert "-CPU --devices" in str(refused.value.fix)
    messages.check(refused.value)


@pytest.mark.parametrize("strategy", [None, "ddp", "single"])
def test_a_gpu_that_is_named_where_there_is_none(
    strategy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fix in the message works."""
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: False)
    with pytest.raises(Refused) as caught:
        decided(RankRequest(devices=[0], strategy=strategy))
    assert (caught.value.setting, caught.value.where) == ("devices", "command line")
    assert "torch" in caught.value.detail and str(caught.value.fix).endswith("--devices 1")
    assert decided(RankRequest(devices=1, strategy=strategy)).request["ranks"] == 1


@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_a_gpu_of_another_maker_is_for_one_process(
    device: str, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """And takes none of NVIDIA's cards, where there are some, too."""
    has(monkeypatch, FOUR)
    assert short(decided(device=device)) == (device, "single", 1, None)
    assert short(decided(RankRequest(devices=1), device=device)) == (device, "single", 1, None)
    for asked in (RankRequest(devices=2), RankRequest(strategy="ddp")):
        with pytest.raises(Refused) as refused:
            decided(asked, device=device)
        assert refused.value.setting == "--device" and repr(device) in str(refused.value)
    messages.check(refused.value)
    with pytest.raises(Refused) as refused:
        decided(RankRequest(devices=[0]), device=device)
    assert device in refused.value.detail
    messages.check(refused.value)


def test_a_terminal_is_for_one_process(messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        decided(RankRequest(devices=2), device="cpu", terminal="/dev/pts/1")
    assert "--pdb" in str(refused.value)
    messages.check(refused.value)


def test_what_one_process_does_for_several(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    def said(**values: Any) -> list[str]:
        return one_process_notes(settings(**values), device="cpu", where=lambda key: None)

    assert said() == []
    (line,) = said(devices=2)
    assert "2 ranks (ddp)" in line
    messages.check(line)
    (line,) = said(devices=[0, 1])
    assert " devices: " in line
    messages.check(line)
    with pytest.raises(ConfigError, match=r"data\.batch_size"):
        said(devices=2, data={"batch_size": 1})


# --- the next session -------------------------------------------------------------------------------------


def before(tmp_path: Path, **request: Any) -> Any:
    made = package(tmp_path / "runs", state="new")
    made.new_session({"overrides": [], **request})

    def again(asked: RankRequest, *overrides: str) -> tuple[Any, Any, Any]:
        found = with_previous_layout(asked, made, overrides)
        return found.devices, found.strategy, found.sources.get("devices")

    return again


def test_a_session_is_as_the_one_before(tmp_path: Path) -> None:
    again = before(tmp_path, devices=[0, 1], strategy="fsdp")
    assert again(RankRequest()) == ([0, 1], "fsdp", "session 1")
    assert again(RankRequest(devices=3)) == (3, "fsdp", None)
    assert again(RankRequest(strategy="ddp")) == ([0, 1], "ddp", "session 1")
    assert again(RankRequest(), "devices=3") == (None, "fsdp", None), "the setting counts, that is new"
    assert again(RankRequest(), "+strategy=ddp") == ([0, 1], None, "session 1")


def test_one_process_before_does_not_bind_several_devices(tmp_path: Path) -> None:
    again = before(tmp_path, devices="auto", strategy="single")
    assert again(RankRequest()) == ("auto", "single", "session 1")
    assert again(RankRequest(devices=3)) == (3, None, None)


def test_a_session_of_an_older_roost_binds_nothing(tmp_path: Path) -> None:
    assert before(tmp_path, device="cpu")(RankRequest(devices=2)) == (2, None, None)


def test_fewer_machines_than_before_are_said(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="new")
    made.new_session({"overrides": [], "devices": 1, "strategy": "ddp", "num_nodes": 2})
    again = decided(with_previous_layout(RankRequest(), made, []), device="cpu").notes
    assert "--num-nodes 2 --rendezvous HOST:PORT" in again[-1]
    messages.check(again[-1])
    asked = RankRequest(num_nodes=2, rendezvous="one:29500")
    (note,) = decided(with_previous_layout(asked, made, []), device="cpu").notes
    assert note.startswith("ddp: 1 rank ") and " 2 " in note
    messages.check(note)


@pytest.mark.parametrize(
    ("devices", "ids"), [([3, 0], ["GPU-3", "GPU-a"]), (2, ["GPU-1", "GPU-2"]), ("auto", ["GPU-1", "GPU-2"])]
)
def test_the_cards_of_a_machine_that_joins(
    devices: Any, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, FOUR)
    request = SessionRequest(device="cuda", devices=devices, strategy="ddp", ranks=2, num_nodes=2)
    assert cards_of_this_machine(request, settings()) == ids
    assert cards_of_this_machine(SessionRequest.from_json({**request, "device": "cpu"}), settings()) is None
    has(monkeypatch, FOUR[:1])
    with pytest.raises(Refused, match="GPU"):
        cards_of_this_machine(request, settings())


# --- their environments -----------------------------------------------------------------------------------


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_cores, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    of = settings()
    assert rank_environments(SessionRequest(ranks=3), of) == ({"OMP_NUM_THREADS": "2"},) * 3
    assert rank_environments(SessionRequest(ranks=16), of)[0] == {"OMP_NUM_THREADS": "1"}
    assert rank_environments(SessionRequest(ranks=2), settings(threads=5)) == ({"OMP_NUM_THREADS": "5"},) * 2
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert rank_environments(SessionRequest(ranks=2), of)[1] == {"OMP_NUM_THREADS": "7"}
    assert rank_environments(SessionRequest(ranks=1, num_nodes=2), of) == ({"OMP_NUM_THREADS": "7"},)


def test_one_process_is_left_alone() -> None:
    assert (
        rank_environments(SessionRequest(ranks=1), settings())
        == ()
        == rank_environments(SessionRequest(), settings())
    )


def of_task(options: TaskOptions, devices: Any = "auto", **given: Any) -> dict[str, Any]:
    return queued_ranks(options, settings(**given), devices=devices, where=lambda key: None)


@pytest.mark.parametrize(
    ("gpus", "asked", "devices", "given", "device", "strategy", "ranks"),
    [
        (0, None, "auto", {}, "cpu", "single", 1),
        (1, None, "auto", {}, "cuda", "single", 1),
        (3, None, "auto", {}, "cuda", "ddp", 3),
        (3, "single", "auto", {}, "cuda", "single", 1),
        (2, None, "auto", {"strategy": "fsdp"}, "cuda", "fsdp", 2),
        (0, None, 2, {}, "cpu", "ddp", 2),
        (0, None, [0, 1], {}, "cpu", "single", 1),
        (1, None, 4, {}, "cuda", "single", 1),
    ],
)
def test_the_layout_of_a_task(
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    asked: Any,
    devices: Any,
    given: dict[str, Any],
    device: str,
    strategy: str,
    ranks: int,
) -> None:
    options = TaskOptions(gpus=gpus, strategy=asked)
    monkeypatch.delenv("ROOST_DEVICES", raising=False)
    found = of_task(options, devices, **given)
    assert (found["device"], found["strategy"], found["ranks"]) == (device, strategy, ranks)
    assert found["cards"] is None and (found["num_nodes"], found["restart"]) == (1, 0)
    monkeypatch.setenv("ROOST_DEVICES", "sim:4x24GB")
    assert of_task(options, devices, **given) == {**found, "device": "cpu"}


def test_options_of_a_task_that_contradict_each_other(messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        of_task(TaskOptions(gpus=0, strategy="single"), 2)
    messages.check(refused.value)
    with pytest.raises(ConfigError):
        of_task(TaskOptions(gpus=2), step_mode="fast")


def test_cores_and_memory_of_the_host_are_part_of_the_request(messages: Messages) -> None:
    found = decided(RankRequest(cores=1, host_memory_mb=500), device="cpu").request
    assert (found["cores"], found["host_memory_mb"]) == (1, 500)
    assert not {"cores", "host_memory_mb"} & decided(device="cpu").request.keys()
    with pytest.raises(Refused, match="--cpus") as refused:
        decided(RankRequest(cores=100_000), device="cpu")
    messages.check(re.sub(r"has \d+ cores?", "has <these>", str(refused.value)))


def test_the_settings_of_dlnests_contract_have_their_section(tmp_path: Path, messages: Messages) -> None:
    config = layers.load(dlnest_project(tmp_path / "p", devices="mine", roost={"devices": 2}))
    found = parse_dlnest_settings(config.values, where=config.where)

    def plan(asked: RankRequest) -> RankLayout:
        return plan_ranks(asked, found, device="cpu", terminal="", where=config.where)

    assert short(plan(RankRequest())) == ("cpu", "ddp", 2, None)
    for asked in (RankRequest(strategy="fsdp"), RankRequest(devices=[0], strategy="ddp")):
        with pytest.raises(RoostError) as refused:
            plan(asked)
        messages.check(refused.value)
    made = prepare_training(config).create("one")
    made.new_session({"overrides": [], "devices": 3, "strategy": "ddp"})
    assert with_previous_layout(RankRequest(), made, ["devices=5"]).devices == 3
    assert with_previous_layout(RankRequest(), made, ["roost.devices=5"]).devices is None
