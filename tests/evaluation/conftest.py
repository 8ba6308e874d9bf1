"""Evaluations in this process leave torch as it comes."""

from __future__ import annotations

from tests.worker.conftest import torch_as_it_comes as torch_as_it_comes
