"""Models on disk that the tests make."""

import json
from pathlib import Path

from pyvllm_pp.cli.model import ModelSpec, make_model

_FIRST_BYTE = 2  # after the beginning and the end of a text


def make_with_tokenizer(directory: Path, spec: ModelSpec) -> Path:
    """The model of `spec` with a tokenizer that has a token a byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    make_model(directory, spec)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<s>", "</s>"]
    unused = [
        f"<unused_{index}>"
        for index in range(_FIRST_BYTE + len(alphabet), spec.vocab_size)
    ]
    vocab = {text: index for index, text in enumerate(specials + alphabet + unused)}
    tokenizer = Tokenizer(models.BPE(vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True) for text in specials + unused]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": specials[0],
        "eos_token": specials[1],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def decode(directory: Path, token_ids: list[int]) -> str:
    """The text of tokens, special ones left out."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return str(tokenizer.decode(token_ids, skip_special_tokens=True))


def make_dense(directory: Path) -> Path:
    """A model without MLA: a config only, for dummy weights."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 256,
        "max_position_embeddings": 1024,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "torch_dtype": "float32",
        "vocab_size": 1024,
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory
