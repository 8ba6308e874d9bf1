from __future__ import annotations

from roost import __version__
from tests.serve.servers import Server


def test_the_machine_and_its_lab(server: Server) -> None:
    assert server.get("") == {"name": "roost", "version": __version__}
    assert server.get("/leases") == []
    assert server.get("/lab")["folder"] == str(server.lab.state)
    cards = server.get("/devices")["cards"]
    assert [card["number"] for card in cards] == [0, 1]


def test_cards_are_changed_and_drained(server: Server) -> None:
    changed = server.ask("POST", "/devices", {"most_per_card": 3, "foreign": "fit"})
    assert changed.status == 200 and changed.json == server.get("/devices")
    assert server.ask("POST", "/devices/drain", {"cards": "1"}).json["cards"]
    drained = str(server.get("/devices"))
    assert server.ask("POST", "/devices/drain", {"cards": "1", "off": True}).status == 200
    assert str(server.get("/devices")) != drained
    for wrong in ({"cards": "9"}, {"cards": "x"}, {"cards": "-1"}, {"cards": ""}):
        assert server.ask("POST", "/devices/drain", wrong).status in (400, 404, 409, 422)
    for wrong in ({"most_per_card": 0}, {"most_per_card": "some"}, {"foreign": "kill"}):
        assert server.ask("POST", "/devices", wrong).status == 422
