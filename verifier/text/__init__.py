"""Programs and contracts as text and as JSON: read, printed, and their schema."""
