"""Analyzers: processes that have loaded a package once and run one script after another.

::

    <package>/analyzers/<n>/        the session folder of the analyzer (analyzer_folder)
        request.json                what to load
        calls/<seq>.json            what to do next, and what it does now (call_inbox)
        _output.txt                 all that it prints
    <package>/analysis/<m>/         each call: script, record, result, its part of the output (call_output)

In reading order:

analyzer_folder: the request of an analyzer.
script_folders: the folders of scripts that an analyzer may run, and no others.
call_inbox: the calls that wait, the one that runs, and the request to interrupt it.
folder_watch: waits for a new file in a folder.
call_record: the session record of a call.
call_output: the part of the output that one call printed.
"""
