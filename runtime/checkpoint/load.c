/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/checkpoint/copier.h"
#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/identity.h"
#include "runtime/checkpoint/load_private.h"
#include "runtime/checkpoint/model_source.h"
#include "runtime/checkpoint/sources.h"
#include "runtime/comm/consensus.h"
#include "runtime/parallel/shard.h"

/* sources.h says which files hold what. A rank opens those that it needs slices
 * of: only its own, if the layout is the one that wrote the checkpoint with
 * ZeRO. Of several ranks that hold the same slice, one reads it and sends it to
 * the others. */

/* Whether all slices are fp32 on the model's device, where a communicator can
 * reach them. It must not depend on the slices that this rank happens to have:
 * with more ranks than matrices, SOAP gives some of them none. */
static bool on_device(const struct plait_load *l)
{
    return !l->optim || (plait_optim_pieces_equal(l->optim) &&
                         l->shards->state_dev == l->shards->model->mesh->dev);
}

/* The ranks that hold the same slices, which then broadcast to each other:
 * without ZeRO and experts, those of a data-parallel group. NULL: none. */
static struct plait_comm *replicas_of(const struct plait_load *l)
{
    const struct plait_model *model = l->shards->model;
    struct plait_comm *comm = model->mesh->group[PLAIT_GROUP_DP_CP];

    if (l->apart || l->shards->zero > 0 || model->config->model.experts > 0 ||
        plait_comm_size(comm) == 1 || !on_device(l))
        return NULL;
    return comm;
}

/* Which of the n members of a group, of these ranks of a world of `size`, reads
 * the slice: one that has its file open, or one by the file's number. */
static int reader_of(const struct plait_load *l, int slice, const int *members,
                     int n, int size)
{
    const struct plait_source *end = l->from.sources + l->from.nsources;
    const struct plait_tensor_slice *want = &l->slices[slice];
    int any = slice % n;

    for (const struct plait_source *s =
             plait_sources_find(&l->from, want->name);
         s < end && !strcmp(s->slice.name, want->name); s++) {
        if (!plait_tensor_slice_meets(want, &s->slice))
            continue;
        any = s->file % n;
        for (int i = 0; i < n; i++)
            if (members[i] == s->file % size)
                return i;
    }
    return any;
}

/* Collective. */
static int choose_readers(struct plait_load *l, struct plait_comm *world,
                          struct plait_error *err)
{
    int rank = plait_comm_rank(world), n = 0, rc = 0;
    int *members = NULL;

    if (l->replicas) {
        n = plait_comm_size(l->replicas);
        members = malloc(n * sizeof(*members));
        l->reader = malloc((l->nslices + 1) * sizeof(*l->reader));
        if (!members || !l->reader)
            rc = plait_errorf(err, "%s: out of memory", l->from.path);
    }
    rc = plait_error_consensus(world, rc, err);
    if (rc == 0 && n > 0 &&
        plait_comm_host_all_gather(l->replicas, &rank, members, sizeof(rank)) <
            0)
        rc = plait_errorf(err, "checkpoint: %s", plait_comm_error(l->replicas));
    for (int i = 0; rc == 0 && n > 0 && i < l->nslices; i++)
        l->reader[i] = reader_of(l, i, members, n, plait_comm_size(world));
    free(members);
    return rc;
}

/* With `fresh` only weights are; what is under way only if something is. */
static bool is_wanted(const struct plait_load *l, int slice)
{
    const struct plait_optim_piece *piece = l->optim ? &l->pieces[slice] : NULL;

    if (piece && l->apart && !strcmp(piece->owner, PLAIT_PENDING))
        return plait_manifest_is_under_way(&l->from.manifest);
    return !piece || !l->fresh || !piece->state;
}

bool plait_load_reads(const struct plait_load *l, int slice)
{
    if (!is_wanted(l, slice) || (l->placed && l->placed[slice]))
        return false;
    return !l->replicas || l->reader[slice] == plait_comm_rank(l->replicas);
}

