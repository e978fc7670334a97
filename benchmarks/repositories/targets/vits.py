"""The encoder of vits, small."""

import attentions


def small():
    return attentions.Encoder(64, 128, 4, 2, 3, 0.1)
