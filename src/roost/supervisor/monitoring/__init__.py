"""What a supervisor measures and reads of its session: memory, stalls, stacks, its remote copy.

memory_peak: what the process tree uses, and the limit of its memory
system_file: the file with the metrics of cards, processes and host
system_watch: measures them while a session runs
card_peaks: the card memory that the workers have reported
out_of_memory: whether a command ran out of memory
stall_watch: detects a run without steps and output, and describes the stall
durability_watch: detects that the remote copy of a run does not get further
process_stacks: state and Python stacks of the processes of a stalled run
"""
