"""Causes in torch.compile: kernels that cannot be built on this machine."""

from __future__ import annotations

import re

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext

_NONE_WORKS = re.compile(r"InvalidCxxCompiler: No working C\+\+ compiler found in [\w.]+: (.*)")
_FAILED = re.compile(
    r"CppCompileError: C\+\+ compile error\s+Command:\s+(\S+).*?\n\s*Output:\n(.*)", re.DOTALL
)
_FIRST = re.compile(r"^.*?((?:fatal )?error: .+)$", re.MULTILINE)


def no_compiler(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """No C++ compiler works; on a CPU the kernels are C++."""
    match = _NONE_WORKS.search(record.text) if record.is_a("BackendCompilerFailed") else None
    if match is None:
        return None
    tried = " and ".join(re.findall(r"'([^']+)'", match[1])) or "none"
    return Cause(
        f"{_mode(context)} builds its kernels with a C++ compiler, and {tried} does not work on this machine",
        "install one (g++ or clang++; another name goes into the environment variable CXX), "
        f"{_alternative(context)}",
    )


def compiler_error(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """The C++ compiler works, but lacks something, such as Python's headers."""
    match = _FAILED.search(record.text) if record.is_a("BackendCompilerFailed") else None
    error = _FIRST.search(match[2]) if match is not None else None
    if match is None or error is None:
        return None
    remedy = "see its output above"
    if "Python.h" in error[1]:
        remedy = "install the headers of this Python (the package python3-dev, or python3-devel)"
    return Cause(
        f"{_mode(context)}: {match[1]} cannot build a kernel: {error[1]}",
        f"{remedy}, {_alternative(context)}",
    )


def _mode(context: FailureContext) -> str:
    return "step_mode: compile" if _is_step_mode(context) else "torch.compile"


def _alternative(context: FailureContext) -> str:
    return "or set step_mode: eager" if _is_step_mode(context) else "or do not compile"


def _is_step_mode(context: FailureContext) -> bool:
    return context.settings.get("step_mode") == "compile"


CAUSES: tuple[CauseRule, ...] = (no_compiler, compiler_error)
