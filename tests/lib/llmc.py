# SPDX-License-Identifier: Apache-2.0
"""Convert a Hugging Face GPT-2 to llm.c's model file, with the tensors in the
order in which llm.c's train_gpt2.py writes them: llmc.py HF-DIR FILE [bf16]"""
import json
import struct
import sys

import hf


def transposed(rows, cols, data):
    """Transpose [rows, cols] of 4-byte numbers: HF's Conv1D is [in, out]."""
    at = [data[4 * i:4 * i + 4] for i in range(rows * cols)]
    return b"".join(at[r * cols + c] for c in range(cols) for r in range(rows))


def write(source, path, bf16):
    config = json.load(open(f"{source}/config.json"))
    tensors = hf.read(source)
    layers, width = config["n_layer"], config["n_embd"]
    vocab = config["vocab_size"]
    padded = (vocab + 127) // 128 * 128

    def get(name, turn=False):
        shape, dtype, data = tensors["transformer." + name]
        data = hf.widen(shape, dtype, data)
        return transposed(*shape, data) if turn else data

    parts = [get("wte.weight"), bytes(4 * width * (padded - vocab)),
             get("wpe.weight")]
    for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc",
                 "mlp.c_proj"):
        for part in ("weight", "bias"):
            for i in range(layers):
                parts.append(get(f"h.{i}.{name}.{part}",
                                 part == "weight" and "ln" not in name))
    parts += [get("ln_f.weight"), get("ln_f.bias")]
    data = b"".join(parts)
    if bf16:  # the weights are bf16 already
        data = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
    head = [20240326, 5 if bf16 else 3, config["n_positions"], vocab, layers,
            config["n_head"], width, padded]
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", *head, *[0] * 248) + data)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], sys.argv[3:] == ["bf16"])
