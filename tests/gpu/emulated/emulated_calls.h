/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_CALLS_H
#define PLAIT_TESTS_GPU_EMULATED_CALLS_H

/* C functions of the emulated GPU that kernels call by way of emulated.h. */

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_index {
    unsigned x, y, z;
};

/* Returns thread, block, block_size, grid, as in struct emu_thread. */
const struct emu_index *emu_indices(void) __attribute__((const));
void emu_launch_bounds(int threads);
void emu_barrier(int line);

void emu_warp_barrier(unsigned mask, int line);
unsigned emu_ballot(unsigned mask, int vote, int line);
uint64_t emu_shuffle_xor(unsigned mask, uint64_t value, int lanes, int line);
float emu_atomic_add_float(float *p, float x);
int emu_atomic_add_int(int *p, int x);
unsigned emu_atomic_max(unsigned *p, unsigned x);
int emu_atomic_max_int(int *p, int x);
unsigned emu_atomic_min(unsigned *p, unsigned x);

void *emu_dynamic_shared(size_t align);
void *emu_static_shared(const void *key, size_t bytes, size_t align);
unsigned emu_shared_address(const void *p);

/* A kernel runs to its end before others begin: what it waits for by the clock
 * is soon there. */
long long emu_clock(void);

void emu_ptx(const char *text, void *const *out, const uint64_t *in, int line);

void emu_launch_kernel(const char *name, const void *kernel,
                       const unsigned grid[3], const unsigned block[3],
                       size_t shared, cudaStream_t stream, size_t params,
                       void (*body)(void *), void (*forget)(void *),
                       void *closure);

#ifdef __cplusplus
}
#endif

#endif
