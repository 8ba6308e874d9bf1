"""The verbs that people type, and the line shells `roost simple` and `roost local`.

command_words: the words of a line, with quotes
verbs: the table of verbs, and the parser of a line
lab_connection: the operations behind the verbs
server_url: which server an option means
server_connection: a lab behind a server
local_connection: the lab of this user, without a server
shell_words: advice for a command line, in the words of the shells
verb_help: the texts of `help`
verb_runner: from a line to its output
completion: what may follow what is typed
line_shell: the shell itself, on a terminal or a pipe
prompt_session: lines from a terminal by prompt_toolkit
shell_history: the lines of former shells
"""
