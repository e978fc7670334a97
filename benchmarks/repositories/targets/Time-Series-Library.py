"""Three forecasters of Time-Series-Library, small."""

from types import SimpleNamespace

from models import PatchTST, Transformer, iTransformer

SIZES = SimpleNamespace(
    task_name="long_term_forecast", seq_len=16, label_len=8, pred_len=8, enc_in=6, dec_in=6,
    c_out=6, d_model=64, d_ff=128, n_heads=4, e_layers=2, d_layers=1, embed="timeF", freq="h",
    dropout=0.1, factor=1, activation="gelu", num_class=3,
)  # fmt: skip


def transformer():
    return Transformer.Model(SIZES)


def itransformer():
    return iTransformer.Model(SIZES)


def patchtst():
    return PatchTST.Model(SIZES, patch_len=4, stride=2)
