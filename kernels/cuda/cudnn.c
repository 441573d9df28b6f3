/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention by cuDNN: plans are kept by shape, and so are its refusals.
 * The backward overwrites its results, so they are made beside and added,
 * unless there is nothing to add to. It collects dQ in fp32, in an order that
 * changes from run to run. (cuDNN's way in a fixed order stores all of dP,
 * len^2 a head: who wants the same bits each time has the kernels here.) */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#ifdef HAVE_CUDNN

#include <float.h>

#include "kernels/cuda/cudnn.h"

/* How many of cuDNN's engines are tried for a shape. */
#define ENGINES 8

struct cuda_cudnn {
    cudnnHandle_t handle;
    struct plan *plans;
};

/* -- plans ----------------------------------------------------------------- */

/* cuDNN's engines for the graph, its favourite first; how many. */
static int64_t engines(struct build *b, desc graph, desc list[ENGINES])
{
    const char *what = "heuristics";
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    desc d = cudnn_make(b, what, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t found = 0;

    cudnn_set_desc(b, what, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    cudnn_set(b, what, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
              &mode);
    cudnn_finish(b, what, d);
    for (int i = 0; i < ENGINES; i++)
        list[i] = cudnn_make(b, what, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what,
                    cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             ENGINES, &found, list));
    return b->status == CUDNN_STATUS_SUCCESS ? found : 0;
}

/* A plan with this engine, if it can. */
static void try_engine(struct build *b, cudnnHandle_t handle, desc engine)
{
    const char *what = "plan";
    desc d = cudnn_make(b, what, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    cudnn_set(b, what, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
              1, &handle);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    cudnn_finish(b, what, d);
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what,
                    cudnnBackendGetAttribute(
                        d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                        CUDNN_TYPE_INT64, 1, NULL, &b->p->workspace));
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->p->plan = d;
}

static void choose(struct build *b, cudnnHandle_t handle, desc graph)
{
    desc list[ENGINES];
    int64_t found = engines(b, graph, list);

    if (b->status == CUDNN_STATUS_SUCCESS && found == 0)
        cudnn_check(b, "heuristics", CUDNN_STATUS_NOT_SUPPORTED);
    for (int64_t i = 0; i < found && b->p->plan == NULL; i++) {
        b->status = CUDNN_STATUS_SUCCESS;
        try_engine(b, handle, list[i]);
    }
}

static void plan_free(struct plan *p)
{
    while (p->nmade > 0)
        cudnnBackendDestroyDescriptor(p->made[--p->nmade]);
    free(p);
}

/* What this cuDNN's backward is known not to do right; NULL: nothing. */
static const char *too_old(const struct shape *s)
{
    size_t version = cudnnGetVersion();

    if (!s->backward)
        return NULL;
    if (version < 90600)
        return "older than 9.6";
    if (version < 91600 && s->len % 128 != 0)
        return "before 9.16 for whole 128 tokens alone";
    return NULL;
}

/* Remembered, and said once. */
static void refuse(struct plait_queue *q, const struct build *b,
                   const char *old)
{
    const struct shape *s = b->s;

    plait_queue_note(&q->head,
                     "attention's %s is not cuDNN's for %d x %d tokens, %d "
                     "heads of %d: %s%s%s",
                     s->backward ? "backward" : "forward", s->batch, s->len,
                     s->q_heads, s->head_dim, old != NULL ? old : b->what,
                     old != NULL ? "" : ": ",
                     old != NULL ? "" : cudnnGetErrorString(b->status));
}

/* The plan for a shape, made if need be; NULL: the queue has failed. The
 * device's lock is held. */
static struct plan *plan_for(struct plait_queue *q, const struct shape *s)
{
    struct cuda_cudnn *c = q->dev->cudnn;
    struct build b = {.s = s, .next_id = NIDS};
    const char *old = too_old(s);
    struct plan *p;

    for (p = c->plans; p != NULL; p = p->next)
        if (memcmp(&p->shape, s, sizeof(*s)) == 0)
            return p;
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        plait_queue_fail(&q->head, ENOMEM, "cuDNN: out of host memory");
        return NULL;
    }
    memcpy(&p->shape, s, sizeof(*s));
    b.p = p;
    if (old == NULL)
        choose(&b, c->handle, cudnn_attention(&b, c->handle));
    if (p->plan == NULL)
        refuse(q, &b, old);
    p->next = c->plans;
    c->plans = p;
    return p;
}

/* -- running --------------------------------------------------------------- */

