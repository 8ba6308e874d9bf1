from __future__ import annotations

import pytest
import torch

from roost.base.errors import Refused
from roost.project.device_choice import choose_device
from tests.messages import Messages


def test_devices() -> None:
    assert choose_device("cpu") == "cpu"
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device("auto") == best
    if not torch.cuda.is_available():
        with pytest.raises(Refused, match=r"(?s)'cuda:1'.*-CPU") as refused:
            choose_device("cuda:1")
        assert refused.value.setting == "device"


@pytest.mark.parametrize("asked", ["gpu", "", "cuda:x", "cpu:-1"])
def test_what_is_no_device(asked: str, messages: Messages) -> None:
    with pytest.raises(Refused, match=repr(asked)) as refused:
        choose_device(asked)
    assert refused.value.setting == "device"
    messages.check(refused.value)


def test_what_this_machine_lacks(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(Refused, match="mps") as refused:
        choose_device("mps")
    assert refused.value.setting == "device"
    messages.check(refused.value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == "cuda:1" and choose_device("cuda") == "cuda"
    with pytest.raises(Refused, match=r"2.*0.*'cuda:2'") as refused:
        choose_device("cuda:2")
    assert refused.value.setting == "device"
    messages.check(refused.value)


def test_each_rank_has_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu", local_rank=1) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device(asked, local_rank=1) for asked in ("cuda", "auto")] == ["cuda:1", "cuda:1"]
    with pytest.raises(Refused, match=r"2.*0.*'cuda:2'"):
        choose_device("cuda", local_rank=2)
