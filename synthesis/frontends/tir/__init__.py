"""Tensor programs: TIR and TileLang scripts to programs that can be verified."""
