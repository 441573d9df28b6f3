/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/whole.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/tags.h"
#include "runtime/optim/whole_plan.h"

/* plait_whole_run() works in rounds: in round r every rank handles the r-th
 * matrix that it owns, so that it needs memory for one. In gather_round() each
 * holder of a piece sends it to the matrix's owner, unless another rank sends
 * an equal one, and the owner puts the matrix together. Then the owner calls
 * compute(), and in return_round() it sends each holder its piece of the
 * result. All sends and receives of one half of a round are started before the
 * first is waited for, so that owners that need pieces of each other do not
 * wait in a circle. Nobody waits for ranks that have no part in a round: these
 * are ahead, or done. Messages between two ranks are matched by their order,
 * which is that of the plan (whole_plan.c) on both.
 *
 * A compute() that fails must not keep the others waiting, so its rank goes on
 * to send and receive, with useless numbers, until the end; there all ranks
 * learn of it by one maximum. A transfer that fails ends the run of the job, as
 * a lost rank does.
 *
 * With tp a matrix may be split by columns. A run of elements of such a shard
 * is no run of the matrix, so the shards are put together one behind the other
 * first and then moved to their columns, and the result likewise back. */
struct plait_whole {
    struct plait_mesh *mesh;
    enum plait_dtype type;
    int rank;
    struct plait_whole_piece *pieces;
    struct plait_whole_plan plan;
    /* Device memory: a matrix that this rank owns; its column shards one after
     * the other; in `type`, this rank's pieces of the matrices of other owners
     * in one round. NULL if not needed. */
    void *matrix, *shards, *staged;
    int nrequests;
    struct plait_request **requests; /* of one round */
};

static const struct plait_whole_piece *owned_piece(const struct plait_whole *w,
                                                   int round)
{
    return &w->pieces[w->plan.piece[round]];
}

static size_t elements_of(const struct plait_tensor *t)
{
    return t->shape[0] * t->shape[1];
}

/* Whether the matrix is split over tp by columns: a run of elements of a shard
 * is then no run of the matrix. */
static bool has_column_shards(const struct plait_tensor *t)
{
    return t->tp_axis == 1 && t->local_shape[1] != t->shape[1];
}

/* Whether this rank has the whole matrix in the type of the computation. */
static bool is_in_place(const struct plait_whole *w, int round)
{
    const struct plait_whole_piece *p = owned_piece(w, round);

    return w->type == PLAIT_F32 && p->count == elements_of(p->tensor);
}

static void *matrix_of(const struct plait_whole *w, int round)
{
    return is_in_place(w, round) ? owned_piece(w, round)->data : w->matrix;
}

/* The address of an owner's part: in the matrix, or among its column shards. */
static void *part_address(const struct plait_whole *w, int round,
                          const struct plait_whole_part *part)
{
    const struct plait_tensor *t = owned_piece(w, round)->tensor;
    size_t size = plait_dtype_size(w->type);
    /* all columns of the shards before this one, or all rows before it */
    size_t across = t->shape[t->tp_axis == 1 ? 0 : 1];
    char *base = has_column_shards(t) ? w->shards : matrix_of(w, round);

    return base + (part->shard_first * across + part->first) * size;
}

/* -- transfers ----------------------------------------------------------- */

static int start_send(struct plait_whole *w, const void *from, size_t n,
                      int peer, int tag)
{
    return plait_comm_send(
        w->mesh->stage,
        &(struct plait_buffers){.send = from, .n = n, .type = w->type}, peer,
        tag, w->mesh->q, &w->requests[w->nrequests++]);
}

static int start_recv(struct plait_whole *w, void *to, size_t n, int peer,
                      int tag)
{
    return plait_comm_recv(
        w->mesh->stage,
        &(struct plait_buffers){.recv = to, .n = n, .type = w->type}, peer, tag,
        w->mesh->q, &w->requests[w->nrequests++]);
}

