/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* Who writes what: every rank holds pieces of the model, some of them the
 * same. */

/* FNV-1a over what makes two pieces the same. */
static uint64_t fingerprint(const struct plait_piece *p)
{
    const uint64_t numbers[] = {p->begin[0], p->begin[1], p->box[0],
                                p->box[1],   p->first,    p->count};
    const unsigned char *bytes = (const unsigned char *)numbers;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *c;
    size_t i;

    for (c = p->name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (i = 0; i < sizeof(numbers); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

/* A piece of one rank among those of all. */
struct owner {
    uint64_t hash;
    int rank;
};

static int by_hash(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->rank - y->rank;
}

/* Everyone's fingerprints, sorted; 0 fills up. Collective. */
static int gather_owners(const struct plait_part *part,
                         struct plait_comm *world, struct owner **owners,
                         size_t *total, struct plait_error *err)
{
    double most = part->n;
    uint64_t *mine, *all;
    size_t room, i;
    int ret;

    if (plait_comm_host_all_reduce(world, &most, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    room = (size_t)most;
    *total = room * plait_comm_size(world);
    mine = calloc(room + 1, sizeof(*mine));
    all = calloc(*total + 1, sizeof(*all));
    *owners = calloc(*total + 1, sizeof(**owners));
    ret = mine && all && *owners
              ? 0
              : plait_errorf(err, "checkpoint: out of memory");
    ret = plait_agree(world, ret, err);
    for (i = 0; ret == 0 && i < (size_t)part->n; i++)
        mine[i] = fingerprint(&part->pieces[i]);
    if (ret == 0 && room > 0 &&
        plait_comm_host_all_gather(world, mine, all, room * sizeof(*mine)) < 0)
        ret = plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    for (i = 0; ret == 0 && i < *total; i++)
        (*owners)[i] = (struct owner){all[i], (int)(i / room)};
    free(mine);
    free(all);
    if (ret == 0)
        qsort(*owners, *total, sizeof(**owners), by_hash);
    return ret;
}

/* Of those that hold a piece, the one whose turn the fingerprint says, so
 * that replicas share the writing. */
static int writer_of(const struct owner *owners, size_t total, uint64_t hash)
{
    size_t low = 0, high = total, middle, n = 0;

    while (low < high) {
        middle = (low + high) / 2;
        if (owners[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + n < total && owners[low + n].hash == hash)
        n++;
    return owners[low + (hash >> 32) % n].rank;
}

/* The tied copy on the last stage is cut along other borders than the first
 * stage's, so it must go by itself. */
static bool is_tied_copy(const struct plait_model *model,
                         const struct plait_tensor *t)
{
    return t->tied && model->par->coord.at[PLAIT_PP] > 0;
}

static void drop_tied(struct plait_part *part, const struct plait_model *model)
{
    const struct plait_optim_slice *slices;
    int n = 0, i;

    plait_optim_slices(part->optim, &slices);
    for (i = 0; i < part->n; i++) {
        if (is_tied_copy(model, slices[i / PLAIT_PIECES_PER_SLICE].tensor))
            continue;
        part->pieces[n] = part->pieces[i];
        part->data[n++] = part->data[i];
    }
    part->n = n;
}

/* Collective. Keep of this rank's pieces those that it writes. */
static int choose(struct plait_part *part, struct plait_comm *world,
                  struct plait_error *err)
{
    int rank = plait_comm_rank(world), n = 0, i;
    struct owner *owners = NULL;
    size_t total = 0;
    int ret = gather_owners(part, world, &owners, &total, err);

    for (i = 0; i < part->n && ret == 0; i++) {
        if (writer_of(owners, total, fingerprint(&part->pieces[i])) != rank)
            continue;
        part->pieces[n] = part->pieces[i];
        part->data[n++] = part->data[i];
        part->bytes += part->pieces[i].count * sizeof(float);
    }
    part->n = n;
    free(owners);
    return ret;
}

/* Collective. */
static int check_complete(const struct plait_part *part,
                          const struct plait_model *model,
                          struct plait_error *err)
{
    struct plait_comm *world = model->par->world;
    double written = 0, want;
    int i;

    for (i = 0; i < part->n; i++)
        written += (double)plait_piece_inside(&part->pieces[i]);
    if (plait_comm_host_all_reduce(world, &written, 1, PLAIT_SUM) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    want = (double)PLAIT_PIECES_PER_SLICE * (double)model->parameters;
    if (written == want)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "checkpoint: the ranks hold %.0f elements of weights "
                        "and moments, the model has %.0f",
                        written, want);
}

int plait_part_init(struct plait_part *part, const struct plait_model *model,
                    const struct plait_optim *optim, struct plait_error *err)
{
    struct plait_comm *world = model->par->world;
    int ret;

    *part = (struct plait_part){.optim = optim};
    ret = plait_pieces_create(optim, &part->pieces, &part->data, err);
    if (ret > 0)
        part->n = ret;
    if (plait_agree(world, ret < 0 ? -1 : 0, err) < 0)
        goto error;
    drop_tied(part, model);
    if (choose(part, world, err) < 0 || check_complete(part, model, err) < 0)
        goto error;
    return 0;
error:
    plait_part_clear(part);
    return -1;
}

void plait_part_clear(struct plait_part *part)
{
    int saved = errno;

    free(part->pieces);
    free(part->data);
    *part = (struct plait_part){0};
    errno = saved;
}
