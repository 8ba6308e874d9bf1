"""The rules of the house (DESIGN, section 2), held by reading the source: floors, names, words, writes."""

from __future__ import annotations

import ast
import gc
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
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
    "supervisor": 6,
    "worker": 6,
    "lab": 7,
    "operations": 8,
    "serve": 9,
    "api": 9,
    "display": 9,
    "shell": 10,
    "tui": 11,
    "mcp": 11,
    "cli": 12,
    "compat": 12,
    "notebook": 13,
}
TORCH_FREE = [
    folder for folder, floor in FLOORS.items() if floor <= 2 or floor >= 7 or folder == "supervisor"
]
NO_CODE_OF_OURS = "templates"  # what `roost new` copies is the user's code

STANDARD_LIBRARY_ONLY = "# Standard library only"
"""The comment of a module which, with all that it imports, must start under ``python -I -S``."""
NOT_DURABLE = "# Not durable:"
"""The comment of a module that changes the disk without `roost.base.durable`; the reason follows it."""

SUPERVISION = ("supervisor.guard", "supervisor.supervisor")
"""The processes that start with the standard library alone; so must everything that they import."""

MOST_FILES = 15
LIKE_THINGS = {"cli/commands": "a file for each command", "train/hooks": "a file for each hook"}
"""Folders of like things, which may hold more files than others."""


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


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Every node of a file. A walk takes longer than what most rules do at a node."""
    return tuple(ast.walk(parsed(file)))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """The tests after these have no million nodes for each of their garbage collections to visit; and while
    these read, none is garbage."""
    gc.disable()
    yield
    gc.enable()
    nodes.cache_clear()
    parsed.cache_clear()


# --- floors -----------------------------------------------------------------------------------------------


def imports(tree: Iterable[ast.AST], package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import among nodes, by literal name included.

    ``from roost.base import errors`` gives ``roost.base.errors``, relative names are made absolute.
    """
    for node in tree:
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


def floor_errors(tree: Iterable[ast.AST], where: str, folder: str, package: str) -> list[str]:
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
    files = {file.name for file in SOURCE.glob("*.py")}
    assert files == {"__init__.py", "__main__.py"}, "a module lives in a folder"


def test_imports_go_down_the_floors() -> None:
    errors = []
    for file in sources():
        if file.parent != SOURCE:  # roost/__init__.py gives names of all floors, lazily
            folder = file.relative_to(SOURCE).parts[0]
            errors += floor_errors(nodes(file), name_of(file), folder, package_of(file))
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize(
    ("folder", "code", "wrong"),
    [
        ("package", "from roost.base import errors", False),
        ("package", "from roost.package.package_name import name", False),
        ("package", "from . import names", False),
        ("package", "from ..base.errors import RoostError", False),
        ("cli", "from roost import __version__", False),
        ("base", "from roost.package.package_name import name", True),
        ("config", "def f():\n    import roost.devices.cpu", True),
        ("evaluation", "from ..analysis import session", True),
        ("lab", "import importlib\nimportlib.import_module('roost.worker.main')", True),
        ("operations", "from roost.worker import final_report as report", True),
        ("base", "if TYPE_CHECKING:\n    from roost.train.trainer import Trainer", True),
        ("cli", "from roost import Trainer", True),
        ("cli", "import roost", True),
    ],
)
def test_the_floor_rule_sees(folder: str, code: str, wrong: bool) -> None:
    assert bool(floor_errors(ast.walk(ast.parse(code)), "x.py", folder, f"roost.{folder}")) == wrong


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


def _commented(comment: str) -> list[Path]:
    return [
        file for file in sources() if any(line.startswith(comment) for line in file.read_text().split("\n"))
    ]


@pytest.mark.parametrize("file", [name_of(file) for file in _commented(STANDARD_LIBRARY_ONLY)])
def test_starts_with_the_standard_library_alone(file: str) -> None:
    """By reading, so that an import inside a function counts, and by starting it without site-packages."""
    seen, waiting, errors = set(), [SOURCE / file], []
    while waiting:
        current = waiting.pop()
        seen.add(current)
        for line, name in imports(nodes(current), package_of(current)):
            parts = name.split(".")
            if parts[0] == "roost":
                found = next((path for n in (2, 3, 4, 5) if (path := _file(parts[:n])).is_file()), None)
                if found is None:
                    errors.append(f"{name_of(current)}:{line}: imports {name}, which is no module")
                elif found not in seen:
                    waiting.append(found)
            elif parts[0] not in sys.stdlib_module_names:
                errors.append(f"{name_of(current)}:{line}: imports {name}, which is not the standard library")
    assert not errors, "\n".join(errors)
    assert failures_alone()[module_of(file)] == ""