static int finish_transfers(struct plait_whole *w)
{
    int rc = 0;

    for (int i = 0; i < w->nrequests; i++)
        if (plait_comm_wait(&w->requests[i], w->mesh->q) < 0)
            rc = -1;
    w->nrequests = 0;
    return rc;
}

static int cast(const struct plait_whole *w, enum plait_dtype to, void *dst,
                enum plait_dtype from, const void *src, size_t n)
{
    if (dst == src)
        return 0;
    return w->mesh->ops->cast(
        w->mesh->q,
        &(struct plait_cast){
            .to = to, .from = from, .dst = dst, .src = src, .n = n});
}

/* The shares of `round`: from *begin, which is moved there, to the returned
 * end. */
static int shares_of(const struct plait_whole *w, int round, int *begin)
{
    const struct plait_whole_plan *plan = &w->plan;
    int end;

    while (*begin < plan->nshares && plan->share[*begin].round < round)
        (*begin)++;
    for (end = *begin; end < plan->nshares && plan->share[end].round == round;)
        end++;
    return end;
}

/* The buffer that a share is transferred from or to: its data, or a place in
 * the staging buffer, of which *used elements are taken. */
static void *share_buffer(const struct plait_whole *w,
                          const struct plait_whole_piece *p, size_t *used)
{
    char *at = w->staged;

    if (w->type == PLAIT_F32)
        return p->data;
    at += *used * plait_dtype_size(w->type);
    *used += p->count;
    return at;
}

/* -- to the owner -------------------------------------------------------- */

static int send_shares(struct plait_whole *w, int begin, int end)
{
    size_t used = 0;

    for (int i = begin; i < end; i++) {
        const struct plait_whole_share *s = &w->plan.share[i];
        const struct plait_whole_piece *p = &w->pieces[s->piece];
        void *buffer = share_buffer(w, p, &used);

        if (!s->source)
            continue;
        if (cast(w, w->type, buffer, PLAIT_F32, p->data, p->count) < 0 ||
            start_send(w, buffer, p->count, s->owner, PLAIT_TAG_PIECE) < 0)
            return -1;
    }
    return 0;
}

static int receive_parts(struct plait_whole *w, int round)
{
    const struct plait_whole_owned *o = &w->plan.owned[round];
    const struct plait_whole_piece *own = owned_piece(w, round);
    int rc = 0;

    for (int i = 0; i < o->nparts && rc == 0; i++) {
        const struct plait_whole_part *part = &o->part[i];
        void *to = part_address(w, round, part);

        if (part->source == w->rank)
            rc = cast(w, w->type, to, PLAIT_F32, own->data, part->count);
        else
            rc = start_recv(w, to, part->count, part->source, PLAIT_TAG_PIECE);
    }
    return rc;
}

/* Copies column shards to the matrix, or back. */
static int move_columns(struct plait_whole *w, int round, bool to_matrix)
{
    const struct plait_tensor *t = owned_piece(w, round)->tensor;
    size_t size = plait_dtype_size(w->type), cols = t->local_shape[1];
    const struct plait_ops *ops = w->mesh->ops;
    int rc = 0;

    for (size_t at = 0; at < t->shape[1] && rc == 0; at += cols) {
        char *column = (char *)w->matrix + at * size;
        char *shard = (char *)w->shards + at * t->shape[0] * size;

        if (to_matrix)
            rc = ops->copy_2d(w->mesh->q,
                              &(struct plait_copy_2d){.type = w->type,
                                                      .dst = column,
                                                      .dst_stride = t->shape[1],
                                                      .src = shard,
                                                      .src_stride = cols,
                                                      .rows = t->shape[0],
                                                      .cols = cols});
        else
            rc = ops->copy_2d(w->mesh->q,
                              &(struct plait_copy_2d){.type = w->type,
                                                      .dst = shard,
                                                      .dst_stride = cols,
                                                      .src = column,
                                                      .src_stride = t->shape[1],
                                                      .rows = t->shape[0],
                                                      .cols = cols});
    }
    return rc;
}

