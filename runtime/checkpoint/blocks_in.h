/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_BLOCKS_IN_H
#define PLAIT_RUNTIME_CHECKPOINT_BLOCKS_IN_H

#include <stddef.h>
#include <stdint.h>

/* The blocks of a file in their order, which a thread of its own reads, and
 * sums, ahead of who takes them. A file of one block has no thread. */
struct plait_blocks_in;

/* Of `fd`, a file of `size` bytes that stays the caller's. NULL with errno. */
struct plait_blocks_in *plait_blocks_in_create(int fd, uint64_t size);
/* Waits for a block that is being read. */
void plait_blocks_in_destroy(struct plait_blocks_in *blocks);

/* The next one, until the next call; *n is 0 behind the last. -1 with errno,
 * ENODATA where the file has become shorter. */
int plait_blocks_in_next(struct plait_blocks_in *blocks, const char **block,
                         size_t *n);
/* Of the whole file, behind its last block. */
uint32_t plait_blocks_in_checksum(const struct plait_blocks_in *blocks);

#endif
