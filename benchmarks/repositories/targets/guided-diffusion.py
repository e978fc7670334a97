"""guided-diffusion's UNet, small."""

from guided_diffusion.unet import UNetModel


def small():
    return UNetModel(8, 3, 32, 3, 1, (1, 2), channel_mult=(1, 2), num_heads=4)  #
