# SPDX-License-Identifier: Apache-2.0
"""The target of each figure of ./check-gpu, and the likely cause if it is
missed, from what is known of the kernels and of machines."""
import re

# Percent of the ceiling measured in the same run that a kernel should reach:
# kernels that move memory, and those that compute. The first pattern that
# matches the name counts.
KERNELS = [
    (r"attention backward by cuDNN", 50, "cuDNN's heuristics took another "
     "kernel than for Hopper; see PLAIT_ATTENTION in plait-train(1)"),
    (r"attention by cuDNN", 60, "short sequences, heads of 64, or an older cuDNN"),
    (r"attention backward", 25, "Plait's own kernel runs one block on a "
     "multiprocessor and makes 7 products where 5 would do: build with cuDNN"),
    (r"attention", 40, "Plait's own kernel uses mma and not wgmma: build with "
     "cuDNN"),
    (r"LayerNorm backward", 60, "the sums of its columns go through shared "
     "memory in each row"),
    (r"RoPE", 60, "its angles are computed in double"),
    (r"experts", 50, "Plait's own kernel uses mma and not wgmma, and the last "
     "tile of each expert is half empty"),
    (r"dbias", 75, "the gradient of the bias is a pass of its own over dout"),
    (r"linear", 80, "none of cuBLASLt's algorithms, which are searched for, is "
     "good for the shape"),
    (r"embedding backward", 40, "tokens are sorted by four small kernels"),
    (r"AdamW|statistics|one pass|cross-entropy", 75, "several streams of "
     "memory at once"),
    (r".", 80, "more bytes move than have to, or too few blocks"),
]


def kernel(name, share):
    """Return (target, cause) if a share of the ceiling is below its target."""
    for pattern, target, cause in KERNELS:
        if re.search(pattern, name):
            return (target, cause) if share < target else None
    return None


def ceilings(sheet, copy, product):
    """Compare this GPU's measured ceilings with its data sheet."""
    low = []
    if sheet and copy < 0.85 * sheet["memory_bw"]:
        low.append(("copy, of the data sheet's memory rate, %",
                    85, 100 * copy / sheet["memory_bw"],
                    "another process on the GPU, a part of it (MIG), or "
                    "another model of memory than %s's" % sheet["type"]))
    if sheet and product < 0.70 * sheet["flops16"]:
        low.append(("product, of the data sheet's bf16 rate, %",
                    70, 100 * product / sheet["flops16"],
                    "power or temperature limits the clock (nvidia-smi -q -d "
                    "PERFORMANCE), or a PCIe model of %s" % sheet["type"]))
    return low


def model(text):
    """The likely cause why a target of tests/gpu/bench-gpu.sh was missed."""
    if "PyTorch" in text:
        return "see which kernels are under their target above; graphs off " \
               "(the start of the run says why) cost most in small models"
    return "the kernels under their target above; attention by Plait's own " \
           "kernels where there is no cuDNN; small micro-batches"


def several(layout):
    return {"dp": "gradients wait for links: no NVLink or peer-to-peer "
                  "(topology.log), or buckets too small",
            "tp": "sums of each layer wait for links: tp wants NVLink",
            "pp": "the pipeline's bubble: 4 micro-batches on 2 stages leave "
                  "20 % idle"}.get(layout[:2], "")


SEVERAL = {"dp": 85, "tp": 60, "pp": 65}
