"""A real terminal: a session of tmux, or of GNU screen, of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.waiting import wait_for

ROOST = f"{shlex.quote(sys.executable)} -m roost"
_SECONDS = 90.0


class TmuxTerminal:
    """A terminal in tmux with a shell.

    Args:
        folder: For its socket.
        size: Columns and rows.
        environment: Variables of the shell, in addition to those of the test.
    """

    def __init__(self, folder: Path, size: tuple[int, int], environment: Mapping[str, str]) -> None:
        self._socket = folder / "tmux"
        self._environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PS1": "$ ",
            **environment,
        }
        for name in ("NO_COLOR", "TMUX", "COLUMNS", "LINES", "LC_ALL", "LC_CTYPE"):
            if name not in environment:
                self._environment.pop(name, None)
        columns, rows = size
        self._run("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "exec sh")
        self._run("set-option", "-g", "status", "off")
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", str(self._socket), *arguments],
            env=self._environment, capture_output=True, text=True, check=True, timeout=100,
        )  # fmt: skip
        return done.stdout

    def keys(self, *names: str) -> None:
        """Presses keys by their names in tmux: ``Enter``, ``F1``, ``C-c``, ``a``."""
        self._run("send-keys", *names)

    def type(self, text: str) -> None:
        """Types a text."""
        self._run("send-keys", "-l", text)

    def screen(self, *, with_colours: bool = False) -> str:
        """What is visible."""
        return self._run("capture-pane", "-p", *(["-e"] if with_colours else []))

    def wait_for_text(self, text: str) -> str:
        """Waits until a text is visible, and gives the screen."""
        return _wait_for_screen(self.screen, lambda screen: text in screen, repr(text))

    def wait_until_gone(self, text: str) -> None:
        """Waits until a text is no longer visible."""
        _wait_for_screen(self.screen, lambda screen: text not in screen, f"no {text!r}")

    def wait_for(self, condition: Callable[[str], bool], what: str) -> str:
        """Waits until a condition holds for the screen, and gives it."""
        return _wait_for_screen(self.screen, condition, what)

    def resize(self, columns: int, rows: int) -> None:
        """Gives the terminal another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def require_restored(self) -> None:
        """Waits until a program has left the screen and checks that the terminal is as before."""
        wait_for(lambda: self._run("display-message", "-p", "#{alternate_on}").strip() == "0", _SECONDS)
        state = self._run("display-message", "-p", "#{cursor_flag} #{mouse_any_flag} #{keypad_flag}").split()
        assert state[0] == "1", "the cursor is hidden"
        assert state[1] == "0", "the mouse is reported"
        self.type("clear; stty -a | tr ';' '\\n' | grep -o ' -\\?icanon\\| -\\?echo ' | xargs; echo do''ne")
        self.keys("Enter")
        screen = self.wait_for_text("done\n")
        assert "icanon" in screen
        assert "-icanon" not in screen
        assert "-echo" not in screen

    def pid_of(self, program: str) -> int:
        """The newest process below the shell whose command line has a text."""
        shell = self._run("display-message", "-p", "#{pane_pid}").strip()
        found = subprocess.run(["pgrep", "-n", "-P", shell, "-f", program], capture_output=True, text=True)
        return int(found.stdout.split()[0])

    def close(self) -> None:
        """Ends the terminal, and what runs in it."""
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, timeout=100)


class ScreenTerminal:
    """A terminal in GNU screen, 80x24, in which a command runs."""

    def __init__(self, folder: Path, command: str, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._name = f"roost-{os.getpid()}"
        home = folder / "screens"
        home.mkdir(mode=0o700)
        self._environment = {
            **os.environ,
            "SCREENDIR": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            **environment,
        }
        self._environment.pop("NO_COLOR", None)
        self._environment.pop("STY", None)
        self._run("-U", "-dmS", self._name, "sh", "-c", command)

    def _run(self, *arguments: str) -> None:
        subprocess.run(
            ["screen", *arguments], env=self._environment, check=True, timeout=100, capture_output=True
        )

    def type(self, text: str) -> None:
        """Types a text."""
        self._run("-S", self._name, "-X", "stuff", text)

    def screen(self) -> str:
        """What is visible."""
        file = self._folder / "hardcopy"
        file.unlink(missing_ok=True)
        try:
            self._run("-S", self._name, "-X", "hardcopy", str(file))
            wait_for(file.exists, 5)
        except (subprocess.CalledProcessError, TimeoutError):
            return ""
        return file.read_bytes().decode(errors="replace")

    def wait_for_text(self, text: str) -> str:
        """Waits until a text is visible, and gives the screen."""
        return _wait_for_screen(self.screen, lambda screen: text in screen, repr(text))

    def wait_for(self, condition: Callable[[str], bool], what: str) -> str:
        """Waits until a condition holds for the screen, and gives it."""
        return _wait_for_screen(self.screen, condition, what)

    def close(self) -> None:
        """Ends the terminal."""
        subprocess.run(
            ["screen", "-S", self._name, "-X", "quit"],
            env=self._environment,
            capture_output=True,
            timeout=100,
        )


def _wait_for_screen(read: Callable[[], str], condition: Callable[[str], bool], what: str) -> str:
    screens = [""]

    def look() -> bool:
        screens[0] = read()
        return condition(screens[0])

    try:
        wait_for(look, _SECONDS)
    except TimeoutError:
        raise AssertionError(f"not on the screen: {what}:\n{screens[0]}") from None
    return screens[0]
