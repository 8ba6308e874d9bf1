"""The columns of a sample: what is measured of each card, and of the host."""

# Standard library only

from __future__ import annotations

CARD_COLUMNS = (
    "utilization",
    "memory_busy",
    "memory_mb",
    "power",
    "temperature",
    "clock",
    "memory_clock",
    "throttled_power",
    "throttled_heat",
    "throttled_other",
)
"""Of a card: per cent of the time in which it computed, and in which its memory was read or written; used
memory; W, on average since the sample before where the driver counts energy; degrees Celsius; MHz; per cent
of the samples in which the clock was lowered by the power limit, by the temperature, or by something else."""
HOST_COLUMNS = (
    "cpu",
    "memory_mb",
    "swap_mb",
    "disk_read_mb_s",
    "disk_write_mb_s",
    "receive_mb_s",
    "send_mb_s",
)
"""Of the host: per cent of all cores; used memory; used swap; all disks; all network devices but loopback."""
HOST = "host"
MAX_CARDS = 64
"""Further cards of a machine are not sampled."""
