"""The search for a plan: module styles, their cost, and the plan as data."""
