"""Sessions: started from a plan, asked to stop, and cleaned up after a kill.

In reading order:

session_plan: the session plan, which names the program, and its environment, that of the caller.
session_start: adds a session to a package and starts its supervisor.
session_control: stop requests to a running session.
abandoned_sessions: kills processes whose guard and supervisor were both killed.
"""