def module_of(file: str) -> str:
    return "roost." + file.removesuffix(".py").replace("/", ".")


STARTS_ALONE = """
import importlib, json, os, sys, tempfile, traceback
sys.path.insert(0, sys.argv[1])
failures = {}
for module in sys.argv[2:]:
    with tempfile.TemporaryFile("w+") as said:
        if not (child := os.fork()):
            try:
                importlib.import_module(module)
            except BaseException:
                traceback.print_exc(file=said)
                said.flush()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        said.seek(0)
        failures[module] = said.read() or (f"wait status {status}" if status else "")
print(json.dumps(failures))
"""
"""Imports each module in a process of its own, where no other has been imported."""


@cache
def failures_alone() -> dict[str, str]:
    """How each module that should start with the standard library alone fails there; empty if it does not."""
    modules = [module_of(name_of(file)) for file in _commented(STANDARD_LIBRARY_ONLY)]
    command = [sys.executable, "-I", "-S", "-c", STARTS_ALONE, str(SOURCE.parent), *modules]
    found: dict[str, str] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def _file(parts: list[str]) -> Path:
    return SOURCE.joinpath(*parts[1:]).with_suffix(".py")


def test_what_the_guard_imports_is_declared() -> None:
    """The guard starts under ``-I -S``: each module of the supervisor that it imports declares that."""
    waiting, seen = [_file(["roost", *name.split(".")]) for name in SUPERVISION], set()
    while waiting:
        current = waiting.pop()
        seen.add(current)
        for _, name in imports(nodes(current), package_of(current)):
            parts = name.split(".")
            found = next((path for n in (2, 3, 4, 5) if (path := _file(parts[:n])).is_file()), None)
            if parts[0] == "roost" and found is not None and found not in seen:
                waiting.append(found)
    declared = set(_commented(STANDARD_LIBRARY_ONLY))
    missing = [name_of(file) for file in seen if "supervisor" in file.parts and file not in declared]
    assert not missing, f"write {STANDARD_LIBRARY_ONLY!r} below the docstring of: {', '.join(missing)}"


# --- circles ----------------------------------------------------------------------------------------------