static int gather_round(struct plait_whole *w, int round, int begin, int end)
{
    bool owns = round < w->plan.nowned;

    if (send_shares(w, begin, end) < 0 ||
        (owns && receive_parts(w, round) < 0) || finish_transfers(w) < 0)
        return -1;
    if (owns && has_column_shards(owned_piece(w, round)->tensor))
        return move_columns(w, round, true);
    return 0;
}

/* -- and back ------------------------------------------------------------ */

/* Sends a part to all ranks that hold it. */
static int return_part(struct plait_whole *w, int round,
                       const struct plait_whole_part *part)
{
    const struct plait_whole_piece *own = owned_piece(w, round);
    const void *from = part_address(w, round, part);
    int rc = 0;

    for (int i = 0; i < part->holders && rc == 0; i++)
        if (part->holder[i] == w->rank)
            rc = cast(w, PLAIT_F32, own->data, w->type, from, part->count);
        else
            rc = start_send(w, from, part->count, part->holder[i],
                            PLAIT_TAG_RESULT);
    return rc;
}

static int return_parts(struct plait_whole *w, int round)
{
    const struct plait_whole_owned *o = &w->plan.owned[round];

    if (has_column_shards(owned_piece(w, round)->tensor) &&
        move_columns(w, round, false) < 0)
        return -1;
    for (int i = 0; i < o->nparts; i++)
        if (return_part(w, round, &o->part[i]) < 0)
            return -1;
    return 0;
}

static int receive_shares(struct plait_whole *w, int begin, int end)
{
    size_t used = 0;

    for (int i = begin; i < end; i++) {
        const struct plait_whole_share *s = &w->plan.share[i];
        const struct plait_whole_piece *p = &w->pieces[s->piece];

        if (start_recv(w, share_buffer(w, p, &used), p->count, s->owner,
                       PLAIT_TAG_RESULT) < 0)
            return -1;
    }
    return 0;
}

static int unpack_shares(struct plait_whole *w, int begin, int end)
{
    size_t used = 0;

    for (int i = begin; i < end; i++) {
        const struct plait_whole_piece *p = &w->pieces[w->plan.share[i].piece];

        if (cast(w, PLAIT_F32, p->data, w->type, share_buffer(w, p, &used),
                 p->count) < 0)
            return -1;
    }
    return 0;
}

static int return_round(struct plait_whole *w, int round, int begin, int end)
{
    if (receive_shares(w, begin, end) < 0 ||
        (round < w->plan.nowned && return_parts(w, round) < 0) ||
        finish_transfers(w) < 0)
        return -1;
    return unpack_shares(w, begin, end);
}

int plait_whole_run(struct plait_whole *w,
                    int (*compute)(void *arg, int piece, void *matrix),
                    void *arg)
{
    const struct plait_whole_plan *plan = &w->plan;
    int begin = 0, end, saved = 0;
    double failed = 0;

    for (int round = 0; round < plan->nowned || begin < plan->nshares;
         round++, begin = end) {
        end = shares_of(w, round, &begin);
        if (gather_round(w, round, begin, end) < 0)
            return -1;
        /* After an error, too, the other ranks wait for this one's
         * transfers. */
        if (round < plan->nowned && failed == 0 &&
            compute(arg, plan->piece[round], matrix_of(w, round)) < 0) {
            saved = errno;
            failed = 1;
        }
        if (return_round(w, round, begin, end) < 0)
            return -1;
    }
    if (plait_comm_host_all_reduce(w->mesh->stage, &failed, 1, PLAIT_MAX) < 0)
        return -1;
    if (failed == 0)
        return 0;
    errno = saved ? saved : ECANCELED;
    return -1;
}

/* -- create -------------------------------------------------------------- */

/* Elements of the buffers, and number of requests of one round. */
struct needs {
    size_t matrix, shards, staged;
    int requests;
};