static cudnnStatus_t execute(struct plait_queue *q, const struct plan *p,
                             void *memory[NIDS], void *workspace)
{
    static const int64_t ids[NIDS] = {
        ID_Q,   ID_K,    ID_V,     ID_OUT,    ID_LSE, ID_SCALE, ID_MASKED,
        ID_ONE, ID_DOUT, ID_DELTA, ID_DQ_SUM, ID_DQ,  ID_DK,    ID_DV};
    int64_t n = p->shape.backward ? NIDS : FORWARD_IDS;
    cudnnHandle_t handle = q->dev->cudnn->handle;
    cudnnStatus_t s = cudnnSetStream(handle, q->stream);
    desc d = NULL;

    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                                         &d);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, n, memory);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                     CUDNN_TYPE_INT64, n, ids);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                     CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(d);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendExecute(handle, p->plan, d);
    if (d != NULL)
        cudnnBackendDestroyDescriptor(d);
    return s;
}

/* 0, or -1: the queue has failed. */
static int open_cudnn(struct plait_queue *q)
{
    struct cuda_cudnn *c = q->dev->cudnn;
    cudnnStatus_t s;

    if (c != NULL)
        return 0;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return plait_queue_fail(&q->head, ENOMEM, "cuDNN: out of host memory");
    s = cudnnCreate(&c->handle);
    if (s != CUDNN_STATUS_SUCCESS) {
        free(c);
        return plait_queue_fail(&q->head, EIO, "cuDNN: %s",
                                cudnnGetErrorString(s));
    }
    q->dev->cudnn = c;
    return 0;
}

static struct shape shape_of(enum plait_dtype type,
                             const struct plait_attention *a, bool backward)
{
    struct shape s;

    memset(&s, 0, sizeof(s)); /* compared as bytes */
    s.backward = backward;
    s.zeroed = backward && a->zeroed;
    s.type = type;
    s.batch = a->batch;
    s.len = a->q_len;
    s.q_heads = a->q_heads;
    s.kv_heads = a->kv_heads;
    s.head_dim = a->head_dim;
    s.q_stride = a->q_stride;
    s.kv_stride = a->kv_stride;
    return s;
}

/* What the backward makes beside, in this order behind the workspace; how
 * many of them. */
static const int scratch_ids[] = {ID_DELTA, ID_DQ_SUM, ID_DQ, ID_DK, ID_DV};

