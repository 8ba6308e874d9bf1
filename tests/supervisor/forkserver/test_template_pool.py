"""Warm starts, by a real template: a worker that is forked is as one that was started, to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import StartedSession
from roost.package.package import PackageFolder
from roost.supervisor.forkserver import template_client
from roost.supervisor.forkserver.template_pool import TemplatePool
from tests.system import exact
from tests.waiting import wait_for
from tests.warming import forks, spec, templates

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SETTINGS = ["max_epochs=1", "threads=auto"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemplatePool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)  # threads as many as a person has them
        with templates(tmp_path_factory.mktemp("warm")) as found:
            yield found


@pytest.fixture
def template_pid(kept: TemplatePool) -> int:
    [found] = kept._workers.values()
    return found.process.pid


def record(started: StartedSession) -> dict[str, Any]:
    path = started.package / "sessions" / f"{started.session}.json"
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def is_warm(started: StartedSession) -> bool:
    return "warm" in record(started)


# --- the same bits ------------------------------------------------------------------------------------------


def test_a_warm_run_gives_the_bits_of_a_cold_one(
    kept: TemplatePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = exact.start(tmp_path, SETTINGS)
    assert exact.wait(forked) == 0 and is_warm(forked)
    monkeypatch.setenv(template_client.COLD_VARIABLE, "1")
    cold = exact.start(tmp_path, SETTINGS)
    assert exact.wait(cold) == 0 and not is_warm(cold)
    assert exact.fingerprint(forked.package) == exact.fingerprint(cold.package)
    assert environment(forked.package) == environment(cold.package)


def environment(package: Path) -> Any:
    found = json.loads((package / "environment.json").read_bytes())
    return {name: value for name, value in found.items() if name not in ("time", "free_memory_mb")}


def test_a_run_continues_warm_after_a_cold_start_and_the_other_way_round(
    kept: TemplatePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = exact.start(tmp_path, SETTINGS)
    assert exact.wait(whole) == 0
    started, warmth = exact.start(tmp_path, SETTINGS), [True]
    for step in (4, 9):
        assert exact.kill_when(started, exact.at_phase("training", step))
        monkeypatch.setenv(template_client.COLD_VARIABLE, "1" if warmth[-1] else "")
        started = exact.go_on(started.package, [])
        warmth.append(is_warm(started))
    assert exact.wait(started) == 0 and warmth == [True, False, True]
    assert exact.fingerprint(started.package) == exact.fingerprint(whole.package)


# --- a process like another ---------------------------------------------------------------------------------

PROJECT = """
import json, gc, os, signal, sys, threading
from pathlib import Path
import torch
import roost

