"""The loop of an analyzer, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.analysis import analysis_folder
from roost.package.package import PackageFolder
from roost.worker.analyzer import analyzer_task
from tests.project.dlnest import projects
from tests.project.trained import trained
from tests.waiting import wait_for
from tests.worker.analyzer.analyzers import Analyzer, started

RUNS = "def experience(self):\n    print('hello')\n    return {'step': self.checkpoint.step}\n"
WAITS = "    while not os.path.exists('go'): time.sleep(0.01)\n"
FOREVER = "def experience(self):\n    print('begins', flush=True)\n    while True: pass\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    return trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def analyzer(package: PackageFolder) -> Iterator[Analyzer]:
    with started(package) as one:
        yield one


def test_scripts_one_after_another(analyzer: Analyzer) -> None:
    first, value = analyzer.run(RUNS)
    assert first.state == "succeeded" and first.recorded.exit_code == 0 and value["step"] > 0
    again, _ = analyzer.run(RUNS.replace("hello", "changed"))
    assert again.recorded.pid == first.recorded.pid == analyzer.process.pid
    place = analyzer.package.path / "analysis" / str(again.number)
    assert (place / "_output.txt").read_text() == "changed\n", "its own part of the output"
    text = analyzer.printed(f"analysis {again.number}: succeeded in")
    assert f"\x1b[1manalysis {again.number}: look\x1b[0m\nchanged\nstep  {value['step']}\n\x1b[32m" in text
    assert (place / "seal.json").exists()
    wait_for(lambda: not list(analyzer.inbox.folder.iterdir()))


def test_what_a_script_stores_in_self_stays(analyzer: Analyzer) -> None:
    analyzer.run("def experience(self): self.features = [1, 2]")
    found, value = analyzer.run("import random\ndef experience(self): return self.features, random.random()")
    _, other = analyzer.run("import random\ndef experience(self): return self.features, random.random()")
    assert found.state == "succeeded" and value[0] == [1, 2] and value == other, "each call is seeded anew"


@pytest.mark.parametrize(
    ("source", "code", "reason", "says"),
    [
        ("def experience(self): return 1 / 0", 1, "exception", "ZeroDivisionError: division by zero"),
        ("import sys\ndef experience(self): sys.exit(7)", 7, "exit", "sys.exit(7)"),
        ("import sys\ndef experience(self): sys.exit()", 1, "exit", "sys.exit()"),
        ("def experience(self): raise KeyError('x')\n", 1, "exception", "KeyError"),
        ("raise BaseException('at import')\ndef experience(self): ...", 1, "exception", "at import"),
        ("experience = 3", 1, "error", "`experience`"),
        (
            "import sys\ndef experience(self): sys.stdout.close(); sys.stderr = None; 1 / 0",
            1,
            "exception",
            "Zero",
        ),
        ("import os\ndef experience(self): os.chdir('/'); input()", 1, "exception", "EOF"),
        ("def experience(self): breakpoint()", 5, "error", "--pdb"),
    ],
)
def test_an_error_ends_the_script_only(
    source: str, code: int, reason: str, says: str, analyzer: Analyzer
) -> None:
    found, _ = analyzer.run(source)
    assert (found.state, found.recorded.exit_code, found.recorded.reason) == ("failed", code, reason)
    text = analyzer.printed(f"analysis {found.number}: failed after")
    assert says in text and "\x1b[31m" in text
    alive, value = analyzer.run("import os\ndef experience(self): return os.getcwd()")
    assert alive.state == "succeeded" and value == str(analyzer.package.path)


def test_modules_beside_a_script_are_imported_anew(analyzer: Analyzer, tmp_path: Path) -> None:
    folder = analyzer.package.path / "AnalyzeScripts"
    folder.mkdir(exist_ok=True)
    for number in (1, 2):
        (folder / "beside.py").write_text(f"VALUE = {number}\n")
        _, value = analyzer.run("import beside\ndef experience(self): return beside.VALUE")
        assert value == number


def test_a_script_that_never_returns_is_interrupted(analyzer: Analyzer) -> None:
    sleeps = "import time\ndef experience(self):\n    print('begins', flush=True)\n    time.sleep(600)\n"
    for source in (FOREVER, sleeps):
        before = analyzer.text().count("begins")
        place, waits, last = analyzer.ask(source), analyzer.ask(RUNS), analyzer.ask(RUNS)
        # Not `begun`: an interrupt before the script's first line stops a call that has no result.
        wait_for(lambda before=before: analyzer.text().count("begins") > before)
        analyzer.inbox.request_interrupt(int(waits.name))  # it has not begun, and never will
        analyzer.inbox.request_interrupt(int(place.name))
        found = analyzer.ended(place)
        assert (found.state, found.recorded.reason, found.recorded.exit_code) == (
            "stopped",
            "interrupted",
            130,
        )
        assert analyzer.ended(last).state == "succeeded"
        assert analyzer.ended(waits).state == "stopped"
        assert "KeyboardInterrupt" in analysis_folder.read_result(place)["error"]["type"]
    analyzer.inbox.request_interrupt(1)  # has ended long ago
    assert analyzer.run(RUNS)[0].state == "succeeded"


def test_another_checkpoint(analyzer: Analyzer) -> None:
    source = "def experience(self): return self.checkpoint and self.checkpoint.id, id(self.dataset)"
    _, (newest, dataset) = analyzer.run(source)
    for checkpoint, id in ((1, 1), ("untrained", None), (99, None), ("last", newest)):
        analyzer.inbox.add_switch(checkpoint)
        _, (found, same) = analyzer.run(source)
        assert (found, same) == (id, dataset)
    assert "\x1b[31mnot switched: " in analyzer.text()


def test_a_switch_leaves_the_former_checkpoint_whole_until_the_other_is(tmp_path: Path) -> None:
    ends = "    def AAll(self):\n        open('ended', 'a').write('x')\n        raise SystemExit('in AAll')\n"
    made = projects.package(tmp_path, {"LifeCycle.py": f"{projects.LIFE_CYCLE}\n{ends}"})
    source = "import os\ndef experience(self): return os.path.exists('ended'), self.runner.model is not None"
    with started(made, untrained=True) as one:
        one.inbox.add_switch(99)
        assert one.run(source)[1] == [False, True]
        one.inbox.add_switch("untrained")
        one.printed("the end of the former checkpoint's work: in AAll")
        assert one.run(source)[1] == [True, True]
    assert (made.path / "ended").read_text() == "x"


def test_a_switch_is_interrupted(tmp_path: Path) -> None:
    waits = "        print({0!r}, flush=True)\n        while os.path.exists({0!r}): time.sleep(0.01)\n"
    ends = f"    def AAll(self):\n{waits.format('frees')}"
    builds = projects.NET.replace("        self.layer =", f"{waits.format('builds')}        self.layer =")
    files = {"LifeCycle.py": projects.LIFE_CYCLE + ends, "Model/Net.py": builds}
    made = projects.package(tmp_path, {name: f"import os, time\n{text}" for name, text in files.items()})
    source = "def experience(self):\n    self.seen = getattr(self, 'seen', 0) + 1\n    return self.seen"
    with started(made, untrained=True) as one:
        assert one.run(source)[1] == 1
        (made.path / "builds").touch()
        number = one.inbox.add_switch("untrained")
        wait_for(lambda: one.text().count("builds") == 2)
        one.inbox.request_interrupt(number)
        one.printed("not switched: interrupted; still untrained")
        assert one.run(source)[1] == 2, "the former one is there, as it was"
        (made.path / "builds").unlink()
        (made.path / "frees").touch()
        number = one.inbox.add_switch("untrained")
        one.printed("frees")
        one.inbox.request_interrupt(number)
        one.printed("the end of the former checkpoint's work: interrupted")
        (made.path / "frees").unlink()
        assert one.run(source)[1] == 1, "it is another one"
        wait_for(lambda: not one.inbox.begun())
        assert not one.inbox.interrupted()


def test_a_stop_ends_the_script_and_the_calls_that_wait(package: PackageFolder) -> None:
    with started(package, untrained=True) as one:
        runs, waits = one.ask(FOREVER), one.ask(RUNS)
        one.printed("begins")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(100) == 75
        for place in (runs, waits):
            found = analysis_folder.read(place)
            assert (found.state, found.recorded.reason) == ("stopped", "analyzer"), one.text()
        assert not one.inbox.waiting() and not one.inbox.begun()


def test_a_killed_attempt_loses_its_call_only(package: PackageFolder) -> None:
    with started(package) as killed:
        dies, later = killed.ask(FOREVER), killed.ask(RUNS)
        killed.printed("begins")
        killed.process.kill()
        killed.process.wait()
        assert analysis_folder.read(dies).state == "crashed"
    with Analyzer(package, killed.folder) as again:
        assert again.ended(later).state == "succeeded"
        found = analysis_folder.read(dies)
        assert (found.state, found.recorded.exit_code) == ("crashed", 1)
        assert (dies / "_output.txt").read_text() == "begins\n"


def test_a_package_that_cannot_be_loaded(package: PackageFolder) -> None:
    with started(package, checkpoint=99) as one:
        waits = one.ask(RUNS)
        assert one.process.wait(100) == 3
        assert "99" in one.text() and analysis_folder.read(waits).is_live, "another attempt may run it"


def test_a_forked_process_ends_with_the_script(analyzer: Analyzer) -> None:
    forks = "import os\ndef experience(self):\n    os.fork()\n    return os.getpid()\n"
    found, value = analyzer.run(forks)
    assert found.state == "succeeded" and value == analyzer.process.pid
    analyzer.run(RUNS)
    assert analyzer.text().count(f"analysis {found.number}: succeeded") == 1
    raises = forks.replace("os.fork()", "os.fork() or 1 / 0")
    assert analyzer.run(raises)[1] == analyzer.process.pid
    exits = "import os\nif (pid := os.fork()) == 0: raise SystemExit(3)\n"
    exits += "def experience(self): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
    assert analyzer.run(exits)[1] == 3


def test_what_a_script_does_to_the_process_ends_with_it(analyzer: Analyzer) -> None:
    for line in (
        "os.close(1); os.close(2)", "os.closerange(3, 4096)", "os.closerange(0, 4096)",
        "os.umask(0o777)", "os.chdir('/')", "os.environ.clear()",
        "sys.stdout.detach()", "sys.stdout = sys.stderr = None", "sys.modules['json'] = None",
        "[setattr(builtins, name, None) for name in ('print', 'open', 'len', 'isinstance', 'Exception')]",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.alarm(1)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
    ):  # fmt: skip
        modules = "builtins, os, resource, signal, sys"
        spoils, _ = analyzer.run(f"import {modules}\ndef experience(self): {line}")
        assert spoils.state == "succeeded", line
        found, _ = analyzer.run(RUNS)
        place = analyzer.package.path / "analysis" / str(found.number)
        assert found.state == "succeeded" and (place / "_output.txt").read_text() == "hello\n", line
        assert (place / "_output.txt").stat().st_mode & 0o444, line


def test_files_of_a_script_in_the_place_of_the_analyzers_own_descriptors(package: PackageFolder) -> None:
    """The thread that hears of new calls reads such a file, or ends, after the script."""
    spoils = "import os\ndef experience(self):\n    os.closerange(3, 90)\n"
    spoils += "    for _ in range(60): os.open('/dev/zero', os.O_RDONLY)"
    with started(package, untrained=True) as one:
        assert one.run(spoils)[0].state == "succeeded"
        for _ in range(3):
            assert one.run("def experience(self): return 1")[1] == 1


def test_a_script_that_removes_its_folder(analyzer: Analyzer) -> None:
    place = analyzer.ask("import shutil\ndef experience(self): shutil.rmtree(self._files.place)")
    analyzer.printed(f"analysis {place.name} cannot be stored: ")
    assert analyzer.run(RUNS)[0].state == "succeeded"


def test_what_a_script_sets_ends_with_it(analyzer: Analyzer) -> None:
    reads = """import builtins, gc, logging, os, signal, sys, threading, warnings
