"""One run of a command: events, console, out-directory, errors and exit codes."""