/* Map the files that hold something of what this rank reads. */
static int open_needed(struct plait_load *l, struct plait_error *err)
{
    const struct plait_source *end = l->from.sources + l->from.nsources;

    for (int i = 0; i < l->nslices; i++) {
        const struct plait_tensor_slice *want = &l->slices[i];

        if (!plait_load_reads(l, i))
            continue;
        for (const struct plait_source *s =
                 plait_sources_find(&l->from, want->name);
             s < end && !strcmp(s->slice.name, want->name); s++)
            if (!l->from.files[s->file].map &&
                plait_tensor_slice_meets(want, &s->slice) &&
                plait_sources_map(&l->from, s->file, err) < 0)
                return -1;
    }
    return 0;
}

static int list_slices(struct plait_load *l, struct plait_error *err)
{
    int n;

    if (!l->optim)
        return plait_tensor_slices_create_weights(l->shards, &l->slices,
                                                  &l->data, err);
    n = l->apart
            ? plait_replicas_pieces(plait_optim_replicas(l->optim), &l->pieces)
            : plait_optim_pieces(l->optim, &l->pieces);
    return plait_tensor_slices_create(l->pieces, n, &l->slices, err);
}

/* Collective. */
static int prepare_slices(struct plait_load *l, struct plait_comm *world,
                          struct plait_error *err)
{
    l->nslices = list_slices(l, err);
    l->replicas = replicas_of(l);
    if (plait_error_consensus(world, l->nslices < 0 ? -1 : 0, err) < 0 ||
        choose_readers(l, world, err) < 0)
        return -1;
    if (plait_error_consensus(world, open_needed(l, err), err) < 0)
        return -1;
    return plait_sources_fetch(&l->from, world, l->shards->model->mesh->q, err);
}

/* Write slice i from `buffer` to where it belongs. */
static int store_slice(const struct plait_load *l, int i, const float *buffer)
{
    size_t n = l->slices[i].count;

    return l->optim
               ? plait_optim_write_piece(l->optim, &l->pieces[i], 0, n, buffer)
               : plait_shards_write_weights(l->shards, l->data[i].at,
                                            l->data[i].type, buffer, n);
}

static int check_finite(const struct plait_load *l, int i, const float *buffer,
                        struct plait_error *err)
{
    struct plait_error why;

    if (plait_finite_check(l->slices[i].name, l->slices[i].first, buffer,
                           l->slices[i].count, &why) == 0)
        return 0;
    return plait_errorf(err, "%s: not finite: %s", l->from.path, why.text);
}

static int fill_all(const struct plait_load *l, struct plait_error *err)
{
    float *buffer;
    size_t most = 1;
    int rc = 0;

    for (int i = 0; i < l->nslices; i++)
        if (plait_load_reads(l, i) && l->slices[i].count > most)
            most = l->slices[i].count;
    buffer = malloc(most * sizeof(*buffer));
    if (!buffer)
        return plait_errorf(err, "%s: out of memory", l->from.path);
    for (int i = 0; i < l->nslices && rc == 0; i++) {
        if (!plait_load_reads(l, i))
            continue;
        rc = plait_load_fill(l, i, buffer, err);
        if (rc == 0)
            rc = check_finite(l, i, buffer, err);
        if (rc == 0 && store_slice(l, i, buffer) < 0)
            rc = plait_errorf(err, "%s: cannot copy to the device: %s",
                              l->from.path, strerror(errno));
    }
    free(buffer);
    return rc;
}

/* Each reader broadcasts what it has read to the ranks that want the same. */
static int send_all(const struct plait_load *l, struct plait_error *err)
{
    const struct plait_model *model = l->shards->model;
    struct plait_mesh *mesh = model->mesh;

    for (int i = 0; l->replicas && i < l->nslices; i++) {
        struct plait_weights_at to = {.type = PLAIT_F32};

        if (l->optim)
            to.at = l->pieces[i].data;
        else
            to = l->data[i];
        if (is_wanted(l, i) &&
            plait_comm_broadcast(l->replicas,
                                 &(struct plait_buffers){
                                     to.at, to.at, l->slices[i].count, to.type},
                                 l->reader[i], mesh->q, NULL) < 0)
            return plait_errorf(err, "checkpoint: %s",
                                plait_comm_error(l->replicas));
    }
    if (mesh->ops->queue_sync(mesh->q) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_queue_error(mesh->q));
    return 0;
}

/* Additional tensors in the checkpoint show in the number of parameters. */
static int check_parameters(const struct plait_load *l, struct plait_error *err)
{
    const struct plait_model *model = l->shards->model;
    int64_t there = l->hf ? plait_hf_weights_parameters(l->hf)
                          : l->from.manifest.parameters;

    if (there == model->parameters)
        return 0;
    errno = EINVAL;
    return plait_errorf(
        err, "%s: of a model of %" PRId64 " parameters, this one has %" PRId64,
        l->from.path, there, model->parameters);
}

