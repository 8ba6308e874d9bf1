"""Records the software and hardware of a run, and finds the differences that can change its bits."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import msgspec

from roost import __version__
from roost.base import safe_read
from roost.base.errors import Refused

NAME = "environment.json"
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTHONHASHSEED",
    "ATEN_CPU_CAPABILITY",
    "NVIDIA_TF32_OVERRIDE",
    "SLURM_JOB_ID",
    "NCCL_ALGO",
    "NCCL_PROTO",
)
_SECRET = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|gh[opsu]_|github_pat_|AKIA|sk-|xox[abp]-)[A-Za-z0-9_\-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?P<user>://[^/\s:@]*:)[^/\s@]+(?=@)"
    # Not "tokens", "tokenizer", "token_ids": a language model's code is full of them.
    r"|(?P<name>(?:token(?![a-z_])|secret|password|passwd|api[_-]?key|authorization)\w*[\"']?\s*[=:]\s*)"
    r"(?:(?:Bearer|Basic)\s+\S+|\"[^\"\n]*\"|'[^'\n]*'|\S+)",
    re.IGNORECASE,
)
_NAME_OR_VERSION = re.compile(r"^(Name|Version):(.*)$", re.MULTILINE)
_MAX_DIFF_BYTES = 1 << 20
STACK_LABELS = {
    "torch": "torch",
    "cuda": "CUDA",
    "hip": "HIP",
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "nccl": "NCCL",
    "numpy": "NumPy",
    "device": "device",
    "ranks": "number of ranks",
    "strategy": "strategy",
    "device_name": "device model",
    "threads": "number of threads",
    "cpu_capability": "CPU instruction set",
    "deterministic": "deterministic algorithms",
    "matmul_precision": "float32 precision of matrix products",
    "convolution_precision": "float32 precision of convolutions",
    "rnn_precision": "float32 precision of recurrent layers",
    "cudnn_benchmark": "cuDNN benchmark",
    "cudnn_deterministic": "cuDNN deterministic",
    "cublas_workspace": "CUBLAS_WORKSPACE_CONFIG",
    "allow_fp16_reduced_precision_reduction": "reduced precision of fp16 sums",
    "allow_bf16_reduced_precision_reduction": "reduced precision of bf16 sums",
    "allow_fp16_accumulation": "accumulation in fp16",
    "tf32_override": "NVIDIA_TF32_OVERRIDE",
    "nccl_algorithm": "NCCL_ALGO",
    "nccl_protocol": "NCCL_PROTO",
}
"""The names in messages of the fields of a stack that are compared."""
_OF_SEVERAL_RANKS = ("nccl", "nccl_algorithm", "nccl_protocol")

_SINGLE_RANK = {"ranks": 1, "strategy": "single"}
"""The values of a stack that was recorded before roost had ranks."""


def redact(text: str) -> str:
    """Returns the text with everything that looks like a credential replaced by ``***``."""
    return _SECRET.sub(lambda match: (match["user"] or match["name"] or "") + "***", text)


def is_secret(name: str) -> bool:
    """Whether a variable or key of this name looks like a credential, whatever its value."""
    given = f"{name}=value"
    return redact(given) != given


def _git(project: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(project), *arguments], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode(errors="replace").strip() if result.returncode == 0 else None


def git_state(project: Path) -> dict[str, Any] | None:
    """Returns commit and uncommitted diff (secrets redacted) of a project; None if git tracks none of its
    files."""
    commit = _git(project, "rev-parse", "HEAD")
    if commit is None or not _git(project, "ls-files", "--", "."):
        return None
    diff = _git(project, "diff", "HEAD", "--", ".") or ""
    dirty = bool(_git(project, "status", "--porcelain", "--", "."))  # includes untracked files
    return {"commit": commit, "dirty": dirty, "diff": redact(diff)[:_MAX_DIFF_BYTES]}


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    match = re.search(r"model name\s*:\s*(.+)", text)
    return match[1] if match else platform.processor()


def _driver() -> str | None:
    """The version of NVIDIA's kernel module; torch knows only the CUDA version that it supports."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
    return match[1] if match else None


