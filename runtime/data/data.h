/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_DATA_H
#define PLAIT_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"
#include "topology/error.h"

/* Token datasets, mmapped; one file or a glob of shards seen as one run of
 * tokens. Formats: plait shards (shard.h), llm.c .bin (uint16 v1, uint32 v7),
 * Megatron .bin/.idx. Offsets are 64-bit. */
struct plait_dataset;

/* format: "auto", "plait", "llmc" or "megatron". Refuses, naming the file: a
 * bad magic or version, a file shorter or longer than its header says. A
 * Megatron pair goes by its .bin, its .idx or their common stem. */
struct plait_dataset *plait_dataset_create(const char *path, const char *format,
                                           struct plait_error *err);
/* The same on every rank of a world, where one rank of each node opens the
 * files and passes them on to the others, so that a shared file system sees
 * each file and each page asked for once by a node. `node` is equal for the
 * ranks of one node. Collective; what one rank cannot open is an error on
 * all. A rank that cannot reach its node's first one opens the files itself,
 * as does a world of one. */
struct plait_dataset *plait_dataset_open(const char *path, const char *format,
                                         struct plait_comm *world,
                                         uint64_t node,
                                         struct plait_error *err);
void plait_dataset_destroy(struct plait_dataset *ds);

int64_t plait_dataset_tokens(const struct plait_dataset *ds);
/* The vocabulary the file was written with, 0 if the format does not say. */
int plait_dataset_vocab(const struct plait_dataset *ds);
/* The tokenizer the file was written with ("byte", "spm"), "" if the format
 * does not say. */
const char *plait_dataset_tokenizer(const struct plait_dataset *ds);
/* The path or pattern it was opened by. */
const char *plait_dataset_path(const struct plait_dataset *ds);
/* Samples of seq_len + 1 tokens, overlapping by one: (tokens-1) / seq_len. */
int64_t plait_dataset_samples(const struct plait_dataset *ds, int seq_len);
/* Have the system read sample `index`, without waiting for it. */
void plait_dataset_expect(const struct plait_dataset *ds, int64_t index,
                          int seq_len);
/* Sample `index`: input [seq_len] and target [seq_len], shifted by one.
 * Token ids >= vocab are an error that names sample and id (ERANGE). */
int plait_dataset_read(const struct plait_dataset *ds, int64_t index,
                       int seq_len, int vocab, int32_t *input, int32_t *target,
                       struct plait_error *err);

/* Which sample is number `position` of the run (position = step *
 * global_batch + index in the batch): a keyed permutation of each epoch,
 * computed, not stored. Pure. */
int64_t plait_sample_index(uint64_t seed, int64_t nsamples, int64_t position);

/* Reads ahead on a thread: the global-batch entries [first, first + count)
 * of each step, in order. */
struct plait_loader;
struct plait_loader *plait_loader_create(const struct plait_dataset *ds,
                                         uint64_t seed, int seq_len, int vocab,
                                         int64_t global_batch, int64_t first,
                                         int64_t count, int64_t step,
                                         struct plait_error *err);
void plait_loader_destroy(struct plait_loader *loader);
/* Input and target [count, seq_len] of the next step; valid until the next
 * call. */
int plait_loader_next(struct plait_loader *loader, const int32_t **input,
                      const int32_t **target, struct plait_error *err);

#endif
