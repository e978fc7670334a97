"""U-ViT, small."""

from libs.uvit import UViT


def small():
    return UViT(img_size=8, patch_size=2, embed_dim=64, depth=4, num_heads=4, num_classes=10)
