"""Notices of runs outside the queue: the list of pending notices, and the process that sends one.

notice_folders: where the receivers and the list are stored
run_notice_list: the list of runs whose notice is not sent yet
run_notice_process: starts the process that sends a notice
"""
