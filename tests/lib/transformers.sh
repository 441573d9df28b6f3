# SPDX-License-Identifier: Apache-2.0
# For scripts to source: sets $python to one that has transformers, which few
# systems package, and torch 2 (HF_PYTHON names one), or skips the test. $dir is
# a folder that is removed when the script ends.
python=${HF_PYTHON:-python3}
if ! "$python" -c 'import safetensors, torch, transformers
assert int(torch.__version__[0]) > 1' 2>/dev/null; then
    echo "1..0 # SKIP no python3 with transformers, safetensors and torch 2"
    exit 0
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1 TRANSFORMERS_OFFLINE=1
