/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention by cuDNN. The computation is stated operation by
 * operation to cuDNN's backend, which recognises attention in it and answers
 * with one of its flash kernels; plans are kept by shape, and so are its
 * refusals. The backward overwrites its results, so they are made beside and
 * added; it collects dQ in fp32, in an order that changes from run to run.
 * (cuDNN's way in a fixed order stores all of dP, len^2 a head: who wants the
 * same bits each time has the kernels here.) */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#ifdef HAVE_CUDNN

#include <cudnn.h>
#include <float.h>
#include <math.h>

typedef cudnnBackendDescriptor_t desc;

/* More than the descriptors of one plan, and than its operations. */
#define DESCRIPTORS 192
#define OPERATIONS 32
/* How many of cuDNN's engines are tried for a shape. */
#define ENGINES 8

struct shape {
    bool backward;
    enum plait_dtype type;
    int batch, len, q_heads, kv_heads, head_dim;
    size_t q_stride, kv_stride;
};

/* The tensors that are memory, by their cuDNN ids, those of the forward
 * first; SCALE, MASKED and ONE are single numbers on the host. DELTA are the
 * row sums of dout * out, DQ_SUM is dQ in fp32. */
enum {
    ID_Q,
    ID_K,
    ID_V,
    ID_OUT,
    ID_LSE,
    ID_SCALE,
    ID_MASKED,
    FORWARD_IDS,
    ID_ONE = FORWARD_IDS,
    ID_DOUT,
    ID_DELTA,
    ID_DQ_SUM,
    ID_DQ,
    ID_DK,
    ID_DV,
    NIDS
};

/* plan NULL: cuDNN has none for this shape. */
struct plan {
    struct plan *next;
    struct shape shape;
    desc made[DESCRIPTORS]; /* all of the plan, in the order they were made */
    int nmade;
    desc plan;
    int64_t workspace; /* bytes */
};

struct cuda_cudnn {
    cudnnHandle_t handle;
    struct plan *plans;
};

/* A plan in the making. After the first failure nothing more is done. */
struct build {
    struct plan *p;
    cudnnStatus_t status;
    const char *what; /* failed */
    desc ops[OPERATIONS];
    int nops;
    int64_t next_id; /* of tensors that are no memory */
    const struct shape *s;
};

/* -- descriptors ----------------------------------------------------------- */

static void check(struct build *b, const char *what, cudnnStatus_t status)
{
    if (b->status != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS)
        return;
    b->status = status;
    b->what = what;
}