/* An optimizer cannot use the state of another one. */
static int check_optimizer(const struct plait_load *l, struct plait_error *err)
{
    const char *have = l->from.manifest.optimizer;
    char want[sizeof(l->from.manifest.optimizer)];

    plait_optim_describe(&l->shards->model->config->optim, want, sizeof(want));
    if (!l->optim || strcmp(have, want) == 0)
        return 0;
    errno = EINVAL;
    if (!strcmp(have, "none"))
        return plait_errorf(err,
                            "%s: it has weights but no optimizer state to "
                            "resume from; use --init %s to start with them",
                            l->from.path, l->from.path);
    return plait_errorf(err,
                        "%s: has the state of optim.name %s; this run's is "
                        "%s; set that back, or begin a new run with its "
                        "weights by --init %s and another checkpoint.dir",
                        l->from.path, have, want, l->from.path);
}

/* A checkpoint of replicas that train apart goes on with the same number of
 * them; one of a single model may become many. */
static int check_replicas(struct plait_load *l, struct plait_error *err)
{
    const struct plait_manifest *m = &l->from.manifest;
    const struct plait_sync_config *sync = &l->shards->model->config->sync;
    const struct plait_replicas *r =
        l->optim ? plait_optim_replicas(l->optim) : NULL;
    const char *mode = plait_sync_mode_names[sync->mode];
    int n = r ? plait_replicas_count(r) : 1;

    if (!l->optim || m->replicas == 0)
        return 0;
    l->apart = true;
    if (r && m->replicas == n && strcmp(m->sync, mode) == 0)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: has the state of %d replicas in sync.mode %s; "
                        "this run has %d in sync.mode %s; set that back, or "
                        "begin a new run with its weights by --init %s and "
                        "another checkpoint.dir",
                        l->from.path, m->replicas, m->sync, n, mode,
                        l->from.path);
}

static void load_free(struct plait_load *l)
{
    plait_sources_close(&l->from);
    plait_hf_weights_close(l->hf);
    free(l->slices);
    free(l->data);
    free(l->reader);
    free(l->placed);
}

/* Whether it is the checkpoint that is damaged, not the machine that fails. */
static bool is_not_whole(int number)
{
    return number == EINVAL || number == ENOENT;
}

static int open_all(struct plait_load *l, const char *path, bool hf,
                    struct plait_error *err)
{
    struct plait_comm *world = l->shards->model->mesh->world;
    int rc;

    if (hf) {
        l->from.path = path;
        l->hf = plait_hf_weights_open(
            path, l->shards->model->config->model.mtp_layers, err);
        rc = plait_error_consensus(world, l->hf ? 0 : -1, err);
    } else {
        rc = plait_sources_open_unchecked(&l->from, path, world, err);
    }
    if (rc < 0 || prepare_slices(l, world, err) < 0)
        return -1;
    return hf ? 0 : plait_load_place(l, world, err);
}

static int read_all(struct plait_load *l, struct plait_error *err)
{
    struct plait_comm *world = l->shards->model->mesh->world;
    int rc = fill_all(l, err);

    if (rc == 0)
        rc = check_parameters(l, err);
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    return plait_error_consensus(world, send_all(l, err), err);
}

/* Whether the checkpoint belongs to this run: a model whose tensors have the
 * same shapes may still compute something else. */
static int check_run(const struct plait_load *l, const char *anyway,
                     struct plait_error *err)
{
    const struct plait_job_config *config = l->shards->model->config;
    const struct plait_manifest *m = &l->from.manifest;

    if (m->settings.n > 0)
        return plait_identity_check(l->from.path, m, config, !l->optim, anyway,
                                    err);
    if (plait_comm_rank(l->shards->model->mesh->world) != 0)
        return 0;
    return plait_identity_check_model(l->from.path, &config->model, err);
}

/* Collective. */
static int check_all(struct plait_load *l, const char *anyway,
                     struct plait_error *err)
{
    int rc = check_optimizer(l, err);

    if (rc == 0)
        rc = check_replicas(l, err);
    if (rc == 0)
        rc = check_run(l, anyway, err);
    return plait_error_consensus(l->shards->model->mesh->world, rc, err);
}

