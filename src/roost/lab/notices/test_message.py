"""Sends one test notice in a process of its own.

``python -m roost.lab.notices.test_message NUMBER`` (of the receiver, from 0) prints the reason of a failure
as JSON, empty if the notice was delivered. A separate process can be ended from outside: the server sends
test notices too, and only a main thread can limit its own time.
"""

from __future__ import annotations

import json
import subprocess
import sys

from roost.lab.notices import notice_events

_TIMEOUT_SECONDS = 45.0
"""Longer than `delivery` allows for one try and the imports take."""


def send_test(number: int) -> str:
    """Sends a test notice to one receiver; returns the reason of a failure, empty if it was delivered.

    Args:
        number: The index of the receiver in the settings, from 0.
    """
    command = [sys.executable, "-P", "-m", "roost.lab.notices.test_message", str(number)]
    try:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return f"the test took longer than {_TIMEOUT_SECONDS:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the test could not be run: {error}"
    return str(json.loads(finished.stdout))


def main() -> None:
    """``test_message NUMBER``: sends a test notice to one receiver."""
    from roost.lab.notices import delivery, notice_text
    from roost.lab.notices import receivers as settings

    receivers = list(settings.read_settings(notice_events.settings_path()).receivers.values())
    print(json.dumps(delivery.deliver(receivers[int(sys.argv[1])], notice_text.compose_test(), pauses=())))


if __name__ == "__main__":
    main()
