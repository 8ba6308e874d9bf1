"""The rules of the house (DESIGN, section 2), held by reading the source: floors, sizes, writes, tests."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "roost"
TESTS = REPOSITORY / "tests"

FLOORS = {
    "base": 0,
    "config": 1,
    "devices": 1,
    "package": 2,
    "train": 3,
    "project": 4,
    "evaluation": 5,
    "analysis": 5,
    "worker": 6,
    "lab": 7,
    "operations": 8,
    "serve": 9,
    "api": 9,
    "cli": 10,
    "shell": 10,
    "tui": 10,
    "notebook": 10,
}
TORCH_FREE = [folder for folder, floor in FLOORS.items() if floor <= 2 or floor >= 7]
NO_CODE_OF_OURS = "templates"  # what `roost new` copies is the user's code

STANDARD_LIBRARY_ONLY = (
    "base/durable.py", "devices/driver.py", "package/progress.py",
    "lab/become.py", "lab/surroundings.py",
    "lab/capture.py", "lab/cgroup.py", "lab/ending.py", "lab/growth.py", "lab/guard.py", "lab/keeper.py",
    "lab/launched.py", "lab/leftovers.py", "lab/limits.py", "lab/meeting.py", "lab/memory.py",
    "lab/output.py", "lab/peaks.py", "lab/ran_out.py",
    "lab/notices/alone.py", "lab/notices/listed.py", "lab/notices/place.py",
    "lab/record.py", "lab/restart.py", "lab/scope.py", "lab/signals.py", "lab/spawn.py", "lab/spec.py",
    "lab/stacks.py", "lab/stall.py", "lab/supervisor.py", "lab/team.py", "lab/template.py",
    "lab/tree.py", "lab/watch.py",
)  # fmt: skip
"""Files, with all that they import, which must start under ``python -I -S``."""

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60

MAY_WRITE = {
    "cli/__main__.py": "opens /dev/null in the place of a stream that was closed",
    "devices/held.py": "makes the folders that all users of a machine share; nothing resumes from them",
    "devices/leases.py": "a lease is a lock; nothing resumes from its file",
    "devices/wants.py": "tells others what is waited for, while it is waited for; nothing resumes from it",
    "devices/usage.py": "opens the ledger that `durable.append` appends to, never through a link",
    "lab/background.py": "a lock, and the log of a process of ours; nothing resumes from their files",
    "lab/cgroup.py": "files of the kernel",
    "lab/forked.py": "the pipes of a guard",
    "lab/keeper.py": "opens /dev/null in the place of a line that nobody reads any more",
    "lab/loaded.py": "gives its socket a name; nothing resumes from it",
    "lab/warm.py": "the folder of the templates' sockets; nothing resumes from it",
    "lab/meeting.py": "makes and removes the folder in which ranks meet; nothing resumes from it",
    "lab/notices/listed.py": "a lock, and what was begun, while it runs; nothing resumes from it",
    "lab/output.py": "opens what the worker prints into; nothing resumes from it",
    "lab/rebuild.py": "gives the queue that is put aside a second name",
    "lab/schema.py": "removes the copy that a migration that was cut off had begun",
    "lab/spawn.py": "opens the terminal of a worker",
    "lab/ticket.py": "gives what is announced its name, unless a newer one has that",
    "lab/wake.py": "removes the socket of a daemon that is gone",
    "operations/scratch.py": "makes and removes a folder for a while; nothing resumes from it",
    "serve/listening.py": "removes the socket of a server that is gone",
    "package/names.py": "an atomic mkdir is how a name is taken",
    "package/package.py": "makes the folders and the lock of a new package, removes a failed start",
    "package/progress.py": "one mapped record, published each step for watchers; nothing resumes from it",
    "package/snapshot.py": "copies thousands of files in bulk; what a power cut tears is found by its hash",
    "train/checkpoints.py": "makes the folder that a hand-written loop names",
    "train/data/slot.py": "a file that has no name, for memory, where the system has none without a file",
    "train/media.py": "writes into memory",
    "worker/export.py": "torch writes into a durable file",
    "train/mirrors/courier.py": "a lock; nothing resumes from it",
    "worker/report.py": "opens the pipe of a supervisor",
    "worker/replay.py": "a folder for a while, for what a replay would write into the package",
}
"""Files that change the disk without `roost.base.durable`, each with the reason."""

TESTED_ELSEWHERE = {
    "__init__.py": "every test that says roost.Runner; the floors, here",
    "config/structs/configured.py": "tests/config/test_settings.py, tests/project/test_configured.py",
    "config/structs/data.py": "tests/config/test_settings.py",
    "config/structs/mirrors.py": "tests/config/test_settings.py",
    "config/structs/optimizers.py": "tests/config/test_settings.py",
    "config/structs/watching.py": "tests/config/test_settings.py",
    "lab/policy/state.py": "tests/lab/policy/test_decide.py",
    "project/own_hooks.py": "tests/project/test_assemble.py",
}
"""Modules without a test file of their own name, each with the tests that hold them."""

MOST_LINES_WITHOUT_A_TEST = 30


def sources() -> list[Path]:
    """Every module of ours."""
    files = sorted(SOURCE.rglob("*.py"))
    return [file for file in files if not file.is_relative_to(SOURCE / NO_CODE_OF_OURS)]


def name_of(file: Path) -> str:
    """`cli/__main__.py` for a file below src/roost; below the repository otherwise."""
    return file.relative_to(SOURCE if file.is_relative_to(SOURCE) else REPOSITORY).as_posix()


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


# --- floors -----------------------------------------------------------------------------------------------


def imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import anywhere in a file, those in functions and by literal name included.

    ``from roost.base import errors`` gives ``roost.base.errors``, relative names are made absolute.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            parents = parents[: len(parents) - node.level + 1] if node.level else []
            home = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{home}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called(node).endswith(("import_module", "__import__")):
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield node.lineno, name


def called(node: ast.Call) -> str:
    """The dotted name of what is called, as far as it has one: ``os.path.join``, ``.write_text``."""
    parts, target = [], node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    parts.append(target.id if isinstance(target, ast.Name) else "")
    return ".".join(reversed(parts))


def package_of(file: Path) -> str:
    return ".".join(["roost", *file.relative_to(SOURCE).parent.parts])


def floor_errors(tree: ast.Module, where: str, folder: str, package: str) -> list[str]:
    """What a file in ``folder`` imports though the house forbids it."""
    errors = []
    for line, name in imports(tree, package):
        root, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if root != "roost" or target in (folder, "__version__"):
            continue
        wrong = None
        if target not in FLOORS:
            wrong = "name the module it lives in (roost.folder.module)"
        elif target == "worker":
            wrong = "the worker is started (python -m), never imported"
        elif FLOORS[target] >= FLOORS[folder]:
            wrong = f"{target} is on floor {FLOORS[target]}, {folder} on floor {FLOORS[folder]}"
        if wrong:
            errors.append(f"{where}:{line}: imports {name}; {wrong}")
    return errors


def test_every_folder_has_a_floor() -> None:
    folders = {entry.name for entry in SOURCE.iterdir() if entry.is_dir() and entry.name != "__pycache__"}
    assert folders - {NO_CODE_OF_OURS} <= set(FLOORS), "give the new folder a floor"
    assert [file.name for file in SOURCE.glob("*.py")] == ["__init__.py"], "a module lives in a folder"


def test_imports_go_down_the_floors() -> None:
    errors = []
    for file in sources():
        if file.parent != SOURCE:  # roost/__init__.py gives names of all floors, lazily
            folder = file.relative_to(SOURCE).parts[0]
            errors += floor_errors(parsed(file), name_of(file), folder, package_of(file))
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize(
    ("folder", "code", "wrong"),
    [
        ("package", "from roost.base import errors", False),
        ("package", "from roost.package.names import name", False),
        ("package", "from . import names", False),
        ("package", "from ..base.errors import RoostError", False),
        ("cli", "from roost import __version__", False),
        ("base", "from roost.package.names import name", True),
        ("config", "def f():\n    import roost.devices.cpu", True),
        ("evaluation", "from ..analysis import session", True),
        ("lab", "import importlib\nimportlib.import_module('roost.worker.main')", True),
        ("operations", "from roost.worker import report", True),
        ("base", "if TYPE_CHECKING:\n    from roost.train.trainer import Trainer", True),
        ("cli", "from roost import Trainer", True),
        ("cli", "import roost", True),
    ],
)
def test_the_floor_rule_sees(folder: str, code: str, wrong: bool) -> None:
    assert bool(floor_errors(ast.parse(code), "x.py", folder, f"roost.{folder}")) == wrong


def test_importing_these_floors_never_imports_torch() -> None:
    program = (
        "import importlib, pkgutil, sys, roost\n"
        "for folder in sys.argv[1:]:\n"
        "    home = importlib.import_module('roost.' + folder)\n"
        "    for module in [folder, *(m.name for m in pkgutil.walk_packages(home.__path__, folder + '.'))]:\n"
        "        importlib.import_module('roost.' + module)\n"
        "        if 'torch' in sys.modules:\n"
        "            sys.exit('roost.' + module + ' imports torch')\n"
    )
    folders = [folder for folder in TORCH_FREE if (SOURCE / folder).is_dir()]
    done = subprocess.run([sys.executable, "-c", program, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", STANDARD_LIBRARY_ONLY)
def test_starts_with_the_standard_library_alone(file: str) -> None:
    """By reading, so that an import inside a function counts, and by starting it without site-packages."""
    seen, waiting, errors = set(), [SOURCE / file], []
    while waiting:
        current = waiting.pop()
        seen.add(current)
        for line, name in imports(parsed(current), package_of(current)):
            parts = name.split(".")
            if parts[0] == "roost":
                found = next((path for n in (2, 3, 4) if (path := _file(parts[:n])).is_file()), None)
                if found is None or not (parts[1] == "base" or name_of(found) in STANDARD_LIBRARY_ONLY):
                    errors.append(f"{name_of(current)}:{line}: imports {name}, which is not of roost.base")
                elif found not in seen:
                    waiting.append(found)
            elif parts[0] not in sys.stdlib_module_names:
                errors.append(f"{name_of(current)}:{line}: imports {name}, which is not the standard library")
    assert not errors, "\n".join(errors)
    module = "roost." + file.removesuffix(".py").replace("/", ".")
    program = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); import {module}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _file(parts: list[str]) -> Path:
    return SOURCE.joinpath(*parts[1:]).with_suffix(".py")


# --- sizes ------------------------------------------------------------------------------------------------


def test_files_and_functions_stay_short() -> None:
    errors = []
    for file in sources():
        lines = len(file.read_text().splitlines())
        if lines > MOST_LINES_OF_A_FILE:
            errors.append(f"{name_of(file)}: {lines} lines, at most {MOST_LINES_OF_A_FILE}")
        for node in ast.walk(parsed(file)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MOST_LINES_OF_A_FUNCTION:
                    where = f"{name_of(file)}:{node.lineno}: {node.name}"
                    errors.append(f"{where}: {length} lines, at most {MOST_LINES_OF_A_FUNCTION}")
    assert not errors, "\n".join(errors)


# --- writes -----------------------------------------------------------------------------------------------

WRITING_METHODS = {
    "write_text", "write_bytes", "touch", "mkdir", "rename", "unlink", "rmdir", "symlink_to", "hardlink_to",
    "makedirs", "tofile", "savefig", "save_file",
}  # fmt: skip
WRITING_FUNCTIONS = {
    "os": {"replace", "renames", "remove", "removedirs", "link", "symlink", "truncate"},
    "shutil": {"rmtree", "move", "copy", "copy2", "copyfile", "copytree"},
    "tempfile": {"mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory"},
    "json": {"dump"},
    "torch": {"save"},
    "np": {"save", "savez", "savez_compressed", "savetxt"},
}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"}


def bare_write(node: ast.Call) -> str | None:
    """The name of a call that changes the disk, or None."""
    name = called(node)
    home, _, last = name.rpartition(".")
    if home == "durable":
        return None
    if last in ("open", "fdopen"):
        return f"{name} for writing" if _opens_for_writing(node, name) else None
    # Path.replace takes one argument; str.replace takes two, and the other replaces take keywords.
    path_replace = "." in name and last == "replace" and len(node.args) == 1 and not node.keywords
    yaml_dump = home == "yaml" and last.endswith("dump") and len(node.args) > 1  # with one it gives a string
    writes = ("." in name and last in WRITING_METHODS) or last in WRITING_FUNCTIONS.get(home, ())
    return name if writes or path_replace or yaml_dump else None


def _opens_for_writing(node: ast.Call, name: str) -> bool:
    if name in ("Package.open", "Store.open"):  # reads a package; opens the lab's queue: neither has a mode
        return False
    if name == "os.open":
        return any(isinstance(part, ast.Attribute) and part.attr in WRITING_FLAGS for part in ast.walk(node))
    position = 1 if name in ("open", "io.open", "os.fdopen", "gzip.open", "lzma.open", "bz2.open") else 0
    modes = [keyword.value for keyword in node.keywords if keyword.arg == "mode"]
    modes += node.args[position : position + 1]
    for mode in modes:
        if not (isinstance(mode, ast.Constant) and isinstance(mode.value, str)):
            return True  # a mode that is computed cannot be judged here, so it must be in the list
        if re.fullmatch(r"[rwaxbtU+]*", mode.value) and set(mode.value) & set("wax+"):
            return True
    return False


def _writes_of(file: Path) -> list[str]:
    calls = (node for node in ast.walk(parsed(file)) if isinstance(node, ast.Call))
    return [f"{name_of(file)}:{node.lineno}: {what}" for node in calls if (what := bare_write(node))]


def test_only_the_durable_module_writes() -> None:
    errors = []
    for file in sources():
        if name_of(file) != "base/durable.py" and name_of(file) not in MAY_WRITE:
            errors += _writes_of(file)
    assert not errors, "use roost.base.durable, or give the reason in MAY_WRITE:\n" + "\n".join(errors)


@pytest.mark.parametrize("file", MAY_WRITE)
def test_the_list_of_writers_holds_no_dead_entry(file: str) -> None:
    assert _writes_of(SOURCE / file), f"{file} writes nothing by itself: take it off the list"


@pytest.mark.parametrize(
    "code",
    [
        'open("x", "w")', 'open("x", mode="ab")', "open(x, mode)", 'path.open("x")', 'path.open(mode="r+b")',
        "os.open(x, os.O_WRONLY | os.O_CREAT)", 'os.fdopen(fd, "wb")', 'gzip.open(x, "wt")',
        "path.write_text(s)", "Path(x).write_bytes(b)", "path.rename(to)", "path.replace(to)",
        "os.replace(a, b)", "os.rename(a, b)", "shutil.rmtree(x)", "json.dump(x, file)", "torch.save(x, y)",
        "yaml.safe_dump(x, file)", "np.save(x, y)", "path.mkdir()", "path.parent.unlink()",
    ],
)  # fmt: skip
def test_the_write_rule_sees(code: str) -> None:
    assert bare_write(ast.parse(code, mode="eval").body)


@pytest.mark.parametrize(
    "code",
    [
        'open("x")', 'open("x", "rb")', "path.open()", 'path.open("r")', "os.open(x, os.O_RDONLY)",
        "os.fdopen(fd)", 'text.replace("a", "b")', "replace(settings, x=1)", "dataclasses.replace(s, x=1)",
        "json.dumps(x)", "yaml.dump(x)", "time.replace(tzinfo=None)", "durable.rename(a, b)",
    ],
)  # fmt: skip
def test_the_write_rule_lets_pass(code: str) -> None:
    assert bare_write(ast.parse(code, mode="eval").body) is None


# --- what runs code from data -----------------------------------------------------------------------------

RUNS_DATA = {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.load_all", "yaml.unsafe_load"}
MAY_PICKLE = {"train/data/packing.py": "between a process and the workers that it forked"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def danger(node: ast.AST) -> str | None:
    """What in a node could run code that came as data, or None."""
    if isinstance(node, ast.Import):
        return next((alias.name for alias in node.names if alias.name.partition(".")[0] in PICKLES), None)
    if isinstance(node, ast.ImportFrom):
        return node.module if (node.module or "").partition(".")[0] in PICKLES else None
    if not isinstance(node, ast.Call):
        return None
    if (name := called(node)) in RUNS_DATA:
        return name
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if not _is_false(given.get("shell")):
        return f"{name}(shell=...)"
    if name == "torch.load" and _is_false(given.get("weights_only")):
        return "torch.load without weights_only=True"
    return None


def _is_false(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and not value.value)


def test_nothing_runs_code_that_came_as_data() -> None:
    errors = []
    for file in [*sorted(SOURCE.rglob("*.py")), *sorted((REPOSITORY / "bench").rglob("*.py"))]:
        for node in ast.walk(parsed(file)):
            what = danger(node)
            if what and not (what in PICKLES and name_of(file) in MAY_PICKLE):
                errors.append(f"{name_of(file)}:{getattr(node, 'lineno', 0)}: {what}")
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("import pickle", True), ("from pickle import loads", True), ("import torch.nn", False),
        ("eval(x)", True), ("model.eval()", False), ("exec(x)", True), ("os.execv(x, y)", False),
        ("yaml.load(x, Loader=y)", True), ("os.system(x)", True), ("subprocess.run(x)", False),
        ("subprocess.run(x, shell=True)", True), ("subprocess.run(x, shell=False)", False),
        ("torch.load(x)", True), ("torch.load(x, weights_only=True)", False),
    ],
)  # fmt: skip
def test_the_danger_rule_sees(code: str, wrong: bool) -> None:
    assert any(danger(node) for node in ast.walk(ast.parse(code))) == wrong


# --- tests ------------------------------------------------------------------------------------------------


def lines_of_code(file: Path) -> int:
    """Lines that hold code: no blank line, no comment, no docstring."""
    idle = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if tokenize.tok_name[token.type] not in idle:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parsed(file)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                lines.difference_update(range(first, last + 1))
    return len(lines)


def mirror(file: Path) -> Path:
    """`tests/train/hooks/test_save.py` for `src/roost/train/hooks/save.py`."""
    return TESTS / file.relative_to(SOURCE).parent / f"test_{file.stem.strip('_')}.py"


def test_each_module_has_its_tests() -> None:
    errors = []
    for file in sources():
        long = lines_of_code(file) > MOST_LINES_WITHOUT_A_TEST
        if long and not mirror(file).is_file() and name_of(file) not in TESTED_ELSEWHERE:
            errors.append(f"{name_of(file)}: write {name_of(mirror(file))}")
    assert not errors, "or say in TESTED_ELSEWHERE what tests it:\n" + "\n".join(errors)


@pytest.mark.parametrize("file", TESTED_ELSEWHERE)
def test_the_list_of_untested_holds_no_dead_entry(file: str) -> None:
    assert (SOURCE / file).is_file()
    assert not mirror(SOURCE / file).is_file(), f"{file} has its own tests: take it off the list"
