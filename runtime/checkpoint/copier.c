/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/copier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/copy_image.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/tags.h"
#include "runtime/parallel/shard.h"

/* More slices than a rank has. */
enum { SLICES_MOST = 1 << 24 };

struct plait_copier {
    struct plait_copies *copies;
    struct plait_comm *world, *hosts; /* `hosts` carries the images */
    struct plait_queue *q;
    uint64_t epoch;
    int rank, ranks, to, from;
    struct plait_rank_shard all; /* all slices that this rank holds */
    struct plait_rank_shard own;
    struct plait_rank_shard other; /* `from`'s, if this rank has it too */
    bool sends, receives;
    size_t bytes;
    /* Copies of two steps; the older one is overwritten. */
    struct plait_copy *kept[2], *partners[2];
    int turn, count;
    bool under_way, failed; /* the newest copy: is sent; is not finite */
    struct plait_request *sending, *receiving;
};

/* -- partners -------------------------------------------------------------- */

/* The rank `shift` replicas further, or with by_rank, `shift` ranks further. */
static int shifted(const struct plait_layout *layout, int rank, bool by_rank,
                   int shift)
{
    int world = plait_layout_world(layout);
    struct plait_coord coord;

    if (by_rank)
        return (rank + shift) % world;
    plait_layout_coord(layout, rank, &coord);
    coord.at[PLAIT_DP] = (coord.at[PLAIT_DP] + shift) % layout->size[PLAIT_DP];
    return plait_layout_rank(layout, &coord);
}

static int count_away(const struct plait_layout *layout, const uint64_t *node,
                      bool by_rank, int shift)
{
    int world = plait_layout_world(layout), n = 0;

    for (int r = 0; r < world; r++)
        n += node[r] != node[shifted(layout, r, by_rank, shift)];
    return n;
}

void plait_copy_partners(const struct plait_layout *layout,
                         const uint64_t *node, int rank, int *to, int *from)
{
    int world = plait_layout_world(layout), dp = layout->size[PLAIT_DP];
    int best = -1, by = 0, shift = 0;

    for (int by_rank = 0; by_rank < 2 && best < world; by_rank++) {
        int size = by_rank ? world : dp;

        for (int s = 1; s < size && best < world; s++) {
            int away = count_away(layout, node, by_rank, s);

            if (away > best) {
                best = away;
                by = by_rank;
                shift = s;
            }
        }
    }
    *to = shifted(layout, rank, by, shift);
    *from = shifted(layout, rank, by, (by ? world : dp) - shift);
}

static int find_partners(struct plait_copier *c, const struct plait_mesh *mesh,
                         struct plait_error *err)
{
    uint64_t *node = calloc((size_t)c->ranks, sizeof(*node));
    uint64_t mine = mesh->node;
    int rc = node ? 0 : plait_errorf(err, "copies in memory: out of memory");

