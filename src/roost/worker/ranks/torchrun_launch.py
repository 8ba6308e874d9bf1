"""Starts the ranks of this machine as torchrun does, without torchrun's own error output: each rank reports
its errors itself, and the supervisor reports how the others ended."""

from __future__ import annotations

import logging
import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

from roost.worker.final_report import report_exit_statuses

if __name__ == "__main__":
    logging.disable(logging.ERROR)
    try:
        main()
    except ChildFailedError as error:
        report_exit_statuses({rank: failure.exitcode for rank, failure in error.failures.items()})
        sys.exit(1)
