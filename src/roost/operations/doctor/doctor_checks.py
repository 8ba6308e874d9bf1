"""The checks of `roost doctor`, in the order in which they are shown. A new check is a row here: a function
that reads the machine, and a pure one that judges what was read."""

from __future__ import annotations

from roost.operations.doctor.clock_checks import judge_clock, read_clock
from roost.operations.doctor.diagnosis import DoctorCheck
from roost.operations.doctor.disk_checks import judge_disks, read_disks
from roost.operations.doctor.gpu_checks import (
    judge_cards,
    judge_driver,
    judge_sharing,
    judge_torch,
    read_driver,
    read_sharing,
    read_torch,
)
from roost.operations.doctor.installation_checks import (
    judge_environment,
    judge_installation,
    read_environment,
    read_installation,
)
from roost.operations.doctor.lab_checks import (
    judge_abandoned,
    judge_interrupted,
    judge_lab,
    read_abandoned,
    read_interrupted,
    read_lab,
)
from roost.operations.doctor.machine_checks import (
    judge_cpu,
    judge_limits,
    judge_memory,
    judge_shared_memory,
    read_cpu,
    read_limits,
    read_memory,
    read_shared_memory,
)
from roost.operations.doctor.run_checks import (
    judge_config,
    judge_mirrors,
    judge_package,
    judge_placement,
    read_config,
    read_mirrors,
    read_package,
    read_placement,
)

CHECKS = (
    DoctorCheck("subject", "config", read_config, judge_config),
    DoctorCheck("subject", "package", read_package, judge_package),
    DoctorCheck("GPUs", "driver", read_driver, judge_driver),
    DoctorCheck("GPUs", "torch", read_torch, judge_torch),
    DoctorCheck("GPUs", "cards", read_driver, judge_cards),
    DoctorCheck("GPUs", "sharing", read_sharing, judge_sharing),
    DoctorCheck("GPUs", "placement", read_placement, judge_placement),
    DoctorCheck("machine", "CPU", read_cpu, judge_cpu),
    DoctorCheck("machine", "memory", read_memory, judge_memory),
    DoctorCheck("machine", "shared memory", read_shared_memory, judge_shared_memory),
    DoctorCheck("machine", "limits", read_limits, judge_limits),
    DoctorCheck("machine", "disks", read_disks, judge_disks),
    DoctorCheck("machine", "clock", read_clock, judge_clock),
    DoctorCheck("installation", "roost", read_installation, judge_installation),
    DoctorCheck("installation", "environment", read_environment, judge_environment),
    DoctorCheck("lab", "lab", read_lab, judge_lab),
    DoctorCheck("lab", "processes", read_abandoned, judge_abandoned),
    DoctorCheck("lab", "interrupted runs", read_interrupted, judge_interrupted),
    DoctorCheck("lab", "mirrors", read_mirrors, judge_mirrors),
)