    rc = plait_error_consensus(c->world, rc, err);
    if (rc == 0 &&
        plait_comm_host_all_gather(c->world, &mine, node, sizeof(mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(c->world));
    if (rc == 0)
        plait_copy_partners(&mesh->layout, node, c->rank, &c->to, &c->from);
    free(node);
    return rc;
}

/* -- what is kept, and what is sent ---------------------------------------- */

/* Send `bytes` to the partner `to`, and receive `other` bytes from `from`,
 * whose partner this rank is. */
static int exchange(struct plait_copier *c, const void *send, size_t bytes,
                    void *recv, size_t other, struct plait_error *err)
{
    struct plait_request *sending = NULL, *receiving = NULL;
    size_t each = sizeof(int32_t);
    int rc = 0;

    if (c->to == c->rank)
        return 0;
    if (plait_comm_send(c->hosts,
                        &(struct plait_buffers){
                            .send = send, .n = bytes / each, .type = PLAIT_I32},
                        c->to, PLAIT_TAG_COPY, c->q, &sending) < 0 ||
        plait_comm_recv(c->hosts,
                        &(struct plait_buffers){
                            .recv = recv, .n = other / each, .type = PLAIT_I32},
                        c->from, PLAIT_TAG_COPY, c->q, &receiving) < 0)
        rc = -1;
    if (sending && plait_comm_wait(&sending, c->q) < 0)
        rc = -1;
    if (receiving && plait_comm_wait(&receiving, c->q) < 0)
        rc = -1;
    return rc < 0 ? plait_errorf(err, "%s", plait_comm_error(c->world)) : 0;
}

/* Exchange which slices a rank writes: `theirs` [n], of `from`, malloc'ed. */
static int exchange_slices(struct plait_copier *c, uint64_t **theirs, int *n,
                           struct plait_error *err)
{
    int *counts = calloc((size_t)c->ranks, sizeof(*counts)), rc = 0;
    uint64_t *mine = calloc((size_t)c->own.n + 1, sizeof(*mine));

    *theirs = NULL;
    if (!counts || !mine)
        rc = plait_errorf(err, "copies in memory: out of memory");
    rc = plait_error_consensus(c->world, rc, err);
    if (rc == 0 && plait_comm_host_all_gather(c->world, &c->own.n, counts,
                                              sizeof(*counts)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(c->world));
    for (int i = 0; rc == 0 && i < c->own.n; i++)
        mine[i] = plait_slice_fingerprint(&c->own.slices[i]);
    *n = rc == 0 ? counts[c->from] : 0;
    if (*n < 0 || *n > SLICES_MOST) {
        errno = EPROTO;
        rc = plait_errorf(err,
                          "copies in memory: rank %d announced an impossible "
                          "number of slices: %d",
                          c->from, *n);
    }
    if (rc == 0 && !(*theirs = calloc((size_t)*n + 1, sizeof(**theirs))))
        rc = plait_errorf(err, "copies in memory: out of memory");
    if (plait_error_consensus(c->world, rc, err) < 0)
        rc = -1;
    if (rc == 0)
        rc = exchange(c, mine, (size_t)c->own.n * sizeof(*mine), *theirs,
                      (size_t)*n * sizeof(**theirs), err);
    free(counts);
    free(mine);
    return rc;
}

/* Find those slices among this rank's own; false: it lacks one. */
static bool find_slices(struct plait_copier *c, const uint64_t *theirs, int n)
{
    struct plait_rank_shard *o = &c->other;

    *o = (struct plait_rank_shard){.optim = c->all.optim};
    o->slices = calloc((size_t)n + 1, sizeof(*o->slices));
    o->pieces = calloc((size_t)n + 1, sizeof(*o->pieces));
    if (!o->slices || !o->pieces)
        return false;
    for (; o->n < n; o->n++) {
        int at = 0;

        while (at < c->all.n &&
               plait_slice_fingerprint(&c->all.slices[at]) != theirs[o->n])
            at++;
        if (at == c->all.n)
            return false;
        o->slices[o->n] = c->all.slices[at];
        o->pieces[o->n] = c->all.pieces[at];
        o->bytes += o->slices[o->n].count * sizeof(float);
    }
    return true;
}

/* Replicas without ZeRO already hold what the partner holds: nothing is
 * sent. */
static int choose_transfers(struct plait_copier *c, struct plait_error *err)
{
    char *has = calloc((size_t)c->ranks, 1), mine;
    uint64_t *theirs = NULL;
    int n, rc = has ? 0 : plait_errorf(err, "copies in memory: out of memory");

    if (plait_error_consensus(c->world, rc, err) < 0 ||
        exchange_slices(c, &theirs, &n, err) < 0) {
        free(has);
        free(theirs);
        return -1;
    }
    mine = c->to != c->rank && find_slices(c, theirs, n);
    if (!mine)
        plait_rank_shard_clear(&c->other);
    if (plait_comm_host_all_gather(c->world, &mine, has, 1) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(c->world));
    c->receives = c->to != c->rank && !mine;
    c->sends = c->to != c->rank && !has[c->to];
    free(has);
    free(theirs);
    return rc;
}

static struct plait_copy *add_image(struct plait_copier *c, char *image,
                                    size_t size)
{
    if (image)
        c->bytes += size;
    return plait_copies_add(c->copies, image, size);
}

/* All memory for copies is allocated before the first step. */
static int allocate_images(struct plait_copier *c, struct plait_error *err)
{
    uint64_t *sizes = calloc((size_t)c->ranks, sizeof(*sizes)), mine = 0;
    bool ok = sizes != NULL;
    size_t size = 0;
    int rc = 0;

    for (int i = 0; i < 2 && ok; i++) {
        char *image = plait_copy_image_create(&c->own, &size);

        mine = size;
        c->kept[i] = add_image(c, image, size);
        ok = c->kept[i] != NULL;
    }
    rc = plait_error_consensus(
        c->world,
        ok ? 0 : plait_errorf(err, "checkpoint.memory: out of memory"), err);
    if (rc == 0 &&
        plait_comm_host_all_gather(c->world, &mine, sizes, sizeof(mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(c->world));
    if (rc == 0 && c->receives && !plait_copy_image_fits(sizes[c->from])) {
        ok = false;
        errno = EPROTO;
        plait_errorf(err,
                     "checkpoint.memory: rank %d announced an impossible size "
                     "of its copy: %llu bytes",
                     c->from, (unsigned long long)sizes[c->from]);
    }
    for (int i = 0; rc == 0 && i < 2 && ok && c->to != c->rank; i++) {
        char *image = c->receives ? calloc(1, sizes[c->from])
                                  : plait_copy_image_create(&c->other, &size);

        c->partners[i] =
            add_image(c, image, c->receives ? sizes[c->from] : size);
        ok = c->partners[i] != NULL;
        if (!ok)
            plait_errorf(err, "checkpoint.memory: out of memory");
    }
    free(sizes);
    if (rc < 0)
        return -1;
    return plait_error_consensus(c->world, ok ? 0 : -1, err);
}

struct plait_copier *plait_copier_create(struct plait_copies *copies,
                                         struct plait_model *model,
                                         struct plait_optim *optim,
                                         uint64_t epoch,
                                         struct plait_error *err)
{
    struct plait_comm *world = model->mesh->world;
    struct plait_copier *c = calloc(1, sizeof(*c));
    int rc = c ? 0 : plait_errorf(err, "checkpoint.memory: out of memory");

    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    c->copies = copies;
    c->world = world;
    c->hosts = plait_comm_of_hosts(world);
    c->q = model->mesh->q;
    c->epoch = epoch;
    c->rank = c->to = c->from = plait_comm_rank(world);
    c->ranks = plait_comm_size(world);
    if (plait_rank_shard_list(&c->all, model, optim, err) < 0 ||
        plait_rank_shard_init(&c->own, model, optim, err) < 0 ||
        find_partners(c, model->mesh, err) < 0 ||
        choose_transfers(c, err) < 0 || allocate_images(c, err) < 0)
        goto error;
    return c;
error:
    plait_copier_destroy(c);
    return NULL;
}

void plait_copier_destroy(struct plait_copier *c)
{
    struct plait_error unasked;
    int saved = errno;

    if (!c)
        return;
    plait_copier_finish(c, &unasked);
    plait_rank_shard_clear(&c->all);
    plait_rank_shard_clear(&c->own);
    plait_rank_shard_clear(&c->other);
    free(c);
    errno = saved;
}

/* -- a copy ---------------------------------------------------------------- */

/* Whether what was received is the partner's image of this step. */
static bool is_expected(const struct plait_copier *c, int64_t step)
{
    const struct plait_copy *copy = c->partners[c->turn];
    struct plait_copy_head head;
    struct plait_error err;

    return plait_copy_image_check(copy->image, copy->size, &head, &err) == 0 &&
           head.step == step && head.epoch == c->epoch &&
           head.origin == c->from && head.ranks == c->ranks;
}

static int64_t step_of(const struct plait_copy *copy)
{
    struct plait_copy_head head;

    memcpy(&head, copy->image, sizeof(head));
    return head.step;
}

int plait_copier_finish(struct plait_copier *c, struct plait_error *err)
{
    int rc = 0;

    if (!c->under_way)
        return 0;
    c->under_way = false;
    if (c->sending && plait_comm_wait(&c->sending, c->q) < 0)
        rc = -1;
    if (c->receiving) {
        if (plait_comm_wait(&c->receiving, c->q) < 0)
            rc = -1;
        else
            c->partners[c->turn]->whole =
                is_expected(c, step_of(c->kept[c->turn]));
    }
    if (rc < 0)
        return plait_errorf(err, "%s", plait_comm_error(c->world));
    c->turn = 1 - c->turn;
    c->count++;
    return 0;
}

/* Fill the images that this rank can make by itself. */
static int fill_images(struct plait_copier *c,
                       const struct plait_checkpoint_info *info)
{
    struct plait_copy *kept = c->kept[c->turn], *other = c->partners[c->turn];
    struct plait_copy_head head;
    struct plait_error unasked;

    memset(&head, 0, sizeof(head));
    head.epoch = c->epoch;
    head.step = info->step;
    head.ranks = c->ranks;
    head.info = *info;
    head.origin = c->rank;
    kept->whole =
        plait_copy_image_fill(kept->image, &c->own, &head, &unasked) == 0;
    head.origin = c->from;
    if (other && !c->receives)
        other->whole = plait_copy_image_fill(other->image, &c->other, &head,
                                             &unasked) == 0;
    return kept->whole ? 0 : -1;
}

int plait_copier_copy(struct plait_copier *c,
                      const struct plait_checkpoint_info *info,
                      struct plait_error *err)
{
    struct plait_copy *kept, *other;
    double failed;

    /* a copy that fails is none, and its owner would not hear why */
    if (plait_shards_gathering(plait_optim_shards(c->own.optim))) {
        errno = EINPROGRESS;
        return plait_errorf(err, "checkpoint.memory: cannot read weights: %s",
                            strerror(errno));
    }
    if (plait_copier_finish(c, err) < 0)
        return -1;
    failed = c->failed;
    /* After this all-reduce, all ranks have the copy before this one. */
    if (plait_comm_host_all_reduce(c->world, &failed, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(c->world));
    if (failed > 0 && c->count > 0)
        c->turn = 1 - c->turn; /* the last copy is of no use: overwrite it */
    else if (c->count > 0)
        plait_copies_drop_others(c->copies, c->epoch);
    kept = c->kept[c->turn];
    other = c->partners[c->turn];
    kept->whole = false;
    if (other)
        other->whole = false;
    c->failed = fill_images(c, info) < 0;
    c->under_way = true;
    if ((c->sends &&
         plait_comm_send(
             c->hosts,
             &(struct plait_buffers){.send = kept->image,
                                     .n = kept->size / sizeof(int32_t),
                                     .type = PLAIT_I32},
             c->to, PLAIT_TAG_COPY, c->q, &c->sending) < 0) ||
        (c->receives &&
         plait_comm_recv(
             c->hosts,
             &(struct plait_buffers){.recv = other->image,
                                     .n = other->size / sizeof(int32_t),
                                     .type = PLAIT_I32},
             c->from, PLAIT_TAG_COPY, c->q, &c->receiving) < 0))
        return plait_errorf(err, "%s", plait_comm_error(c->world));
    return 0;
}

size_t plait_copier_bytes(const struct plait_copier *c)
{
    return c->bytes;
}

int plait_copier_count(const struct plait_copier *c)
{
    return c->count;
}
