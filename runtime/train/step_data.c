/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/consensus.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/trace/activity.h"
#include "runtime/train/step_private.h"
#include "topology/base/hash.h"

/* The data that a trainer reads, and its random weights of samples
 * (train.noise). */

int plait_trainer_batch_unit(const struct plait_trainer *t)
{
    return t->mesh->layout.size[PLAIT_DP] * t->config->train.micro_batch;
}

/* Images to train on are shifted and flipped at random, those to validate with
 * are not. */
static struct plait_loader *
open_images(struct plait_trainer *t, const struct plait_dataset *ds, bool train,
            const struct plait_share *share, int most, struct plait_error *err)
{
    const struct plait_data_config *c = &t->config->data;
    const struct plait_image_form form = {
        .classes = t->config->model.classes,
        .mean = c->mean,
        .std = c->std,
        .shift = train ? c->shift : 0,
        .flip = train && c->flip,
        .seed = t->config->train.seed,
    };

    return plait_loader_create_images(ds, t->config->train.seed, &form, share,
                                      most, err);
}

static struct plait_share share_of(const struct plait_trainer *t,
                                   int64_t samples)
{
    int micro_batch = t->config->train.micro_batch;

    return (struct plait_share){
        .start = samples,
        .stride = plait_trainer_batch_unit(t),
        .first = t->mesh->coord.at[PLAIT_DP] * micro_batch,
        .count = micro_batch,
    };
}

static struct plait_sequence_form sequences_of(const struct plait_trainer *t)
{
    return (struct plait_sequence_form){t->config->model.seq_len,
                                        t->config->model.vocab, t->end_token};
}

/* A loader of this rank's micro-batches to train on, after `samples` samples;
 * at most `most` are asked for at once. */
static struct plait_loader *create_loader(struct plait_trainer *t,
                                          int64_t samples, int most,
                                          struct plait_error *err)
{
    const struct plait_job_config *c = t->config;
    const struct plait_sequence_form form = sequences_of(t);
    const struct plait_mixture mix = {t->train, t->mix, c->data.train.n};
    const struct plait_share share = share_of(t, samples);

    if (plait_is_image_model(&c->model))
        return open_images(t, t->train[0], true, &share, most, err);
    return plait_loader_create_blend(&mix, c->train.seed, &form, &share, most,
                                     err);
}

struct plait_loader *plait_trainer_val_loader(struct plait_trainer *t, int i,
                                              int most, struct plait_error *err)
{
    const struct plait_job_config *c = t->config;
    const struct plait_sequence_form form = sequences_of(t);
    const struct plait_mixture one = {&t->val[i], NULL, 1};
    const struct plait_share share = share_of(t, 0);

    if (plait_is_image_model(&c->model))
        return open_images(t, t->val[i], false, &share, most, err);
    return plait_loader_create_blend(&one, c->train.seed, &form, &share, most,
                                     err);
}

/* Whether the model takes the images; -1 says why not. */
static int check_images(const struct plait_job_config *c,
                        const struct plait_dataset *ds, struct plait_error *err)
{
    const int *has = plait_dataset_image_shape(ds), *want = c->model.image;

    errno = EINVAL;
    if (!plait_is_image_model(&c->model))
        return plait_errorf(err,
                            "%s has images, but this is a language model; for "
                            "images set model.family to mlp or resnet",
                            plait_dataset_path(ds));
    if (has[0] == want[0] && has[1] == want[1] && has[2] == want[2])
        return 0;
    return plait_errorf(err,
                        "%s has images of [%d, %d, %d], but model.input is "
                        "[%d, %d, %d]",
                        plait_dataset_path(ds), has[0], has[1], has[2], want[0],
                        want[1], want[2]);
}

/* Whether the dataset has samples that the model takes; -1 says why not. */
static int check_dataset(const struct plait_job_config *c,
                         const struct plait_dataset *ds,
                         struct plait_error *err)
{
    const char *path = plait_dataset_path(ds);
    int vocab = plait_dataset_vocab(ds);

    errno = EINVAL;
    if (plait_dataset_images(ds))
        return check_images(c, ds, err);
    if (plait_is_image_model(&c->model))
        return plait_errorf(err,
                            "%s has tokens, but the model takes images: IDX "
                            "or CIFAR's binary",
                            path);
    if (vocab > c->model.vocab)
        return plait_errorf(err,
                            "%s has a vocabulary of %d tokens, but "
                            "model.vocab is %d",
                            path, vocab, c->model.vocab);
    if (plait_dataset_samples(ds, c->model.seq_len) < 1)
        return plait_errorf(err,
                            "%s has %lld tokens, too few for one sample of "
                            "model.seq_len %d",
                            path, (long long)plait_dataset_tokens(ds),
                            c->model.seq_len);
    return 0;
}

/* `set`: which one is meant if the path is a folder of plait-prep. */
static struct plait_dataset *open_dataset(struct plait_trainer *t,
                                          const char *path, const char *set,
                                          struct plait_error *err)
{
    struct plait_dataset *ds;
    char *file;