static int scratch_count(const struct shape *s)
{
    return !s->backward ? 0 : s->zeroed ? 2 : 5;
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

/* Points the backward's ids into scratch; the workspace, or NULL: the queue
 * has failed. */
static void *make_room(struct plait_queue *q, const struct plan *p,
                       void *memory[NIDS])
{
    size_t bytes = aligned((size_t)p->workspace);
    char *room;

    for (int i = 0; i < scratch_count(&p->shape); i++)
        bytes += aligned(scratch_bytes(&p->shape, scratch_ids[i]));
    room = cuda_scratch(q, bytes);
    if (room == NULL)
        return NULL;
    bytes = aligned((size_t)p->workspace);
    for (int i = 0; i < scratch_count(&p->shape); i++) {
        memory[scratch_ids[i]] = room + bytes;
        bytes += aligned(scratch_bytes(&p->shape, scratch_ids[i]));
    }
    return room;
}

/* 1: done; 0: cuDNN does not take the shape; -1: the queue has failed. The
 * device's lock is held. */
static int run_plan(struct plait_queue *q, const struct shape *s, float scale,
                    void *memory[NIDS])
{
    /* Before 9.10 its kernels want a number. */
    float masked = cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY, one = 1;
    struct plan *p;
    void *workspace;
    cudnnStatus_t status;

    if (open_cudnn(q) != 0 || (p = plan_for(q, s)) == NULL)
        return -1;
    if (p->plan == NULL)
        return 0;
    workspace = make_room(q, p, memory);
    if (workspace == NULL)
        return -1;
    memory[ID_SCALE] = &scale;
    memory[ID_MASKED] = &masked;
    memory[ID_ONE] = &one;
    status = execute(q, p, memory, workspace);
    if (status != CUDNN_STATUS_SUCCESS)
        return plait_queue_fail(&q->head, EIO, "attention by cuDNN: %s",
                                cudnnGetErrorString(status));
    return 1;
}

int cuda_cudnn_forward(struct plait_queue *q, enum plait_dtype type,
                       const struct plait_attention *a, void *out, float *lse,
                       const void *Q, const void *K, const void *V)
{
    void *memory[NIDS] = {[ID_Q] = (void *)(uintptr_t)Q,
                          [ID_K] = (void *)(uintptr_t)K,
                          [ID_V] = (void *)(uintptr_t)V,
                          [ID_OUT] = out,
                          [ID_LSE] = lse};
    struct shape s = shape_of(type, a, false);
    int rc;

    pthread_mutex_lock(&q->dev->lock);
    rc = run_plan(q, &s, a->scale, memory);
    pthread_mutex_unlock(&q->dev->lock);
    return rc;
}

int cuda_cudnn_backward(struct plait_queue *q, enum plait_dtype type,
                        const struct plait_attention *a, void *dQ, void *dK,
                        void *dV, const void *dout, const void *out,
                        const float *lse, const void *Q, const void *K,
                        const void *V)
{
    void *memory[NIDS] = {[ID_Q] = (void *)(uintptr_t)Q,
                          [ID_K] = (void *)(uintptr_t)K,
                          [ID_V] = (void *)(uintptr_t)V,
                          [ID_OUT] = (void *)(uintptr_t)out,
                          [ID_LSE] = (void *)(uintptr_t)lse,
                          [ID_DOUT] = (void *)(uintptr_t)dout,
                          [ID_DQ] = dQ,
                          [ID_DK] = dK,
                          [ID_DV] = dV};
    struct shape s = shape_of(type, a, true);
    int rc;

    pthread_mutex_lock(&q->dev->lock);
    rc = run_plan(q, &s, a->scale, memory);
    pthread_mutex_unlock(&q->dev->lock);
    if (rc > 0 && !s.zeroed)
        cuda_add_gradients(q, type, a, dQ, dK, dV, memory[ID_DQ], memory[ID_DK],
                           memory[ID_DV]);
    return rc;
}

void cuda_cudnn_forget(struct plait_device *dev)
{
    struct cuda_cudnn *c = dev->cudnn;

    if (c == NULL)
        return;
    while (c->plans != NULL) {
        struct plan *p = c->plans;

        c->plans = p->next;
        plan_free(p);
    }
    cudnnDestroy(c->handle);
    free(c);
    dev->cudnn = NULL;
}

static const char usual[] = "cudnn";

#else

static const char usual[] = "own";

static int none(struct plait_queue *q)
{
    return plait_queue_fail(&q->head, ENOTSUP,
                            "PLAIT_ATTENTION=cudnn: this plait was configured "
                            "without cuDNN");
}

int cuda_cudnn_forward(struct plait_queue *q, enum plait_dtype type,
                       const struct plait_attention *a, void *out, float *lse,
                       const void *Q, const void *K, const void *V)
{
    (void)type;
    (void)a;
    (void)out;
    (void)lse;
    (void)Q;
    (void)K;
    (void)V;
    return none(q);
}

int cuda_cudnn_backward(struct plait_queue *q, enum plait_dtype type,
                        const struct plait_attention *a, void *dQ, void *dK,
                        void *dV, const void *dout, const void *out,
                        const float *lse, const void *Q, const void *K,
                        const void *V)
{
    (void)type;
    (void)a;
    (void)dQ;
    (void)dK;
    (void)dV;
    (void)dout;
    (void)out;
    (void)lse;
    (void)Q;
    (void)K;
    (void)V;
    return none(q);
}

void cuda_cudnn_forget(struct plait_device *dev)
{
    (void)dev;
}

#endif

/* Whole sequences in 16 bits, without documents in them, in the head sizes
 * that cuDNN's flash kernels have on every GPU they run on. */
static bool fits(enum plait_dtype type, const struct plait_attention *a,
                 uintptr_t addresses)
{
    return (type == PLAIT_BF16_T || type == PLAIT_FP16_T) &&
           a->starts == NULL && a->q_len == a->k_len && a->q_len > 1 &&
           a->q_pos == a->k_pos && a->head_dim <= 128 && a->head_dim % 8 == 0 &&
           a->q_stride % 8 == 0 && a->kv_stride % 8 == 0 && addresses % 16 == 0;
}

int cuda_cudnn_takes(struct plait_queue *q, enum plait_dtype type,
                     const struct plait_attention *a, uintptr_t addresses)
{
    const char *choice = getenv("PLAIT_ATTENTION");

    if (choice == NULL || *choice == '\0')
        choice = usual;
    if (strcmp(choice, "own") == 0)
        return 0;
    if (strcmp(choice, "cudnn") == 0)
        return fits(type, a, addresses);
    return plait_queue_fail(&q->head, EINVAL,
                            "PLAIT_ATTENTION is '%s': it is own or cudnn",
                            choice);
}
