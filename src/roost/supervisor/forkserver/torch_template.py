"""The template process that warm workers are forked from: it has imported torch and taken a step, on one
thread.

    python -P -m roost.supervisor.forkserver.torch_template SOCKET

It is a template process (`template_process`): it forks a guard, that one a supervisor, and that one a child
which becomes the worker in place (`forked_worker`), where otherwise an interpreter would start.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from roost.base.system import spin_limit
from roost.base.system.collector_pause import paused_collector
from roost.supervisor.forkserver import forked_worker, template_process
from roost.supervisor.forkserver.template_process import Preload

_IDLE_SECONDS = 300.0
"""A template that was not used for so long ends."""
_LARGE_PAGE_BYTES, _MADV_COLLAPSE = 2 << 20, 25
_PACKAGE_FOLDER = Path(__file__).parents[2]


def load() -> Preload:
    """Imports what a training imports. Ends the process if it cannot be a template then."""
    files = _LoadedFiles()  # before the imports: a change during them counts
    started_with, descriptors = dict(os.environ), _descriptors()
    if descriptors - {"0", "1", "2"}:
        _exit_unusable(f"modules imported at the start of the interpreter have opened {sorted(descriptors)}")
    spin_limit.set_default()
    template_process.load_modules()
    with paused_collector():
        modules = _load_torch()
    warm = forked_worker.WarmWorker(started_with, modules=modules, prepare=_reset_process_state)
    opened = _descriptors() - descriptors
    if opened:  # a child could not distinguish them from those that it must not have
        _exit_unusable(f"an import has opened {sorted(opened)}")
    if _threads_after_a_fork() > 1:
        _exit_unusable("an import has started threads, of which a fork copies only one")
    collapse_pages()
    return Preload(warm, files.have_changed, _IDLE_SECONDS)


def _exit_unusable(why: str) -> NoReturn:
    print(f"no warm start: {why}", file=sys.stderr)
    sys.exit(forked_worker.UNUSABLE_EXIT_CODE)


def _load_torch() -> set[str]:
    """Returns the modules that were imported ahead of a cold worker: the first parts of their names."""
    _import_first_modules()
    import numpy as np
    import torch

    before = torch.get_rng_state(), str(np.random.get_state())
    modules = set(sys.modules)
    _import_ahead()
    if not torch.equal(before[0], torch.get_rng_state()) or before[1] != str(np.random.get_state()):
        _exit_unusable("an import draws random numbers")
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # a worker has its own, or sets one when it compiles
    names = {name.partition(".")[0] for name in set(sys.modules) - modules}
    return names - {name.partition(".")[0] for name in modules}


def _import_first_modules() -> None:
    """Imports what a worker imports before its project."""
    import numpy as np  # noqa: F401
    import torch  # noqa: F401

    from roost.base import traceback_frames  # noqa: F401
    from roost.base.text import terminal_text  # noqa: F401
    from roost.devices import inventory, visible_cards  # noqa: F401
    from roost.devices.driver import nvml  # noqa: F401
    from roost.project import device_choice, native_project, trainer_assembly  # noqa: F401
    from roost.train.model import memory_estimate, model_summary, simulated_memory  # noqa: F401


def _import_ahead() -> None:
    """Imports what a worker imports at its first step, for a second."""
    import torch._dynamo  # noqa: F401

    if not _has_accelerator():
        _run_tiny_step()


def _reset_process_state() -> None:
    """Resets what imports have found out about this process, or drawn for it. (Python's random numbers are
    seeded again after each fork; those of torch always start with the same seed.)"""
    import multiprocessing
    import tempfile
    import threading

    import numpy as np
    import torch._dynamo

    np.random.seed()
    multiprocessing.current_process().authkey = os.urandom(32)
    multiprocessing.process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]
    tempfile.tempdir = None  # the worker's TMPDIR may differ
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    dynamo: Any = torch._dynamo.config
    if os.path.dirname(getattr(dynamo, "debug_dir_root", "")) == "/":  # noqa: PTH120  - the template's folder
        dynamo.debug_dir_root = str(Path.cwd() / "torch_compile_debug")


def _has_accelerator() -> bool:
    """Whether a backward pass would read the number of GPUs, and so keep that of the template for ever."""
    # NVIDIA's, AMD's, Intel's, and any GPU in WSL.
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/dxg"))


def _run_tiny_step() -> None:
    """Takes the smallest possible step, which imports and sets up what each first step does. It draws no
    random number, and its operations are too small for a second thread: a child of a process that has used
    two OpenMP threads hangs. A limit of one thread would be visible in the child."""
    import torch

    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = torch.optim.AdamW([weight])
    loss = (torch.ones(2, 2) @ weight).square().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def collapse_pages() -> None:
    """Has the kernel gather this process's memory in pages of 2 MB, where it can (since Linux 6.1): a fork
    then copies a hundred entries of the page table instead of sixty thousand."""
    madvise = ctypes.CDLL(None).madvise
    gc.collect()
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, inode, *name = line.split()
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            begin, end = (int(address, 16) for address in addresses.split("-"))
            begin, end = (
                -(-begin // _LARGE_PAGE_BYTES) * _LARGE_PAGE_BYTES,
                end // _LARGE_PAGE_BYTES * _LARGE_PAGE_BYTES,
            )
            if begin < end:
                madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)


def _descriptors() -> set[str]:
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")}  # noqa: PTH208


def _threads_after_a_fork() -> int:
    """Returns the number of threads of this process when it forks: some libraries end their threads then."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


class _LoadedFiles:
    """The files that were loaded; after a change of one of them, new workers must not come from this
    process."""

    def __init__(self) -> None:
        begun = (Path(found) for one in sys.modules.values() if (found := getattr(one, "__file__", None)))
        paths = {*_PACKAGE_FOLDER.rglob("*.py"), *map(Path, sys.path), *begun}  # includes a sitecustomize
        self._times = {path: _modified_ns(path) for path in paths}

    def have_changed(self) -> bool:
        """Whether one of roost's files has changed, or a package was installed or removed."""
        return any(_modified_ns(path) != time for path, time in self._times.items())


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


if __name__ == "__main__":
    template_process.serve(sys.argv[1], load())
