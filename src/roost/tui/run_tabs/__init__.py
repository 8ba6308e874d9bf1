"""What the pane of a run shows: each tab from its data to lines, without a terminal.

run_data: the requests for what is not pushed
curves_tab: curves of one run, or of all marked ones over each other
system_tab: what cards, host and processes of the session did
pictures_tab: media of the run, the newest first
settings_tab: settings; of marked runs those that differ, with the newest metrics
why_tab: why a task waits or how it ended, with its history
"""
