"""The mnist template, started as a user would: its download from real servers, its files, its scripts."""

from __future__ import annotations

import errno
import gzip
import hashlib
import inspect
import io
import os
import re
import runpy
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import roost
from roost.config import layers
from roost.operations.lifecycle import new_project as templates
from roost.operations.lifecycle.new_project import new_project
from roost.package import snapshot
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST
from tests.cli.programs import roost as run_roost
from tests.messages import Messages
from tests.mirror import Mirror
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(180)

NAMES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}
SCRIPTS = ("accuracy", "confusion", "show_model", "worst")


def idx(values: np.ndarray[Any, Any]) -> bytes:
    """An array of bytes in MNIST's format."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes(), mtime=0)


def digits(train: int = 1437) -> dict[str, bytes]:
    """The small digits, three times as large with a margin of two pixels: 28x28. The same each time."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = np.kron(pixels.reshape(-1, 8, 8), np.ones((3, 3))) * (255 / 16)
    pictures = np.pad(pictures, ((0, 0), (2, 2), (2, 2)))
    parts = (pictures[:train], labels[:train], pictures[train : train + 360], labels[train : train + 360])
    return {name: idx(part) for name, part in zip(NAMES.values(), parts, strict=True)}


def project(folder: Path, mirrors: list[str], files: dict[str, bytes]) -> Path:
    """A project of the template, whose tuning file t.yaml names these mirrors and checksums."""
    made = new_project(folder / "mnist", template="mnist").path
    sums = {key: hashlib.sha256(files[name]).hexdigest() for key, name in NAMES.items()}
    lines = ["mnist:", "  valid: 160", f"  mirrors: [{', '.join(mirrors)}]", "  sha256:"]
    (made / "t.yaml").write_text("\n".join([*lines, *(f"    {key}: {value}" for key, value in sums.items())]))
    return made


ARGUMENTS = (
    "run", "-c", "config.yaml", "-f", "t.yaml", "threads=1", "max_epochs=2", "data.batch_size=16",
    "model.channels=8", "optimizers.main.scheduler.warmup_steps=10",
)  # fmt: skip


