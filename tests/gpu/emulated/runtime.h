/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_RUNTIME_H
#define PLAIT_TESTS_GPU_EMULATED_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* What the calls of the emulated runtime share. */

/* One at a time, as the emulated GPU is one. */
void emu_lock(void);
void emu_unlock(void);

/* What a call returns: the fault, if there was one, else `status`, which is
 * also remembered for cudaGetLastError(). */
cudaError_t emu_result(cudaError_t status);

/* f(arg) in the stream's order: at once, or each time that the graph runs
 * which the stream is recorded into; then backwards is true and arg is
 * forgotten with the graph. */
cudaError_t emu_do(cudaStream_t stream, void (*f)(void *arg, bool backwards),
                   void (*forget)(void *arg), void *arg);
bool emu_is_recorded(cudaStream_t stream);
/* Whether any stream is. */
bool emu_recording(void);

/* The dynamic shared memory that a kernel may have. */
size_t emu_allowed_shared(const void *kernel);

#endif
