/* SPDX-License-Identifier: Apache-2.0 */
/* Describes attention to cuDNN's backend operation by operation, which
 * it recognises and computes with one of its flash kernels. */
#include "config.h"

#ifdef HAVE_CUDNN

#include "kernels/cuda/cudnn.h"

/* -- tensors --------------------------------------------------------------- */

static cudnnDataType_t data_type(enum plait_dtype type)
{
    return type == PLAIT_BF16_T ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* A tensor in memory [batch, heads, rows, columns] whose tokens are `token`
 * elements apart; across: the tokens are the columns. */
static desc memory(struct build *b, int64_t id, int heads, size_t token,
                   bool across)
{
    int64_t T = b->s->len, D = b->s->head_dim, step = (int64_t)token;
    struct tensor t = {
        .id = id,
        .type = data_type(b->s->type),
        .size = {b->s->batch, heads, across ? D : T, across ? T : D},
        .stride = {T * step, D, across ? 1 : step, across ? step : 1}};

    return cudnn_tensor(b, &t);
}

static desc number_of(struct build *b, int64_t id, cudnnDataType_t type)
{
    struct tensor t = {.id = id,
                       .type = type,
                       .size = {1, 1, 1, 1},
                       .stride = {1, 1, 1, 1},
                       .by_value = true};

    return cudnn_tensor(b, &t);
}

static desc number(struct build *b, int64_t id)
{
    return number_of(b, id, CUDNN_DATA_FLOAT);
}

/* Dense: [batch, q_heads, len, columns]. */
static struct tensor dense(const struct build *b, int64_t columns)
{
    int64_t H = b->s->q_heads, T = b->s->len;

    return (struct tensor){
        .size = {b->s->batch, H, T, columns},
        .stride = {H * T * columns, T * columns, columns, 1}};
}

/* A dense virtual result, which stays inside the kernel. */
static desc inside(struct build *b, cudnnDataType_t type, int64_t columns)
{
    struct tensor t = dense(b, columns);

    t.id = b->next_id++;
    t.type = type;
    t.is_virtual = true;
    return cudnn_tensor(b, &t);
}

/* A dense fp32 tensor in memory. */
static desc of_rows(struct build *b, int64_t id, int64_t columns)
{
    struct tensor t = dense(b, columns);

    t.id = id;
    t.type = CUDNN_DATA_FLOAT;
    return cudnn_tensor(b, &t);
}

/* Heads in the runtime's dense layout, [batch, len, heads, head_dim]. */
static desc of_tokens(struct build *b, int64_t id, int heads)
{
    return memory(b, id, heads, (size_t)heads * (size_t)b->s->head_dim, false);
}

/* A gradient of the heads of q, or of k and v. */
static desc gradient(struct build *b, int64_t id, int heads, size_t stride)
{
    return b->s->overwrite ? memory(b, id, heads, stride, false)
                           : of_tokens(b, id, heads);
}

/* -- operations ------------------------------------------------------------ */

static void multiply(struct build *b, desc x, desc y, desc out)
{
    const char *what = "product";
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = cudnn_make(b, what, CUDNN_BACKEND_MATMUL_DESCRIPTOR), d;

    cudnn_set(b, what, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
              1, &type);
    cudnn_finish(b, what, how);
    d = cudnn_make(b, what, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    cudnn_add(b, what, d);
}

/* out = x mode y */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* that it is computed in */
    desc out, x, y;       /* y NULL: none */
    desc where;           /* the mask of a selection; NULL: none */
    int64_t axis;         /* of an index */
};

static void pointwise(struct build *b, const struct pointwise *p)
{
    const char *what = "pointwise operation";
    desc how = cudnn_make(b, what, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), d;

    cudnn_set(b, what, how, CUDNN_ATTR_POINTWISE_MODE,
              CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    cudnn_set(b, what, how, CUDNN_ATTR_POINTWISE_MATH_PREC,
              CUDNN_TYPE_DATA_TYPE, 1, &p->type);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
        cudnn_set(b, what, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1,
                  &p->axis);
    cudnn_finish(b, what, how);
    d = cudnn_make(b, what, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                   how);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    if (p->y != NULL)
        cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->y);
    if (p->where != NULL)
        cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                       p->where);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->out);
    cudnn_add(b, what, d);
}

/* The same in fp32. */
static void store(struct build *b, cudnnPointwiseMode_t mode, desc x, desc y,
                  desc out)
{
    pointwise(b, &(struct pointwise){.mode = mode,
                                     .type = CUDNN_DATA_FLOAT,
                                     .out = out,
                                     .x = x,
                                     .y = y});
}

