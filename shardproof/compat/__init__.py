"""The class interface: named tensors, placements, ops as classes, over the core.

There is one rule book, that of the core. Every op class says what it means on one device and what
ranks run, as ops of the core (`program.py`); a program is lowered to a one-device program, a
program of the ranks and a contract (`lowering.py`), and every answer is a verdict on those.
"""
