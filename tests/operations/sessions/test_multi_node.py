"""What a machine must be like where others come to, and how torchrun is started there."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from roost.base.errors import Refused
from roost.operations.sessions import multi_node
from tests.messages import Messages


def request(place: str, **more: Any) -> dict[str, Any]:
    return {"num_nodes": 2, "ranks": 3, "rendezvous": place, **more}


def test_a_port_in_use_is_refused_at_once(messages: Messages) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{found.getsockname()[1]}"
        found.listen()
        with pytest.raises(Refused, match="Address already in use") as refused:
            multi_node.require_rendezvous(request(place))
        assert refused.value.setting == "--rendezvous"
        assert repr(place) in str(refused.value)
        messages.check(refused.value.fix)
    multi_node.require_rendezvous(request(place))


def test_a_place_that_is_not_here(messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        multi_node.require_rendezvous(request("192.0.2.1:29500"))
    assert refused.value.setting == "--rendezvous"
    assert "'192.0.2.1:29500'" in str(refused.value)
    messages.check(refused.value.fix)


@pytest.mark.parametrize("is_host", [True, False])
def test_how_torchrun_is_started(is_host: bool) -> None:
    argv, added = multi_node.torchrun_launch(request("node1:29500"), {"A": "1"}, token="f", is_host=is_host)
    assert argv[-2:] == ["-m", "roost.worker"], "whose arguments come next"
    assert {"--nnodes=2", "--nproc-per-node=3", "--rdzv-endpoint=node1:29500", "--rdzv-id=f"} <= set(argv)
    assert any(text.endswith(f"is_host={int(is_host)}") for text in argv)
    assert not any(text.startswith("--local-addr") for text in argv)
    assert (added["A"], added["PYTHONSAFEPATH"]) == ("1", "1")
