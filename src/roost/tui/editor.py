"""The editor of the user, $EDITOR: for a note of the selected run, or the script an analyzer ran last."""

# Not durable: a note while it is edited; the server stores what becomes of it

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roost.base.errors import NotFound, RoostError
from roost.shell.command_words import quote_word
from roost.tui.run_tabs.run_data import run_id
from roost.tui.view_state import is_analyzer, label

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabTask
    from roost.shell.lab_connection import LabConnection
    from roost.tui.client_app import RoostClient


def edit(app: RoostClient) -> None:
    """Edits what the client shows: with the focus on the output of the watched analyzer, or with an
    analyzer selected, a script; otherwise a note."""
    task = app.view.task
    selected = label(task) if task is not None and is_analyzer(task) else None
    watched = app.view.watched if app.focused is app.analyzer else None
    if analyzer := selected or watched:
        app.run_worker(_edit_script(app, analyzer), group="edit", exclusive=True)
    elif task is not None:
        app.run_worker(_edit_note(app, task), group="edit", exclusive=True)


async def _edit_note(app: RoostClient, task: LabTask) -> None:
    client = app.run_view.client
    if client is None:
        return
    try:
        before = (await client.show_run(run_id(task))).summary.note or ""
    except RoostError as error:
        app.say(str(error))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "note.txt"
        file.write_text(before)
        if (trouble := _run_editor(app, file)) is not None:
            app.say(trouble)
            return
        after = file.read_text(errors="replace").strip()
    if after == before.strip():
        app.say("the note is the same as before")
    else:
        app.run_verb(f"note {label(task)} {quote_word(after)}")


async def _edit_script(app: RoostClient, analyzer: str) -> None:
    import asyncio

    try:
        path = await asyncio.to_thread(_last_script, app.verbs.runner().connection, analyzer)
    except RoostError as error:
        app.say(str(error))
        return
    app.say(_run_editor(app, path) or f"runExp {analyzer} {path.stem} runs it as it is now")


def _last_script(connection: LabConnection, analyzer: str) -> Path:
    """Returns the file of the script that an analyzer ran last; of one that ran none, of the script that was
    changed last.

    Raises:
        RoostError: The analyzer cannot be asked, or has no scripts, or they are on another machine.
    """
    paths = [Path(one.path) for one in connection.list_scripts(analyzer)]
    if not paths:
        raise NotFound("the analyzer has no scripts", fix="put one into the project's AnalyzeScripts")
    if not (files := [path for path in paths if path.is_file()]):
        raise NotFound("the scripts are not on this machine", where=paths[0].parent, fix="edit them there")
    called = [Path(one.script) for one in connection.list_calls(analyzer)]
    last = next((path for path in reversed(called) if path in files), None)
    return last or max(files, key=lambda path: path.stat().st_mtime)


def _run_editor(app: RoostClient, file: Path) -> str | None:
    """Shows a file in the editor, and returns why that failed."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    # Ctrl-C is for the editor. A handler, unlike SIG_IGN, is not inherited.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with app.suspend():
            done = subprocess.run([*shlex.split(editor), str(file)], check=False)
    except (OSError, ValueError) as error:
        return f"the editor {editor} cannot be started ({error}): set EDITOR"
    finally:
        signal.signal(signal.SIGINT, before)
        app.draw_all()
    return None if done.returncode == 0 else f"the editor {editor} failed with exit code {done.returncode}"
