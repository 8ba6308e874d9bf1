"""Operations on programs: any command line becomes the package of a run, with a copy of its code.

program_source: where the code is, and whether it is copied
program_package: the package of a program, and the plan of its sessions
continue_program: `continue` of its package
run_program: `run -- COMMAND`
submit_program: `submit -- COMMAND`
"""
