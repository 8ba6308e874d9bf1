"""TensorBoard's `SummaryWriter` over `roost.init`: scalars become rows, pictures and sounds media."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roost.base.errors import ContractError
from roost.base.text.typed_path import typed_path
from roost.compat.media_values import array_of, file_name, picture
from roost.compat.unsupported_calls import Unsupported
from roost.operations.python_api import script_run
from roost.operations.python_api.script_run import ScriptRun
from roost.package.records import ROW_FIELDS

UNSUPPORTED = Unsupported("roost.compat.tensorboard")


class SummaryWriter:
    """Records what ``torch.utils.tensorboard.SummaryWriter`` would, with its signatures, in a package.

    Rows have ascending steps, and the tags of a writer may not. Scalars of one step join one row, which ends
    when a larger step comes, at `flush` and at `close`. A scalar of a smaller step joins the newest row, with
    its own step as ``<tag>/step``; if that row has its tag already, the row ends and the next one has the
    next step. Without ``global_step``, the step is the number of earlier values of the tag.

    Args:
        log_dir: The folder of the package, which is continued if it exists. In a folder that is no package,
            or that is directly in the working folder, the package is a new one. None: a new one in ``runs``.
        comment: The description of the package, without ``log_dir``.
        purge_step, max_queue, flush_secs, filename_suffix: Without effect: the first row of a continued
            package replaces those from its step on, and each row is written when it ends.
        run: The run of `roost.init` to write to; it is not ended by `close`.

    Raises:
        Refused: The folder is a package of another kind or with settings, or is in use.
    """

    def __init__(
        self,
        log_dir: str | Path | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
        *,
        run: ScriptRun | None = None,
    ) -> None:
        self._owns_run, self.run = run is None, run or _opened(log_dir, comment)
        self._lock = threading.RLock()
        """Held while the open row changes: programs log from threads, too."""
        self._row: dict[str, float] = {}
        self._step = self.run.step
        """The step of the open row, the largest so far."""
        self._counts: dict[str, int] = {}
        """The number of values of each tag."""
        self._is_open = True
        atexit.register(self.flush)  # after that of the run, so it is called before

    @property
    def log_dir(self) -> str:
        """The folder of the package."""
        return str(self.run.path)

    def get_logdir(self) -> str:
        """Returns the folder of the package."""
        return self.log_dir

    # ---- rows ---------------------------------------------------------------------------------------------

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Records a number, or a tensor with one element."""
        step = self._step_of(tag, global_step)
        try:
            value = float(array_of(scalar_value).reshape(()))
        except (TypeError, ValueError, OverflowError):
            UNSUPPORTED.say(tag, f"is a {type(scalar_value).__name__}: it is not recorded")
            return
        if tag in ROW_FIELDS:
            UNSUPPORTED.say(tag, f"is recorded as log/{tag}: a row has its own {tag}")
            tag = f"log/{tag}"
        if self._is_forked():
            return
        with self._lock:
            if step > self._step:
                self.flush()
                self._step = step
            elif tag in self._row and (step < self._step or f"{tag}/step" in self._row):
                self.flush()
                self._step += 1
            if step < self._step:
                self._row[f"{tag}/step"] = step
            self._row[tag] = value

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Records several numbers as ``main_tag/name``."""
        for name, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{name}", value, global_step)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Records the metrics as scalars, and the hyperparameters as the text ``hparams``: the settings of a
        package never change."""
        step = self._step if global_step is None else global_step
        text = "\n".join(f"{name}: {value}" for name, value in hparam_dict.items())
        self.add_text("hparams", text, step)
        for name, value in metric_dict.items():
            self.add_scalar(name, value, step)

    # ---- media --------------------------------------------------------------------------------------------

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Stores a picture: floats in [0, 1], or bytes."""
        self._store(tag, global_step, "image", lambda: picture(array_of(img_tensor), dataformats))

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Stores several pictures as one."""
        self.add_image(tag, img_tensor, global_step, dataformats=dataformats)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Stores the distribution of numbers, in 64 bins unless a number of bins or edges are given."""
        given = 64 if isinstance(bins, str) else bins
        self._store(tag, global_step, "histogram", lambda: array_of(values), bins=given)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Stores figures of matplotlib, and closes them."""
        several = figure if isinstance(figure, list | tuple) else [figure]
        for place, one in enumerate(several):
            name = tag if len(several) == 1 else f"{tag}_{place}"
            self._store(name, global_step, None, lambda one=one: one)
        if close:
            import matplotlib.pyplot

            for one in several:
                matplotlib.pyplot.close(one)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Stores a sound, (1, samples), in [-1, 1]."""
        self._store(tag, global_step, "audio", lambda: array_of(snd_tensor), rate=sample_rate)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Stores a text."""
        self._store(tag, global_step, "text", lambda: text_string)

    def _store(self, tag: str, global_step: int | None, kind: Any, data: Any, **settings: Any) -> None:
        from roost.train.reporting.media_files import Media  # torch

        step = self._step_of(tag, global_step)
        if self._is_forked():
            return
        try:
            shown = data() if kind is None else Media(kind, data(), **settings)
            self.run.log_media({file_name(tag): shown}, step=step)
        except (OSError, ValueError, TypeError, ContractError) as error:
            UNSUPPORTED.say(tag, f"is not recorded: {error}")

    def _step_of(self, tag: str, given: int | None) -> int:
        count = self._counts.get(tag, 0)
        self._counts[tag] = count + 1
        return count if given is None else max(0, int(given))

    def _is_forked(self) -> bool:
        """Whether this process was forked from that of the writer, which alone writes; says so once."""
        if self.run.is_forked:
            UNSUPPORTED.say("SummaryWriter", "in a process that was forked from its own: nothing is recorded")
        return self.run.is_forked

    # ---- the end ------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Ends the open row."""
        if self.run.is_forked:
            return
        with self._lock:
            row, self._row = self._row, {}
            if row:
                try:
                    self.run.log(row, step=max(self._step, self.run.step))
                except OSError as error:  # the row is kept, and written with the next one
                    UNSUPPORTED.say("a row", f"is not written yet: {error}")

    def close(self) -> None:
        """Ends the open row, and the run if this writer began it."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.flush)
        self.flush()
        if self._owns_run:
            self.run.__exit__(type(error) if error is not None else None, error, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return UNSUPPORTED.placeholder(f"SummaryWriter.{name}")


def _opened(log_dir: str | Path | None, comment: str) -> ScriptRun:
    if log_dir is None:
        return script_run.init(description=file_name(comment) if comment else None)
    folder = typed_path(log_dir).absolute()
    is_package = (folder / "request.json").is_file()
    if (folder.is_dir() and not is_package) or folder.parent == Path.cwd():
        return script_run.init(root=folder)
    return script_run.init(name=folder.name, root=folder.parent)
