"""The folders of scripts that an analyzer may run. It runs no other file: a request must not become a way to
run any program of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from roost.analysis import script
from roost.base.errors import NotFound, Refused
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names

_MAX_LISTED = 20


class NamedScript(NamedTuple):
    """A script, by the name by which it is called."""

    name: str
    path: Path


class ScriptFolders:
    """The folders in which an analyzer looks for a script, in this order: what it was started with, the
    project's AnalyzeScripts, the package's.

    Args:
        package: The folder of the package.
        project: The folder of the project.
        scripts: A further script or folder of scripts.
    """

    def __init__(self, package: Path, project: Path, scripts: Path | None) -> None:
        more = [scripts] if scripts is not None else []
        self._package = package
        self.places = [*more, project / script.FOLDER, package / script.FOLDER]

    def find(self, name: str) -> Path:
        """Returns the real path of a script.

        Args:
            name: A name, with or without ``.py``; or an absolute path.

        Raises:
            NotFound: There is no such script; names the nearest one.
            Refused: It is in none of the folders, wherever links lead.
        """
        pure, outside = PurePath(name), None
        for place in self.places:
            for path in _candidates(place, pure):
                if not _is_file(path):
                    continue
                real = path.resolve()
                if _is_inside(real, place):
                    return real
                outside = path
        if outside is None and (pure.is_absolute() or ".." in pure.parts) and _is_file(Path(name)):
            outside = Path(name)
        if outside is not None:
            raise Refused(
                "the script is in none of the folders from which this analyzer runs scripts",
                received=name,
                fix=f"put it into one of them: {join_names([str(one) for one in self.places])}",
            )
        names = [one.name for one in self.scripts()]
        near = did_you_mean(PurePath(name.removesuffix(".py")).name, names).strip()
        there = (
            f"its scripts: {join_names(names, _MAX_LISTED)}"
            if names
            else f"it has no scripts; add one to {self.places[0]}"
        )
        raise NotFound(
            "the analyzer has no such script", received=name, fix=" ".join(filter(None, (near, there)))
        )

    def scripts(self) -> list[NamedScript]:
        """Returns all scripts by name. Of several with one name it is the one that `find` returns."""
        found: dict[str, Path] = {}
        for place in self.places:
            for name, path in _scripts_in(place):
                if _is_inside(path.resolve(), place):
                    found.setdefault(name, path)
        return [NamedScript(name, found[name]) for name in sorted(found)]

    def code_folders(self) -> tuple[str, ...]:
        """Returns the folders, each with a slash at its end, whose modules scripts import from beside
        themselves. The package's own code is in none of them."""
        homes = {place.parent if place.is_file() else place for place in self.places}
        paths = {str(path) for home in homes for path in (home, home.resolve())}
        return tuple(f"{path}/" for path in paths if not self._package.is_relative_to(path))


def _candidates(place: Path, name: PurePath) -> Iterator[Path]:
    if place.is_file():  # one script
        if str(name) in (place.name, place.stem, str(place)):
            yield place
        return
    if name.is_absolute():
        yield Path(name)
        return
    # PurePath("") is ".": the folder itself, which is no file
    yield place / name
    if name.name:
        yield place / name.with_name(f"{name.name}.py")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False


def _is_inside(real: Path, place: Path) -> bool:
    home = place.resolve()
    return real == home if home.is_file() else real.is_relative_to(home)


def _scripts_in(place: Path) -> Iterator[tuple[str, Path]]:
    if place.is_file():
        yield place.stem, place
        return
    if place.is_dir():
        for path in sorted(place.rglob("*.py")):
            if path.is_file():
                yield path.relative_to(place).with_suffix("").as_posix(), path
