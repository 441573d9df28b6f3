/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_BLOCKS_IN_H
#define PLAIT_RUNTIME_CHECKPOINT_BLOCKS_IN_H

#include <stddef.h>
#include <stdint.h>

/* Reads the blocks of a file in order. A thread reads them ahead while the
 * caller works on earlier ones. A file of one block has no thread. */
struct plait_blocks_in;

/* For `fd`, a file of `size` bytes that stays the caller's. NULL with errno. */
struct plait_blocks_in *plait_blocks_in_create(int fd, uint64_t size);
/* Waits for a block that is being read. */
void plait_blocks_in_destroy(struct plait_blocks_in *blocks);

/* The next block, valid until the next call; *n is 0 after the last. -1 with
 * errno, ENODATA where the file has become shorter. */
int plait_blocks_in_next(struct plait_blocks_in *blocks, const char **block,
                         size_t *n);

#endif