    plait_activity_file(&t->mesh->listeners, path);
    file = plait_dataset_find(path, set);
    if (file)
        plait_activity_file(&t->mesh->listeners, file);
    ds = plait_dataset_open(file ? file : path, t->config->data.format,
                            t->mesh->world, t->mesh->node, err);
    free(file);
    if (!ds) /* on all ranks */
        return NULL;
    if (plait_error_consensus(t->mesh->world, check_dataset(t->config, ds, err),
                              err) == 0)
        return ds;
    plait_dataset_destroy(ds);
    errno = EINVAL;
    return NULL;
}

static void close_parts(struct plait_dataset **ds, int n)
{
    for (int i = 0; ds && i < n; i++)
        plait_dataset_destroy(ds[i]);
    free(ds);
}

/* All parts must have the same vocabulary and tokenizer, as far as the files
 * say. */
static int check_blend(const struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_dataset *first = t->train[0], *ds;

    for (int i = 1; i < t->config->data.train.n; i++) {
        ds = t->train[i];
        errno = EINVAL;
        if (plait_dataset_vocab(ds) && plait_dataset_vocab(first) &&
            (plait_dataset_vocab(ds) != plait_dataset_vocab(first) ||
             strcmp(plait_dataset_tokenizer(ds),
                    plait_dataset_tokenizer(first))))
            return plait_errorf(
                err,
                "data.train: %s has a vocabulary of %d (%s), %s one of %d (%s)",
                plait_dataset_path(ds), plait_dataset_vocab(ds),
                plait_dataset_tokenizer(ds), plait_dataset_path(first),
                plait_dataset_vocab(first), plait_dataset_tokenizer(first));
    }
    return 0;
}

/* A dataset for each part, into ds[parts->n]. The error names the key. */
static int open_parts(struct plait_trainer *t, const struct plait_parts *parts,
                      const char *set, struct plait_dataset **ds,
                      struct plait_error *err)
{
    char key[32];

    snprintf(key, sizeof(key), "data.%s: ", set);
    for (int i = 0; i < parts->n; i++) {
        ds[i] = open_dataset(t, parts->at[i].path, set, err);
        if (!ds[i])
            return plait_error_prefix(err, key);
    }
    return 0;
}

/* Rank 0 finds it for all ranks: another node's copy of the data may lack the
 * tokenizer's files. */
static int find_end_token(struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_data_config *c = &t->config->data;
    const char *path = plait_parts_path(&c->train);
    struct plait_tokenizer *tokenizer = NULL;
    struct plait_error none;

    t->end_token = c->end_token;
    if (t->end_token >= 0)
        return 0;
    if (plait_comm_rank(t->mesh->world) == 0) {
        if (!strcmp(plait_dataset_tokenizer(t->train[0]), "byte"))
            t->end_token = PLAIT_BYTE_VOCAB - 1;
        else
            tokenizer = plait_tokenizer_beside(path, &none);
    }
    if (tokenizer)
        t->end_token = plait_tokenizer_end(tokenizer);
    plait_tokenizer_destroy(tokenizer);
    if (plait_comm_host_broadcast(t->mesh->world, &t->end_token,
                                  sizeof(t->end_token), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(t->mesh->world));
    if (t->end_token >= 0 && t->end_token < t->config->model.vocab)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "data.mask_documents: there is no tokenizer of "
                        "plait-prep beside %s; set data.end_token to the "
                        "token that ends a document",
                        path);
}

/* Whether any rank finds targets that do not count: then each step sums over
 * all ranks how many do. */
