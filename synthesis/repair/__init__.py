"""Repairs of a wrong program by structured edits, each verified anew before it is offered."""
