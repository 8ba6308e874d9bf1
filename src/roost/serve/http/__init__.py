"""Requests and answers of the server, for any route.

In reading order:

- request_middleware: the checks that every request must pass
- access_token: the token that a client needs over TCP
- listening_sockets: the unix socket and the TCP socket
- route: `Route`, one operation over HTTP, and its answers: JSON, files, event streams
- request_body: strict parsing of bodies and queries
- form_parameters: the parameters of DLNest's clients: query, form or JSON
- request_command: the command that a new package records
- error_response: the status, code, message and fix of every error
- unknown_route: the answer to an unknown path or method
- openapi: the document that describes all routes
"""
