"""Sessions: added to a package by a plan, asked to stop, and cleaned up after a kill.

In reading order:

upload_reserve: the time that is left for the last upload to a remote copy.
session_plan: the program and environment of a session, and how they become a session spec.
session_control: stop requests to a running session.
abandoned_sessions: kills processes whose guard and supervisor were both killed.
stuck_attempts: whether the automatic attempts at a run get any further.
"""
