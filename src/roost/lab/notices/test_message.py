"""Sends one notice for a trial, and prints as JSON why it did not arrive, empty if it did; started as
``python -m roost.lab.notices.test_message NUMBER`` (of the receiver, from 0), so that it can be ended from
outside:
a server tries them, too, and only a main thread can set itself a time limit."""

from __future__ import annotations

import json
import subprocess
import sys

from roost.lab.notices import notice_events

_MOST_SECONDS = 45.0
"""More than it gives itself, and than it takes to load."""


def run(number: int) -> str:
    """Tries one receiver of the settings; gives why it did not arrive, empty if it did.

    Args:
        number: Its place, from 0.
    """
    line = [sys.executable, "-P", "-m", "roost.lab.notices.test_message", str(number)]
    try:
        done = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_MOST_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {_MOST_SECONDS:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the trial could not be made: {error}"
    return str(json.loads(done.stdout))


def main() -> None:
    """``trial.py NUMBER``."""
    from roost.lab.notices import delivery, notice_text
    from roost.lab.notices import receivers as settings

    receivers = list(settings.read(notice_events.path()).receivers.values())
    print(json.dumps(delivery.deliver(receivers[int(sys.argv[1])], notice_text.trial(), pauses=())))


if __name__ == "__main__":
    main()
