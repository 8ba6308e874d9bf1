from __future__ import annotations

import pytest

from roost.api import resumed_stream
from roost.api.api_call import StreamRequest
from roost.api.resumed_stream import ResumedStream
from roost.base.errors import Refused, RoostError
from roost.operations.responses import StreamEvent
from tests.messages import Messages

ONE, TWO = b"id: 7\nevent: n\ndata: 1\n\n", b": \n\nid: 9\nevent: n\ndata: 2\n\n"
END = b"event: end\ndata: {}\n\n"


def stream(patience: float = 60.0) -> ResumedStream[int]:
    return ResumedStream(StreamRequest("/x", {"run": "r", "cursor": "0"}, int), patience)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces_however_they_are_cut(size: int) -> None:
    data, state = ONE + TWO + END, stream()
    state.connected()
    found = [one for at in range(0, len(data), size) for one in state.pieces(data[at : at + size])]
    assert found == [StreamEvent("7", "n", 1), StreamEvent("9", "n", 2)]
    assert state.has_ended and state.has_begun


def test_it_goes_on_from_the_last_whole_piece() -> None:
    state = stream()
    assert state.given == {"run": "r", "cursor": "0"}
    state.connected()
    assert (
        len(list(state.pieces(ONE + TWO[:-1]))) == 1
    )  # the connection breaks before the second one is whole
    assert state.given == {"run": "r", "cursor": "7"}
    state.connected()
    assert list(state.pieces(TWO)) == [StreamEvent("9", "n", 2)]


def test_what_is_no_such_stream(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    state = stream()
    with pytest.raises(RoostError, match="`int`") as refused:
        list(state.pieces(b'id: 1\nevent: n\ndata: "x"\n\n'))
    messages.check(refused.value)
    monkeypatch.setattr(resumed_stream, "MOST_BYTES", 100)
    with pytest.raises(RoostError, match="100 bytes") as refused:
        list(state.pieces(b"data: " + b"x" * 100))
    messages.check(refused.value)


def test_what_the_server_cannot_go_on_with_is_raised() -> None:
    problem = b'{"error":{"code":"refused","message":"the package is damaged","fix":"verify it"}}'
    with pytest.raises(Refused) as refused:
        list(stream().pieces(b"event: error\ndata: " + problem + b"\n\n"))
    assert (refused.value.message, refused.value.fix) == ("the package is damaged", "verify it")


def test_patience_ends_and_the_pauses_grow() -> None:
    state = stream()
    pauses = [state.pause(None) for _ in range(10)]
    assert pauses == sorted(pauses) and pauses[0] < 0.1 and pauses[-1] == 2.0
    list(state.pieces(ONE))
    assert state.pause(None) == pauses[0]
    state = stream(patience=-1.0)
    state.connected()
    list(state.pieces(ONE))
    with pytest.raises(RoostError, match=r"\(gone\).* 7\b"):
        state.pause(OSError("gone"))


def test_patience_begins_when_the_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    now = 1000.0
    monkeypatch.setattr(resumed_stream.time, "monotonic", lambda: now)
    state = stream(patience=10.0)
    state.connected()
    list(state.pieces(ONE))
    now += 60
    state.pause(None)
    now += 9
    state.connected()  # and says nothing
    state.pause(None)
    now += 2
    with pytest.raises(RoostError, match=r"\b10 s") as refused:
        state.pause(None)
    messages.check(refused.value)
    list(state.pieces(TWO))
    assert state.pause(None) < 0.1


def test_a_server_without_room_is_asked_again_and_no_other() -> None:
    stream().require_busy(503, RoostError("x"))
    with pytest.raises(RoostError, match="x"):
        stream().require_busy(404, RoostError("x"))
