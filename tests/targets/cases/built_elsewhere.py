"""A function that builds a model of another file."""

import argparse

from bare_config import Net, Sizes, example_inputs

__all__ = ["example_inputs"]

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()


def small(layers=2):
    return Net(Sizes(layers=layers))


def number():
    return 3
