"""What every test runs in: no colour, an own home for state, and Debian's programs where they are needed."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from roost.base.system import host_memory
from roost.supervisor.forkserver import torch_template
from roost.supervisor.forkserver.template_pool import TemplatePool
from roost.supervisor.processes import cgroup
from tests import warming
from tests.messages import Messages

IN_CI = os.environ.get("ROOST_CI") == "1"
IN_SUITE = "PYTEST_XDIST_WORKER" in os.environ

MARKERS = (
    "needs_program(name): runs a program of Debian; skipped with a reason where it is missing, failed in CI",
    "needs_cgroup: makes a cgroup; skipped with a reason where the machine has none (why_no_cgroup)",
    "needs_gpu(count=1): runs on CUDA cards; skipped where there are fewer; without one failed in `make gpu`",
    "soak: takes longer than CI may; only `make soak` runs it",
)
MEMORY, MIN_ROOM_BYTES = Path("/dev/shm"), 12 << 30
OWN_FOLDER = MEMORY / f"tests-of-roost-{os.geteuid()}.{os.getpid()}"
LAUNCHERS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "ROOST_DEADLINE",
    "ROOST_LEASE",
    "SLURM_JOB_ID",
    "SLURM_JOB_END_TIME",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-messages", action="store_true", help="renew tests/messages.json")
    parser.addoption("--update-screens", action="store_true", help="renew tests/tui/screens")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.option.basetemp is None and "soak" not in config.option.markexpr and _has_room_in_memory():
        config.option.basetemp = str(OWN_FOLDER)
    # Started under nohup, or as a job of a script, these are ignored, and so they would be in every program.
    for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)


def _has_room_in_memory() -> bool:
    """Whether the folders of the tests can be in memory: roost makes every write durable, and on a disk the
    tests wait for that. Those that do not (`make soak`, `--basetemp=FOLDER`) show that a disk is as good."""
    for left in MEMORY.glob(f"{OWN_FOLDER.stem}.*"):  # by tests that have failed, or were killed
        if not Path("/proc", left.suffix[1:]).exists():
            shutil.rmtree(left, ignore_errors=True)
    if not MEMORY.is_dir():
        return False
    return min(shutil.disk_usage(MEMORY).free, host_memory.available_bytes() or 0) >= MIN_ROOM_BYTES


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.option.basetemp == str(OWN_FOLDER) and exitstatus == 0:
        shutil.rmtree(OWN_FOLDER, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the soak tests out, unless `-m` speaks of them. What takes longest comes first: of two processes
    neither waits for the other's last file."""
    items.sort(key=lambda item: "tests/system/" not in item.nodeid)
    if "soak" in config.option.markexpr:
        return
    soaks = [item for item in items if item.get_closest_marker("soak")]
    if soaks:
        config.hook.pytest_deselected(items=soaks)
        items[:] = [item for item in items if item not in soaks]


def pytest_collection_finish() -> None:
    """The modules and the tests stay to the end: a garbage collection need not visit them each time, above
    all not in a fork of this process, which would copy their pages. In large pages they make each of the
    thousand forks of the suite five times as cheap."""
    gc.collect()
    gc.freeze()
    if IN_SUITE:
        torch_template.collapse_pages()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_program"):
        (program,) = marker.args
        if shutil.which(program) is None:
            reason = f"{program} is not installed (apt-get install {program})"
            if IN_CI:
                pytest.fail(f"{reason}; .ci/run must install it", pytrace=False)
            pytest.skip(reason)
        if program == "strace" and not _may_trace():
            pytest.skip("strace may not trace here: ptrace is refused")
    if (marker := item.get_closest_marker("needs_gpu")) is not None:
        _require_gpus(*marker.args, rehearses=item.path.parent.name == "gpu")
    if item.get_closest_marker("needs_cgroup") and not cgroup.can_create():
        reason = why_no_cgroup()
        if reason is None:
            pytest.fail("root finds no cgroup where one is mounted for writing", pytrace=False)
        pytest.skip(reason)


def why_no_cgroup() -> str | None:
    """Why no cgroup can be made on this machine; None if that cannot be the machine's fault.

    Other than a program that is missing, this is a skip in CI too, with its reason in the summary: most
    containers have no cgroup v2 or show it for reading only, and nothing that `.ci/run` installs would mend
    that. What must not happen is that the tests fall away because `roost.supervisor.processes.cgroup` looks
    wrong: so the
    machine is asked here in another way, and root with a cgroup v2 mounted for writing is a failure.
    """
    mounts = Path("/proc/self/mountinfo")
    lines = [line.split() for line in mounts.read_text().splitlines()] if mounts.exists() else []
    found = [fields[5].split(",") for fields in lines if fields[fields.index("-") + 1] == "cgroup2"]
    if not found:
        return "no cgroup v2 is mounted"
    if all("ro" in options for options in found):
        return "cgroup v2 is mounted for reading only, as in most containers"
    return None if os.geteuid() == 0 else "cgroup v2 is not delegated to this user"


def _require_gpus(count: int = 1, *, rehearses: bool) -> None:
    import torch

    if rehearses and count == 1 and os.environ.get("ROOST_REHEARSE") == "1":  # tests/gpu/device.py
        return
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found == 0 and os.environ.get("ROOST_GPU") == "1":
        pytest.fail("torch sees no GPU", pytrace=False)
    if found < count:
        pytest.skip(f"{f'{count} GPUs are needed' if found else 'there is no GPU'} (make gpu)")


@cache
def _may_trace() -> bool:
    return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


@pytest.fixture(scope="session", autouse=True)
def surroundings_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemplatePool | None]:
    """Tests, and the programs they start, see neither the person's terminal nor the person's files."""
    home = tmp_path_factory.mktemp("xdg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "120")
        for name in ("STATE", "CACHE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        # pytest imports readline, which exports LINES to the processes of xdist
        for name in ("LINES", "FORCE_COLOR", "CLICOLOR_FORCE", "PYTHONBREAKPOINT", *LAUNCHERS):
            patch.delenv(name, raising=False)
        patch.setenv("MPLBACKEND", "Agg")
        patch.setenv("ROOST_LEASES", str(home / "leases"))
        # In the whole suite hundreds of runs need not import torch.
        suite = warming.templates(home / "warm", waits=False) if IN_SUITE else contextlib.nullcontext()
        with suite as kept:
            yield kept


@pytest.fixture(scope="module", autouse=True)
def state_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each file of tests begins without a queue and without known packages, whichever file ran before it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOST_STATE", str(tmp_path_factory.mktemp("state") / "roost"))
        yield


@pytest.fixture(scope="module", autouse=True)
def template_of_all(surroundings_of_all: TemplatePool | None) -> None:
    """Files of tests that start no run may take longer than a template waits for one; without it, each run
    after them would import torch."""
    if surroundings_of_all is not None:
        warming.prepare(surroundings_of_all)


@pytest.fixture
def messages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Messages]:
    """The snapshot of what errors say: ``messages.check(error)``."""
    found = Messages(request.node.nodeid, tmp_path, update=request.config.getoption("--update-messages"))
    yield found
    found.write()
