"""Handwritten digits of 28x28 pixels: MNIST, or the small digits of scikit-learn where it cannot be had."""

import contextlib
import gzip
import hashlib
import os
import random
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import torch
from DLNest.Common.DatasetBase import DatasetBase
from torch.utils.data import DataLoader, TensorDataset

FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""The files of MNIST, with their SHA-256."""


class MNISTDataset(DatasetBase):
    def init(self, args: dict):
        """Returns what the runner is told of the data, the training loader and the validation loader."""
        settings = args["dataset_config"]
        arrays = self.pictures(Path(settings["data_root"]), settings["mirrors"])
        train, valid = (
            TensorDataset(
                torch.from_numpy(arrays[f"{part}_images"]).unsqueeze(1).float() / 255,
                torch.from_numpy(arrays[f"{part}_labels"]).long(),
            )
            for part in ("train", "valid")
        )
        sampler = self.getSampler(train)  # None unless several ranks train
        train_loader = DataLoader(
            train, batch_size=settings["batch_size"], shuffle=sampler is None, sampler=sampler
        )
        return {"classes": 10}, train_loader, DataLoader(valid, batch_size=500)

    def pictures(self, folder, mirrors):
        """Returns the arrays in `digits.npz`, which is made once: later sessions must see the same data, with
        a network or without. Delete it to make it again."""
        file = folder / "digits.npz"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            state = random.getstate()  # importing scikit-learn draws from this generator
            try:
                arrays = self.mnist(folder, mirrors)
            except OSError as error:
                print(f"MNIST cannot be had ({error}): the digits of scikit-learn take its place")
                arrays = self.small_digits(folder)
            random.setstate(state)
            keep(file, lambda target: np.savez(target, **arrays))
        with np.load(file) as found:
            return dict(found)

    def mnist(self, folder, mirrors):
        """Downloads the four files that are not in the folder, and reads them."""
        parts = []
        for (name, sha256), start in zip(FILES.items(), (16, 8, 16, 8), strict=True):
            file = folder / name
            if not file.exists():
                data = download([f"{mirror.rstrip('/')}/{name}" for mirror in mirrors], sha256)
                keep(file, lambda target, data=data: target.write(data))
            parts.append(np.frombuffer(gzip.decompress(file.read_bytes()), np.uint8, offset=start))
        names = ("train_images", "train_labels", "valid_images", "valid_labels")
        return {
            name: part.reshape(-1, 28, 28) if name.endswith("images") else part
            for name, part in zip(names, parts, strict=True)
        }

    def small_digits(self, folder):
        """1,797 pictures of 8x8 pixels, enlarged; they come with scikit-learn."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise RuntimeError(
                f"neither MNIST nor scikit-learn: copy {', '.join(FILES)} into {folder}, "
                "or pip install scikit-learn"
            ) from None
        pixels, labels = load_digits(return_X_y=True)
        small = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8) * (255 / 16)
        images = torch.nn.functional.interpolate(small, size=28, mode="bilinear").squeeze(1).byte().numpy()
        order = np.random.default_rng(0).permutation(len(labels))
        valid, train = order[:297], order[297:]
        return {
            "train_images": images[train],
            "train_labels": labels[train].astype(np.uint8),
            "valid_images": images[valid],
            "valid_labels": labels[valid].astype(np.uint8),
        }


def download(urls, sha256):
    """Returns the content of the first URL that has it; raises OSError if none has."""
    problem = "no mirror is named"
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                data = answer.read()
        except OSError as error:
            problem = f"{url}: {error}"
            continue
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        problem = f"{url} has other data"
    raise OSError(problem)


def keep(file, write):
    """Writes a file whole or not at all; if another process has made it meanwhile, that one stays."""
    with tempfile.NamedTemporaryFile(dir=file.parent) as target:
        write(target)
        target.flush()
        with contextlib.suppress(FileExistsError):
            os.link(target.name, file)
