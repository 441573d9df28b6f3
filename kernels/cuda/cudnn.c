/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention with cuDNN: plans are kept by shape, and so are its
 * refusals. cuDNN's backward overwrites its results, so that they are computed
 * in scratch memory and then added, unless a->overwrite is set. It sums dQ in
 * fp32 in an order that changes from run to run. (cuDNN's deterministic
 * backward stores all of dP, len^2 per head: for reproducible bits use our own
 * kernels.) */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

/* A piece of the sequence over one before it, in a ring of ranks: most of a
 * ring's work. A window must reach from the last query to the first key. */
static bool sees_all(const struct plait_attention *a)
{
    return a->q_pos >= a->k_pos + a->k_len &&
           (!a->window || a->q_pos + a->q_len - a->k_pos <= a->window);
}

#ifdef HAVE_CUDNN

#include <float.h>

#include "kernels/cuda/cudnn.h"

/* Called once per shape, because the refusal is kept. */
static void refuse(struct plait_queue *q, const struct build *b)
{
    const struct shape *s = &b->p->key.attention;
    char window[32] = "";

    if (s->window)
        snprintf(window, sizeof(window), ", window %d", s->window);
    plait_queue_note(&q->head,
                     "cuDNN has no %s attention for %d x %d tokens, %d heads "
                     "of %d%s: %s: %s",
                     s->backward ? "backward" : "forward", s->batch, s->len,
                     s->q_heads, s->head_dim, window, b->what,
                     cudnnGetErrorString(b->status));
}

static void state(struct build *b)
{
    const char *refused =
        cudnn_refused(&b->p->key.attention, cudnnGetVersion());

    if (refused != NULL)
        cudnn_check(b, refused, CUDNN_STATUS_NOT_SUPPORTED);
    cudnn_state_attention(b);
}

static const struct plan_kind kind = {state, refuse};

/* -- running --------------------------------------------------------------- */

static cudnnStatus_t execute(struct plait_queue *q, const struct plan *p,
                             void *memory[NIDS], void *workspace)
{
    const struct shape *s = &p->key.attention;
    int64_t ids[NIDS], n = 0;
    void *used[NIDS];

    for (int id = 0; id < (s->backward ? NIDS : FORWARD_IDS); id++) {
        if ((id == ID_MASKED && s->unmasked) || (id == ID_WINDOW && !s->window))
            continue; /* the plan has no such number */
        ids[n] = id;
        used[n++] = memory[id];
    }
    return cudnn_execute(q, p, n, ids, used, workspace);
}

static struct key key_of(enum plait_dtype type, const struct plait_attention *a,
                         bool backward)
{
    struct key key;
    struct shape *s = &key.attention;

    memset(&key, 0, sizeof(key));
    key.subject = OF_ATTENTION;
    s->backward = backward;
    s->overwrite = backward && a->overwrite;
    s->type = type;
    s->batch = a->batch;
    s->len = a->q_len;
    s->q_heads = a->q_heads;
    s->kv_heads = a->kv_heads;
    s->head_dim = a->head_dim;
    s->unmasked = sees_all(a);
    s->window = s->unmasked || a->window >= a->q_len ? 0 : a->window;
    s->q_stride = a->q_stride;
    s->kv_stride = a->kv_stride;
    return key;
}

/* The backward's intermediate results, stored in this order after the
 * workspace; scratch_count(): how many of them are used. */
static const int scratch_ids[] = {ID_DELTA, ID_DQ_SUM, ID_DQ, ID_DK, ID_DV};

static int scratch_count(const struct shape *s)
{
    return !s->backward ? 0 : s->overwrite ? 2 : 5;
}