int plait_checkpoint_load_copies(const struct plait_copies *copies,
                                 struct plait_checkpoint_info *info,
                                 struct plait_optim *optim,
                                 struct plait_error *err)
{
    struct plait_shards *shards = plait_optim_shards(optim);
    struct plait_comm *world = shards->model->mesh->world;
    struct plait_load l = {.shards = shards, .optim = optim};
    int rc = plait_sources_open_copies(&l.from, copies, world, err);

    l.from.manifest.parameters = shards->model->parameters;
    if (rc == 0)
        rc = prepare_slices(&l, world, err);
    if (rc == 0)
        rc = read_all(&l, err);
    if (rc == 0)
        *info = l.from.manifest.info;
    else if (errno == EDOM || is_not_whole(errno))
        errno = EBADMSG;
    load_free(&l);
    return rc;
}

static int load_into(const char *path, const char *anyway,
                     struct plait_checkpoint_info *info,
                     struct plait_shards *shards, struct plait_optim *optim,
                     struct plait_error *err)
{
    struct plait_load l = {.shards = shards, .optim = optim};
    struct plait_comm *world = shards->model->mesh->world;
    struct plait_error unasked;
    int rc;

    if (!err)
        err = &unasked;
    rc = plait_sources_open_unchecked(&l.from, path, world, err);
    if (rc == 0 && check_all(&l, anyway, err) < 0) {
        load_free(&l);
        return -1;
    }
    if (rc == 0)
        rc = prepare_slices(&l, world, err);
    if (rc == 0)
        rc = plait_load_place(&l, world, err);
    if (rc < 0 && is_not_whole(errno))
        errno = EBADMSG;
    else if (rc == 0)
        rc = read_all(&l, err);
    if (rc < 0 && errno == EDOM)
        errno = EBADMSG;
    if (rc == 0)
        *info = l.from.manifest.info;
    if (rc == 0)
        info->unknown_run = l.from.manifest.settings.n == 0;
    if (rc == 0 && l.apart)
        plait_replicas_resume(plait_optim_replicas(optim), info->step,
                              l.from.manifest.sent);
    load_free(&l);
    return rc;
}

int plait_checkpoint_load(const char *path, const char *anyway,
                          struct plait_checkpoint_info *info,
                          struct plait_optim *optim, struct plait_error *err)
{
    return load_into(path, anyway, info, plait_optim_shards(optim), optim, err);
}

int plait_checkpoint_load_weights(const char *path, const char *anyway,
                                  struct plait_checkpoint_info *info,
                                  struct plait_shards *shards,
                                  struct plait_error *err)
{
    return load_into(path, anyway, info, shards, NULL, err);
}

/* -- the weights of another run ------------------------------------------- */

/* Rank 0 finds the source, and compares its model with the configuration's. */
static int find_source(const char *dir, const struct plait_model *model,
                       struct plait_model_source *source,
                       struct plait_error *err)
{
    struct plait_comm *world = model->mesh->world;
    struct plait_model_config there;
    int rc = 0;

    memset(source, 0, sizeof(*source));
    if (plait_comm_rank(world) == 0) {
        rc = plait_model_source_find(dir, source, err);
        if (rc == 0)
            rc = source->hf ? plait_hf_model_read(source->path, &there, err)
                            : plait_model_file_read(source->path, &there, err);
        if (rc == 0 && source->hf && model->config->model.mtp_layers)
            rc = plait_hf_weights_find_module(source->path, &there.mtp_layers,
                                              err);
        if (rc == 0)
            rc = plait_model_same(source->path, &there, &model->config->model,
                                  err);
    }
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(world, source, sizeof(*source), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    return 0;
}

int plait_checkpoint_start(const char *dir, struct plait_shards *shards,
                           struct plait_optim *optim, struct plait_error *err)
{
    struct plait_load l = {.shards = shards, .optim = optim, .fresh = true};
    struct plait_model_source source;
    struct plait_error unasked;
    int rc;

    if (!err)
        err = &unasked;
    if (find_source(dir, shards->model, &source, err) < 0)
        return -1;
    rc = open_all(&l, source.path, source.hf, err);
    if (rc == 0)
        rc = read_all(&l, err);
    load_free(&l);
    return rc;
}
