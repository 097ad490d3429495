"""A tiny random MLA MoE model on disk, for runs that need no download.

DeepseekV2 layout, or DeepseekV3 with a layer that drafts, as vLLM reads them. The
weights are drawn so that an error shows: attention looks at few tokens, whatever their
distance, and the best token leads the second by far more than float noise (trained
weights do; small random ones give near-uniform logits that hide every mistake).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import torch

# Attention logits of about this standard deviation: a few tokens of a prompt share
# most of the weight. With 1 an average over hundreds of tokens would drown them all.
_QUERY_GAIN = 3.0
# Logits of about this standard deviation: the best of 1,024 leads by about one.
_LOGIT_GAIN = 4.0
# With drafts: how much larger a token's own part of a hidden state is than what a layer
# adds, and what a draft takes from the state before. Some drafts are right, most wrong.
_TOKEN_GAIN = 4.0
_DRAFT_GAIN = 0.3

# Weights of a layer for drafts that are the model's own.
_MTP_SHARED = {
    "embed_tokens.weight": "model.embed_tokens.weight",
    "shared_head.head.weight": "lm_head.weight",
}


class ModelSpec(BaseModel):
    """What to make; equal specs make equal files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_layers: int = Field(2, ge=1)
    num_dense_layers: int = Field(1, ge=0)
    # Layers for multi-token prediction, which vLLM's method `mtp` drafts with.
    num_mtp_layers: Literal[0, 1] = 0
    vocab_size: int = Field(1024, ge=64)
    hidden_size: int = Field(128, ge=32)
    intermediate_size: int = Field(256, ge=32)
    # Divided between the PCP ranks where experts are not.
    moe_intermediate_size: int = Field(256, ge=32)
    num_experts: int = Field(4, ge=2)
    num_experts_per_token: int = Field(2, ge=1)
    num_heads: int = Field(4, ge=1)
    q_lora_rank: int | None = None
    # The CPU build's MLA kernel takes these two sizes only.
    kv_lora_rank: Literal[512] = 512
    qk_rope_head_dim: Literal[64] = 64
    qk_nope_head_dim: int = 128
    v_head_dim: int = 128
    max_position_embeddings: int = Field(4096, ge=64)
    rope: Literal["plain", "yarn"] = "yarn"
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0

    def hf_config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        config: dict[str, Any] = {
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "attention_bias": False,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "first_k_dense_replace": self.num_dense_layers,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "kv_lora_rank": self.kv_lora_rank,
            "max_position_embeddings": self.max_position_embeddings,
            "moe_intermediate_size": self.moe_intermediate_size,
            "moe_layer_freq": 1,
            "n_group": 1,
            "n_routed_experts": self.num_experts,
            "n_shared_experts": 1,
            "norm_topk_prob": False,
            "num_attention_heads": self.num_heads,
            "num_experts_per_tok": self.num_experts_per_token,
            "num_hidden_layers": self.num_layers,
            "num_key_value_heads": self.num_heads,
            "q_lora_rank": self.q_lora_rank,
            "qk_nope_head_dim": self.qk_nope_head_dim,
            "qk_rope_head_dim": self.qk_rope_head_dim,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000,
            "routed_scaling_factor": 1.0,
            "scoring_func": "softmax",
            "tie_word_embeddings": False,
            "topk_group": 1,
            "topk_method": "greedy",
            "torch_dtype": self.dtype,
            "v_head_dim": self.v_head_dim,
            "vocab_size": self.vocab_size,
        }
        if self.num_mtp_layers > 0:
            config["architectures"] = ["DeepseekV3ForCausalLM"]
            config["model_type"] = "deepseek_v3"
            config["num_nextn_predict_layers"] = self.num_mtp_layers
        if self.rope == "yarn":
            config["rope_scaling"] = {
                "type": "yarn",
                "factor": 4,
                "original_max_position_embeddings": self.max_position_embeddings // 4,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
            }
        return config


