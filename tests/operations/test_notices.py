from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.lab.notices import notice_events
from roost.operations.notices import notices, try_notices
from tests.lab.notices.receivers import Web
from tests.messages import Messages


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    notice_events.settings_path().parent.mkdir()
    web = Web()
    yield web
    web.close()


def set_up(*urls: str) -> None:
    notice_events.settings_path().touch(mode=0o600)
    lines = [f"  r{number}: {{kind: webhook, url: '{url}'}}\n" for number, url in enumerate(urls)]
    notice_events.settings_path().write_text(f"receivers:\n{''.join(lines)}")


def test_what_is_set_is_shown_without_secrets(web: Web) -> None:
    assert notices().receivers == [] and notices().file == str(notice_events.settings_path())
    with pytest.raises(NotFound):
        try_notices()
    set_up(web.url)
    found = notices()
    assert found.receivers[0].place == f"http://127.0.0.1:{web.port}/***"
    assert found.receivers[0].why_not is None and not web.asked
    assert "s3cret" not in repr(found)


def test_a_trial_tells_of_each_what_came_of_it(web: Web, messages: Messages) -> None:
    bad = Web(403)
    set_up(web.url, bad.url)
    good, failed = try_notices().receivers
    bad.close()
    assert good.why_not == "" and failed.why_not is not None and "403 Forbidden" in failed.why_not
    messages.check(failed.why_not)
    assert web.asked[0].body["title"].startswith("roost: ")
