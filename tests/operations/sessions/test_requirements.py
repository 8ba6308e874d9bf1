"""`require`: refused before anything is made. The cards are simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError, NotFound, Refused
from roost.config.sections.requirements import RequireSettings
from roost.devices.card import Card
from roost.devices.resource_request import CardRequirement, TaskOptions
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.programs.program_package import TypedProgram, prepare_program
from roost.operations.queue.submit import SubmitRequest, submit
from roost.operations.sessions import requirements
from roost.operations.sessions.foreground_lease import cards_of_session
from roost.operations.sessions.requirements import card_requirement, require_cards, require_versions
from roost.package.remote import remote_copy
from roost.package.session_schema import SessionRequest
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import project

T4, A100 = Card(0, "SIM-0", "Tesla T4", 15360, 15360), Card(1, "SIM-1", "NVIDIA A100", 40960, 40960)


@pytest.fixture(autouse=True)
def _devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x15360MB:Tesla T4,1x40GB:NVIDIA A100")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("settings", "fitting"),
    [
        ({"gpu": "t4"}, [T4]),
        ({"gpu": "*A100"}, [A100]),
        ({"gpu": ["P100", "T4"]}, [T4]),
        ({"memory": "16GB"}, [T4, A100]),
        ({"memory": "20GB"}, [A100]),
        ({"gpu": "T4", "memory": "20 GB"}, []),
    ],
)
def test_which_cards_fit(settings: dict[str, str], fitting: list[Card]) -> None:
    required = card_requirement(RequireSettings(**settings))
    assert required is not None
    assert [card for card in (T4, A100) if required.fits(card)] == fitting
    assert card_requirement(None) is None and card_requirement(RequireSettings(torch=">=2")) is None


def test_the_cards_of_a_session_must_fit(messages: Messages) -> None:
    require = RequireSettings(gpu=["A100", "H100"], memory="30GB")
    require_cards(require, [A100], device="auto")
    for cards, device, is_chosen in (([T4], "auto", True), ([], "cpu", False), ([T4, A100], "auto", False)):
        with pytest.raises(Refused) as refused:
            require_cards(require, cards, device=device, is_chosen=is_chosen)
        assert (refused.value.setting, refused.value.exit_code) == ("require.gpu", 5)
        messages.check(refused.value)


def test_where_no_gpu_is(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    with pytest.raises(Refused) as refused:
        require_cards(RequireSettings(memory="8GB"), [], device="auto")
    assert refused.value.setting == "require.memory"
    messages.check(refused.value)


@pytest.mark.parametrize("given", [">=2.4", ">=2,<3", "!=2.12", "==2.13", ">2.12.9"])
def test_versions_that_fit(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "torch_versions", lambda: {"torch": "2.13.0+cu130", "cuda": "13.0"})
    require_versions(RequireSettings(torch=given, cuda=">=12.1"))


def test_other_versions(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    for versions, require in (
        ({"torch": "2.13.0"}, RequireSettings(torch="<2.13")),
        ({"torch": "2.13.0+cpu"}, RequireSettings(cuda=">=12")),
        ({}, RequireSettings(torch=">=2")),
    ):
        monkeypatch.setattr(requirements, "torch_versions", lambda versions=versions: versions)
        with pytest.raises(Refused) as refused:
            require_versions(require)
        messages.check(refused.value)


def test_this_torch_is_read_without_importing_it() -> None:
    assert requirements.torch_versions()["torch"][0].isdecimal()


@pytest.mark.parametrize(
    "settings", [{"memory": "much"}, {"memory": "0GB"}, {"torch": "new"}, {"cuda": ">=x"}]
)
def test_what_cannot_be_read(settings: dict[str, str], messages: Messages) -> None:
    require = RequireSettings(**settings)
    with pytest.raises(ConfigError) as refused:
        require_versions(require)
        card_requirement(require)
    messages.check(refused.value)


def test_the_first_card_that_fits_is_taken(messages: Messages) -> None:
    required = CardRequirement(models=("a100",))
    found = cards_of_session(SessionRequest(device="auto"), required)
    assert [card.number for card in found.cards] == [1] and found.hide_others
    messages.check(found.notes)
    assert not cards_of_session(SessionRequest(device="auto"), CardRequirement(models=("t4",))).hide_others
    assert [
        one.number for one in cards_of_session(SessionRequest(device="auto", ranks=2), required).cards
    ] == [0, 1]


def test_a_run_is_refused_before_its_package_is_made(tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "project", require="{gpu: H100}")
    with pytest.raises(Refused) as refused:
        run(RunRequest(config=config, overrides=[f"save_root={tmp_path / 'runs'}"], command=["roost"]))
    assert refused.value.setting == "require.gpu"
    messages.check(refused.value)
    assert not (tmp_path / "runs").exists()


def test_a_task_that_no_card_fits_is_refused(tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path)
    config = project(tmp_path / "project", require="{gpu: H100, memory: 60GB}")
    with lab.here(), pytest.raises(Refused) as refused:
        submit(SubmitRequest(config=config, overrides=[f"save_root={tmp_path / 'runs'}"], command=["roost"]))
    messages.check(refused.value)
    assert not (tmp_path / "runs").exists()
    lab.close()


def test_a_task_on_the_cpu_is_refused_if_a_card_is_required(tmp_path: Path, messages: Messages) -> None:
    lab, on_cpu = Lab(tmp_path), TaskOptions(gpus=0)
    config = project(tmp_path / "project", require="{gpu: T4}")
    overrides = [f"save_root={tmp_path / 'runs'}"]
    with lab.here(), pytest.raises(Refused) as refused:
        submit(SubmitRequest(config=config, overrides=overrides, command=["roost"], options=on_cpu))
    messages.check(refused.value)
    assert not (tmp_path / "runs").exists()
    lab.close()


def test_a_store_whose_library_is_missing_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(remote_copy, "find_spec", lambda name: None if name == "gcsfs" else name)
    remote = "+remote={url: 'gs://bucket/runs'}"
    config = project(tmp_path / "project")
    for start in (
        lambda: run(RunRequest(config=config, overrides=[remote], command=["roost"])),
        lambda: submit(SubmitRequest(config=config, overrides=[remote], command=["roost"])),
    ):
        with pytest.raises(NotFound) as error:
            start()
        messages.check(error.value)
    program = TypedProgram(command=["true"], folder=config.parent, remote="gs://bucket/runs")
    with pytest.raises(NotFound), prepare_program(program):
        pass
    assert not (config.parent / "runs").exists()
