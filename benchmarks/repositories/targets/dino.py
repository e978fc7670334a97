"""dino's vision transformer, small."""

from vision_transformer import VisionTransformer


def small():
    sizes = {"patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 4, "num_classes": 10}
    return VisionTransformer(img_size=[32], qkv_bias=True, **sizes)
