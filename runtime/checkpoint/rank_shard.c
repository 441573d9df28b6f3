/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/comm/consensus.h"
#include "topology/base/hash.h"

/* Which rank writes what: every rank holds slices of the model, and several may
 * hold the same one. */

uint64_t plait_slice_fingerprint(const struct plait_tensor_slice *p)
{
    const uint64_t numbers[] = {p->begin[0], p->begin[1], p->box[0],
                                p->box[1],   p->first,    p->count};
    uint64_t hash = plait_hash_text(PLAIT_HASH_START, p->name);

    hash = plait_hash_bytes(hash, numbers, sizeof(numbers));
    return hash ? hash : 1;
}

int plait_rank_shard_owners(const struct plait_rank_shard *shard,
                            struct plait_comm *world,
                            struct plait_slice_owners *owners,
                            struct plait_error *err)
{
    uint64_t *mine = calloc((size_t)shard->n + 1, sizeof(*mine));
    int rc = mine ? 0 : plait_errorf(err, "checkpoint: out of memory");

    *owners = (struct plait_slice_owners){.ranks = 0};
    rc = plait_error_consensus(world, rc, err);
    for (int i = 0; rc == 0 && i < shard->n; i++)
        mine[i] = plait_slice_fingerprint(&shard->slices[i]);
    if (rc == 0)
        rc = plait_slice_owners_gather(owners, world, mine, shard->n, err);
    free(mine);
    return rc;
}

/* The tied copy on the last stage is sliced at other offsets than the original
 * on the first stage, so it is recognized by itself. */
static bool is_tied_copy(const struct plait_model *model,
                         const struct plait_tensor *t)
{
    return t->tied && model->mesh->coord.at[PLAIT_PP] > 0;
}

static void drop_tied(struct plait_rank_shard *shard,
                      const struct plait_model *model)
{
    int n = 0;

    for (int i = 0; i < shard->n; i++) {
        if (is_tied_copy(model, shard->pieces[i].tensor))
            continue;
        shard->slices[n] = shard->slices[i];
        shard->pieces[n++] = shard->pieces[i];
    }
    shard->n = n;
}

/* Keep only the slices that this rank writes. The fingerprint selects one of
 * the ranks that hold a slice, so that replicas share the work. */
static void keep_own(struct plait_rank_shard *shard,
                     struct plait_slice_owners *owners, int rank, int *ranks)
{
    int n = 0;

    for (int i = 0; i < shard->n; i++) {
        uint64_t hash = plait_slice_fingerprint(&shard->slices[i]);
        int holders = plait_slice_owners_find(owners, hash, ranks);

        if (ranks[(hash >> 32) % (uint64_t)holders] != rank)
            continue;
        shard->slices[n] = shard->slices[i];
        shard->pieces[n++] = shard->pieces[i];
        shard->bytes += shard->slices[i].count * sizeof(float);
    }
    shard->n = n;
}

/* Collective. */
static int choose_slices(struct plait_rank_shard *shard,
                         struct plait_comm *world, struct plait_error *err)
{
    int *ranks = calloc((size_t)plait_comm_size(world), sizeof(*ranks));
    int rc = ranks ? 0 : plait_errorf(err, "checkpoint: out of memory");
    struct plait_slice_owners owners = {.ranks = 0};

    rc = plait_error_consensus(world, rc, err);
    if (rc == 0)
        rc = plait_rank_shard_owners(shard, world, &owners, err);
    if (rc == 0)
        keep_own(shard, &owners, plait_comm_rank(world), ranks);
    plait_slice_owners_clear(&owners);
    free(ranks);
    return rc;
}

/* Collective: whether all weights are written. States, and what each replica
 * has of its own, are not counted: they go with the weights that they belong
 * to. */
static int check_complete(const struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          struct plait_error *err)
{
    struct plait_comm *world = model->mesh->world;
    double written = 0, want = (double)model->parameters + model->statistics;

    for (int i = 0; i < shard->n; i++)
        if (!shard->pieces[i].state && !shard->pieces[i].owner[0])
            written += (double)plait_tensor_slice_inside(&shard->slices[i]);
    if (plait_comm_host_all_reduce(world, &written, 1, PLAIT_SUM) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    if (written == want)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "checkpoint: the ranks hold %.0f weights, the model "
                        "has %.0f",
                        written, want);
}

static int list_pieces(struct plait_rank_shard *shard, struct plait_error *err)
{
    const struct plait_replicas *replicas = plait_optim_replicas(shard->optim);
    const struct plait_optim_piece *pieces;
    int n = replicas ? plait_replicas_pieces(replicas, &pieces)
                     : plait_optim_pieces(shard->optim, &pieces);

    if (plait_tensor_slices_create(pieces, n, &shard->slices, err) < 0)
        return -1;
    shard->pieces = calloc(n + 1, sizeof(*pieces));
    if (!shard->pieces)
        return plait_errorf(err, "checkpoint: out of memory");
    memcpy(shard->pieces, pieces, n * sizeof(*pieces));
    shard->n = n;
    return 0;
}

int plait_rank_shard_list(struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          const struct plait_optim *optim,
                          struct plait_error *err)
{
    int rc;

    *shard = (struct plait_rank_shard){.optim = optim};
    rc = list_pieces(shard, err);
    if (plait_error_consensus(model->mesh->world, rc < 0 ? -1 : 0, err) < 0)
        return -1;
    drop_tied(shard, model);
    return 0;
}

int plait_rank_shard_init(struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          const struct plait_optim *optim,
                          struct plait_error *err)
{
    struct plait_comm *world = model->mesh->world;

    if (plait_rank_shard_list(shard, model, optim, err) < 0 ||
        choose_slices(shard, world, err) < 0 ||
        check_complete(shard, model, err) < 0)
        goto error;
    return 0;
error:
    plait_rank_shard_clear(shard);
    return -1;
}

void plait_rank_shard_clear(struct plait_rank_shard *shard)
{
    int saved = errno;

    free(shard->slices);
    free(shard->pieces);
    *shard = (struct plait_rank_shard){0};
    errno = saved;
}
