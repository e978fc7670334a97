"""Prompt texts with named holes. Imports nothing of the other packages."""

from shardproof.prompts.rendering import Prompt, PromptError, Rendered, load, names, render

__all__ = ["Prompt", "PromptError", "Rendered", "load", "names", "render"]
