"""Starts the ranks of this machine as torchrun does, and as quietly as they do it without: they tell their
errors themselves, and the supervisor says of the others how they ended."""

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
