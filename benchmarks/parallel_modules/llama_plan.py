"""A small Llama of transformers, and its plan as a user writes one."""

from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        config = LlamaConfig(
            vocab_size=24,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=4,
            use_cache=False,
            attn_implementation="eager",
        )
        self.lm = LlamaForCausalLM(config)

    def forward(self, ids):
        return self.lm(input_ids=ids).logits


PLAN = {
    "model.layers.*.self_attn.q_proj": "colwise",
    "model.layers.*.self_attn.k_proj": "colwise",
    "model.layers.*.self_attn.v_proj": "colwise",
    "model.layers.*.self_attn.o_proj": "rowwise",
    "model.layers.*.mlp.gate_proj": "colwise",
    "model.layers.*.mlp.up_proj": "colwise",
    "model.layers.*.mlp.down_proj": "rowwise",
    "lm_head": "colwise_gather_output",
}


def planned(mesh):
    whole = Llama()
    asked = DistributedConfig(tp_size=mesh.size(), tp_plan=PLAN)
    apply_tensor_parallelism(whole.lm, mesh, whole.lm._resolve_parallel_plans(asked)[0])
    return whole
