"""Whole training configurations: choosing one, its words, its step."""
