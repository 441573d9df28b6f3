/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PROBE_GPU_CHECK_H
#define PLAIT_RUNTIME_PROBE_GPU_CHECK_H

/* plait-probe --preflight, which a preflight (topology/start/preflight.h)
 * starts in each task and ends where it takes too long: times a product on the
 * task's GPU, and an all-reduce of NCCL in each of its groups. Prints lines,
 * each at once, for what has come so far to count:
 *
 *   started          the GPU is there, and gets products
 *   begun            one has ended: all is loaded, and others are timed
 *   product FLOP/S
 *   connected        NCCL has connected the ranks
 *   ring AXIS B/S    what each link of the group's ring carries
 *   unusable TEXT    why CUDA cannot use the GPU
 *   note TEXT        why something is not timed
 *   end              nothing else comes
 *
 * Nothing at all where this build has no CUDA, and only the last line where
 * ranks share GPUs. What else is printed goes to stderr. `rings`: 0
 * for the product alone. Returns the exit status. */
int plait_gpu_check(int rings);

#endif