import numpy as np
import torch
def experience(self):
    return [
        sys.getrecursionlimit(), sys.path, sys.gettrace() is None, sys.dont_write_bytecode, sys.argv,
        gc.isenabled(), logging.root.manager.disable, str(warnings.filters), dict(os.environ), os.getcwd(),
        os.umask(0o022), str(signal.getsignal(signal.SIGTERM)), signal.getitimer(signal.ITIMER_REAL),
        np.geterr(), torch.get_num_threads(), str(torch.get_default_dtype()), torch.is_grad_enabled(),
        str(torch.get_default_device()), torch.get_deterministic_debug_mode(), torch.is_anomaly_enabled(),
        torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark,
        torch.is_autocast_enabled("cpu"), sorted(os.sched_getaffinity(0)), torch.rand(2).tolist(),
    ]
"""
    spoils = """import gc, logging, os, signal, sys, warnings
import numpy as np
import torch
def experience(self):
    sys.setrecursionlimit(200); sys.path.clear(); sys.settrace(lambda *_: None); sys.argv = []
    sys.dont_write_bytecode = False; gc.disable(); logging.disable(50); warnings.simplefilter("error")
    os.environ["PATH"] = ""; os.environ["NEW"] = "1"; os.chdir("/"); os.umask(0o77)
    signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.setitimer(signal.ITIMER_REAL, 0.5)
    np.seterr(all="raise"); torch.set_num_threads(7); torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False); torch.set_default_device("meta"); torch.set_deterministic_debug_mode(0)
    torch.autograd.set_detect_anomaly(True); torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.benchmark = True; torch.set_autocast_enabled("cpu", True)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
