"""The front of a session in a terminal: a prompt, a screen, nothing that decides."""
