from __future__ import annotations

from pathlib import Path

import pytest

from roost import __version__
from roost.api.client import Client
from roost.lab.notices import notice_events
from tests.lab.notices.receivers import Web
from tests.messages import Messages
from tests.serve.servers import Server


def test_the_machine_and_its_lab(server: Server) -> None:
    assert server.get("") == {"name": "roost", "version": __version__}
    assert server.get("/leases") == []
    assert server.get("/lab")["folder"] == str(server.lab.state)
    cards = server.get("/devices")["cards"]
    assert [card["number"] for card in cards] == [0, 1]


def test_cards_are_changed_and_drained(server: Server, messages: Messages) -> None:
    wanted = {"most_per_card": 3, "foreign": "fit", "keep_free_mb": 700, "cores": 3}
    changed = server.ask("POST", "/devices", wanted)
    listed = server.get("/devices")
    assert changed.status == 200 and changed.json["cards"] == listed["cards"]  # the host's use is measured
    assert changed.json.items() >= wanted.items() and listed.items() >= wanted.items()
    too_much = server.ask("POST", "/devices", {"keep_free_mb": 2**30}).json["error"]
    assert server.ask("POST", "/devices", {"cores": "any"}).json["cores"] > 0
    assert (too_much["code"], too_much["field"]) == ("usage", "keep_free_mb")
    assert server.ask("POST", "/devices/drain", {"cards": "1"}).json["cards"]
    drained = server.get("/devices")["cards"]
    assert server.ask("POST", "/devices/drain", {"cards": "1", "off": True}).status == 200
    assert server.get("/devices")["cards"] != drained
    window = {"cards": "1", "begin": "2100-01-01T22:00", "until": "08:00"}
    assert server.ask("POST", "/devices/drain", window).status == 200
    (one,) = server.get("/devices")["cards"][1]["windows"]
    assert one["end"] - one["begin"] == 10 * 3600
    assert server.ask("POST", "/devices/drain", {"cards": "1", "off": True}).status == 200
    said = server.ask("POST", "/devices/drain", {"cards": "1", "begin": "22:00"}).json["error"]
    assert "begin 22:00" in said["message"] and "until" in said["fix"]
    messages.check(said)
    for wrong in ({"cards": "9"}, {"cards": "x"}, {"cards": "-1"}, {"cards": ""}):
        assert server.ask("POST", "/devices/drain", wrong).status in (400, 404, 409, 422)
    for wrong in ({"most_per_card": 0}, {"most_per_card": "some"}, {"foreign": "kill"}, {"cores": "some"}):
        assert server.ask("POST", "/devices", wrong).status == 422


def test_receivers_are_shown_without_secrets_and_tested(
    alone: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    server = alone
    server.start()
    assert server.get("/notices")["receivers"] == [] and server.ask("POST", "/notices/test").status == 404
    good, bad = Web(), Web(410)
    file = notice_events.settings_path()
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    both = f"a: {{kind: slack, url: '{good.url}'}}, b: {{kind: ntfy, url: '{bad.url}'}}"
    file.write_text(f"receivers: {{{both}}}")
    shown = server.get("/notices")
    assert [one["why_not"] for one in shown["receivers"]] == [None, None] and "s3cret" not in str(shown)
    with server.lab.here(), Client() as client:
        assert [one.name for one in client.notices().receivers] == ["a", "b"]
        tried = client.try_notices()
    good_one, bad_one = (str(one.why_not) for one in tried.receivers)
    assert good_one == "" and "410 Gone" in bad_one
    assert (len(good.asked), len(bad.asked)) == (1, 1) and "s3cret" not in repr(tried)
    file.chmod(0o640)
    refused = server.ask("POST", "/notices/test")
    assert (refused.status, refused.code) == (409, "refused") and "s3cret" not in str(refused.json)
    good.close()
    bad.close()


def test_the_journal_is_read_from_an_offset_on_and_begins_anew(server: Server) -> None:
    before = server.get("/journal")
    assert server.ask("POST", "/devices", {"most_per_card": 2}).status == 200
    page = server.get(f"/journal?offset={before['offset']}")
    assert [line.split(" ", 2)[2] for line in page["lines"]] == ["change_devices most_per_card=2"]
    cleared = server.ask("POST", "/journal/clear", {})
    assert cleared.status == 200 and cleared.json["lines"] == server.get("/journal")["lines"] == []
    assert cleared.json["offset"] == page["offset"]
