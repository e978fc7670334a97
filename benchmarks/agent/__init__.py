"""Forty requests in plain words to the model of a session, each with a check of what came of it."""