def make_model(directory: Path, spec: ModelSpec) -> Path:
    """Write the model of `spec` to `directory`, which is made if missing.

    Returns:
        `directory`.
    """
    import torch
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(spec.seed)
    dtype = getattr(torch, spec.dtype)
    weights = {
        name: _draw(shape, gain, generator).to(dtype)
        for name, shape, gain in _parameters(spec)
    }
    if spec.num_mtp_layers > 0:
        prefix = f"model.layers.{spec.num_layers}."
        for target, source in _MTP_SHARED.items():
            weights[prefix + target] = weights[source].clone()
        # The first columns are for the last token, the others for the hidden state.
        last_token = weights[f"{prefix}eh_proj.weight"][:, : spec.hidden_size]
        last_token.copy_(_TOKEN_GAIN * torch.eye(spec.hidden_size))
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    _write_json(directory / "config.json", spec.hf_config())
    _write_json(
        directory / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1}
    )
    return directory


def _draw(
    shape: tuple[int, ...], gain: float, generator: "torch.Generator"
) -> "torch.Tensor":
    """Matrices keep the size of their input times `gain`; vectors are norm weights."""
    import torch

    noise = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        return 1 + 0.1 * noise
    return noise * gain / shape[-1] ** 0.5


def _parameters(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and gain of every weight."""
    table = (spec.vocab_size, spec.hidden_size)
    token_gain = _TOKEN_GAIN if spec.num_mtp_layers > 0 else 1.0
    yield "model.embed_tokens.weight", table, token_gain * spec.hidden_size**0.5
    for index in range(spec.num_layers):
        yield from _layer(spec, index)
    yield "model.norm.weight", (spec.hidden_size,), 1.0
    yield "lm_head.weight", table, _LOGIT_GAIN
    for index in range(spec.num_layers, spec.num_layers + spec.num_mtp_layers):
        prefix = f"model.layers.{index}."
        yield from _layer(spec, index)
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            yield f"{prefix}{norm}.weight", (spec.hidden_size,), 1.0
        shape = (spec.hidden_size, 2 * spec.hidden_size)
        yield f"{prefix}eh_proj.weight", shape, _DRAFT_GAIN


def _layer(spec: ModelSpec, index: int) -> Iterator[tuple[str, tuple[int, ...], float]]:
    prefix = f"model.layers.{index}."
    for name, shape, gain in _attention(spec):
        yield f"{prefix}self_attn.{name}.weight", shape, gain
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{prefix}{norm}.weight", (spec.hidden_size,), 1.0
    mlp = _dense_mlp if index < spec.num_dense_layers else _moe_mlp
    for name, shape, gain in mlp(spec):
        yield f"{prefix}mlp.{name}.weight", shape, gain


def _attention(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...], float]]:
    hidden, rank = spec.hidden_size, spec.kv_lora_rank
    query = spec.num_heads * (spec.qk_nope_head_dim + spec.qk_rope_head_dim)
    if spec.q_lora_rank is None:
        yield "q_proj", (query, hidden), _QUERY_GAIN
    else:
        yield "q_a_proj", (spec.q_lora_rank, hidden), 1.0
        yield "q_a_layernorm", (spec.q_lora_rank,), 1.0
        yield "q_b_proj", (query, spec.q_lora_rank), _QUERY_GAIN
    yield "kv_a_proj_with_mqa", (rank + spec.qk_rope_head_dim, hidden), 1.0
    yield "kv_a_layernorm", (rank,), 1.0
    kv = spec.num_heads * (spec.qk_nope_head_dim + spec.v_head_dim)
    yield "kv_b_proj", (kv, rank), 1.0
    yield "o_proj", (hidden, spec.num_heads * spec.v_head_dim), 1.0


def _dense_mlp(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...], float]]:
    yield from _gated_mlp("", spec.hidden_size, spec.intermediate_size)


def _moe_mlp(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...], float]]:
    yield "gate", (spec.num_experts, spec.hidden_size), 1.0
    for expert in [f"experts.{i}." for i in range(spec.num_experts)]:
        yield from _gated_mlp(expert, spec.hidden_size, spec.moe_intermediate_size)
    shared = spec.moe_intermediate_size
    yield from _gated_mlp("shared_experts.", spec.hidden_size, shared)


def _gated_mlp(
    prefix: str, hidden: int, intermediate: int
) -> Iterator[tuple[str, tuple[int, ...], float]]:
    yield f"{prefix}gate_proj", (intermediate, hidden), 1.0
    yield f"{prefix}up_proj", (intermediate, hidden), 1.0
    yield f"{prefix}down_proj", (hidden, intermediate), 2.0


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
