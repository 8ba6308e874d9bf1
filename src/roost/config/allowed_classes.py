"""The classes and functions of libraries that a config may name: some libraries whole, others by name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match, did_you_mean

ALLOWED_LIBRARIES = ("torch.optim", "torch.nn", "torchvision", "torchmetrics")
"""Libraries, or parts of libraries, of which a config may name every class and function."""

_LOADERS = ("digits", "iris", "wine", "breast_cancer", "diabetes")
ALLOWED_NAMES = (
    "roost.Arrays",
    "roost.EvaluationData",
    "roost.Sampled",
    "torch.utils.data.ConcatDataset",
    "torch.utils.data.StackDataset",
    "torch.utils.data.Subset",
    # These read files that are part of the library. Its fetch_* and load_files would read pickles, and other
    # functions any file.
    *(f"sklearn.datasets.load_{name}" for name in _LOADERS),
)
"""Further classes and functions that a config may name, each by its whole path."""

_PACKAGES = {"sklearn": "scikit-learn"}
"""The names under which libraries are installed, where these differ from the imported names."""
_REPLACEMENTS = {"TensorDataset": "roost.Arrays", "DataLoader": "roost.Arrays"}
"""roost's counterparts of classes that a config may not name."""


class ClassPathError(ConfigError):
    """A path that cannot be used. A separate class, because the project's code may itself raise a
    `ConfigError` while it is imported."""


def is_allowed(path: str) -> bool:
    """Whether a config may name a dotted path. Nothing is imported."""
    return path in ALLOWED_NAMES or _is_below(path)


def _is_below(name: object) -> bool:
    return any(f"{name}.".startswith(prefix + ".") for prefix in ALLOWED_LIBRARIES)


def require_allowed(path: str) -> None:
    """Checks that a config may name a dotted path. Nothing is imported.

    Raises:
        ClassPathError: The path is not allowed; the fix suggests a similar one.
    """
    if path in ALLOWED_NAMES:
        return
    if not any(path.startswith(prefix + ".") for prefix in ALLOWED_LIBRARIES):
        last = path.rpartition(".")[2]
        suggestion = _file_suggestion(path) or _name_suggestion(path) or _torch_suggestion(last)
        raise ClassPathError(
            f"a config may not name {path!r}",
            fix=f"{suggestion}write a path below "
            f"{', '.join(ALLOWED_LIBRARIES)}, or the path of a file that imports it: Model/Net.py:Net",
        )
    if not all(part.isidentifier() and not part.startswith("_") for part in path.split(".")):
        raise ClassPathError(f"{path!r} is not the path of a class")


def import_allowed(path: str) -> object:
    """Imports the class or function at a dotted path.

    Raises:
        ClassPathError: The path is not allowed, or there is no such class or function.
    """
    require_allowed(path)
    parts = path.split(".")
    found: object = _import_library(parts[0])
    for i, part in enumerate(parts[1:], 1):
        here = ".".join(parts[:i])
        found = _member(found, part, here)
        # Otherwise modules that a module has imported (`torch.optim.adam.torch.hub.load`) would be reachable.
        if isinstance(found, types.ModuleType) and found.__name__ != f"{here}.{part}":
            raise ClassPathError(
                f"{path!r} leads to another library than {parts[0]}", fix="name the class by its own path"
            )
    if isinstance(found, types.ModuleType):
        fix = (_class_of_module(found) or "name a class or function of it").strip()
        raise ClassPathError(f"{path!r} is a module, and no class or function", fix=fix)
    if path not in ALLOWED_NAMES and not _is_below(getattr(found, "__module__", None)):
        raise ClassPathError(
            f"{path!r} is defined in {getattr(found, '__module__', None)}", fix="name a class"
        )
    return found


def _class_of_module(module: types.ModuleType) -> str:
    """Suggests the class with the module's name but for case and underscores, or the module's only class, by
    its shortest path; else a few of its classes; an empty text if it has none."""
    own = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    outer, _, last = module.__name__.rpartition(".")
    alike = [name for name in own if name.lower() == last.replace("_", "")] or (own if len(own) == 1 else [])
    if not alike:
        return f"did you mean {', '.join(f'{module.__name__}.{name}' for name in own[:3])}?" if own else ""
    home = (
        outer
        if getattr(sys.modules.get(outer), alike[0], None) is vars(module)[alike[0]]
        else module.__name__
    )
    return f"did you mean {home}.{alike[0]}?"


def _file_suggestion(path: str) -> str:
    pieces = path.split(".")
    is_file = len(pieces) > 1 and Path(*pieces[:-1]).with_suffix(".py").is_file()
    return f"did you mean {'/'.join(pieces[:-1])}.py:{pieces[-1]}? " if is_file else ""


def _name_suggestion(path: str) -> str:
    """Suggests one of `ALLOWED_NAMES`."""
    last = path.rpartition(".")[2]
    ends = {name.rpartition(".")[2]: name for name in ALLOWED_NAMES}
    meant = _REPLACEMENTS.get(last) or ends.get(closest_match(last, ends) or "")
    return f"did you mean {meant}? " if meant is not None else ""


def _torch_suggestion(name: str) -> str:
    """Suggests a class of torch with a similar name, but only if torch is already imported: a suggestion is
    no reason to import it."""
    homes = [home for home in ("torch.optim", "torch.optim.lr_scheduler", "torch.nn") if home in sys.modules]
    known = {
        other: f"{home}.{other}"
        for home in homes
        for other, value in vars(sys.modules[home]).items()
        if inspect.isclass(value) and _is_below(value.__module__)
    }
    meant = closest_match(name, known)
    return f"did you mean {known[meant]}? " if meant is not None else ""


def _import_library(library: str) -> types.ModuleType:
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        fix = f"pip install {_PACKAGES.get(library, library)}"
        raise ClassPathError(f"{library} is not installed", fix=fix) from None


def _member(owner: object, name: str, path: str) -> object:
    if hasattr(owner, name):
        return getattr(owner, name)
    is_package = isinstance(owner, types.ModuleType) and hasattr(owner, "__path__")
    if is_package and importlib.util.find_spec(f"{path}.{name}") is not None:
        return importlib.import_module(f"{path}.{name}")
    public = [other for other in dir(owner) if not other.startswith("_")]
    fix = (did_you_mean(name, public) or _torch_suggestion(name)).strip()
    raise ClassPathError(f"{path} has no {name!r}", fix=fix or None)
