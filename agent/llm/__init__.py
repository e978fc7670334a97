"""Access to a language model: endpoints, budgets, retries, typed questions and typed answers.

A model proposes and nothing more. What it says is text until a reply type has read it, and no
reply type has a field that could change the specification, the contract, a rule or a file.
"""
