"""Verdicts: as lines, as formats of CI, as certificates, and checked again."""
