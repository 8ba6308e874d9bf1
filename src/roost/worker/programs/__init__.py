"""Programs of the user that run as sessions of a package: started, observed from outside, and resumed from
their own checkpoints.

program_task: starts the program and waits for it
own_lines: lines of roost's own in the output of a program
own_checkpoint: the newest whole checkpoint that the program itself has written
stage_archives: stages the archives of a program, in a process of its own
observer: the process beside the program, which turns what it writes into rows and progress
program_environment: the interpreter, its packages and the machine
program_rows: rows in ascending steps, from sources that count differently
line_metrics: metrics, positions and progress bars in lines of output
csv_files: rows that are appended to CSV files
import_hooks/: a folder for the program's PYTHONPATH: it reports the calls of W&B, MLflow and SummaryWriter
"""
