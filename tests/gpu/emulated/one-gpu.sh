#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/one_gpu.sh, rehearsed on the emulated GPU.
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
EMULATED_GPUS=1 PLAIT_TEST_GPU=1 PLAIT_TEST_PROGRAMS=$emulated
OMP_NUM_THREADS=1 PLAIT_TEST_LIMIT=240
export EMULATED_GPUS PLAIT_TEST_GPU PLAIT_TEST_PROGRAMS OMP_NUM_THREADS
export PLAIT_TEST_LIMIT
unset CUDA_VISIBLE_DEVICES
exec sh "$top_srcdir/tests/gpu/one_gpu.sh"
