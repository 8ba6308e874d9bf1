"""A template: when it refuses to be one, what it watches, what its workers find out for themselves."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.rank_layout import RankRequest
from roost.supervisor.forkserver import template_client, torch_template
from roost.supervisor.forkserver.forked_worker import TOKEN_PLACEHOLDER, UNUSABLE_EXIT_CODE
from roost.supervisor.forkserver.template_pool import TemplatePool
from tests.supervisor.forkserver import test_template_pool
from tests.supervisor.forkserver.test_template_pool import PROJECT, begun, forks, is_warm
from tests.system import exact
from tests.waiting import wait_for
from tests.warming import spec, templates

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

kept, project = test_template_pool.kept, test_template_pool.project
SRC = Path(__file__).parents[3] / "src"
PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from roost.supervisor.forkserver import template_process, torch_template as module
def load():
    {load}
    return set()
module._load_torch, module._reset_process_state = load, list
template_process.serve(sys.argv[1], module.load())
"""


def started(path: Path, load: str) -> subprocess.Popen[str]:
    """A template that loads this; its stdin has no writer."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "ROOST_TOKEN": TOKEN_PLACEHOLDER, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM.format(load=load), str(path)]
    with ours, its:
        return subprocess.Popen(command, stdin=its, stderr=subprocess.PIPE, env=env, text=True)


@pytest.mark.parametrize(
    ("load", "fact"),
    [
        ("os.open('/dev/null', os.O_RDONLY)", "['"),
        (
            "threading.Thread(target=time.sleep, args=[9], daemon=True).start()",
            "thread",
        ),
        (
            "module._exit_unusable('it draws random numbers')",
            "it draws random numbers",
        ),
    ],
)
def test_what_a_child_could_not_do_without_is_refused(tmp_path: Path, load: str, fact: str) -> None:
    process = started(tmp_path / "socket", load)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == UNUSABLE_EXIT_CODE and fact in said
    assert not list(tmp_path.iterdir())


def test_what_a_killed_one_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "socket.new").touch()
    process = started(tmp_path / "socket", "pass")
    assert process.communicate(timeout=20)[1] == "" and process.returncode == 0  # its stdin had ended
    assert not list(tmp_path.iterdir())


# --- with torch ---------------------------------------------------------------------------------------------

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


def test_no_start_waits_for_a_template_whose_queue_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(template_client.FOLDER_VARIABLE, str(tmp_path))
    path = template_client.worker_template(spec())
    assert path is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as paused:
        paused.bind(str(path))
        with template_client._connect(path) as client, pytest.raises(BlockingIOError):
            while True:
                client.send(b"")
        assert not forks(spec()) and path.exists()


def test_what_imports_have_found_out_a_worker_finds_out_for_itself(
    kept: TemplatePool, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "scratch").mkdir()
    (project.parent / "project.py").write_text(
        f"import os; os.environ['TMPDIR'] = {str(tmp_path / 'scratch')!r}\n{PROJECT}\n{OWN}"
    )
    seen = []
    for _ in range(2):
        started = begun(project)
        assert exact.wait(started) == 0 and is_warm(started), (started.package / "_output.txt").read_text()
        found = json.loads((started.package / "own.json").read_text())
        seen.append(found.pop("key"))
        given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # by an import in this process
        assert found.pop("cache") in (given, str(tmp_path / "scratch" / "torchinductor_root"))
        assert found == {
            "temporary": str(tmp_path / "scratch"),
            "folder": str(started.package),
            "debug": str(started.package / "torch_compile_debug"),
            "is main": True,
        }
    assert seen[0] != seen[1]


@pytest.mark.soak
def test_what_is_changed_while_it_is_loaded_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    with templates(tmp_path / "own", waits=False) as own:
        [known] = own._workers.values()
        maps = Path(f"/proc/{known.process.pid}/maps")
        wait_for(lambda: "libtorch" in maps.read_text(), timeout_seconds=60)
        (folder / "installed.py").touch()
        wait_for(known.path.exists, timeout_seconds=60)
        assert not forks(spec())


@pytest.mark.soak
def test_without_descriptors_for_another_client_it_keeps_its_guards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with templates(tmp_path / "own") as own:
        [known] = own._workers.values()
        first = template_client.fork_guard(spec(), [])
        assert first is not None
        there = len(os.listdir(f"/proc/{known.process.pid}/fd"))  # noqa: PTH208
        resource.prlimit(known.process.pid, resource.RLIMIT_NOFILE, (there, there))
        assert not forks(spec())
        first.stdin.close()
        first.stderr.close()
        assert first.wait(timeout=20) == 1 and known.process.wait(timeout=20) == 0


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


RECORD = """
import os
from roost.base.system.cold_restart import is_read_ahead
from roost.supervisor.forkserver import torch_template
torch_template._import_first_modules()
kind = type(os.environ)
read, names = kind.__getitem__, set()
kind.__getitem__ = lambda self, name: names.add(name) or read(self, name)
torch_template._import_ahead()
print(len(names), *sorted(name for name in names if not is_read_ahead(name)))
"""


@pytest.mark.parametrize("device", ["/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/dxg"])
def test_with_any_gpu_no_step_is_taken_ahead(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass reads the number of GPUs; WSL has one file for those of every maker."""
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == device)
    assert torch_template._has_accelerator()
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert not torch_template._has_accelerator()


def test_every_variable_that_torch_reads_ahead_is_known() -> None:
    done = subprocess.run([sys.executable, "-c", RECORD], stdout=subprocess.PIPE, text=True, check=True)
    number, *unknown = done.stdout.split()
    assert int(number) > 50 and unknown in ([], ["TORCHINDUCTOR_CACHE_DIR"])


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
        ("os.environ['MKL_CBWR'] = 'COMPATIBLE'", False, "MKL_CBWR"),
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