"""
    _, before = analyzer.run(reads)
    assert analyzer.run(spoils)[0].state == "succeeded"
    _, after = analyzer.run(reads)
    assert after == before


def test_descriptors_that_scripts_leave_open_are_closed_when_they_run_out(package: PackageFolder) -> None:
    leaks = """import os, resource
def experience(self):
    self.left = [open(os.devnull) for _ in range(100)]
    self.left += [os.open(os.devnull, os.O_RDONLY) for _ in range(10**6)]
"""
    keeps = "import os\ndef experience(self): self.kept = open(os.devnull)"
    reads = "def experience(self): return self.kept.read()"
    uses_all = (
        "import os\nleft = []\ndef experience(self):\n    print('begins', flush=True)\n    while True:\n"
    )
    uses_all += "        try: left.append(os.open(os.devnull, os.O_RDONLY))\n        except OSError: pass\n"
    with started(package, untrained=True, max_files=400) as one:
        assert one.run(keeps)[0].state == "succeeded"
        assert one.run(reads)[1] == "", "a few may be needed by the next script"
        for _ in range(3):
            found, _ = one.run(leaks)
            assert (found.state, found.recorded.reason) == ("failed", "exception"), one.text()
            assert "too many files are open" in (found.recorded.error or "")
            assert one.run("def experience(self): ...")[0].state == "succeeded"
        assert "files that scripts have left open were closed" in one.text()
        place = one.ask(uses_all)
        one.printed("begins")
        one.inbox.request_interrupt(int(place.name))
        assert one.ended(place).recorded.reason == "interrupted"
        assert one.run("def experience(self): ...")[0].state == "succeeded"
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(100) == 75


FILLS = """import os
def experience(self):
    print("before")
    with open("fill", "wb", buffering=0) as file:
        try:
            while True: file.write(bytes(1 << 12))
        except OSError: pass
    print("lost" * 10_000)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk takes root")
