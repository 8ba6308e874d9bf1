"""What the client fetches from a real server: the tabs of a run, and a note in an editor."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from textual.pilot import Pilot

from roost.lab.queue.task import Task
from roost.package import labels, session_folder
from roost.package.kinds import TaskKind
from roost.shell import server_connection
from roost.tui.client_app import RoostClient
from roost.tui.drawing import palette
from tests.lab.queued import task
from tests.serve.servers import Server
from tests.tui.driving import app_of, drive, screen_text, settle

_SECONDS = 100.0
MEASURED = (
    '{"format": 1, "columns": ["host/cpu", "host/swap_mb"]}\n[10.0, 1.0, [37, 0]]\n[11.0, 1.0, [41, 0]]\n'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    own = Server(tmp_path_factory.mktemp("views"))
    own.start()
    yield own
    own.close()


@pytest.fixture(scope="module")
def command(server: Server) -> Task:
    """A command that has ended, with a picture and measurements of its own."""
    from PIL import Image

    found = server.lab.wait_for(server.lab.submit("echo of the package"))
    package = Path(found.package)
    (package / "media").mkdir()
    for name, colour in (("first", (0, 0, 255)), ("second", (255, 0, 0))):
        data = io.BytesIO()
        Image.new("RGB", (8, 8), colour).save(data, "png")
        (package / "media" / f"{name}.png").write_bytes(data.getvalue())
    (package / "system").mkdir(exist_ok=True)
    (package / "system" / "9.jsonl").write_text(MEASURED)
    return found


@pytest.fixture(scope="module")
def prediction(server: Server, command: Task) -> Task:
    """A task that reads the package, whose folder has an output and measurements."""
    folder = session_folder.create(Path(command.package), TaskKind.PREDICT, {})
    folder.output.write_text("of the prediction\n")
    (folder.path / "system").mkdir()
    (folder.path / "system" / "1.jsonl").write_text(MEASURED.replace("41", "77"))
    made = task(
        name="reads/predictions/1", kind=TaskKind.PREDICT, package=command.package,
        session_folder=str(folder.path), begin=time.time() + 10**7,
    )  # fmt: skip
    with server.lab.store() as store:
        store.submit([made])
        return store.task(made.id)


@asynccontextmanager
async def client_of(server: Server, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[int]]:
    """A client that is connected to a server and has received the lab."""
    with server.lab.here():
        app = RoostClient(None, server_connection.connect, palette.choose("dark", {}), place="here")
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(app.view.entries))
            yield pilot


async def until(pilot: Pilot[int], condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, screen_text(pilot)
        await pilot.pause(0.02)


async def until_shown(pilot: Pilot[int], *texts: str) -> str:
    await until(pilot, lambda: all(text in screen_text(pilot) for text in texts))
    return screen_text(pilot)


async def select(pilot: Pilot[int], chosen: Task) -> None:
    app = app_of(pilot)
    await until(pilot, lambda: app.view.select(chosen.id))
    app.on_tasks_pane_selected()
    await settle(pilot)


async def to_tab(pilot: Pilot[int], tab: str) -> None:
    for _ in range(10):
        if app_of(pilot).view.tab == tab:
            return
        await pilot.press("right_square_bracket")
        await pilot.pause()
    raise AssertionError(tab)


def test_the_tabs_of_a_run_are_fetched(server: Server, command: Task) -> None:
    async def body() -> None:
        async with client_of(server) as pilot:
            await select(pilot, command)
            await pilot.press("l")
            await until_shown(pilot, "of the package")
            await pilot.press("w")
            shown = await until_shown(pilot, "$ /bin/sh -c", "running")
            assert command.name in shown
            await to_tab(pilot, "system")
            assert "37" not in await until_shown(pilot, "41 %")
            await pilot.press("full_stop")
            await until_shown(pilot, "1 of 2", ".png")
            before = screen_text(pilot)
            await pilot.press("full_stop")
            await until_shown(pilot, "2 of 2", "first.png" if "second.png" in before else "second.png")

    drive(body)


def test_a_task_that_reads_a_package_shows_what_is_its_own(
    server: Server, command: Task, prediction: Task
) -> None:
    async def body() -> None:
        async with client_of(server) as pilot:
            await select(pilot, prediction)
            await pilot.press("l")
            assert "of the package" not in await until_shown(pilot, "of the prediction")
            await to_tab(pilot, "system")
            await until_shown(pilot, "77 %")
            await pilot.press("w")
            await until_shown(pilot, "reads/predictions/1", "pending")

    drive(body)
    with server.lab.here():
        connection = server_connection.connect()
        assert connection.analyzer_output(prediction.label).text == "of the prediction\n"
        connection.close()


def test_a_note_is_written_in_the_editor(
    server: Server, command: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "the  first \'run\'" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(RoostClient, "suspend", lambda _: nullcontext())  # there is no terminal

    async def body() -> None:
        async with client_of(server) as pilot:
            app = app_of(pilot)
            await select(pilot, command)
            monkeypatch.setenv("EDITOR", str(tmp_path / "none"))
            await pilot.press("e")
            await until(pilot, lambda: "cannot be started" in app.message)
            monkeypatch.setenv("EDITOR", "false")
            await pilot.press("e")
            await until(pilot, lambda: "exit code 1" in app.message)
            monkeypatch.setenv("EDITOR", str(editor))
            await pilot.press("e")
            await until(pilot, lambda: labels.read(Path(command.package)).note == "the  first 'run'")
            await pilot.press("e")
            await until(pilot, lambda: "the same as before" in app.message)

    drive(body)


def test_an_end_of_the_server_is_shown_and_the_client_goes_on(server: Server, command: Task) -> None:
    async def body() -> None:
        async with client_of(server) as pilot:
            app = app_of(pilot)
            await select(pilot, command)
            await asyncio.to_thread(server.stop)
            await until(pilot, lambda: app.link.state == "lost")
            await pilot.press("w")  # fetched once the server is there again
            await asyncio.to_thread(server.start)
            await until(pilot, lambda: app.link.state == "live")
            await until_shown(pilot, "$ /bin/sh -c")

    drive(body)