static void need_owned(const struct plait_whole *w, int round, struct needs *n,
                       int *requests)
{
    const struct plait_whole_owned *o = &w->plan.owned[round];
    const struct plait_tensor *t = owned_piece(w, round)->tensor;
    size_t elements = elements_of(t);

    if (!is_in_place(w, round) && elements > n->matrix)
        n->matrix = elements;
    if (has_column_shards(t) && elements > n->shards)
        n->shards = elements;
    for (int i = 0; i < o->nparts; i++)
        *requests += o->part[i].holders + 1;
}

static struct needs find_needs(const struct plait_whole *w)
{
    struct needs n = {0};
    int begin = 0, end;

    for (int round = 0; round < w->plan.nowned || begin < w->plan.nshares;
         round++, begin = end) {
        int requests = 0;
        size_t staged = 0;

        end = shares_of(w, round, &begin);
        requests += end - begin;
        for (int i = begin; i < end && w->type != PLAIT_F32; i++)
            staged += w->pieces[w->plan.share[i].piece].count;
        if (round < w->plan.nowned)
            need_owned(w, round, &n, &requests);
        if (staged > n.staged)
            n.staged = staged;
        if (requests > n.requests)
            n.requests = requests;
    }
    return n;
}

/* *buffer stays NULL if elements is 0. */
static int make_buffer(struct plait_whole *w, size_t elements, void **buffer)
{
    if (elements == 0)
        return 0;
    *buffer =
        w->mesh->ops->alloc(w->mesh->dev, elements * plait_dtype_size(w->type));
    return *buffer ? 0 : -1;
}

static int make_buffers(struct plait_whole *w)
{
    struct needs n = find_needs(w);

    w->requests = calloc(n.requests + 1, sizeof(*w->requests));
    if (!w->requests || make_buffer(w, n.matrix, &w->matrix) < 0 ||
        make_buffer(w, n.shards, &w->shards) < 0)
        return -1;
    return make_buffer(w, n.staged, &w->staged);
}

static int copy_pieces(struct plait_whole *w,
                       const struct plait_whole_piece *pieces, int n)
{
    w->pieces = calloc(n + 1, sizeof(*w->pieces));
    for (int i = 0; w->pieces && i < n; i++)
        w->pieces[i] = pieces[i];
    return w->pieces ? 0 : -1;
}

struct plait_whole *plait_whole_create(struct plait_mesh *mesh,
                                       enum plait_dtype type,
                                       const struct plait_whole_piece *pieces,
                                       int n, struct plait_error *err)
{
    struct plait_whole *w = calloc(1, sizeof(*w));
    int rc = 0;

    if (plait_mesh_need_stage(mesh, err) < 0)
        goto error;
    if (!w || copy_pieces(w, pieces, n) < 0)
        rc = plait_errorf(err, "out of memory");
    if (plait_error_consensus(mesh->stage, rc, err) < 0)
        goto error;
    w->mesh = mesh;
    w->type = type;
    w->rank = plait_comm_rank(mesh->stage);
    rc = plait_whole_plan_make(&w->plan, mesh->stage, pieces, n, err);
    if (rc == 0 && make_buffers(w) < 0)
        rc = plait_errorf(err, "out of memory for the largest whole matrix");
    if (plait_error_consensus(mesh->stage, rc, err) < 0)
        goto error;
    return w;

error:
    plait_whole_destroy(w);
    return NULL;
}

void plait_whole_destroy(struct plait_whole *w)
{
    int saved = errno;

    if (!w)
        return;
    if (w->mesh) {
        w->mesh->ops->free(w->mesh->dev, w->matrix);
        w->mesh->ops->free(w->mesh->dev, w->shards);
        w->mesh->ops->free(w->mesh->dev, w->staged);
    }
    plait_whole_plan_clear(&w->plan);
    free(w->pieces);
    free(w->requests);
    free(w);
    errno = saved;
}

int plait_whole_owned(const struct plait_whole *w, const int **pieces)
{
    *pieces = w->plan.piece;
    return w->plan.nowned;
}