def test_a_full_and_a_read_only_disk_end_no_analyzer(package: PackageFolder, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        shutil.copytree(
            package.path, disk / "run", ignore=shutil.ignore_patterns("analyzers", "analysis", "Checkpoints")
        )
        with started(PackageFolder.open(disk / "run"), untrained=True) as one:
            waits = one.ask(FILLS)
            wait_for(lambda: (disk / "run" / "fill").exists() and not os.statvfs(disk).f_bavail)
            attempts: list[int] = []

            def is_waiting_for_space() -> bool:
                """Whether the folder has changed several times, with pauses: what the script returned could
                not be stored, and its end is tried again and again."""
                changed = waits.stat().st_mtime_ns
                if not attempts or changed - attempts[-1] > 0.5e9 * analyzer_task._SPACE_SECONDS:
                    attempts.append(changed)
                return len(attempts) > 3

            wait_for(is_waiting_for_space)
            assert analysis_folder.read(waits).state == "running", "its end cannot be stored yet"
            (disk / "run" / "fill").unlink()
            error = one.ended(waits).error or ""
            assert "No space left" in error, "its value could not be stored"
            assert error.endswith("; fix: make space, then type the same command again")
            assert "bytes of output were lost: disk full" in one.printed("failed after")
            place = one.ask("def experience(self): ...")
            assert one.ended(place).state == "succeeded"
            reads = one.ask(f"import os, time\ndef experience(self):\n    print('begins')\n{WAITS}")
            one.begun(reads)
            analyses = str(disk / "run" / "analysis")
            subprocess.run(["mount", "--bind", analyses, analyses], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", analyses], check=True)
            (disk / "run" / "go").touch()
            assert "Read-only file system" in one.printed(f"analysis {reads.name}: failed")
            subprocess.run(["umount", analyses], check=True)
            assert one.run("def experience(self): return 7")[1] == 7
    finally:
        subprocess.run(["umount", str(disk / "run" / "analysis")], capture_output=True)
        subprocess.run(["umount", str(disk)], check=True)