static desc make(struct build *b, const char *what,
                 cudnnBackendDescriptorType_t type)
{
    desc d = NULL;

    if (b->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (b->p->nmade == DESCRIPTORS) {
        check(b, what, CUDNN_STATUS_INTERNAL_ERROR);
        return NULL;
    }
    check(b, what, cudnnBackendCreateDescriptor(type, &d));
    if (d != NULL)
        b->p->made[b->p->nmade++] = d;
    return d;
}

static void set(struct build *b, const char *what, desc d,
                cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        check(b, what, cudnnBackendSetAttribute(d, name, type, n, value));
}

static void set_desc(struct build *b, const char *what, desc d,
                     cudnnBackendAttributeName_t name, desc value)
{
    set(b, what, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static desc finish(struct build *b, const char *what, desc d)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        check(b, what, cudnnBackendFinalize(d));
    return d;
}

/* -- tensors --------------------------------------------------------------- */

static desc tensor(struct build *b, int64_t id, cudnnDataType_t type,
                   const int64_t size[4], const int64_t stride[4],
                   bool is_virtual, bool by_value)
{
    const char *what = "tensor";
    int64_t alignment = by_value ? 4 : 16;
    desc d = make(b, what, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set(b, what, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
        &type);
    set(b, what, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(b, what, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(b, what, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(b, what, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
        &alignment);
    set(b, what, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
        &is_virtual);
    set(b, what, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
        &by_value);
    return finish(b, what, d);
}

static cudnnDataType_t data_type(enum plait_dtype type)
{
    return type == PLAIT_BF16_T ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* [batch, heads, rows, columns] of memory, whose tokens lie `token` elements
 * apart; where `across`, the tokens are the columns. */
static desc memory(struct build *b, int64_t id, int heads, size_t token,
                   bool across)
{
    int64_t T = b->s->len, D = b->s->head_dim;
    int64_t size[4] = {b->s->batch, heads, across ? D : T, across ? T : D};
    int64_t stride[4] = {T * (int64_t)token, D, across ? 1 : (int64_t)token,
                         across ? (int64_t)token : 1};

    return tensor(b, id, data_type(b->s->type), size, stride, false, false);
}

static desc number(struct build *b, int64_t id)
{
    const int64_t one[4] = {1, 1, 1, 1};

    return tensor(b, id, CUDNN_DATA_FLOAT, one, one, false, true);
}

/* A result [batch, q_heads, len, columns] that stays inside the kernel. */
static desc inside(struct build *b, cudnnDataType_t type, int64_t columns)
{
    int64_t H = b->s->q_heads, T = b->s->len;
    int64_t size[4] = {b->s->batch, H, T, columns};
    int64_t stride[4] = {H * T * columns, T * columns, columns, 1};

    return tensor(b, b->next_id++, type, size, stride, true, false);
}

/* fp32 memory [batch, q_heads, len, columns], dense. */
static desc of_rows(struct build *b, int64_t id, int64_t columns)
{
    int64_t H = b->s->q_heads, T = b->s->len;
    int64_t size[4] = {b->s->batch, H, T, columns};
    int64_t stride[4] = {H * T * columns, T * columns, columns, 1};

    return tensor(b, id, CUDNN_DATA_FLOAT, size, stride, false, false);
}

/* Rows of heads as the runtime has them, one token behind the other. */
static desc of_tokens(struct build *b, int64_t id, int heads)
{
    return memory(b, id, heads, (size_t)heads * (size_t)b->s->head_dim, false);
}

/* -- operations ------------------------------------------------------------ */

static void add_op(struct build *b, const char *what, desc d)
{
    finish(b, what, d);
    if (b->status != CUDNN_STATUS_SUCCESS)
        return;
    if (b->nops == OPERATIONS)
        check(b, what, CUDNN_STATUS_INTERNAL_ERROR);
    else
        b->ops[b->nops++] = d;
}

static void multiply(struct build *b, desc x, desc y, desc out)
{
    const char *what = "product";
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = make(b, what, CUDNN_BACKEND_MATMUL_DESCRIPTOR), d;

    set(b, what, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
        &type);
    finish(b, what, how);
    d = make(b, what, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_op(b, what, d);
}

/* out = x mode y; y may be NULL. where: the mask of a selection. axis of an
 * index. */
static void pointwise(struct build *b, cudnnPointwiseMode_t mode,
                      cudnnDataType_t type, int64_t axis, desc x, desc y,
                      desc where, desc out)
{
    const char *what = "pointwise operation";
    desc how = make(b, what, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), d;

    set(b, what, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
        &mode);
    set(b, what, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
        &type);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(b, what, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1,
            &axis);
    finish(b, what, how);
    d = make(b, what, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (y != NULL)
        set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y);
    if (where != NULL)
        set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
    add_op(b, what, d);
}

/* A pointwise operation in fp32 whose result stays inside. */
static desc compute(struct build *b, cudnnPointwiseMode_t mode, desc x, desc y,
                    int64_t columns)
{
    desc out = inside(b, CUDNN_DATA_FLOAT, columns);

    pointwise(b, mode, CUDNN_DATA_FLOAT, 0, x, y, NULL, out);
    return out;
}

/* Over what x has more of than out. */
static void reduce_to(struct build *b, cudnnReduceTensorOp_t op, desc x,
                      desc out)
{
    const char *what = "reduction";
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = make(b, what, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), d;

    set(b, what, how, CUDNN_ATTR_REDUCTION_OPERATOR,
        CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    set(b, what, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
        &type);
    finish(b, what, how);
    d = make(b, what, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_op(b, what, d);
}

/* Over the columns. */
static desc reduce(struct build *b, cudnnReduceTensorOp_t op, desc x)
{
    desc out = inside(b, CUDNN_DATA_FLOAT, 1);

    reduce_to(b, op, x, out);
    return out;
}

/* x turned over: of len x len [batch, q_heads], in the type of the values;
 * or of the keys. */
static desc turned(struct build *b, desc x, bool keys)
{
    const char *what = "transposition";
    const struct shape *s = b->s;
    int64_t T = s->len, D = s->head_dim, token = (int64_t)s->kv_stride;
    int64_t H = keys ? s->kv_heads : s->q_heads;
    int64_t size[4] = {s->batch, H, T, keys ? D : T};
    int64_t square[4] = {H * T * T, T * T, 1, T};
    int64_t of_keys[4] = {T * token, D, token, 1};
    desc out = tensor(b, b->next_id++,
                      keys ? CUDNN_DATA_FLOAT : data_type(s->type), size,
                      keys ? of_keys : square, true, false);
    desc d = make(b, what, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_desc(b, what, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(b, what, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
    add_op(b, what, d);
    return out;
}

static desc index_of(struct build *b, desc x, int64_t axis)
{
    desc out = inside(b, CUDNN_DATA_INT32, b->s->len);

    pointwise(b, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, NULL,
              NULL, out);
    return out;
}

/* Scores of keys behind the query become the number ID_MASKED. */
static desc mask(struct build *b, desc scores)
{
    desc row = index_of(b, scores, 2), column = index_of(b, scores, 3);
    desc visible = inside(b, CUDNN_DATA_BOOLEAN, b->s->len);
    desc out = inside(b, CUDNN_DATA_FLOAT, b->s->len);

    pointwise(b, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, row, column,
              NULL, visible);
    pointwise(b, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, scores,
              number(b, ID_MASKED), visible, out);
    return out;
}

/* The weights, in the type of the values; their log sum exp is stored. */
static desc softmax(struct build *b, desc scores)
{
    int64_t T = b->s->len;
    desc max = reduce(b, CUDNN_REDUCE_TENSOR_MAX, scores);
    desc less = compute(b, CUDNN_POINTWISE_SUB, scores, max, T);
    desc power = compute(b, CUDNN_POINTWISE_EXP, less, NULL, T);
    desc sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, power);
    desc log = compute(b, CUDNN_POINTWISE_LOG, sum, NULL, 1);
    desc out = inside(b, data_type(b->s->type), T);

    pointwise(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, 0, max, log, NULL,
              of_rows(b, ID_LSE, 1));
    pointwise(b, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, 0, power, sum, NULL,
              out);
    return out;
}

static void forward_ops(struct build *b)
{
    const struct shape *s = b->s;
    desc q = memory(b, ID_Q, s->q_heads, s->q_stride, false);
    desc k = memory(b, ID_K, s->kv_heads, s->kv_stride, true);
    desc v = memory(b, ID_V, s->kv_heads, s->kv_stride, false);
    desc scores = inside(b, CUDNN_DATA_FLOAT, s->len);

    multiply(b, q, k, scores);
    scores = compute(b, CUDNN_POINTWISE_MUL, scores, number(b, ID_SCALE),
                     s->len);
    multiply(b, softmax(b, mask(b, scores)), v,
             of_tokens(b, ID_OUT, s->q_heads));
}

/* The row sums of dout * out; the factor is that of dropout. */
static desc delta(struct build *b, desc dout)
{
    desc out = of_rows(b, ID_DELTA, 1);
    desc x = compute(b, CUDNN_POINTWISE_MUL, dout,
                     of_tokens(b, ID_OUT, b->s->q_heads), b->s->head_dim);

    pointwise(b, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, 0,
              reduce(b, CUDNN_REDUCE_TENSOR_ADD, x), number(b, ID_ONE), NULL,
              out);
    return out;
}

/* x^T . y for each head of q, to memory `id` of kv_heads: those that share a
 * head are added. */
static void multiply_turned(struct build *b, desc x, desc y, int64_t id)
{
    const struct shape *s = b->s;
    desc out = of_tokens(b, id, s->kv_heads), all = out;

    if (s->q_heads != s->kv_heads)
        all = inside(b, data_type(s->type), s->head_dim);
    multiply(b, turned(b, x, false), y, all);
    if (all != out)
        reduce_to(b, CUDNN_REDUCE_TENSOR_ADD, all, out);
}

/* The weights once more, from the log sum exp. */
static desc weights(struct build *b, desc q, desc k, desc scale)
{
    int64_t T = b->s->len;
    desc x = inside(b, CUDNN_DATA_FLOAT, T);

    multiply(b, q, k, x);
    x = compute(b, CUDNN_POINTWISE_MUL, x, scale, T);
    x = compute(b, CUDNN_POINTWISE_SUB, x, of_rows(b, ID_LSE, 1), T);
    return compute(b, CUDNN_POINTWISE_EXP, mask(b, x), NULL, T);
}

/* In the order of Dao et al., "FlashAttention" (2022, arXiv:2205.14135),
 * appendix B.2: dV = P^T dout; dS = P * (dout V^T - delta) scale; dK = dS^T Q;
 * dQ = dS K. */
static void backward_ops(struct build *b)
{
    const struct shape *s = b->s;
    int64_t T = s->len;
    desc q = memory(b, ID_Q, s->q_heads, s->q_stride, false);
    desc k = memory(b, ID_K, s->kv_heads, s->kv_stride, true);
    desc v = memory(b, ID_V, s->kv_heads, s->kv_stride, true);
    desc dout = of_tokens(b, ID_DOUT, s->q_heads);
    desc scale = number(b, ID_SCALE), rows = delta(b, dout);
    desc p = weights(b, q, k, scale), x = inside(b, CUDNN_DATA_FLOAT, T);
    desc dq = of_rows(b, ID_DQ_SUM, s->head_dim);

    multiply_turned(b, p, dout, ID_DV);
    multiply(b, dout, v, x);
    x = compute(b, CUDNN_POINTWISE_SUB, x, rows, T);
    x = compute(b, CUDNN_POINTWISE_MUL, x, p, T);
    x = compute(b, CUDNN_POINTWISE_MUL, x, scale, T);
    multiply_turned(b, x, q, ID_DK);
    multiply(b, x, turned(b, k, true), dq);
    pointwise(b, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, 0, dq, NULL, NULL,
              of_tokens(b, ID_DQ, s->q_heads));
}

static desc attention(struct build *b, cudnnHandle_t handle)
{
    const char *what = "operation graph";
    desc d;

    if (b->s->backward)
        backward_ops(b);
    else
        forward_ops(b);
    d = make(b, what, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, what, d, CUDNN_ATTR_OPERATIONGRAPH_OPS,
        CUDNN_TYPE_BACKEND_DESCRIPTOR, b->nops, b->ops);
    set(b, what, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
        &handle);
    return finish(b, what, d);
}

/* -- plans ----------------------------------------------------------------- */

/* cuDNN's engines for the graph, its favourite first; how many. */
static int64_t engines(struct build *b, desc graph, desc list[ENGINES])
{
    const char *what = "heuristics";
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    desc d = make(b, what, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t found = 0;

    set_desc(b, what, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, what, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(b, what, d);
    for (int i = 0; i < ENGINES; i++)
        list[i] = make(b, what, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (b->status == CUDNN_STATUS_SUCCESS)
        check(b, what,
              cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES,
                                       &found, list));
    return b->status == CUDNN_STATUS_SUCCESS ? found : 0;
}

/* A plan with this engine, if it can. */
static void try_engine(struct build *b, cudnnHandle_t handle, desc engine)
{
    const char *what = "plan";
    desc d = make(b, what, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    set(b, what, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
        &handle);
    set_desc(b, what, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    finish(b, what, d);
    if (b->status == CUDNN_STATUS_SUCCESS)
        check(b, what,
              cudnnBackendGetAttribute(d,
                                       CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, NULL,
                                       &b->p->workspace));
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->p->plan = d;
}

static void choose(struct build *b, cudnnHandle_t handle, desc graph)
{
    desc list[ENGINES];
    int64_t found = engines(b, graph, list);

    if (b->status == CUDNN_STATUS_SUCCESS && found == 0)
        check(b, "heuristics", CUDNN_STATUS_NOT_SUPPORTED);
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
                     "heads of %d: %s%s%s", s->backward ? "backward" : "forward",
                     s->batch, s->len, s->q_heads, s->head_dim,
                     old != NULL ? old : b->what, old != NULL ? "" : ": ",
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
        choose(&b, c->handle, attention(&b, c->handle));
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

/* What the backward makes beside, in this order behind the workspace. */
static const int scratch_ids[] = {ID_DELTA, ID_DQ_SUM, ID_DQ, ID_DK, ID_DV};
#define SCRATCH_IDS (sizeof(scratch_ids) / sizeof(scratch_ids[0]))

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

    for (size_t i = 0; p->shape.backward && i < SCRATCH_IDS; i++)
        bytes += aligned(scratch_bytes(&p->shape, scratch_ids[i]));
    room = cuda_scratch(q, bytes);
    if (room == NULL)
        return NULL;
    bytes = aligned((size_t)p->workspace);
    for (size_t i = 0; p->shape.backward && i < SCRATCH_IDS; i++) {
        memory[scratch_ids[i]] = room + bytes;
        bytes += aligned(scratch_bytes(&p->shape, scratch_ids[i]));
    }
    return room;
}

/* 1: done; 0: cuDNN does not take the shape; -1: the queue has failed. The
 * device's lock is held. */
static int run(struct plait_queue *q, const struct shape *s, float scale,
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
    rc = run(q, &s, a->scale, memory);
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
                          [ID_DOUT] = (void *)(uintptr_t)dout};
    struct shape s = shape_of(type, a, true);
    int rc;

    pthread_mutex_lock(&q->dev->lock);
    rc = run(q, &s, a->scale, memory);
    pthread_mutex_unlock(&q->dev->lock);
    if (rc > 0)
        cuda_add_gradients(q, type, a, dQ, dK, dV, memory[ID_DQ],
                           memory[ID_DK], memory[ID_DV]);
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

#else

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

/* Whole sequences in 16 bits, in the head sizes that cuDNN's flash kernels
 * have on every GPU they run on. */
static bool fits(enum plait_dtype type, const struct plait_attention *a,
                 uintptr_t addresses)
{
    return (type == PLAIT_BF16_T || type == PLAIT_FP16_T) &&
           a->q_len == a->k_len && a->q_len > 1 && a->q_pos == a->k_pos &&
           a->head_dim <= 128 && a->head_dim % 8 == 0 &&
           a->q_stride % 8 == 0 && a->kv_stride % 8 == 0 && addresses % 16 == 0;
}

int cuda_cudnn_takes(struct plait_queue *q, enum plait_dtype type,
                     const struct plait_attention *a, uintptr_t addresses)
{
    const char *choice = getenv("PLAIT_ATTENTION");

    if (choice == NULL || *choice == '\0' || strcmp(choice, "own") == 0)
        return 0;
    if (strcmp(choice, "cudnn") == 0)
        return fits(type, a, addresses);
    return plait_queue_fail(&q->head, EINVAL,
                            "PLAIT_ATTENTION is '%s': it is own or cudnn",
                            choice);
}
