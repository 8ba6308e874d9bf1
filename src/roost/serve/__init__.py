"""The server: every operation over HTTP, for the user who runs it and nobody else."""