static int find_masked(struct plait_trainer *t, struct plait_error *err)
{
    double masked = 0;

    for (int i = 0; i < t->config->data.train.n; i++)
        if (plait_dataset_masked(t->train[i]))
            masked = 1;
    if (plait_comm_host_all_reduce(t->mesh->world, &masked, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(t->mesh->world));
    t->masked = masked > 0;
    return 0;
}

static int open_training(struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_parts *parts = &t->config->data.train;

    if (open_parts(t, parts, "train", t->train, err) < 0)
        return -1;
    if (plait_error_consensus(t->mesh->world, check_blend(t, err), err) < 0)
        return -1;
    for (int i = 0; i < parts->n; i++)
        t->mix[i] = parts->at[i].weight;
    if (find_masked(t, err) < 0)
        return -1;
    t->end_token = -1;
    return t->config->data.mask_documents ? find_end_token(t, err) : 0;
}

/* Before the ranks open the data together. */
static int allocate_parts(struct plait_trainer *t, struct plait_error *err)
{
    size_t train = (size_t)t->config->data.train.n;
    size_t val = (size_t)t->config->data.val.n;

    t->train = calloc(train, sizeof(struct plait_dataset *));
    t->mix = calloc(train, sizeof(*t->mix));
    t->val = calloc(val + 1, sizeof(struct plait_dataset *));
    t->val_losses = calloc(val + 1, sizeof(*t->val_losses));
    return t->train && t->mix && t->val && t->val_losses
               ? 0
               : plait_errorf(err, "out of memory");
}

void plait_trainer_close_data(struct plait_trainer *t)
{
    plait_loader_destroy(t->loader);
    close_parts(t->train, t->config->data.train.n);
    close_parts(t->val, t->config->data.val.n);
    free(t->mix);
    free(t->val_losses);
}

int plait_trainer_open_data(struct plait_trainer *t, struct plait_error *err)
{
    const struct plait_job_config *c = t->config;

    if (!c->data.train.n)
        return plait_errorf(err, "data.train is missing: the file or folder to "
                                 "train on");
    if (c->train.eval_every && !c->data.val.n)
        return plait_errorf(err,
                            "train.eval_every is %lld, but data.val is "
                            "missing",
                            (long long)c->train.eval_every);
    if (plait_error_consensus(t->mesh->world, allocate_parts(t, err), err) < 0)
        return -1;
    if (open_training(t, err) < 0 ||
        open_parts(t, &c->data.val, "val", t->val, err) < 0)
        return -1;
    return plait_trainer_seek_data(t, err);
}

bool plait_trainer_data_ahead(struct plait_trainer *t, int64_t step)
{
    if (!t->lost && step + 1 < t->config->train.steps &&
        plait_loader_check(t->loader, t->most, &t->why_lost) < 0)
        t->lost = true;
    return !t->lost;
}

bool plait_trainer_data_lost(const struct plait_trainer *t,
                             struct plait_error *err)
{
    if (t->lost)
        *err = t->why_lost;
    return t->lost;
}

int plait_trainer_seek_data(struct plait_trainer *t, struct plait_error *err)
{
    plait_loader_destroy(t->loader);
    t->lost = false;
    t->loader = create_loader(t, t->state.samples, t->most, err);
    return t->loader ? plait_loader_check(t->loader, t->most, err) : -1;
}

int plait_trainer_identify_data(struct plait_trainer *t,
                                struct plait_data_identity *identity,
                                struct plait_error *err)
{
    const struct plait_parts *parts = &t->config->data.train;
    struct plait_data_identity all = {0, PLAIT_HASH_START};
    int64_t bytes;
    uint64_t hash;

    for (int i = 0; i < parts->n; i++) {
        if (plait_dataset_identity(t->train[i], &bytes, &hash, err) < 0)
            return -1;
        all.bytes += bytes;
        all.hash = plait_hash_bytes(all.hash, &hash, sizeof(hash));
        if (parts->n > 1)
            all.hash = plait_hash_bytes(all.hash, &parts->at[i].weight,
                                        sizeof(parts->at[i].weight));
    }
    *identity = all;
    return 0;
}

/* The number in the run of the first sample of this rank's i-th micro-batch of
 * a step. */
static int64_t first_sample(const struct plait_trainer *t, int i)
{
    return t->state.samples + (int64_t)i * plait_trainer_batch_unit(t) +
           t->mesh->coord.at[PLAIT_DP] * t->config->train.micro_batch;
}

/* The i-th of the micro-batches that the loader has ready. */
static struct plait_batch batch_of(const struct plait_trainer *t,
                                   const struct plait_loader *loader, int i,
                                   float loss_scale)
{
    struct plait_batch b = {
        .batch = t->config->train.micro_batch,
        .seq_len = t->config->model.seq_len,
        .loss_scale = loss_scale,
        .sample = first_sample(t, i),
    };

    if (plait_is_image_model(&t->config->model))
        plait_loader_get_images(loader, i, &b.images, &b.targets);
    else
        plait_loader_get(loader, i, &b.tokens, &b.targets);
    b.starts = plait_loader_starts(loader, i);
    return b;
}

int plait_trainer_batch(struct plait_trainer *t, struct plait_loader *loader,
                        int n, float loss_scale, struct plait_error *err)
{
    static const struct plait_doing doing = {
        .phase = PLAIT_PHASE_DATA, .track = "data", .name = "data"};
    struct plait_activity a = plait_activity_begin(&t->mesh->listeners, &doing);

    if (plait_loader_next(loader, n, err) < 0)
        return -1;
    plait_activity_end(&a);
    for (int i = 0; i < n; i++)
        t->batch[i] = batch_of(t, loader, i, loss_scale);
    return 0;
}

void plait_trainer_noise(struct plait_trainer *t, int n)
{
    const struct plait_train_config *c = &t->config->train;

    for (int i = 0; i < n && t->weights; i++) {
        int64_t at = first_sample(t, i);
        float *weights = t->weights + (size_t)i * c->micro_batch;

        for (int k = 0; k < c->micro_batch; k++)
            weights[k] = plait_sample_weight(c->seed, at + k, c->noise);
        t->batch[i].weights = weights;
    }
}
