"""The server: every operation over HTTP, only for the user who runs it.

In reading order:

- app: the application, all routes behind the middleware
- server_process: the process that serves: sockets, connections, shutdown
- server_control: to start and stop that process
- server_presence: the lock and the record of the running server
- http: requests and answers: middleware, routes, parameters, errors
- routes: the tables of routes and the functions behind them
- request_journal: the list of the operations that the server has carried out
- access_log: the server's log, one line for each request
"""