class DeviceFacts(Protocol):
    """The facts about a type of device that only torch knows, as
    `roost.train.accelerators.accelerator.Accelerator` answers them."""

    def model(self, device: str) -> str | None:
        """Returns the model of a device; None if torch does not know it."""

    def properties(self) -> list[dict[str, Any]]:
        """Returns what is known of each device of the type."""

    def versions(self) -> dict[str, Any]:
        """Returns the versions of the libraries that compute."""

    def numeric_flags(self) -> dict[str, Any]:
        """Returns torch's settings that change bits on the type."""


def stack(device: str, facts: DeviceFacts, *, ranks: int = 1, strategy: str = "single") -> dict[str, Any]:
    """Returns everything that determines the bits of a computation: versions, device, ranks, threads, flags.
    Torch must be imported already; and the project's code must be loaded, because it may set flags.

    Args:
        device: The device of this process.
        facts: The accelerator of the device.
        ranks: The world size.
        strategy: The strategy of the ranks; ignored for a single rank.
    """
    torch, numpy = sys.modules["torch"], sys.modules["numpy"]
    return {
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "cuda": None,
        "cudnn": None,
        **facts.versions(),
        "device": device.split(":")[0],
        "ranks": ranks,
        "strategy": strategy if ranks > 1 else "single",
        "device_name": facts.model(device) or _cpu_model(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        **facts.numeric_flags(),
    }


def capture(
    device: str, facts: DeviceFacts, *, seed: int, determinism: str, ranks: int = 1, strategy: str = "single"
) -> dict[str, Any]:
    """Returns the content of ``environment.json``: software, hardware, variables; for the arguments see
    `stack`."""
    return {
        "format": 1,
        "roost": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "driver": _driver(),
        "gpus": facts.properties(),
        "stack": stack(device, facts, ranks=ranks, strategy=strategy),
        "seed": seed,
        "determinism": determinism,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "packages": dict(sorted(filter(None, map(_name_and_version, metadata.distributions())))),
    }


def capture_program(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of ``environment.json`` for a program of the user.

    Args:
        facts: What its interpreter says of itself: ``python``, ``executable`` and ``packages``; empty for a
            program of another kind.
    """
    packages = facts.get("packages") or {}
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {
        "format": 1,
        "roost": __version__,
        **facts,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "driver": _driver(),
        "stack": {
            **{name: packages[name] for name in ("torch", "numpy") if name in packages},
            "threads": int(threads) if threads.isdecimal() else os.cpu_count(),
        },
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _name_and_version(found: metadata.Distribution) -> tuple[str, str] | None:
    """Name and version of an installed distribution; None if it lacks one. Faster than `importlib.metadata`,
    which parses each file as an e-mail with the whole description: a quarter of a second for 150."""
    text = found.read_text("METADATA") or found.read_text("PKG-INFO") or found.read_text("") or ""
    header = text.partition("\n\n")[0]
    fields = {key: value.strip() for key, value in _NAME_OR_VERSION.findall(header)}
    return (fields["Name"], fields["Version"]) if len(fields) == 2 else None


def read_environment(package: Path) -> dict[str, Any] | None:
    """Reads the environment in which the run began, as `capture` returned it; None before the first session
    has written it.

    Raises:
        Refused: The file is damaged, so it is unknown which environment an exact continuation needs.
    """
    path = package / NAME
    try:
        found = msgspec.json.decode(safe_read.read(path), type=dict[str, Any])
        int(found["stack"]["threads"])
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise Refused(
            f"the file is damaged: {error}",
            where=path,
            fix="take it from a copy of the package; without one, rename it: the environment of the next "
            "session then counts as the first one",
        ) from error
    return found


def stack_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the differences of two stacks that make the rest of a run inexact, a text for each.

    Deterministic algorithms are not compared on the CPU: if their absence may change bits, that is a separate
    reason (`roost.worker.torch_settings`). NCCL is compared if there are several ranks.
    """
    then, now = {**_SINGLE_RANK, **then}, {**_SINGLE_RANK, **now}
    on_cpu = then.get("device") == now.get("device") == "cpu"
    ignored = {"deterministic"} if on_cpu else set()
    ignored.update(_OF_SEVERAL_RANKS if then["ranks"] == now["ranks"] == 1 else ())
    return [
        f"{words} was {then[key]}, is {now[key]}"
        for key, words in STACK_LABELS.items()
        if key in then and key in now and then[key] != now[key] and key not in ignored
    ]
