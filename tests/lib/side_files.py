# SPDX-License-Identifier: Apache-2.0
"""What models of Hugging Face's have besides their weights.

side_files.py make DIR N: N models of all kinds in DIR; their names and types
side_files.py same A B [TYPE]: whether B has each byte of A's files; with TYPE,
    but for that name of the weights' type
side_files.py widen DIR N: give a model N tokens of vocabulary
side_files.py ids DIR: whether its two files agree on special tokens"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(__file__))
import hf

TYPES = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
FILES = ("config.json", "generation_config.json", "tokenizer.json",
         "tokenizer.model", "tokenizer_config.json", "vocab.json",
         "merges.txt", "added_tokens.json", "special_tokens_map.json",
         "chat_template.jinja", "chat_template.json")
# What a config.json may have that says nothing to the trainer.
REST = {"initializer_range": 0.041666666666666664, "use_cache": True,
        "_name_or_path": "h\u00e9/x", "transformers_version": "4.42.3",
        "task_specific_params": {"torch_dtype": "int8"}, "pad_token_id": 2,
        "summary_first_dropout": 1e-05, "architectures": ["XForCausalLM"]}
LLAMA_REST = {**REST, "attention_dropout": 0.0, "pretraining_tp": 1,
              "rope_interleaved": False, "is_llama_config": True}
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] }}{% endfor %}"


def write(path, value, rng):
    """In one of the ways in which such files are laid out."""
    text = json.dumps(value, indent=rng.choice([None, 2, 4]),
                      ensure_ascii=rng.random() < 0.5)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text + rng.choice(["", "\n"]))


def config_of(kind, dtype, rng):
    config = dict(hf.KINDS[kind])
    rest = REST if config["model_type"] == "gpt2" else LLAMA_REST
    for key in rng.sample(sorted(rest), rng.randint(2, len(rest))):
        config[key] = rest[key]
    if rng.random() < 0.8:
        config[rng.choice(["torch_dtype", "dtype"])] = NAMES[TYPES[dtype]]
    config["bos_token_id"] = rng.choice([None, 1, 5])
    config["eos_token_id"] = rng.choice([2, [2, 5], 0])
    if rng.random() < 0.2:
        del config["bos_token_id"]
    items = list(config.items())
    rng.shuffle(items)
    return dict(items)


def make_one(path, kind, rng):
    dtype = rng.choice(sorted(TYPES))
    hf.make(path, kind, 1, dtype)
    config = config_of(kind, dtype, rng)
    write(f"{path}/config.json", config, rng)
    write(f"{path}/generation_config.json",
          {"eos_token_id": config["eos_token_id"], "temperature": 0.7}, rng)
    if rng.random() < 0.7:
        chat = {"chat_template": TEMPLATE} if rng.random() < 0.5 else {}
        write(f"{path}/tokenizer_config.json",
              {"eos_token": "<|im_end|>", **chat}, rng)
    if rng.random() < 0.5:
        write(f"{path}/special_tokens_map.json", {"eos_token": "</s>"}, rng)
    if rng.random() < 0.5:
        with open(f"{path}/chat_template.jinja", "w") as f:
            f.write(TEMPLATE)
    return f"{kind}", TYPES[dtype]


def make(where, count):
    rng = random.Random(52)
    for i in range(int(count)):
        path = f"{where}/{i}"
        # More layers of multi-token prediction than one are left out.
        kinds = sorted(k for k in hf.KINDS if not k.endswith("-two"))
        kind, dtype = make_one(path, kinds[i % len(kinds)], rng)
        os.rename(path, f"{path}-{kind}")
        print(f"{i}-{kind}", dtype)


def same(a, b, dtype=None):
    for name in FILES:
        there = os.path.exists(f"{a}/{name}")
        assert there == os.path.exists(f"{b}/{name}"), name
        if not there:
            continue
        one, other = (open(f"{d}/{name}", "rb").read() for d in (a, b))
        if dtype and name == "config.json":
            config = json.loads(one)
            for key in ("torch_dtype", "dtype"):
                old = config.get(key, "").encode()
                new = NAMES[dtype].encode()
                if old:
                    assert json.loads(other)[key] == NAMES[dtype]
                    assert one.split(b'"' + old + b'"') == \
                        other.split(b'"' + new + b'"')
                    return
        assert one == other, (name, one, other)


def widen(path, vocab):
    config = json.load(open(f"{path}/config.json"))
    hf.KINDS["wide"] = {**config, "vocab_size": int(vocab)}
    for name in os.listdir(path):
        os.remove(f"{path}/{name}")
    os.rmdir(path)
    hf.make(path, "wide")


def ids(path):
    config, generation = (json.load(open(f"{path}/{name}.json"))
                          for name in ("config", "generation_config"))
    assert config["eos_token_id"] == generation["eos_token_id"]


if __name__ == "__main__":
    command, *args = sys.argv[1:]
    {"make": make, "same": same, "widen": widen, "ids": ids}[command](*args)
