"""The default limits of a session, for the settings and for sessions without settings, such as commands.

Standard library only, because a supervisor imports them at its start.
"""

# Standard library only

GRACE_SECONDS = 60
STALL_MINUTES = 30
OUTPUT_MB = 200
CORE_MB = 0