def runtime_imports(node: ast.AST, package: str) -> Iterator[str]:
    """The imports of a file that are carried out, those in functions included; not those for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield from (name for _, name in imports([child], package))
        else:
            yield from runtime_imports(child, package)


def circles(edges: dict[str, set[str]]) -> list[str]:
    """Every edge that lies on a circle, as ``a -> b``."""

    @cache
    def reached(start: str) -> set[str]:
        found, waiting = set(), [start]
        while waiting:
            for target in edges.get(waiting.pop(), ()):
                if target not in found:
                    found.add(target)
                    waiting.append(target)
        return found

    return sorted(f"{a} -> {b}" for a, targets in edges.items() for b in targets if a in reached(b))


def test_no_file_imports_itself_over_others() -> None:
    edges: dict[str, set[str]] = {}
    for file in sources():
        names = runtime_imports(parsed(file), package_of(file))
        paths = (
            next((p for n in (5, 4, 3, 2) if (p := _file(x.split(".")[:n])).is_file()), None) for x in names
        )
        edges[name_of(file)] = {name_of(path) for path in paths if path not in (None, file)}
    assert not circles(edges)


def test_the_circle_rule_sees() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b -> c", "c -> b"]


# --- names and words --------------------------------------------------------------------------------------


def folders() -> list[Path]:
    """Every folder with modules of ours."""
    return sorted({file.parent for file in sources()})


def test_no_folder_is_crowded() -> None:
    counts = Counter(
        file.relative_to(SOURCE).parent.as_posix() for file in sources() if file.stem != "__init__"
    )
    crowded = [f"{name}: {count} files" for name, count in counts.items() if count > MOST_FILES]
    assert [one for one in crowded if one.partition(":")[0] not in LIKE_THINGS] == []


@pytest.mark.parametrize("folder", [name_of(folder) for folder in folders() if folder != SOURCE])
def test_each_folder_names_its_files(folder: str) -> None:
    """In reading order, in the docstring of its ``__init__``."""
    doc = ast.get_docstring(parsed(SOURCE / folder / "__init__.py")) or ""
    files = [file.stem for file in (SOURCE / folder).glob("*.py") if file.stem != "__init__"]
    entries = [path.name for path in (SOURCE / folder).iterdir() if (path / "__init__.py").is_file()]
    missing = [name for name in [*files, *entries] if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", doc)]
    if folder in LIKE_THINGS:
        missing = [] if doc else missing
    assert not missing, f"{folder}/__init__.py does not name {', '.join(missing)}"


def test_no_public_class_name_has_two_meanings() -> None:
    homes = defaultdict(set)
    for file in sources():
        for node in nodes(file):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(name_of(file))
    assert {name: sorted(files) for name, files in homes.items() if len(files) > 1} == {}


ONE_CONCEPT = {"cli/commands", "config/sections", "serve/routes", "train/hooks"}
"""Folders whose files are called as what they bind: a command as its operation, a section as its part."""


def test_no_module_name_has_two_meanings() -> None:
    homes = defaultdict(list)
    for file in sources():
        if (
            file.stem not in ("__init__", "__main__")
            and file.relative_to(SOURCE).parent.as_posix() not in ONE_CONCEPT
        ):
            homes[file.stem].append(name_of(file))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


IDIOM = re.compile(r"\b(told|tells|whoever|whom|nobody|somebody|stands|beholds?)\b", re.IGNORECASE)
"""Words that docs/glossary.md replaces."""
STORED = "# Stored name"
"""The comment of a line with such a word in a name that is in files or databases of earlier versions."""
RIDDLE = re.compile(r"(it|they|what|who|whoever|those|one|nobody|somebody|that)\b", re.IGNORECASE)
"""Openings that leave the subject of a short docstring to be guessed."""


def test_the_source_uses_the_words_of_the_glossary() -> None:
    found = [
        f"{name_of(file)}:{number}: {match.group()}"
        for file in sources()
        for number, line in enumerate(file.read_text().split("\n"), start=1)
        if not line.endswith(STORED)
        for match in IDIOM.finditer(line.replace("_", " "))
    ]
    assert not found, "docs/glossary.md has the word:\n" + "\n".join(found)


def test_docstrings_name_their_subject() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for file in sources():
        for node in nodes(file):
            if (
                isinstance(node, kinds)
                and len(doc := ast.get_docstring(node) or "") < 60
                and RIDDLE.match(doc)
            ):
                found.append(f"{name_of(file)}: {doc!r}")
    assert not found, "say who does what:\n" + "\n".join(found)


# --- devices ----------------------------------------------------------------------------------------------

DEVICE_ROOM = "train/accelerators"
"""The one folder that asks torch about a type of device."""
NAMES_A_DEVICE = {
    "worker/causes/cuda_causes.py": "explains errors whose text is CUDA's",
}
"""Modules that may name a type elsewhere, and why."""
DEVICE_TYPES = {"cuda", "mps", "xpu"}
"""Not "cpu": whether a tensor lies in the memory of the host is no question about an accelerator."""


def named_device(node: ast.AST) -> str | None:
    """How a node asks for one type of device, or None: by torch's module of it, or by comparing its name."""
    if isinstance(node, ast.Attribute):
        name = ast.unparse(node)
        modules = {f"torch.{kind}" for kind in DEVICE_TYPES} | {"torch.backends.mps"}
        return name if name in modules or node.attr in ("is_cuda", "is_mps", "is_xpu") else None
    operands: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and called(node).endswith(".startswith"):
        operands = node.args
    elif isinstance(node, ast.MatchValue):
        operands = [node.value]
    constants = (part for one in operands for part in ast.walk(one) if isinstance(part, ast.Constant))
    return next((repr(one.value) for one in constants if one.value in DEVICE_TYPES), None)


def test_one_folder_asks_about_devices() -> None:
    errors = [
        f"{name_of(file)}:{node.lineno}: {what}"
        for file in sources()
        if name_of(file.parent) != DEVICE_ROOM and name_of(file) not in NAMES_A_DEVICE
        for node in nodes(file)
        if isinstance(node, ast.expr | ast.MatchValue) and (what := named_device(node))
    ]
    assert not errors, f"ask roost.{DEVICE_ROOM.replace('/', '.')}:\n" + "\n".join(errors)


