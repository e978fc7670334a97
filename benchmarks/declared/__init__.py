"""What verdicts rest on and what of PyTorch is replaced: tables of docs/proofs.md.

Tests hold both to the code.
"""
