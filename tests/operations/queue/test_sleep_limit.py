from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import UsageError
from roost.lab.scheduling import max_sleep
from roost.operations import lab
from roost.operations.queue.sleep_limit import change_delay
from tests.messages import Messages


def test_it_is_changed_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    with lab.open_queue() as store:
        assert max_sleep.longest_sleep(store) == max_sleep.DEFAULT_SECONDS
        for seconds in (1, 3600, 90):
            change_delay(seconds)
            assert max_sleep.longest_sleep(store) == seconds
        for seconds in (0, -1, 3601):
            with pytest.raises(UsageError, match="1 to 3600") as refused:
                change_delay(seconds)
            assert refused.value.setting == "new_delay"
            assert repr(seconds) in str(refused.value)
            messages.check(refused.value)
        assert max_sleep.longest_sleep(store) == 90
        for value, found in ((0, 1), (10**9, 3600), ("soon", 60), (True, 60), ([], 60)):
            store.set_setting(max_sleep.SETTING, value)  # as a user may have edited it
            assert max_sleep.longest_sleep(store) == found
