"""The device of these tests. With ROOST_REHEARSE=1 it is the CPU, on a machine without a card: that tries
what such a test does, and proves nothing about cards."""

from __future__ import annotations

import os

REHEARSES = os.environ.get("ROOST_REHEARSE") == "1"
DEVICE = "cpu" if REHEARSES else "cuda"
