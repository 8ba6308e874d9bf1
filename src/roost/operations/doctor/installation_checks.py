"""Checks of the installation: Python, optional libraries, proxies, locale and terminal."""

from __future__ import annotations

import locale
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from roost import __version__
from roost.base.text.word_list import join_names
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, problem, warning

EXTRAS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "demo": (
        "pictures of `roost plot`, the project of `roost new digits`",
        {"matplotlib": "matplotlib", "scikit-learn": "sklearn"},
    ),
    "data": (
        "stateful loaders, metrics, and records as Parquet",
        {"torchdata": "torchdata", "torchmetrics": "torchmetrics", "pyarrow": "pyarrow"},
    ),
    "eval": ("the rows of evaluations as Parquet", {"pyarrow": "pyarrow"}),
    "loggers": (
        "mirrors in TensorBoard, W&B and MLflow",
        {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"},
    ),
    "shell": ("completion and history in `roost simple`", {"prompt_toolkit": "prompt_toolkit"}),
    "tui": ("`roost client`, and pictures in it", {"textual": "textual", "pillow": "PIL"}),
    "notebook": ("%roost in notebooks", {"ipython": "IPython"}),
    "stage": ("staged archives", {"fsspec": "fsspec", "backports.zstd": "backports.zstd"}),
    "remote": ("remote copies of packages", {"fsspec": "fsspec"}),
    "s3": ("remote copies in S3", {"s3fs": "s3fs"}),
    "gcs": ("remote copies in Google's storage", {"gcsfs": "gcsfs"}),
    "azure": ("remote copies in Azure's storage", {"adlfs": "adlfs"}),
    "sftp": ("remote copies on an SSH server", {"paramiko": "paramiko"}),
    "aim": ("import from and export to Aim", {"aim": "aim"}),
    "hf": ("remote copies at Hugging Face", {"huggingface_hub": "huggingface_hub"}),
}
"""What each extra of pyproject.toml brings, and its libraries with the modules by which they are imported."""
_LOOPBACK = "127.0.0.1"
_OLDEST = (3, 11)


@dataclass(frozen=True, kw_only=True)
class InstallationFacts:
    """This interpreter and what is installed for it."""

    python: tuple[int, int, int]
    executable: str
    version: str
    """Of roost."""
    place: Path
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The missing libraries by extra."""


def read_installation(subject: DoctorSubject) -> InstallationFacts:
    """Looks for each library without importing it."""
    missing = {
        extra: found
        for extra, (_, libraries) in EXTRAS.items()
        if (found := [name for name, module in libraries.items() if not _is_installed(module)])
    }
    return InstallationFacts(
        python=sys.version_info[:3],
        executable=sys.executable,
        version=__version__,
        place=Path(__file__).parents[2],
        missing=missing,
    )


def _is_installed(module: str) -> bool:
    if module.startswith("backports.") and sys.version_info >= (3, 14):  # part of Python from there on
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that holds it
        return False


def judge_installation(facts: InstallationFacts) -> Iterator[Diagnosis]:
    """Whether Python is new enough, and which optional libraries are missing."""
    python = ".".join(map(str, facts.python))
    text = f"roost {facts.version} ({facts.place}), Python {python} ({facts.executable})"
    if facts.python[:2] < _OLDEST:
        yield problem(text, f"install Python {_OLDEST[0]}.{_OLDEST[1]} or newer")
    else:
        yield ok(text)
    for extra, libraries in facts.missing.items():
        yield ok(
            f"{join_names(list(libraries))} not installed, for {EXTRAS[extra][0]}",
            f"pip install 'roost[{extra}]', if you need it",
        )


@dataclass(frozen=True, kw_only=True)
class EnvironmentFacts:
    """The variables of this shell that concern roost."""

    proxies: Mapping[str, str] = field(default_factory=dict)
    """By scheme."""
    bypasses_loopback: bool = True
    encoding: str = "UTF-8"
    locale_name: str = ""
    terminal: str | None = None
    """TERM, if stdout is a terminal."""


def read_environment(subject: DoctorSubject) -> EnvironmentFacts:
    """Reads variables of proxies, locale and terminal."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return EnvironmentFacts(
        proxies={one: url for one, url in urllib.request.getproxies().items() if one != "no"},
        bypasses_loopback=bool(urllib.request.proxy_bypass(_LOOPBACK)),
        encoding=locale.getpreferredencoding(False),
        locale_name=next(filter(None, named), ""),
        terminal=os.environ.get("TERM", "") if sys.stdout.isatty() else None,
    )


def judge_environment(facts: EnvironmentFacts) -> Iterator[Diagnosis]:
    """Whether proxies, locale or terminal cause trouble."""
    bad = False
    if facts.proxies and not facts.bypasses_loopback:
        bad = True
        yield warning(
            f"{join_names([f'{one}_proxy' for one in facts.proxies])} also for this machine: libraries such "
            "as MLflow reach no server here (roost's own client ignores them)",
            f"export no_proxy=localhost,{_LOOPBACK},::1",
        )
    if facts.encoding.upper().replace("-", "") != "UTF8":
        bad = True
        text = f"the locale {facts.locale_name or 'C'} has the encoding {facts.encoding}"
        yield warning(f"{text}: other characters become escapes", "export LC_ALL=C.UTF-8")
    if facts.terminal in ("", "dumb", "unknown"):
        bad = True
        yield warning(
            f"TERM is {facts.terminal!r}: no progress bar, no `roost client`", "export TERM=xterm-256color"
        )
    if not bad:
        yield ok(
            f"encoding {facts.encoding}, {'proxies spare this machine' if facts.proxies else 'no proxy'}"
        )
