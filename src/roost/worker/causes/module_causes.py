"""Causes of a failed import: a module that is not installed, or not copied into the package."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext

PIP_NAMES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Bio": "biopython",
    "cv2": "opencv-python",
    "Crypto": "pycryptodome",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "jwt": "PyJWT",
    "lightning_fabric": "lightning",
    "Levenshtein": "python-Levenshtein",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "nacl": "PyNaCl",
    "OpenGL": "PyOpenGL",
    "osgeo": "GDAL",
    "PIL": "pillow",
    "psycopg2": "psycopg2-binary",
    "pytorch_lightning": "pytorch-lightning",
    "ruamel": "ruamel.yaml",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "umap": "umap-learn",
    "websocket": "websocket-client",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""Names for pip, of modules whose distribution has another name."""

_MISSING = re.compile(r"No module named '([^']+)'")


def missing_module(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """A ModuleNotFoundError: explained by the project, by another version, or as not installed."""
    match = _MISSING.match(record.text) if record.is_a("ModuleNotFoundError") else None
    if match is None:
        return None
    name = match[1]
    return _not_in_package(name, context) or _other_version(name) or _not_installed(name)


def _not_in_package(name: str, context: FailureContext) -> Cause | None:
    """A module that is in the project but not in the package, the only place a run imports from."""
    if context.project is None or context.package is None:
        return None
    path = Path(*name.split("."))
    for found in (path.with_suffix(".py"), path):
        here, there = context.package / found, context.project / found
        if there.exists() and not here.exists():
            reason = context.left_out.get(
                found.as_posix(), "newer than the package, or in a folder that is never copied"
            )
            return Cause(
                f"{found} of the project is not in the package, from which a run imports ({reason})",
                "start a new package with `roost run`, which copies the project as it is now",
            )
    return None


def _other_version(name: str) -> Cause | None:
    """A submodule that the installed version of a library does not have."""
    top = name.partition(".")[0]
    if top == name or top not in sys.modules or importlib.util.find_spec(top) is None:
        return None
    version = getattr(sys.modules[top], "__version__", None)
    shown = f"{top} {version}" if version else top
    return Cause(
        f"{shown} has no module {name}", f"install the version of {top} that the code was written for"
    )


def _not_installed(name: str) -> Cause:
    top = name.partition(".")[0]
    package = PIP_NAMES.get(name) or PIP_NAMES.get(top)
    hint = "" if package else f" (if pip does not know that name, find out which package contains {top})"
    return Cause(
        f"the module {top} is not installed in the Python that runs roost ({sys.executable})",
        f"{sys.executable} -m pip install {package or top}{hint}",
    )


CAUSES: tuple[CauseRule, ...] = (missing_module,)