static size_t scratch_bytes(const struct shape *s, int id)
{
    size_t tokens = (size_t)s->batch * (size_t)s->len;
    size_t D = (size_t)s->head_dim, rows = tokens * (size_t)s->q_heads;

    return id == ID_DELTA    ? rows * sizeof(float)
           : id == ID_DQ_SUM ? rows * D * sizeof(float)
           : id == ID_DQ     ? rows * D * 2
                             : tokens * (size_t)s->kv_heads * D * 2;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Points the backward's ids into scratch memory; returns the workspace, or
 * NULL: the queue has failed. */
static void *make_room(struct plait_queue *q, const struct plan *p,
                       void *memory[NIDS])
{
    size_t bytes = aligned((size_t)p->workspace);
    char *room;

    for (int i = 0; i < scratch_count(&p->key.attention); i++)
        bytes += aligned(scratch_bytes(&p->key.attention, scratch_ids[i]));
    room = cuda_scratch(q, bytes);
    if (room == NULL)
        return NULL;
    bytes = aligned((size_t)p->workspace);
    for (int i = 0; i < scratch_count(&p->key.attention); i++) {
        memory[scratch_ids[i]] = room + bytes;
        bytes += aligned(scratch_bytes(&p->key.attention, scratch_ids[i]));
    }
    return room;
}

/* 1: done; 0: cuDNN does not take the shape; -1: the queue has failed. The
 * device's lock is held. */
static int run_plan(struct plait_queue *q, const struct key *key, float scale,
                    void *memory[NIDS])
{
    /* cuDNN's kernels before 9.10 need a finite number. */
    float masked = cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY, one = 1;
    int32_t window = key->attention.window;
    struct plan *p = cudnn_plan_for(q, key, &kind);
    void *workspace;
    cudnnStatus_t status;

    if (p == NULL)
        return -1;
    if (p->plan == NULL)
        return 0;
    workspace = make_room(q, p, memory);
    if (workspace == NULL)
        return -1;
    memory[ID_SCALE] = &scale;
    memory[ID_MASKED] = &masked;
    memory[ID_WINDOW] = &window;
    memory[ID_ONE] = &one;
    status = execute(q, p, memory, workspace);
    if (status != CUDNN_STATUS_SUCCESS)
        return plait_queue_fail(&q->head, EIO, "attention by cuDNN: %s",
                                cudnnGetErrorString(status));
    return 1;
}

int cuda_cudnn_forward(struct plait_queue *q,
                       const struct plait_attention_forward *f)
{
    void *memory[NIDS] = {[ID_Q] = (void *)(uintptr_t)f->Q,
                          [ID_K] = (void *)(uintptr_t)f->K,
                          [ID_V] = (void *)(uintptr_t)f->V,
                          [ID_OUT] = f->out,
                          [ID_LSE] = f->lse};
    struct key key = key_of(f->type, &f->a, false);
    int rc;

    pthread_mutex_lock(&q->dev->lock);
    rc = run_plan(q, &key, f->a.scale, memory);
    pthread_mutex_unlock(&q->dev->lock);
    return rc;
}

int cuda_cudnn_backward(struct plait_queue *q,
                        const struct plait_attention_backward *g)
{
    void *memory[NIDS] = {[ID_Q] = (void *)(uintptr_t)g->Q,
                          [ID_K] = (void *)(uintptr_t)g->K,
                          [ID_V] = (void *)(uintptr_t)g->V,
                          [ID_OUT] = (void *)(uintptr_t)g->out,
                          [ID_LSE] = (void *)(uintptr_t)g->lse,
                          [ID_DOUT] = (void *)(uintptr_t)g->dout,
                          [ID_DQ] = g->dQ,
                          [ID_DK] = g->dK,
                          [ID_DV] = g->dV};
    struct key key = key_of(g->type, &g->a, true);
    int rc;

    pthread_mutex_lock(&q->dev->lock);
    rc = run_plan(q, &key, g->a.scale, memory);
    pthread_mutex_unlock(&q->dev->lock);
    if (rc > 0 && !key.attention.overwrite)
        cuda_add_gradients(
            q, g,
            (const void *[]){memory[ID_DQ], memory[ID_DK], memory[ID_DV]});
    return rc;
}

#else

static int none(struct plait_queue *q)
{
    return plait_queue_fail(&q->head, ENOTSUP,
                            "this plait was configured without cuDNN");
}

int cuda_cudnn_forward(struct plait_queue *q,
                       const struct plait_attention_forward *f)
{
    (void)f;
    return none(q);
}

int cuda_cudnn_backward(struct plait_queue *q,
                        const struct plait_attention_backward *g)
{
    (void)g;
    return none(q);
}

#endif

/* What cuDNN computes: whole sequences in 16 bits, with a window but without
 * documents and caps, and their pieces. */
static bool fits(enum plait_dtype type, const struct plait_attention *a,
                 uintptr_t addresses)
{
    return (type == PLAIT_BF16_T || type == PLAIT_FP16_T) &&
           (a->starts == NULL || a->window > 0) && a->cap == 0 &&
           a->q_len == a->k_len && a->q_len > 1 &&
           (a->q_pos == a->k_pos || sees_all(a)) &&
           a->head_dim <= PLAIT_CUDNN_HEAD_MOST &&
           a->head_dim % PLAIT_CUDNN_HEAD_STEP == 0 && a->q_stride % 8 == 0 &&
           a->kv_stride % 8 == 0 && addresses % 16 == 0;
}

int cuda_cudnn_takes(struct plait_queue *q, enum plait_dtype type,
                     const struct plait_attention *a,
                     const struct plait_drops *drops, uintptr_t addresses)
{
    int chosen = cuda_cudnn_chosen(q, "PLAIT_ATTENTION");

    return chosen > 0 ? drops->keys == NULL && fits(type, a, addresses)
                      : chosen;
}