def started(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run_roost(*ARGUMENTS, *more, cwd=folder, no_proxy="127.0.0.1")


def packages(folder: Path) -> list[PackageFolder]:
    return [PackageFolder.open(path) for path in sorted((folder / "runs").iterdir())]


class Walk:
    """Two runs of one project, and what they asked of the mirror."""

    def __init__(self, folder: Path) -> None:
        files = digits()
        with Mirror(files) as mirror:
            self.project = project(folder, [mirror.url("other"), mirror.url("good")], files)
            self.first = started(self.project)
            self.asked = list(mirror.asked)
            self.second = started(self.project, "max_steps=1", "test_at_end=none")
            self.asked_later = mirror.asked[len(self.asked) :]
        self.packages = packages(self.project)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(tmp_path_factory.mktemp("walk"))


def test_it_learns(walk: Walk) -> None:
    assert walk.first.returncode == 0, walk.first.stderr
    assert walk.packages[0].records().last()["test/accuracy"] >= 0.9


def test_each_file_is_downloaded_once_from_the_first_mirror_that_has_it(walk: Walk) -> None:
    assert walk.asked == [f"/{how}/{name}" for name in NAMES.values() for how in ("other", "good")]
    output = walk.packages[0].output.read_text()
    assert len(re.findall(r" \d+ bytes .*[0-9a-f]{64}", output)) == 4 and "100%" in output
    assert walk.second.returncode == 0 and walk.asked_later == []
    assert "MB/s" not in walk.packages[1].output.read_text()


def test_no_package_gets_a_copy_of_the_data(walk: Walk) -> None:
    """Without git, too: the test's folder has none."""
    assert {path.name for path in (walk.project / "data").iterdir()} == set(NAMES.values())
    first, second = (package.path / "data" for package in walk.packages)
    assert not first.exists() and second.is_symlink()


# --- what goes wrong ---------------------------------------------------------------------------------------


def test_without_a_network_one_line_says_what_to_do(tmp_path: Path) -> None:
    unreachable = ["http://127.0.0.1:9/mnist/", "https://127.0.0.1:9/"]
    folder = project(tmp_path, unreachable, digits(100))
    said = started(folder)
    assert said.returncode == 1
    output = packages(folder)[0].output.read_text().splitlines()
    error, fix = output[-2:]
    refused = "; ".join(f"127.0.0.1:9: {os.strerror(errno.ECONNREFUSED)}" for _ in unreachable)
    assert error.startswith(f"error: {NAMES['train_images']} ") and error.endswith(f": {refused}")
    for name in ("mnist.mirrors", "file:///", "mnist.sha256", "`roost new digits -t digits`"):
        assert name in fix
    assert not [line for line in output if "Dataset.py" in line or "Traceback" in line], "no code is at fault"
    assert list((folder / "data").iterdir()) == []


@pytest.mark.parametrize("valid", [0, 100, 5000])
def test_a_split_that_leaves_nothing(tmp_path: Path, valid: int) -> None:
    files = digits(100)
    (tmp_path / "mirror").mkdir()
    for name, data in files.items():
        (tmp_path / "mirror" / name).write_bytes(data)
    folder = project(tmp_path, [(tmp_path / "mirror").as_uri()], files)
    said = started(folder, f"mnist.valid={valid}")
    assert said.returncode == 1
    last = packages(folder)[0].output.read_text().splitlines()[-1]
    assert re.match(rf"error: mnist\.valid: .* {valid}\b", last) and "100" in last


@pytest.mark.soak
def test_a_kill_in_the_middle_of_the_download_harms_nothing(tmp_path: Path) -> None:
    files = digits(200)
    with Mirror(files) as mirror:
        folder = project(tmp_path, [mirror.url("hold")], files)
        process = subprocess.Popen(
            [*ROOST, *ARGUMENTS, "max_steps=1"],
            cwd=folder,
            env={**os.environ, "no_proxy": "127.0.0.1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert mirror.half_sent.wait(100)
        record = wait_for(lambda: packages(folder)[0].sessions()[0].record)
        os.kill(record["worker_pid"], signal.SIGKILL)
        assert process.wait(100) != 0
        assert not [path for path in (folder / "data").iterdir() if not path.name.startswith(".")]
        mirror.go_on.set()
        again = started(folder, "max_steps=1", "test_at_end=none")
    assert again.returncode == 0, again.stderr
    assert {path.name for path in (folder / "data").iterdir()} == set(NAMES.values())


def test_a_file_with_the_right_checksum_and_the_wrong_content(tmp_path: Path) -> None:
    files = digits(600)
    files[NAMES["test_labels"]] = files[NAMES["test_images"]]
    folder = project(tmp_path, [(tmp_path / "mirror").as_uri()], files)
    (tmp_path / "mirror").mkdir()
    for name, data in files.items():
        (tmp_path / "mirror" / name).write_bytes(data)
    said = started(folder)
    assert said.returncode == 1 and "Traceback" not in said.stdout + said.stderr
    assert re.search(rf"{NAMES['test_labels']} .*00 00 08 03 .*00 00 08 01", said.stdout)
    assert str(folder / "data" / NAMES["test_labels"]) in said.stdout


# --- the format --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def read_idx() -> Iterator[Callable[..., torch.Tensor]]:
    module = runpy.run_path(
        str(templates.__file__).replace(
            "operations/lifecycle/new_project.py", "templates/mnist/Dataset/Idx.py"
        )
    )
    yield module["read_idx"]


def test_idx_files_are_read(tmp_path: Path, read_idx: Callable[..., torch.Tensor]) -> None:
    pictures = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256
    (tmp_path / "a.gz").write_bytes(idx(pictures))
    read = read_idx(tmp_path / "a.gz", sample=(28, 28))
    assert read.dtype == torch.uint8 and np.array_equal(read.numpy(), pictures)
    (tmp_path / "b.gz").write_bytes(idx(np.array([3, 1, 255])))
    assert read_idx(tmp_path / "b.gz", sample=()).tolist() == [3, 1, 255]


WHOLE = idx(np.zeros((2, 28, 28)))
PLAIN = gzip.decompress(WHOLE)


DAMAGED = {
    "cut": (WHOLE[:-20], []),
    "bits flipped": (WHOLE[:30] + b"\xff\xff" + WHOLE[32:], []),
    "a web page": (b"<html>Not Found</html>", []),
    "empty": (b"", []),
    "floats": (gzip.compress(b"\0\0\x0d\3" + PLAIN[4:]), ["00 00 0d 03", "00 00 08 03"]),
    "labels": (idx(np.zeros(5)), ["00 00 08 01"]),
    "no shape": (gzip.compress(PLAIN[:10]), []),
    "too short": (gzip.compress(PLAIN[:-1]), ["1567 bytes", "1568"]),
    "too long": (gzip.compress(PLAIN + b"\0"), ["1569 bytes"]),
    "too large": (idx(np.zeros((2, 32, 32))), ["(32, 32)", "(28, 28)"]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_reported(
    tmp_path: Path, read_idx: Callable[..., torch.Tensor], name: str, messages: Messages
) -> None:
    data, says = DAMAGED[name]
    (tmp_path / "a.gz").write_bytes(data)
    with pytest.raises(roost.RoostError) as error:
        read_idx(tmp_path / "a.gz", sample=(28, 28))
    text = str(error.value)
    assert text.startswith("a.gz ") and all(one in text for one in says)
    assert error.value.where == tmp_path / "a.gz" and error.value.fix
    messages.check(error.value)


# --- analysis ----------------------------------------------------------------------------------------------


def is_a_picture_of_something(path: Path) -> bool:
    from PIL import Image

    with Image.open(io.BytesIO(path.read_bytes())) as picture:
        counts = picture.convert("L").histogram()
    return picture.format == "PNG" and sum(counts[:200]) > 1000


def experience(template: str, script: str) -> Callable[[Any], Any]:
    folder = Path(templates.__file__).parents[2] / "templates" / template / "AnalyzeScripts"
    function: Callable[[Any], Any] = runpy.run_path(str(folder / f"{script}.py"))["experience"]
    return function


def test_a_script_on_the_trained_package(walk: Walk) -> None:
    said = run_roost("analyze", walk.packages[0].path, "-s", "confusion", cwd=walk.project)
    assert said.returncode == 0, said.stderr
    assert is_a_picture_of_something(walk.packages[0].path / "analysis" / "1" / "confusion.png")


def test_all_scripts_agree_with_the_run(walk: Walk, capfd: pytest.CaptureFixture[str]) -> None:
    package = walk.packages[0]
    found = {name: roost.analyze(package.path, experience("mnist", name), device="cpu") for name in SCRIPTS}
    best = package.records().last()["test/accuracy"]
    assert found["accuracy"]["accuracy"] == pytest.approx(best, abs=0.02)  # of the best; this is the newest
    matrix = found["confusion"]
    assert matrix.sum() == 360
    assert float(matrix.trace() / 360) == pytest.approx(found["accuracy"]["accuracy"])
    per_class = (matrix.diag() / matrix.sum(1)).tolist()
    assert per_class == pytest.approx(found["accuracy"]["classes"])
    losses = [one["loss"] for one in found["worst"]]
    assert len(losses) == 25 and losses == sorted(losses, reverse=True)
    assert found["show_model"] == {"parameters": sum(t.numel() for t in parameters(package))}
    assert is_a_picture_of_something(next(package.path.glob("analysis/*/worst.png")))
    assert "8 x 28 x 28" in capfd.readouterr().out


def parameters(package: PackageFolder) -> list[torch.Tensor]:
    found: list[torch.Tensor] = roost.analyze(package.path, lambda self: list(self.model.parameters()))
    return found


@pytest.mark.parametrize(("template", "scripts"), [("digits", SCRIPTS), ("clean", ("weights",))])
def test_scripts_of_the_other_templates(tmp_path: Path, template: str, scripts: tuple[str, ...]) -> None:
    made = new_project(tmp_path / "project", template=template).path
    config = layers.load(made / "config.yaml")
    package = PackageFolder.create(
        made / "runs", values=config.values, provenance=config.provenance, selection=snapshot.select(made)
    )
    for script in scripts:
        assert (
            roost.analyze(package.path, experience(template, script), untrained=True, device="cpu")
            is not None
        )
    pictures = list(package.path.glob("analysis/*/*.png"))
    assert len(pictures) == (2 if template == "digits" else 0)
    assert all(is_a_picture_of_something(picture) for picture in pictures)


@pytest.mark.parametrize("script", ["confusion", "worst"])
def test_without_matplotlib_a_line_says_how_to_get_the_picture(
    walk: Walk, script: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    function = experience("mnist", script)
    monkeypatch.setitem(inspect.unwrap(function).__globals__, "find_spec", lambda name: None)
    assert len(roost.analyze(walk.packages[0].path, function, device="cpu")) > 0
    assert "pip install 'roost[demo]'" in capfd.readouterr().out
