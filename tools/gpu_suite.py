"""Runs what needs a GPU, piece by piece, and keeps what is done in one small file (`make gpu PYTHON=...`).

    python tools/gpu_suite.py [--only PIECE] [--again] [--limit 540]

The interpreter that runs this file runs the pieces: no environment is made and nothing is fetched. A piece
that already passed with the same sources, card and torch is not run again, so that a suite which was cut off
continues where it was. Exit code: 0 when every piece passed, 1 otherwise, 2 when this machine cannot run it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "bench" / "gpu_results.json"

MARK = "@pytest.mark.needs_gpu"


PYTEST = (
    *("-m", "pytest", "-m", "needs_gpu", "-q"),
    # The interpreter may lack the plugin for timeouts.
    *("-W", "ignore::pytest.PytestConfigWarning", "-W", "ignore::pytest.PytestUnknownMarkWarning"),
)
FIRST_PROOFS = (
    "card",
    "copies",
    "batches",
    "skipped_steps",
    "host_waits",
    "device_failures",
    "promised_memory",
)
"""Those that tell most in least time."""


def marked_tests() -> list[str]:
    """The files outside of tests/gpu with tests that need a GPU: importing all others would ask for their
    libraries, too."""
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    return [file.relative_to(REPOSITORY).as_posix() for file in files if f"\n{MARK}" in file.read_text()]


def proofs() -> list[str]:
    """The files of tests/gpu, `FIRST_PROOFS` in front."""
    names = [file.stem.removeprefix("test_") for file in (REPOSITORY / "tests/gpu").glob("test_*.py")]
    ordered = [*FIRST_PROOFS, *sorted(set(names).difference(FIRST_PROOFS))]
    return [f"tests/gpu/test_{name}.py" for name in ordered]


PIECES = {
    "tests": [*PYTEST, *marked_tests()],
    **{file: [*PYTEST, file] for file in proofs()},
    "bench/gpu.py": ["bench/gpu.py", "--rounds", "3"],
}
"""Arguments of the interpreter for each piece; one that needs more than nine minutes is cut in two here."""
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
"""Waits for each kernel, so that an error comes up where it was made."""
MODULES = ("torch", "numpy", "click", "rich", "msgspec", "yaml", "pynvml", "pytest")
"""What the interpreter must have for the pieces to start."""
MOST_OUTPUT = 12_000
"""Characters of a piece's output that are kept: its end, where the tables and the failures are."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PIECES, help="run this piece alone")
    parser.add_argument("--again", action="store_true", help="run pieces that already passed, too")
    parser.add_argument("--limit", type=int, default=540, help="seconds after which a piece is ended")
    options = parser.parse_args()
    if problem := what_is_missing():
        print(f"error: {problem}", file=sys.stderr)
        return 2
    machine = {"card": card_name(), "torch": torch_version(), "sources": sources_digest()}
    results = read_results()
    failed = []
    for name, arguments in PIECES.items():
        if options.only not in (None, name):
            continue
        known = results.get(name, {})
        if known.get("passed") and known.get("machine") == machine and not options.again:
            print(f"{name}: passed already, {known['seconds']} s", flush=True)
            continue
        print(f"{name}: running, at most {options.limit} s", flush=True)
        results[name] = {"machine": machine, **run_piece(arguments, options.limit)}
        report(results, name)
        if not results[name]["passed"]:
            failed.append(name)
            if "pytest" in arguments:
                again = f"{name}: what failed, blocking"
                found = run_piece([*arguments, "--last-failed"], options.limit, BLOCKING)
                results[again] = {"machine": machine, **found}
                report(results, again)
    return 1 if failed else 0


def report(results: dict[str, Any], name: str) -> None:
    """Keeps and prints the result of a piece."""
    write_results(results)
    print(results[name]["output"], end="", flush=True)
    print(f"{name}: {results[name]['end']}, {results[name]['seconds']} s", flush=True)


def what_is_missing() -> str | None:
    """The reason why this interpreter on this machine cannot run the suite, or None."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        return f"{sys.executable} has no {names}; fix: make gpu PYTHON=<an interpreter that has them>"
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU; fix: start it where nvidia-smi lists one"
    return None


def card_name() -> str:
    import torch

    return torch.cuda.get_device_name(0)


def torch_version() -> str:
    import torch

    return str(torch.__version__)


def sources_digest() -> str:
    """A digest of every Python file that a piece can run: a copy of the tree has no commit to name."""
    digest = hashlib.sha256()
    for folder in ("src", "tests", "bench"):
        for file in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(file.relative_to(REPOSITORY).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def run_piece(arguments: list[str], limit: int, variables: Mapping[str, str] = {}) -> dict[str, Any]:
    """Runs one piece in a process of its own; its output and how it ended."""
    paths = [str(REPOSITORY / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ROOST_GPU": "1",  # tests/conftest.py: a test that needs a GPU fails, instead of being skipped
    }
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
        output, end = done.stdout, "passed" if done.returncode == 0 else f"exit code {done.returncode}"
    except subprocess.TimeoutExpired as error:
        output, end = error.output or b"", f"ended after {limit} s"
    return {
        "end": end,
        "passed": end == "passed",
        "seconds": round(time.monotonic() - started),
        "output": output.decode(errors="replace")[-MOST_OUTPUT:],
    }


def read_results() -> dict[str, Any]:
    if not RESULTS.exists():
        return {}
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    return results


def write_results(results: dict[str, Any]) -> None:
    """Replaces the file at once, for a suite may be cut off at any moment."""
    draft = RESULTS.with_suffix(".tmp")
    draft.write_text(json.dumps(results, indent=1) + "\n")
    draft.replace(RESULTS)


if __name__ == "__main__":
    sys.exit(main())