/* The same with a virtual result. */
static desc compute(struct build *b, cudnnPointwiseMode_t mode, desc x, desc y,
                    int64_t columns)
{
    desc out = inside(b, CUDNN_DATA_FLOAT, columns);

    store(b, mode, x, y, out);
    return out;
}

/* Reduces x over the dimensions in which out has size 1 or fewer heads. */
static void reduce_to(struct build *b, cudnnReduceTensorOp_t op, desc x,
                      desc out)
{
    const char *what = "reduction";
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = cudnn_make(b, what, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), d;

    cudnn_set(b, what, how, CUDNN_ATTR_REDUCTION_OPERATOR,
              CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    cudnn_set(b, what, how, CUDNN_ATTR_REDUCTION_COMP_TYPE,
              CUDNN_TYPE_DATA_TYPE, 1, &type);
    cudnn_finish(b, what, how);
    d = cudnn_make(b, what, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    cudnn_add(b, what, d);
}

/* Reduces over the columns. */
static desc reduce(struct build *b, cudnnReduceTensorOp_t op, desc x)
{
    desc out = inside(b, CUDNN_DATA_FLOAT, 1);

    reduce_to(b, op, x, out);
    return out;
}

/* x transposed: [len, len] for each head of q, in the type of the values, or
 * (keys) the keys. */
static desc transposed(struct build *b, desc x, bool keys)
{
    const char *what = "transposition";
    const struct shape *s = b->s;
    int64_t T = s->len, D = s->head_dim, token = (int64_t)s->kv_stride;
    int64_t H = keys ? s->kv_heads : s->q_heads;
    struct tensor square = {.id = b->next_id++,
                            .type = data_type(s->type),
                            .size = {s->batch, H, T, T},
                            .stride = {H * T * T, T * T, 1, T},
                            .is_virtual = true};
    struct tensor of_keys = {.id = square.id,
                             .type = CUDNN_DATA_FLOAT,
                             .size = {s->batch, H, T, D},
                             .stride = {T * token, D, token, 1},
                             .is_virtual = true};
    desc out = cudnn_tensor(b, keys ? &of_keys : &square);
    desc d = cudnn_make(b, what, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
    cudnn_add(b, what, d);
    return out;
}

static desc index_of(struct build *b, desc x, int64_t axis)
{
    desc out = inside(b, CUDNN_DATA_INT32, b->s->len);

    pointwise(b, &(struct pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                     .type = CUDNN_DATA_FLOAT,
                                     .out = out,
                                     .x = x,
                                     .axis = axis});
    return out;
}

/* Replaces scores by the number ID_MASKED unless x mode y. */
static desc select_where(struct build *b, desc scores,
                         cudnnPointwiseMode_t mode, desc x, desc y)
{
    desc visible = inside(b, CUDNN_DATA_BOOLEAN, b->s->len);
    desc out = inside(b, CUDNN_DATA_FLOAT, b->s->len);

    pointwise(b, &(struct pointwise){.mode = mode,
                                     .type = CUDNN_DATA_BOOLEAN,
                                     .out = visible,
                                     .x = x,
                                     .y = y});
    pointwise(b, &(struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                     .type = CUDNN_DATA_FLOAT,
                                     .out = out,
                                     .x = scores,
                                     .y = number(b, ID_MASKED),
                                     .where = visible});
    return out;
}

/* Hides keys that are a window or more before the query. */
static desc mask_before(struct build *b, desc scores)
{
    desc row = index_of(b, scores, 2), column = index_of(b, scores, 3);
    desc end = inside(b, CUDNN_DATA_INT32, b->s->len);

    pointwise(
        b, &(struct pointwise){.mode = CUDNN_POINTWISE_ADD,
                               .type = CUDNN_DATA_INT32,
                               .out = end,
                               .x = column,
                               .y = number_of(b, ID_WINDOW, CUDNN_DATA_INT32)});
    return select_where(b, scores, CUDNN_POINTWISE_CMP_GT, end, row);
}

/* Hides keys after the query, and those before its window. */
static desc mask(struct build *b, desc scores)
{
    desc row, column;

    if (b->s->unmasked)
        return scores;
    row = index_of(b, scores, 2);
    column = index_of(b, scores, 3);
    scores = select_where(b, scores, CUDNN_POINTWISE_CMP_GE, row, column);
    return b->s->window ? mask_before(b, scores) : scores;
}

/* The weights, in the type of the values; stores their log sum exp. */
static desc softmax(struct build *b, desc scores)
{
    int64_t T = b->s->len;
    desc max = reduce(b, CUDNN_REDUCE_TENSOR_MAX, scores);
    desc less = compute(b, CUDNN_POINTWISE_SUB, scores, max, T);
    desc power = compute(b, CUDNN_POINTWISE_EXP, less, NULL, T);
    desc sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, power);
    desc log = compute(b, CUDNN_POINTWISE_LOG, sum, NULL, 1);
    desc out = inside(b, data_type(b->s->type), T);

    store(b, CUDNN_POINTWISE_ADD, max, log, of_rows(b, ID_LSE, 1));
    store(b, CUDNN_POINTWISE_DIV, power, sum, out);
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
    scores =
        compute(b, CUDNN_POINTWISE_MUL, scores, number(b, ID_SCALE), s->len);
    multiply(b, softmax(b, mask(b, scores)), v,
             of_tokens(b, ID_OUT, s->q_heads));
}

/* The row sums of dout * out. The factor of one takes the place of dropout's,
 * which the pattern has. */
static desc delta(struct build *b, desc dout)
{
    desc out = of_rows(b, ID_DELTA, 1);
    desc x = compute(b, CUDNN_POINTWISE_MUL, dout,
                     of_tokens(b, ID_OUT, b->s->q_heads), b->s->head_dim);

    store(b, CUDNN_POINTWISE_MUL, reduce(b, CUDNN_REDUCE_TENSOR_ADD, x),
          number(b, ID_ONE), out);
    return out;
}

/* x^T . y for each head of q, stored to memory `id` of kv_heads: heads that
 * share one are added. */
static void multiply_transposed(struct build *b, desc x, desc y, int64_t id)
{
    const struct shape *s = b->s;
    desc out = gradient(b, id, s->kv_heads, s->kv_stride), all = out;

    if (s->q_heads != s->kv_heads)
        all = inside(b, data_type(s->type), s->head_dim);
    multiply(b, transposed(b, x, false), y, all);
    if (all != out)
        reduce_to(b, CUDNN_REDUCE_TENSOR_ADD, all, out);
}

/* Recomputes the weights from the log sum exp. */
static desc weights(struct build *b, desc q, desc k, desc scale)
{
    int64_t T = b->s->len;
    desc x = inside(b, CUDNN_DATA_FLOAT, T);

    multiply(b, q, k, x);
    x = compute(b, CUDNN_POINTWISE_MUL, x, scale, T);
    x = compute(b, CUDNN_POINTWISE_SUB, x, of_rows(b, ID_LSE, 1), T);
    return compute(b, CUDNN_POINTWISE_EXP, mask(b, x), NULL, T);
}

/* The order is that of Dao et al., "FlashAttention" (2022, arXiv:2205.14135),
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

    multiply_transposed(b, p, dout, ID_DV);
    multiply(b, dout, v, x);
    x = compute(b, CUDNN_POINTWISE_SUB, x, rows, T);
    x = compute(b, CUDNN_POINTWISE_MUL, x, p, T);
    x = compute(b, CUDNN_POINTWISE_MUL, x, scale, T);
    multiply_transposed(b, x, q, ID_DK);
    multiply(b, x, transposed(b, k, true), dq);
    store(b, CUDNN_POINTWISE_IDENTITY, dq, NULL,
          gradient(b, ID_DQ, s->q_heads, s->q_stride));
}

const char *cudnn_refused(const struct shape *s, size_t version)
{
    if (version == 91000 || version == 91001)
        return "wrong in 16 bits in 9.10.0 and 9.10.1";
    /* NVIDIA's cudnn-frontend has windows from 9.2 on, until 9.6 with further
     * limits. None before 9.6 has been tried here, and as a backward needs 9.6,
     * only the forward half would gain. */
    if (s->window && version < 90600)
        return "older than 9.6";
    if (!s->backward)
        return NULL;
    if (version < 90600)
        return "older than 9.6";
    if (version < 91600 && s->len % 128 != 0)
        return "before 9.16 for whole 128 tokens alone";
    return NULL;
}

void cudnn_state_attention(struct build *b)
{
    b->s = &b->p->key.attention;
    if (b->s->backward)
        backward_ops(b);
    else
        forward_ops(b);
}

#endif
