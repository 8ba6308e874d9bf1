"""The import names of DLNest's classes, such as ``DLNest.Common.RunnerBaseTorch``."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path

_CLASSES = "roost.project.dlnest.classes."
_PLUGINS = "roost.project.dlnest.plugins."
ROOT = "DLNest"
_WORKER_PATH = str(Path(__file__).parent / "worker_path")
"""An entry of ``sys.path``, which processes inherit that multiprocessing starts by spawn or forkserver."""

MODULES: dict[str, tuple[str, ...]] = {
    "DLNest": (),
    "DLNest.Common": (),
    "DLNest.Common.LifeCycleBase": (f"{_CLASSES}life_cycle:LifeCycleBase",),
    "DLNest.Common.DatasetBase": (f"{_CLASSES}dataset_base:DatasetBase",),
    "DLNest.Common.RunnerBase": (f"{_CLASSES}runner_base:RunnerBase",),
    "DLNest.Common.RunnerBaseTorch": (f"{_CLASSES}torch_runner:RunnerBaseTorch",),
    "DLNest.Common.ModelBase": (f"{_CLASSES}runner_base:ModelBase",),
    "DLNest.Common.ModelBaseTorch": (f"{_CLASSES}torch_runner:ModelBaseTorch",),
    "DLNest.Common.RunningStatus": (f"{_CLASSES}running_status:RunningStatus",),
    "DLNest.SavePackage": (),
    "DLNest.SavePackage.SavePackage": ("roost.project.dlnest.save_package:SavePackage",),
    "DLNest.Analyze": ("roost.analysis.record_analysis:analyze",),
    "DLNest.Plugins": (),
    "DLNest.Plugins.DLNestPluginBase": (f"{_PLUGINS}plugin_base:DLNestPluginBase",),
    "DLNest.Plugins.LogInit": (f"{_PLUGINS}log_init:DLNestPlugin",),
    "DLNest.Plugins.AutoTensorboardScalar": (f"{_PLUGINS}auto_tensorboard_scalar:DLNestPlugin",),
    "DLNest.Plugins.SimpleCMDVisualize": (f"{_PLUGINS}simple_cmd_visualize:DLNestPlugin",),
    "DLNest.Plugins.MailsNote": (f"{_PLUGINS}mails_note:DLNestPlugin",),
    "DLNest.Plugins.Utils": (),
    "DLNest.Plugins.Utils.SendMailTools": (f"{_PLUGINS}send_mail:sendSelfMail",),
    "DLNest.Plugins.Utils.CheckPlugins": (
        f"{_PLUGINS}plugin_calls:checkPlugins",
        f"{_PLUGINS}plugin_calls:checkDictOutputPlugins",
    ),
}
"""The names that each module has, as ``module:name`` of ours. A module with modules below it is a package."""


def install() -> None:
    """Makes the names importable in this process, in place of an installed DLNest, which is reported once."""
    if FINDER in sys.meta_path:
        return
    others = [one for one in sys.path if one != _WORKER_PATH]
    if importlib.machinery.PathFinder.find_spec(ROOT, others) is not None:
        print(
            f"{ROOT} is found on this machine, too: the project gets roost's classes of these names",
            flush=True,
        )
    _forget()
    sys.meta_path.insert(0, FINDER)
    sys.path[:] = [_WORKER_PATH, *others]


def uninstall() -> None:
    """Removes the names again."""
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
        sys.path[:] = [one for one in sys.path if one != _WORKER_PATH]
        _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == ROOT]:
        del sys.modules[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of `MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return importlib.machinery.ModuleSpec(fullname, self, origin="roost", is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        for path in MODULES[module.__name__]:
            home, _, name = path.partition(":")
            setattr(module, name, getattr(importlib.import_module(home), name))


FINDER = _Finder()
"""The entry of ``sys.meta_path``."""
