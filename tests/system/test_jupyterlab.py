"""A run in JupyterLab, in a real browser. Not in CI: JupyterLab and Chromium are 800 MB; by hand

pip install jupyterlab playwright && apt-get install chromium
pytest -m soak tests/system/test_jupyterlab.py --update-screens        # renews docs/notebook.png, too
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roost.operations.lifecycle.new_project import new_project
from roost.package.package import PackageFolder
from tests.waiting import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PICTURE = Path(__file__).parents[2] / "docs" / "notebook.png"
CELLS = ["%load_ext roost", "%roost run config.yaml max_epochs=2000 log_every=2/ep --name digits"]


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """JupyterLab in a folder, without the user's settings; gives its address."""
    options = [
        "--no-browser",
        "--allow-root",
        "--port=0",
        "--IdentityProvider.token=",
        "--expose-app-in-browser",
    ]
    home = {f"JUPYTER_{name}_DIR": str(folder.parent / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyterlab", *options]
    log = folder.parent / "lab.log"
    with log.open("wb") as file:
        server = subprocess.Popen(command, cwd=folder, env={**os.environ, **home}, stdout=file, stderr=file)
    try:
        found = wait_for(lambda: re.search(r"http://127.0.0.1:\d+", log.read_text()))
        yield found[0]
    finally:
        server.terminate()
        server.wait(100)


@pytest.fixture
def page() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="pip install jupyterlab playwright")
    pytest.importorskip("jupyterlab")
    chromium = shutil.which("chromium") or pytest.skip("apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 960, "height": 900})
        browser.close()


def test_a_run_is_shown_interrupted_and_continued(
    page: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import nbformat

    folder = tmp_path / "digits"
    new_project(folder, template="digits")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}  # no dialog asks for it
    nbformat.write(book, folder / "train.ipynb")

    def execute(command: str) -> None:
        """Carries out a command of JupyterLab's, as its buttons, menus and keys do, without its result."""
        page.evaluate("command => { window.jupyterapp.commands.execute(command) }", command)

    def step() -> int:
        found = re.search(r"step ([\d,]+)/", page.locator(".jp-OutputArea").nth(1).inner_text())
        return int(found[1].replace(",", "")) if found else 0

    with lab(folder) as address:
        page.goto(f"{address}/lab/tree/train.ipynb?reset")
        page.get_by_text("| Idle").wait_for(timeout=60_000)  # the kernel; what runs before is dropped
        execute("notebook:run-cell-and-select-next")
        page.get_by_text("[1]:").wait_for(timeout=60_000)
        execute("notebook:run-cell")
        page.locator('img[alt^="curves"]').wait_for(timeout=180_000)
        first = step()
        wait_for(lambda: step() > first + 100, 180)
        if request.config.getoption("--update-screens"):
            page.get_by_role("button", name="No", exact=True).click()  # news
            page.locator(".Toastify__toast").wait_for(state="detached")
            execute("application:toggle-left-area")
            page.screenshot(path=str(PICTURE))
        execute("notebook:interrupt-kernel")
        page.get_by_text("or run this cell again").wait_for(timeout=60_000)
        made = PackageFolder.open(folder / "runs" / "digits")
        assert [one.state for one in made.sessions()] == ["stopped"]
        stopped = step()

        execute("notebook:run-cell")
        wait_for(lambda: step() > stopped, 180)
        assert page.locator('img[alt^="curves"]').count() == 1
        execute("docmanager:save")
        wait_for(lambda: "alt=" in (folder / "train.ipynb").read_text())
        assert (folder / "train.ipynb").stat().st_size < 60_000
        assert made.sessions()[-1].state == "running"
    # The server has ended its kernels: an interrupt, and SIGTERM.
    wait_for(lambda: made.state != "running")
    assert [one.state for one in made.sessions()] == ["stopped", "stopped"]
