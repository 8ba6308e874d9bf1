"""``roost debug``: goes to one step of a package and stops there in pdb, on the person's own terminal.

The process is the one that the command became: ``python -P -m roost.worker PACKAGE debug VISIT``."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from roost.base import frames, tree
from roost.base.errors import INTERRUPTED_EXIT_CODE, CheckpointError, UsageError
from roost.base.frames import Own
from roost.base.harmless import harmless
from roost.base.raised import raised
from roost.package import blackbox, checkpoint, environment, progress
from roost.package.blackbox import Box, Visit
from roost.package.package import Package
from roost.project.contract import moved
from roost.project.device import choose_device
from roost.train import seeding
from roost.train.blackbox import samples_of, window_again
from roost.train.hook import Hook, Phase
from roost.train.loss import Window
from roost.train.module_state import ModuleState
from roost.train.trainer import Trainer
from roost.worker import determinism, failure, replay, standing
from roost.worker.debugger import Debugger
from roost.worker.nonfinite import Hunt
from roost.worker.replay import Start
