"""What people of other training tools type on the command line: for errors, for batch scripts, and for the
tables of ``docs/coming-from.md``.

other_commands: commands of other tools, and what to type here
other_options: options of other tools, and what to write here
option_values: values of these options
option_hints: hints for options that a command does not have
option_translation: a command line of another tool, translated into options of a command
batch_script: scripts that are typed in the place of a config, with their #SBATCH lines
"""
