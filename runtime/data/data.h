/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_DATA_H
#define PLAIT_RUNTIME_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"
#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* Datasets of tokens or images; one file or a glob of files seen as
 * one run. Formats: plait shards (shard.h), llm.c .bin (uint16 v1, uint32 v7),
 * Megatron .bin/.idx; IDX and CIFAR's binary (images.h). Offsets are
 * 64-bit. */
struct plait_dataset;

/* Refuses, naming the file: a bad magic or version, a file shorter or longer
 * than its header says. A Megatron pair goes by its .bin, its .idx or their
 * common stem. */
struct plait_dataset *plait_dataset_create(const char *path,
                                           enum plait_data_format format,
                                           struct plait_error *err);
/* The same on every rank of a world. One rank of each node opens the files and
 * passes them to the others, so that each node asks a shared file system only
 * once for each file and page. `node` is equal for the ranks of one node.
 * Collective; what one rank cannot open is an error on all. A rank that cannot
 * reach its node's first one opens the files itself, as does a world of one. */
struct plait_dataset *plait_dataset_open(const char *path,
                                         enum plait_data_format format,
                                         struct plait_comm *world,
                                         uint64_t node,
                                         struct plait_error *err);
void plait_dataset_destroy(struct plait_dataset *ds);

/* The file of a set ("train", "val") in a folder of plait-prep; a path that is
 * no folder stays itself. The caller frees; NULL with ENOMEM. */
char *plait_dataset_find(const char *path, const char *set);

int64_t plait_dataset_tokens(const struct plait_dataset *ds);
/* The vocabulary the file was written with, 0 if the format does not say. */
int plait_dataset_vocab(const struct plait_dataset *ds);
/* The tokenizer the file was written with ("byte", "spm"), "" if the format
 * does not say. */
const char *plait_dataset_tokenizer(const struct plait_dataset *ds);
/* The path or pattern it was opened by. */
const char *plait_dataset_path(const struct plait_dataset *ds);
/* Tells one dataset from another, wherever the files are: the bytes of all of
 * them, and a hash of their sizes and of how each begins. -1 with err: one of
 * them cannot be read. */
int plait_dataset_identity(const struct plait_dataset *ds, int64_t *bytes,
                           uint64_t *hash, struct plait_error *err);
/* Samples of seq_len + 1 tokens, overlapping by one: (tokens-1) / seq_len. */
int64_t plait_dataset_samples(const struct plait_dataset *ds, int seq_len);
/* Have the system read sample `index`, without waiting for it. */
void plait_dataset_expect(const struct plait_dataset *ds, int64_t index,
                          int seq_len);
/* Whether tokens of prompts are marked in any of its files. */
bool plait_dataset_masked(const struct plait_dataset *ds);

/* How tokens are read. */
struct plait_sequence_form {
    int seq_len;
    int vocab;         /* token ids are below it */
    int32_t end_token; /* of a document; -1: documents are not told apart */
};

/* Sample `index`: input [seq_len] and target [seq_len], shifted by one, and -1
 * for a token of a prompt. Token ids >= vocab are an error that names sample
 * and id (ERANGE). */
int plait_dataset_read(const struct plait_dataset *ds,
                       const struct plait_sequence_form *form, int64_t index,
                       int32_t *input, int32_t *target,
                       struct plait_error *err);

/* Images: their number, 0 of a dataset of tokens, and [C, H, W]. */
int64_t plait_dataset_images(const struct plait_dataset *ds);
const int *plait_dataset_image_shape(const struct plait_dataset *ds);

/* How images are read: a pixel is (byte / 255 - mean) / std. Then each image is
 * shifted by up to `shift` pixels each way, filled up with zeros, and perhaps
 * flipped left to right, as a function of seed, image and epoch. */
struct plait_image_form {
    int classes; /* labels are below it; 1: labels are numbers, any is allowed
                  */
    float mean, std;
    int shift;
    bool flip;
    uint64_t seed;
};

/* Image `index` of a run's pass `epoch` over the dataset: pixels [H, W, C]. A
 * label that is no class is an error that names image and label (ERANGE). */
int plait_dataset_read_image(const struct plait_dataset *ds,
                             const struct plait_image_form *form, int64_t index,
                             int64_t epoch, float *pixels, int32_t *label,
                             struct plait_error *err);
/* Have the system read the image, without waiting for it. */
void plait_dataset_expect_image(const struct plait_dataset *ds, int64_t index);

/* Which sample is number `position` of the run (those of earlier steps, plus
 * the index in the batch): a keyed permutation of each epoch, computed, not
 * stored. Pure. */
int64_t plait_sample_index(uint64_t seed, int64_t nsamples, int64_t position);

/* The factor of the gradient of sample number `position` of the run:
 * independent normal numbers of mean 1 and this standard deviation (Hoffer et
 * al., arXiv 1705.08741, section 4.2). Pure. */
float plait_sample_weight(uint64_t seed, int64_t position, double deviation);

/* Which samples of the run a rank reads. The run's samples from number `start`
 * on are divided into groups of `stride`, a micro-batch for each data-parallel
 * rank; of each group the rank takes `count` samples, from index `first` on.
 * Batches are multiples of the stride, so that the same samples come in the
 * same order however the batch size changes. */
struct plait_share {
    int64_t start;
    int stride, first, count;
};

/* Reads ahead on a thread: the micro-batches of `share`, in order, about three
 * steps of at most `most` of them. */
struct plait_loader;
/* Datasets, mixed by their weights (blend.h): each is shuffled by itself, with
 * epochs of its own. One dataset needs no weights (NULL). */
struct plait_mixture {
    struct plait_dataset *const *ds;
    const double *weights;
    int n;
};
struct plait_loader *
plait_loader_create_blend(const struct plait_mixture *mix, uint64_t seed,
                          const struct plait_sequence_form *form,
                          const struct plait_share *share, int most,
                          struct plait_error *err);
/* The same for images; the form is copied. */
struct plait_loader *
plait_loader_create_images(const struct plait_dataset *ds, uint64_t seed,
                           const struct plait_image_form *form,
                           const struct plait_share *share, int most,
                           struct plait_error *err);
void plait_loader_destroy(struct plait_loader *loader);
/* Wait for the next n micro-batches, n <= most; the earlier ones are freed. */
int plait_loader_next(struct plait_loader *loader, int n,
                      struct plait_error *err);
/* Wait for the n micro-batches after those that plait_loader_next() gave last,
 * n <= most; -1 with err if one of them cannot be read. They stay the next
 * ones. */
int plait_loader_check(struct plait_loader *loader, int n,
                       struct plait_error *err);
/* Input and target [count, seq_len] of the i-th current micro-batch. */
void plait_loader_get(const struct plait_loader *loader, int i,
                      const int32_t **input, const int32_t **target);
/* Where the document of each input token starts in its sequence [count,
 * seq_len]: at 0, or after the last end token before it. NULL: documents are
 * not told apart. */
const int32_t *plait_loader_starts(const struct plait_loader *loader, int i);
/* The same for images: [count, H, W, C] and [count]. */
void plait_loader_get_images(const struct plait_loader *loader, int i,
                             const float **pixels, const int32_t **labels);

#endif
