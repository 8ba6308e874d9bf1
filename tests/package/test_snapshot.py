"""What of a project goes into a package, that it is the same there, and what else is only linked."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.package import snapshot
from roost.package.package import PackageFolder
from tests.messages import Messages


def git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(folder), *settings, *arguments], check=True, capture_output=True)


def fill(folder: Path, *names: str) -> Path:
    """Makes the files, each with its own name as content."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))
    return folder


@pytest.fixture(params=["git", "no git"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An empty project, with and without git: what is proven with it holds for both."""
    folder = fill(tmp_path / "project")
    if request.param == "git":
        git(folder, "init", "-q")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = fill(tmp_path / "project")
    git(folder, "init", "-q")
    return folder


def copied(selection: snapshot.Selection, tmp_path: Path) -> Path:
    target = tmp_path / "package"
    target.mkdir()
    manifest = snapshot.copy(selection, target)
    assert snapshot.changed_files(target, manifest) == []
    return target


# --- with and without git ---------------------------------------------------------------------------------


def test_results_that_a_template_ignores_by_their_ending_are_linked(project: Path) -> None:
    fill(project, "a.py", "net.pt", "deep/curves.png", "deep/b.py", "apt", "x.ptx", "table.csv.py")
    (project / ".gitignore").write_text("# results\n*.pt\n*.png\n*.csv\n")
    selection = snapshot.select(project)
    assert selection.files == [".gitignore", "a.py", "apt", "deep/b.py", "table.csv.py", "x.ptx"]
    assert selection.links == {name: str(project / name) for name in ("net.pt", "deep/curves.png")}


def test_an_exception_of_an_ending_counts(project: Path) -> None:
    fill(project, "a.py", "logo.png")
    (project / ".gitignore").write_text("*.png\n!logo.png\n")
    assert "logo.png" in snapshot.select(project).files


def test_a_large_copy_says_which_files_are_large(project: Path) -> None:
    fill(project, "a.py")
    assert snapshot.select(project).size_note() is None
    for name, size in (("data.bin", 9_000_000), ("small.bin", 1_200_000)):
        with (project / name).open("wb") as file:
            file.truncate(size)
    note = snapshot.select(project).size_note()
    assert note == (
        "each run copies 10.2 MB, of which data.bin 9 MB, small.bin 1.2 MB; what .gitignore names is linked "
        "instead"
    )


def test_a_large_copy_of_small_files_is_reported(project: Path) -> None:
    for number in range(12):
        with (project / f"{number}.bin").open("wb") as file:
            file.truncate(1_000_000)
    note = snapshot.select(project).size_note()
    assert note is not None and note.startswith("each run copies 12 MB in 12 files; ")


def test_the_tree_is_copied_with_its_layout_modes_and_hashes(project: Path, tmp_path: Path) -> None:
    fill(project, "config.yaml", "Model/Runner.py", "Model/deep/er/Net.py", ".hidden/x", "run.sh", "empty")
    (project / "run.sh").chmod(0o755)
    (project / "empty").write_bytes(b"")
    (project / "Model" / "Runner.py").chmod(0o600)
    selection = snapshot.select(project)
    target = tmp_path / "package"
    target.mkdir()
    manifest = snapshot.copy(selection, target)
    names = [".hidden/x", "Model/Runner.py", "Model/deep/er/Net.py", "config.yaml", "empty", "run.sh"]
    assert list(manifest["files"]) == sorted(names)
    for name in names:
        data = (target / name).read_bytes()
        assert data == (project / name).read_bytes()
        assert manifest["files"][name] == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        assert (target / name).stat().st_ino != (project / name).stat().st_ino
        assert (target / name).stat().st_nlink == 1
    assert (target / "run.sh").stat().st_mode & 0o111 and not (target / "config.yaml").stat().st_mode & 0o111
    assert manifest["links"] == {} and manifest["left_out"] == []


def test_junk_environments_and_other_packages_stay_out(project: Path, tmp_path: Path) -> None:
    fill(
        project, "a.py", "__pycache__/a.pyc", "b/__pycache__/b.pyc", "c.pyc", ".DS_Store", "x.egg-info/PKG",
        "node_modules/x/y.js", ".venv/pyvenv.cfg", ".venv/lib/z.py", "my env/pyvenv.cfg", "my env/lib/z.py",
    )  # fmt: skip
    PackageFolder.create(project / "old runs", name="one", values={})
    assert snapshot.select(project).files == ["a.py"]


def test_a_folder_called_env_is_code(project: Path) -> None:
    """Reinforcement learning is full of them; only what holds an interpreter is an environment."""
    fill(project, "env/__init__.py", "venv/maze.py")
    assert snapshot.select(project).files == ["env/__init__.py", "venv/maze.py"]


def test_the_save_root_stays_out_wherever_it_lies(project: Path, tmp_path: Path) -> None:
    fill(project, "a.py", "runs/x/b.py", "deep/runs/c.py", "deep/d.py")
    (project / "link to runs").symlink_to(tmp_path / "outside runs")
    (tmp_path / "outside runs").mkdir()
    exclude = [project / "runs", project / "deep" / "runs", tmp_path / "outside runs"]
    selection = snapshot.select(project, exclude=exclude)
    assert selection.files == ["a.py", "deep/d.py"] and selection.links == {}
    assert snapshot.select(
        project, exclude=[tmp_path, project]
    ).files  # around the project: nothing to leave out


def test_a_large_file_is_linked_and_named(project: Path, tmp_path: Path) -> None:
    fill(project, "a.py", "weights/large.bin", "weights/wanted.bin")
    for name in ("large.bin", "wanted.bin"):
        os.truncate(project / "weights" / name, 11 * 2**20)
    selection = snapshot.select(project, named=[project / "weights" / "wanted.bin"])
    assert selection.files == ["a.py", "weights/wanted.bin"]
    assert selection.left_out == [
        {"path": "weights/large.bin", "bytes": 11 * 2**20, "reason": "larger than 10 MB"}
    ]
    target = copied(selection, tmp_path)
    assert (target / "weights/large.bin").readlink() == project / "weights" / "large.bin"
    assert not (target / "weights/wanted.bin").is_symlink()


def test_any_name_a_file_can_have(project: Path, tmp_path: Path) -> None:
    names = [
        os.fsdecode(name)
        for name in (b"a b.py", b"new\nline", b'quote".py', b"\xff\xfe.py", "ü".encode(), b"-rf")
    ]
    fill(project, *names, os.fsdecode(b"folder \xff/in.py"))
    package = PackageFolder.create(tmp_path / "runs", values={}, selection=snapshot.select(project))
    manifest = PackageFolder.open(package.path).manifest
    assert sorted(manifest["files"]) == sorted([*names, os.fsdecode(b"folder \xff/in.py")])
    assert snapshot.changed_files(package.path, manifest) == []
    assert (package.path / names[3]).read_bytes() == b"\xff\xfe.py"


def test_links_inside_are_kept_and_lead_to_the_copy(project: Path, tmp_path: Path) -> None:
    fill(project, "real/a.py", "real/b.py")
    (project / "folder").symlink_to("real")
    (project / "file.py").symlink_to("real/a.py")
    (project / "real" / "up.py").symlink_to("../real/b.py")
    (project / "absolute").symlink_to(project / "real")
    (project / "real" / "round.py").symlink_to(f"../../{project.name}/real/a.py")
    (project / "chain").symlink_to("file.py")
    selection = snapshot.select(project)
    assert selection.links == {}
    target = copied(selection, tmp_path)
    for name in ("folder", "file.py", "real/up.py", "absolute", "real/round.py", "chain"):
        assert (target / name).is_symlink()
        assert (target / name).resolve().is_relative_to(target), name
        assert (target / name).exists(), name
    assert (target / "absolute" / "b.py").read_bytes() == b"real/b.py"
    assert (target / "real" / "round.py").read_bytes() == b"real/a.py"


def test_links_to_the_outside_lead_there(project: Path, tmp_path: Path) -> None:
    fill(tmp_path / "shared", "data.bin", "library/code.py")
    fill(project, "a.py")
    (project / "data").symlink_to("../shared")
    (project / "one.bin").symlink_to(tmp_path / "shared" / "data.bin")
    selection = snapshot.select(project)
    assert selection.files == ["a.py"]
    target = copied(selection, tmp_path)
    assert (target / "data" / "library" / "code.py").read_bytes() == b"library/code.py"
    assert (target / "one.bin").read_bytes() == b"data.bin"


def test_links_to_nowhere_and_in_a_circle_harm_nothing(project: Path, tmp_path: Path) -> None:
    fill(project, "a.py")
    (project / "broken").symlink_to("missing")
    (project / "broken outside").symlink_to("/nowhere/at/all")
    (project / "one").symlink_to("two")
    (project / "two").symlink_to("one")
    (project / "self").symlink_to("self")
    (project / "here").symlink_to(".")
    target = copied(snapshot.select(project), tmp_path)
    assert (target / "one").readlink() == Path("two") and (target / "broken").readlink() == Path("missing")
    assert (target / "a.py").exists()


def test_pipes_and_sockets_are_passed_over(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(project, "a.py", "inner/b.py")
    os.mkfifo(project / "pipe")
    os.mkfifo(project / "inner" / "pipe")
    monkeypatch.chdir(project)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        selection = snapshot.select(project)
    assert selection.files == ["a.py", "inner/b.py"] and selection.links == {}
    copied(selection, tmp_path)


def test_what_the_config_names_must_be_there_and_inside(
    project: Path, tmp_path: Path, messages: Messages
) -> None:
    fill(project, "a.py")
    fill(tmp_path, "outside.py")
    (project / "link.py").symlink_to("../outside.py")
    with pytest.raises(NotFound) as refused:
        snapshot.select(project, named=[project / "missing.py"])
    messages.check(refused.value)
    assert "missing.py" in str(refused.value)
    for outside in (tmp_path / "outside.py", project / ".." / "outside.py", project / "link.py"):
        with pytest.raises(ConfigError) as outside_error:
            snapshot.select(project, named=[outside])
        messages.check(outside_error.value)
    assert snapshot.select(project, named=[project / "." / "a.py"]).files


def test_a_named_folder_comes_whole(project: Path, tmp_path: Path) -> None:
    fill(project, ".gitignore", "a.py", "conf/b.yaml", "conf/deep/c.yaml", "conf/__pycache__/d.pyc")
    (project / ".gitignore").write_text("conf/\n")
    selection = snapshot.select(project, named=[project / "conf"])
    assert selection.files == [".gitignore", "a.py", "conf/b.yaml", "conf/deep/c.yaml"]
    assert selection.links == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user who may not read")
def test_what_cannot_be_read_is_an_error_that_names_it(project: Path, tmp_path: Path) -> None:
    fill(project, "a.py", "secret.py")
    (project / "secret.py").chmod(0)
    program = (
        "import concurrent.futures.thread, os, sys\n"  # while it may still read where Python lies
        "from pathlib import Path\n"
        "from roost.package import snapshot\n"
        "os.setgid(65534), os.setuid(65534)\n"
        "selection = snapshot.select(Path(sys.argv[1]))\n"
        "try:\n"
        "    snapshot.copy(selection, Path(sys.argv[2]))\n"
        "except OSError as error:\n"
        "    print(type(error).__name__, error.filename)\n"
    )
    target = tmp_path / "package"
    target.mkdir()
    for path in [target, project, *tmp_path.parents][:-1]:
        path.chmod(path.stat().st_mode | 0o077 if path == target else path.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(project), str(target)], capture_output=True, text=True
    )
    assert done.stdout.split() == ["PermissionError", str(project / "secret.py")], done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "records/a.py",
        "manifest.json",
        "args.json",
        "lock",
        "Checkpoints/x",
        "progress",
        "blackbox/x",
        "skipped.jsonl",
    ],
)
def test_a_name_that_the_package_needs_is_refused(project: Path, name: str, messages: Messages) -> None:
    fill(project, "a.py", name)
    with pytest.raises(ConfigError) as refused:
        snapshot.select(project)
    messages.check(refused.value)
    assert f" {name.partition('/')[0]}" in str(refused.value)


def test_too_many_files_are_refused_with_the_way_out(
    project: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(snapshot, "MAX_FILES", 3)
    fill(project, "a", "b", "c", "d")
    with pytest.raises(ConfigError) as refused:
        snapshot.select(project)
    messages.check(refused.value)


def test_too_much_to_copy_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    fill(project, "a", "b")
    for name in ("a", "b"):
        os.truncate(project / name, 600 * 1024)
    snapshot.select(project)
    monkeypatch.setattr(snapshot, "MAX_TOTAL_MB", 1.0)
    with pytest.raises(ConfigError) as refused:
        snapshot.select(project)
    messages.check(refused.value)
    assert "1 MB" in str(refused.value)


def test_an_empty_project(project: Path, tmp_path: Path) -> None:
    assert list(copied(snapshot.select(project), tmp_path).iterdir()) == []


def test_later_changes_are_reported(project: Path, tmp_path: Path) -> None:
    fill(project, "same.py", "longer.py", "other.py", "gone.py", "folder.py", "x")
    (project / "link").symlink_to("x")
    (project / "kept").symlink_to("x")
    target = tmp_path / "package"
    target.mkdir()
    manifest = snapshot.copy(snapshot.select(project), target)
    assert snapshot.changed_files(target, manifest) == []
    (target / "longer.py").write_text("longer than before")
    (target / "other.py").write_text("OTHER.py")
    (target / "gone.py").unlink()
    (target / "folder.py").unlink()
    (target / "folder.py").mkdir()
    (target / "link").unlink()
    (target / "link").symlink_to("same.py")
    (target / "same.py").touch()
    assert sorted(snapshot.changed_files(target, manifest)) == [
        "folder.py",
        "gone.py",
        "link",
        "longer.py",
        "other.py",
    ]


@pytest.mark.parametrize(
    ("most", "files", "folders"),
    [(9, {"a.py", "Model/Runner.py", "Model/deep/Net.py"}, {".", "Model", "Model/deep"}),
     (2, {"Model/Runner.py"}, {".", "Model"})],
)  # fmt: skip
def test_a_small_project_and_what_the_config_names_are_synced(
    most: int,
    files: set[str],
    folders: set[str],
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a package whose request.json has survived a power cut could hold empty code."""
    monkeypatch.setattr(snapshot, "_MAX_SYNCED_FILES", most)
    fill(project, "a.py", "Model/Runner.py", "Model/deep/Net.py")
    (project / "link.py").symlink_to("a.py")
    target = tmp_path / "package"
    target.mkdir()
    selection = snapshot.select(project, named=[project / "Model" / "Runner.py"])
    assert selection.named == ["Model/Runner.py"]
    synced: set[str] = set()
    real = os.fsync

    def watch(fd: int) -> None:
        synced.update(
            path.relative_to(target).as_posix()
            for path in [target, *target.rglob("*")]
            if not path.is_symlink() and os.path.samestat(path.stat(), os.fstat(fd))
        )
        real(fd)

    monkeypatch.setattr(os, "fsync", watch)
    snapshot.copy(selection, target)
    assert synced == files | folders


# --- with git ---------------------------------------------------------------------------------------------


def test_untracked_files_are_in_deleted_and_ignored_ones_are_not(repository: Path, tmp_path: Path) -> None:
    fill(repository, "tracked.py", "deleted.py", "forced.log", ".gitignore")
    (repository / ".gitignore").write_text("*.log\n.env\n/build/\n")
    git(repository, "add", "-f", ".")
    git(repository, "commit", "-qm", "first")
    (repository / "deleted.py").unlink()
    fill(repository, "new.py", "x.log", ".env", "build/lib.so")
    selection = snapshot.select(repository)
    assert selection.files == [".gitignore", "forced.log", "new.py", "tracked.py"]
    # What git ignores may be what the run reads; hidden things, secrets among them, are not for it.
    assert selection.links == {"build": str(repository / "build"), "x.log": str(repository / "x.log")}


def test_an_ignored_folder_of_data_is_linked_where_it_lies(repository: Path, tmp_path: Path) -> None:
    fill(
        repository,
        "a.py",
        ".gitignore",
        "data/train/1.bin",
        "assets/readme",
        "assets/raw/2.bin",
        "sets/.gitkeep",
    )
    fill(repository, "sets/x.bin", "sets/y/z.bin", "nothing/__pycache__/q.pyc", ".cache/c", "wandb/run/1")
    (repository / ".gitignore").write_text("data/\nassets/raw\nsets/*\n!sets/.gitkeep\n__pycache__\n.cache\n")
    selection = snapshot.select(repository, exclude=[repository / "wandb"])
    assert selection.files == [".gitignore", "a.py", "assets/readme", "sets/.gitkeep"]
    assert sorted(selection.links) == ["assets/raw", "data", "sets/x.bin", "sets/y"]
    target = copied(selection, tmp_path)
    assert (target / "data" / "train" / "1.bin").read_bytes() == b"data/train/1.bin"
    assert (target / "sets" / "y" / "z.bin").read_bytes() == b"sets/y/z.bin"
    assert {"path": "data", "reason": "ignored (.gitignore)"} in selection.left_out


def test_a_named_file_in_an_ignored_folder_is_copied_and_its_neighbours_linked(
    repository: Path, tmp_path: Path
) -> None:
    fill(
        repository,
        ".gitignore",
        "local/Runner.py",
        "local/data.bin",
        "local/more/x",
        "local/__pycache__/y.pyc",
    )
    (repository / ".gitignore").write_text("local/\n")
    selection = snapshot.select(repository, named=[repository / "local" / "Runner.py"])
    assert selection.files == [".gitignore", "local/Runner.py"]
    assert sorted(selection.links) == ["local/data.bin", "local/more"]
    target = copied(selection, tmp_path)
    assert not (target / "local" / "Runner.py").is_symlink()
    assert (target / "local" / "more" / "x").exists()


def test_ignored_names_that_the_package_needs_are_left_out(
    repository: Path, tmp_path: Path, messages: Messages
) -> None:
    fill(repository, "a.py", ".gitignore", "media/1.png", "Checkpoints/old.pt")
    (repository / ".gitignore").write_text("media\nCheckpoints\n")
    selection = snapshot.select(repository)
    assert selection.links == {}
    (reason,) = [one["reason"] for one in selection.left_out if one["path"] == "media"]
    messages.check(reason)
    PackageFolder.create(tmp_path / "runs", values={}, selection=selection)


@pytest.mark.parametrize("name", ["analysis", "predictions", "profile", "mirrors", "tensorboard"])
def test_an_ignored_folder_in_which_the_package_will_write_is_not_linked(repository: Path, name: str) -> None:
    """What is stored there would land in the project. Code of that name is copied as any other."""
    fill(repository, "a.py", f"{name}/old.csv")
    (repository / ".gitignore").write_text("*.csv\n")
    (repository / name / "plots.py").write_text("x = 1")
    assert f"{name}/plots.py" in snapshot.select(repository).files
    (repository / ".gitignore").write_text(f"{name}\n")
    assert snapshot.select(repository).links == {}


def test_submodules_and_repositories_inside_are_part_of_the_tree(repository: Path, tmp_path: Path) -> None:
    library = fill(tmp_path / "library", "lib.py", "deep/x.py")
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "commit", "-qm", "first")
    fill(repository, "a.py")
    git(repository, "submodule", "add", str(library), "libs/fetched")
    git(repository, "submodule", "add", str(library), "libs/absent")
    git(repository, "commit", "-qm", "first")
    git(repository, "submodule", "deinit", "-f", "libs/absent")
    fill(repository, "nested/own.py", "nested/data/1.bin", "nested/.gitignore", "empty repository/.keep")
    (repository / "nested" / ".gitignore").write_text("data\n")
    git(repository / "nested", "init", "-q")
    git(repository / "empty repository", "init", "-q")
    selection = snapshot.select(repository, named=[repository / "libs" / "fetched" / "lib.py"])
    assert selection.files == [
        ".gitmodules", "a.py", "empty repository/.keep", "libs/fetched/deep/x.py", "libs/fetched/lib.py",
        "nested/.gitignore", "nested/own.py",
    ]  # fmt: skip
    copied(selection, tmp_path)


def test_a_project_that_an_outer_repository_ignores_is_copied(tmp_path: Path) -> None:
    """As the demo of roost itself: git knows nothing of it, and it is code all the same."""
    outer = fill(
        tmp_path / "outer", ".gitignore", "demo/config.yaml", "demo/Model/Runner.py", "demo/Model/Net.py"
    )
    git(outer, "init", "-q")
    (outer / ".gitignore").write_text("/demo/\n")
    selection = snapshot.select(outer / "demo", named=[outer / "demo" / "Model" / "Runner.py"])
    assert selection.files == ["Model/Net.py", "Model/Runner.py", "config.yaml"] and selection.links == {}


def test_a_project_inside_of_a_repository_is_copied_alone(tmp_path: Path) -> None:
    outer = fill(tmp_path / "outer", "other.py", "project/a.py", "project/b/c.py")
    git(outer, "init", "-q")
    assert snapshot.select(outer / "project").files == ["a.py", "b/c.py"]


def test_without_the_program_git_the_tree_is_walked(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(repository, ".gitignore", "a.py", "b1.log", "c.log")
    (repository / ".gitignore").write_text("b?.log\n*.tmp\n")
    monkeypatch.setenv("PATH", "/nowhere")
    assert snapshot.select(repository).files == [".gitignore", "a.py", "b1.log", "c.log"]


def test_what_gitignore_names_in_plain_words_is_linked_without_git_too(tmp_path: Path) -> None:
    """Data that a project downloads must not go into each of its packages."""
    project = fill(
        tmp_path / "project", "a.py", "data/1.gz", "deep/data/2.gz", "deep/raw/3", "raw/4", "local.txt"
    )
    (project / ".gitignore").write_text("# data\ndata/\n\n/deep/raw\nlocal.txt\n*.py\n!a.py\n")
    selection = snapshot.select(project, named=[project / "deep" / "data" / "2.gz"])
    assert selection.files == [".gitignore", "a.py", "deep/data/2.gz", "raw/4"]
    assert sorted(selection.links) == ["data", "deep/raw", "local.txt"]
    assert {"path": "data", "reason": "ignored (.gitignore)"} in selection.left_out
    assert (copied(selection, tmp_path) / "data" / "1.gz").read_bytes() == b"data/1.gz"


# --- where only named files must fit ----------------------------------------------------------------------


def lenient(project: Path, *named: str, **more: Any) -> snapshot.Selection:
    return snapshot.select(
        project, named=[project / name for name in named], only_named_must_fit=True, **more
    )


def test_too_many_files_are_linked_by_folder(project: Path, tmp_path: Path, monkeypatch: Any) -> None:
    many = [f"data/deep/{number}.txt" for number in range(6)]
    fill(project, "a.py", "code/b.py", "code/extra/c.py", *many)
    monkeypatch.setattr(snapshot, "MAX_FILES", 5)
    with pytest.raises(ConfigError):
        snapshot.select(project)
    selection = lenient(project, "a.py", "code/b.py")
    assert selection.files == ["a.py", "code/b.py", "code/extra/c.py"]
    assert selection.links == {"data": str(project / "data")}
    assert selection.left_out == [{"path": "data", "reason": "the project has 9 files, more than 5"}]
    assert (copied(selection, tmp_path) / "data/deep/3.txt").read_bytes() == b"data/deep/3.txt"


def test_named_files_are_always_copied(project: Path, monkeypatch: Any) -> None:
    fill(project, "a.py", "data/1.txt", "data/2.txt", "data/more/3.txt", "data/.cache/4.txt")
    monkeypatch.setattr(snapshot, "MAX_FILES", 1)
    selection = lenient(project, "data/2.txt")
    assert selection.files == ["data/2.txt"]
    assert sorted(selection.links) == ["a.py", "data/1.txt", "data/more"]
    whole = lenient(project, ".")
    assert whole.files == ["a.py", "data/1.txt", "data/2.txt", "data/more/3.txt"]
    assert lenient(project, "data/.cache").files == ["data/.cache/4.txt"]


def test_too_much_is_linked_and_its_size_no_longer_counts(project: Path, monkeypatch: Any) -> None:
    fill(project, "a.py", "small/1.bin")
    (project / "big").mkdir()
    (project / "big/2.bin").write_bytes(bytes(2 * 2**20))
    (project / "huge.bin").write_bytes(bytes(12 * 2**20))
    monkeypatch.setattr(snapshot, "MAX_TOTAL_MB", 1.0)
    selection = lenient(project, "a.py")
    assert selection.files == ["a.py", "small/1.bin"] and sorted(selection.links) == ["big", "huge.bin"]
    assert selection.size < 100 and selection.size_note() is None
    assert selection.left_out_notes() == [
        "linked, not copied: big (the project has 2 MB in files to copy, more than 1), "
        "huge.bin (larger than 10 MB)",
    ]


def test_large_files_of_a_group_are_counted_too(project: Path, monkeypatch: Any) -> None:
    """Links are made one by one, so a folder of many large files is one link."""
    fill(project, "a.py", *(f"big/{number}.bin" for number in range(5)))
    monkeypatch.setattr(snapshot, "MAX_FILE_MB", 0)
    monkeypatch.setattr(snapshot, "MAX_FILES", 3)
    selection = lenient(project, "a.py")
    assert selection.files == ["a.py"] and list(selection.links) == ["big"]
    assert [one["path"] for one in selection.left_out] == ["big"]


def test_a_reserved_name_is_left_out_unless_it_is_named(project: Path, messages: Messages) -> None:
    fill(project, "a.py", "records/1.txt", "progress", "AnalyzeScripts/args.json")
    selection = lenient(project, "a.py")
    assert selection.files == ["AnalyzeScripts/args.json", "a.py"] and selection.links == {}
    assert selection.left_out_notes() == [
        "left out: progress (the package has its own), records (the package has its own)"
    ]
    with pytest.raises(ConfigError) as refused:
        lenient(project, "records")
    messages.check(refused.value)


def test_what_cannot_be_read_is_left_out(project: Path, monkeypatch: Any) -> None:
    """The superuser can read everything, so the kernel's answer is replaced."""
    fill(project, "a.py", "secret.txt", "named.txt")
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith(("secret.txt", "named.txt")))
    selection = lenient(project, "a.py", "named.txt")
    assert selection.files == ["a.py", "named.txt"]
    assert selection.left_out_notes() == ["linked, not copied: secret.txt (cannot be read)"]


def test_files_from_outside(project: Path, tmp_path: Path) -> None:
    fill(project, "a.py", "Model/b.py")
    shared = fill(tmp_path / "shared", "x.py", "data/1.txt", "data/__pycache__/2.pyc", "data/deep/3.txt")
    (shared / "data/link.txt").symlink_to(shared / "x.py")
    (project / "Model/b.py").unlink()
    (project / "Model/b.py").symlink_to(shared / "x.py")
    outside = {"x.py": shared / "x.py", "data": shared / "data", "Model/b.py": shared / "x.py"}
    selection = lenient(project, "a.py", outside=outside)
    target = copied(selection, tmp_path)
    assert selection.links == {}
    assert (target / "data/deep/3.txt").read_bytes() == b"data/deep/3.txt"
    for name in ("x.py", "data/link.txt", "Model/b.py"):
        assert (target / name).read_bytes() == b"x.py" and not (target / name).is_symlink()
        assert selection.source(name) == shared / "x.py"
    assert not (target / "data/__pycache__").exists()
    assert selection.source("a.py") == project / "a.py"


# --- links that have to be renewed ------------------------------------------------------------------------


def test_links_are_renewed_after_a_move(repository: Path, tmp_path: Path) -> None:
    fill(repository, "a.py", ".gitignore", "data/1.bin", "more/2.bin")
    (repository / ".gitignore").write_text("data\nmore\n")
    package = PackageFolder.create(
        tmp_path / "runs", name="one", values={}, selection=snapshot.select(repository)
    )
    manifest = package.manifest
    assert snapshot.renew_links(package.path, manifest, repository) == []

    moved = repository.rename(tmp_path / "moved")
    assert sorted(snapshot.renew_links(package.path, manifest, repository)) == ["data", "more"]
    assert snapshot.renew_links(package.path, manifest, moved) == []
    assert (package.path / "data" / "1.bin").read_bytes() == b"data/1.bin"

    (moved / "more" / "2.bin").unlink()
    (moved / "more").rmdir()
    (package.path / "data").unlink()  # a removed link comes back
    assert snapshot.renew_links(package.path, manifest, moved) == ["more"]
    assert (package.path / "data").exists()

    elsewhere = package.path.rename(tmp_path / "elsewhere")
    assert snapshot.renew_links(elsewhere, manifest, moved) == ["more"]
    assert snapshot.changed_files(elsewhere, manifest) == []


def test_what_a_person_put_in_place_of_a_link_stays(repository: Path, tmp_path: Path) -> None:
    fill(repository, ".gitignore", "data/1.bin")
    (repository / ".gitignore").write_text("data\n")
    target = copied(snapshot.select(repository), tmp_path)
    (target / "data").unlink()
    fill(target, "data/own.bin")
    assert snapshot.renew_links(target, {"links": {"data": str(repository / "data")}}, repository) == []
    assert (target / "data" / "own.bin").exists()


# --- links, files that vanish, the root -------------------------------------------------------------------


def test_a_folder_with_nothing_but_large_files_and_links(project: Path, tmp_path: Path) -> None:
    fill(project, "Runner.py", "data/in/x.bin", "data/y.bin")
    os.truncate(project / "data/in/x.bin", 11 * 2**20)
    os.truncate(project / "data/y.bin", 11 * 2**20)
    (project / "data/elsewhere").symlink_to(fill(tmp_path / "elsewhere", "z"))
    package = copied(snapshot.select(project), tmp_path)
    links = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_symlink()}
    assert links == {"data/in/x.bin", "data/y.bin", "data/elsewhere"}
    assert (package / "data/elsewhere/z").read_bytes() == b"z"


def test_a_named_link_to_a_folder_is_copied_as_a_folder(project: Path, tmp_path: Path) -> None:
    fill(project, "Runner.py")
    (project / "link").symlink_to(outside := fill(tmp_path / "outside", "m.py"))
    package = copied(snapshot.select(project, outside={"link": outside}), tmp_path)
    assert not (package / "link").is_symlink() and (package / "link/m.py").read_bytes() == b"m.py"


def test_a_file_that_is_removed_while_the_project_is_copied(project: Path, tmp_path: Path) -> None:
    fill(project, "Runner.py", "log.txt")
    selection = snapshot.select(project, named=[project / "Runner.py"])
    (project / "log.txt").unlink()
    (tmp_path / "a").mkdir()
    manifest = snapshot.copy(selection, tmp_path / "a")
    assert [*manifest["files"]] == ["Runner.py"]
    assert manifest["left_out"] == [{"path": "log.txt", "reason": "removed while it was copied"}]
    (project / "Runner.py").unlink()
    (tmp_path / "b").mkdir()
    with pytest.raises(FileNotFoundError):
        snapshot.copy(selection, tmp_path / "b")


def test_the_root_folder_is_no_project(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        snapshot.select(Path("/"))
    messages.check(refused.value)
