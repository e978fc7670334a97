"""segment-anything's image encoder, small, with windows and relative positions."""

from segment_anything.modeling.image_encoder import ImageEncoderViT


def small():
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 4}
    windows = {"window_size": 3, "use_rel_pos": True, "global_attn_indexes": (1,)}
    return ImageEncoderViT(out_chans=32, **sizes, **windows)
