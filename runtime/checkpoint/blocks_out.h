/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_BLOCKS_OUT_H
#define PLAIT_RUNTIME_CHECKPOINT_BLOCKS_OUT_H

#include <stddef.h>
#include <stdint.h>

/* Writes a file in blocks, by a thread, one after the other. A file of less
 * than a block has no thread. 0 or -1 with errno; after a failure nothing more
 * is written. */
struct plait_blocks_out;

/* For `fd`, an empty file that stays the caller's. `image`: the memory in which
 * all that will be added lies in order, and from which it is written; it must
 * last until the end. NULL: what is added is copied. */
struct plait_blocks_out *plait_blocks_out_create(int fd, const char *image);
/* Waits for a block that is being written; what has not been written by then is
 * lost. */
void plait_blocks_out_destroy(struct plait_blocks_out *blocks);

int plait_blocks_out_add(struct plait_blocks_out *blocks, const void *bytes,
                         size_t size);
/* Replaces what was added as the bytes from `at` on. Not with an image. */
int plait_blocks_out_patch(struct plait_blocks_out *blocks, uint64_t at,
                           const void *bytes, size_t size);
/* Write all that was added. Nothing may follow. */
int plait_blocks_out_finish(struct plait_blocks_out *blocks);

#endif
