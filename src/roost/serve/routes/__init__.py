"""The tables of routes (``ROUTES``), the functions behind them, and what these share.

In reading order:

- machine: cards, leases, the daemon, events, notices
- lab_stream: the live state of the lab, as an event stream
- runs: submit, continue, list, show, follow, stop; new projects
- run_records: curves and rows of a run
- tasks: the lab's tasks
- analyzers: scripts in analyzers
- dlnest_routes: the routes of DLNest
- task_resources: the resource request and the scheduling options of a task
- card_sharing: the resource request of DLNest's routes
- served_packages: the packages that the server shows, by their ids
- run_files: listing and reading the files of a run
- event_streams: the output of a run and the events of the lab, in pages or as streams
- stream_end: detection of the end of a run's streams
"""