def look():
    main = sys.modules["__main__"]
    return {
        "arguments": sys.argv[2:], "flags": str(sys.flags), "path": sys.path,
        # torch sets that folder when it imports its compiler, in a cold worker at the first step
        "variables": {name: value for name, value in os.environ.items()
                      if not name.startswith("ROOST") and name != "TORCHINDUCTOR_CACHE_DIR"},
        "signals": {one.name: str(signal.getsignal(one)).partition(" at 0x")[0] for one in signal.Signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "threads": torch.get_num_threads(), "ours": threading.active_count(),
        "is main": threading.current_thread() is threading.main_thread(),
        "program": [main.__name__, main.__spec__.name, main.__file__],
        "streams": [
            (s.encoding, s.errors, s.line_buffering, s.isatty()) for s in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "collects": [gc.isenabled(), gc.get_threshold()], "folder": Path.cwd().name,
        "leads": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
        "umask": os.umask(0o22), "modes": [torch.is_grad_enabled(), str(torch.get_default_dtype())],
    }

class Data(roost.Dataset):
    def build(self):
        return roost.Data(train=[(torch.ones(2), torch.ones(1))] * 4)

class Runner(roost.Runner):
    def build(self):
        self.net = torch.nn.Linear(2, 1)
        (Path(__file__).parent / "look.json").write_text(json.dumps(look()))
        self.kept = open(Path(__file__).parent / "unflushed", "w")
        self.kept.write("said")
        def late(): (Path(__file__).parent / "late").write_text("done")
        import atexit; atexit.register(late)
        if self.args.get("waits"):
            print("ready", flush=True)
            while True: signal.pause()

    def loss(self, batch):
        return (self.net(batch[0]) - batch[1]).square().mean()
"""
CONFIG = """
runner: project.py:Runner
dataset: project.py:Data
max_epochs: 1
optimizers: {main: {class: torch.optim.SGD, lr: 0.1}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "project.py").write_text(PROJECT)
    (tmp_path / "config.yaml").write_text(CONFIG)
    yield tmp_path / "config.yaml"
    for file in tmp_path.glob("runs/*/sessions/1.json"):  # of a test that has failed
        found = json.loads(file.read_bytes())
        if found["state"] == "running":
            process_identity.send_signal(signal.SIGQUIT, found["pid"], found["start_ticks"], found["boot_id"])


def wait_until_ready(started: StartedSession) -> None:
    wait_for(lambda: "ready" in (started.package / "_output.txt").read_text())


def begun(project: Path, *overrides: str) -> StartedSession:
    where = f"save_root={project.parent / 'runs'}"
    return run(RunRequest(config=project, overrides=[where, *overrides], device="cpu"))


def test_a_worker_finds_itself_as_one_that_was_started(
    kept: TemplatePool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = begun(project)
    assert exact.wait(forked) == 0 and is_warm(forked), (forked.package / "_output.txt").read_text()
    monkeypatch.setenv(template_client.COLD_VARIABLE, "1")
    cold = begun(project)
    assert exact.wait(cold) == 0 and not is_warm(cold)
    for one in (forked, cold):
        assert (one.package / "unflushed").read_text() == "said" and (one.package / "late").exists()
    found, expected = (json.loads((one.package / "look.json").read_text()) for one in (forked, cold))
    for said in (found, expected):
        said["folder"] = said["folder"] in (forked.package.name, cold.package.name)
        said["path"] = [one for one in said["path"] if not one.startswith(str(project.parent))]
    assert found == expected


def test_the_kernel_shows_the_same_of_it(
    kept: TemplatePool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for is_cold in ("", "1"):
        monkeypatch.setenv(template_client.COLD_VARIABLE, is_cold)
        started = begun(project, "+waits=true")
        wait_until_ready(started)
        assert is_warm(started) == (not is_cold)
        seen.append(described(record(started), started.package))
        assert started.process is not None
        os.kill(record(started)["pid"], signal.SIGQUIT)
        started.process.wait(timeout=100)
    assert seen[0] == seen[1] and seen[0]["title"] == "roost: worker PACKAGE"


def described(found: dict[str, Any], package: Path) -> dict[str, Any]:
    """What can be seen of a worker from outside, without what each has of its own."""
    proc = Path(f"/proc/{found['worker_pid']}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    variables = (proc / "environ").read_bytes().decode().split("\0")
    kinds = sorted(fd.readlink().as_posix().partition(":[")[0] for fd in (proc / "fd").iterdir())
    return {
        "title": (proc / "cmdline").read_bytes().decode().rstrip("\0").replace(package.name, "PACKAGE"),
        "name": status["Name"],
        "token": f"ROOST_TOKEN={found['request']['token'] if 'request' in found else token(package)}"
        in variables,
        "descriptors": [one.replace(str(package), "PACKAGE") for one in kinds if "/sys/" not in one],
        "status": {
            name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Umask", "Groups", "CapEff")
        },
        "limits": (proc / "limits").read_text(),
        "score": (proc / "oom_score_adj").read_text(),
        "folder": (proc / "cwd").readlink() == package,
    }


def token(package: Path) -> str:
    found: str = json.loads((package / "sessions" / "1.request.json").read_text())["token"]
    return found


# --- cold when in doubt -------------------------------------------------------------------------------------


def test_it_starts_cold_where_anything_is_different(
    kept: TemplatePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forks(spec())
    assert forks(spec(ROOST_DEADLINE="1", CUDA_VISIBLE_DEVICES="3", SSH_CLIENT="here", TERM_PROGRAM="x"))
    for name in ("PYTHONHASHSEED", "LD_PRELOAD", "OMP_NUM_THREADS", "TORCH_LOGS", "LANG", "PATH", "ANYTHING"):
        assert not forks(spec(**{name: "5"})), name
    for words in ({"terminal": "/dev/tty"}, {"ranks": ({},)}, {"is_launcher": True}, {"is_command": True}):
        assert not forks(spec()._replace(**words)), words  # type: ignore[arg-type]
    assert not forks(spec()._replace(argv=[sys.executable, "-P", "-c", "pass"]))
    assert not forks(spec(ROOST_COLD="1"))
    monkeypatch.setenv(template_client.COLD_VARIABLE, "yes")
    assert not forks(spec())


@pytest.mark.parametrize(
    "change", ["os.umask(0o77)", "os.nice(1)", "os.sched_setaffinity(0, [0])", "limit()"]
)
def test_and_where_the_caller_may_do_less(kept: TemplatePool, change: str) -> None:
    code = (
        "import os, resource, sys\n"
        "def limit(): resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "from tests.warming import forks, spec\n"
        f"assert forks(spec()); {change}; assert not forks(spec())"
    )
    if len(os.sched_getaffinity(0)) == 1 and "affinity" in change:
        pytest.skip("this machine has one core")
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


# --- its end ------------------------------------------------------------------------------------------------


def test_no_worker_is_left_of_a_guard_and_a_supervisor_that_are_killed(
    kept: TemplatePool, project: Path
) -> None:
    started = begun(project, "+waits=true")
    assert started.process is not None
    wait_until_ready(started)
    found = record(started)
    assert is_warm(started)
    os.kill(found["guard_pid"], signal.SIGSTOP)
    os.kill(found["pid"], signal.SIGKILL)
    os.kill(found["guard_pid"], signal.SIGKILL)
    assert started.process.wait(timeout=100) == -signal.SIGKILL
    wait_for(lambda: PackageFolder.open(started.package).state == "crashed")
    wait_for(lambda: not Path(f"/proc/{found['worker_pid']}").exists())


# --- what only a cold start would find ----------------------------------------------------------------------

OWN = """
class Runner(Runner):
    def build(self):
        super().build()
        import multiprocessing.process, tempfile, torch._dynamo.config
        found = {
            "temporary": tempfile.gettempdir(), "cache": os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
            "folder": multiprocessing.process.ORIGINAL_DIR, "debug": torch._dynamo.config.debug_dir_root,
            "is main": threading.main_thread().native_id == os.getpid(),
            "key": multiprocessing.current_process().authkey.hex(),
        }
        Path("own.json").write_text(json.dumps(found))
"""


def test_what_imports_have_found_out_a_worker_finds_out_for_itself(
    kept: TemplatePool, project: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # by an import in this process
    seen = []
    for own in (None, None, scratch):
        change = f"import os; os.environ['TMPDIR'] = {str(own)!r}" if own else ""
        (project.parent / "project.py").write_text(f"{change}\n{PROJECT}\n{OWN}")
        started = begun(project)
        output = started.package / "_output.txt"
        assert exact.wait(started) == 0 and is_warm(started), output.read_text()
        assert ("TMPDIR" in output.read_text()) == (own is not None), "it starts again then"
        found = json.loads((started.package / "own.json").read_text())
        seen.append(found.pop("key"))
        temporary = str(own or tempfile.gettempdir())
        assert found.pop("cache") in (given, f"{temporary}/torchinductor_root")
        assert found == {
            "temporary": temporary,
            "folder": str(started.package),
            "debug": str(started.package / "torch_compile_debug"),
            "is main": True,
        }
    assert len(set(seen)) == 3


def test_an_automatic_restart_starts_cold(kept: TemplatePool, project: Path) -> None:
    text = (project.parent / "project.py").read_text()
    crash = "        if sys.argv[2] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
    (project.parent / "project.py").write_text(
        text.replace("        self.net =", f"{crash}        self.net =")
    )
    where = [f"save_root={project.parent / 'runs'}"]
    started = run(RunRequest(config=project, overrides=where, device="cpu", ranks=RankRequest(restart=1)))
    assert exact.wait(started) == 0
    first, second = (json.loads((started.package / f"sessions/{n}.json").read_text()) for n in (1, 2))
    assert first["warm"] and first["state"] == "crashed" and "warm" not in second


HEEDED = """
import os
{change}
import colorsys
{project}
class Runner(Runner):
    def build(self):
        super().build()
        import torch._dynamo
        said = [torch._dynamo.config.disable, colorsys.__file__.startswith(str(Path(__file__).parent))]
        Path("heeded.json").write_text(json.dumps(said))
"""


@pytest.mark.parametrize(
    ("change", "own_module", "said"),
    [
        (
            "os.environ['TORCH_COMPILE_DISABLE'] = '1'",
            False,
            "TORCH_COMPILE_DISABLE",
        ),
        ("", True, "colorsys.py"),
        ("os.environ['MINE'] = '1'", False, None),
    ],
)
def test_what_only_a_cold_start_would_heed_is_heeded(
    kept: TemplatePool, project: Path, change: str, own_module: bool, said: str | None
) -> None:
    (project.parent / "project.py").write_text(HEEDED.format(change=change, project=PROJECT))
    if own_module:
        (project.parent / "colorsys.py").write_text("hsv_to_rgb = hls_to_rgb = rgb_to_hsv = None")
    started = begun(project)
    code, output = exact.wait(started), (started.package / "_output.txt").read_text()
    assert code == 0, output
    assert is_warm(started) and (said is None or said in output), output
    assert "MINE" not in output
    expected = ["COMPILE" in change, own_module]
    assert json.loads((started.package / "heeded.json").read_text()) == expected