def test_one_function_replaces_home_folders() -> None:
    """`Path.expanduser` raises an error that is no user's mistake for ``~name`` of an unknown user."""
    found = [name_of(file) for file in sources() if ".expanduser()" in file.read_text()]
    assert not found, f"use roost.base.text.typed_path: {found}"


def test_a_module_that_may_name_a_device_does() -> None:
    for file in NAMES_A_DEVICE:
        assert any(map(named_device, nodes(SOURCE / file))), f"{file} names none: delete its entry"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("torch.cuda.synchronize()", True), ("torch.mps.empty_cache()", True), ("torch.xpu.Stream", True),
        ("torch.backends.mps.is_available()", True), ("tensor.is_cuda", True), ("x.type == 'cuda'", True),
        ("'cuda' != kind", True), ("kind in ('cpu', 'mps')", True), ("device.startswith('cuda')", True),
        ("match kind:\n    case 'xpu': pass", True),
        ("x.type == 'cpu'", False), ("tensor.is_cpu", False), ("{'device': 'cuda'}", False),
        ("torch.version.cuda", False), ("torch.backends.cudnn.benchmark", False), ("f('cuda')", False),
    ],
)  # fmt: skip
def test_the_device_rule_sees(code: str, wrong: bool) -> None:
    assert any(map(named_device, ast.walk(ast.parse(code)))) == wrong


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
    if home in ("durable", "terminal"):  # ours: durable writes; bytes to stdout
        return None
    if last in ("open", "fdopen"):
        return f"{name} for writing" if _opens_for_writing(node, name) else None
    # Path.replace takes one argument; str.replace takes two, and the other replaces take keywords.
    path_replace = "." in name and last == "replace" and len(node.args) == 1 and not node.keywords
    yaml_dump = home == "yaml" and last.endswith("dump") and len(node.args) > 1  # with one it gives a string
    writes = ("." in name and last in WRITING_METHODS) or last in WRITING_FUNCTIONS.get(home, ())
    return name if writes or path_replace or yaml_dump else None


def _opens_for_writing(node: ast.Call, name: str) -> bool:
    # These read a package, or open the lab's queue: none of them has a mode.
    if name in ("PackageFolder.open", "Package.open", "OriginalPackage.open", "QueueStore.open"):
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
    calls = (node for node in nodes(file) if isinstance(node, ast.Call))
    return [f"{name_of(file)}:{node.lineno}: {what}" for node in calls if (what := bare_write(node))]


def test_only_the_durable_module_writes() -> None:
    errors = []
    for file in sources():
        if name_of(file) != "base/durable.py" and file not in _commented_not_durable():
            errors += _writes_of(file)
    assert not errors, f"use roost.base.durable, or give the reason as '{NOT_DURABLE} ...':\n" + "\n".join(
        errors
    )


@cache
def _commented_not_durable() -> frozenset[Path]:
    return frozenset(_commented(NOT_DURABLE))


@pytest.mark.parametrize("file", [name_of(file) for file in _commented(NOT_DURABLE)])
def test_a_module_that_says_so_does_write(file: str) -> None:
    assert _writes_of(SOURCE / file), f"{file} writes nothing without durable.py: delete '{NOT_DURABLE} ...'"


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
MAY_PICKLE = {"train/data/workers": "between a process and the workers that it forked"}
MAY_UNPICKLE = {
    "package/checkpoints/pickled_values.py": "what a project of DLNest saves, signed or trusted by the user",
    "worker/results/convert_weights.py": "weights of another trainer, which the user trusts",
    "package/dlnest/original_checkpoint.py": "what DLNest saved, of which only plain data is built",
}
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
        may_unpickle, may_pickle = name_of(file) in MAY_UNPICKLE, name_of(file.parent) in MAY_PICKLE
        for node in nodes(file):
            what = danger(node)
            if what and not (may_unpickle or (may_pickle and what in PICKLES)):
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


TESTED_ELSEWHERE = {"config/sections": "config/test_settings.py"}


@pytest.mark.parametrize("folder", [name_of(folder) for folder in folders() if folder != SOURCE])
def test_each_folder_has_its_tests(folder: str) -> None:
    if folder in TESTED_ELSEWHERE:
        assert (TESTS / TESTED_ELSEWHERE[folder]).is_file()
    else:
        assert list((TESTS / folder).rglob("test_*.py")), f"write tests/{folder}/test_<topic>.py"
