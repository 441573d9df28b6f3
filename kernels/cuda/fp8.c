/* SPDX-License-Identifier: Apache-2.0 */
/* Linears in fp8 by cuBLASLt, which has the product in one form only: both
 * operands run along k in memory, and sides are of whole 16 bytes. So the
 * codes of an operand are made in that form, transposed and padded. */
#include <errno.h>

#include "kernels/cuda/fp8.h"
#include "kernels/cuda/matmul.h"

/* Scales and amaxes of two operands. */
#define SCALES 256

/* d [n,m] = (+=) b [n,k] . a^T [k,m]; m, n, k as they are. */
struct fp8_product {
    const char *op;
    struct fp8_tensor a, b;
    size_t m, n, k;
    void *d;
    enum plait_dtype out;
    int accumulate;
    const void *bias; /* [m] or NULL */
    size_t more;      /* bytes of scratch that the caller needs itself */
    char *rest;       /* where they are */
};

static size_t round_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static bool is_whole(size_t n)
{
    return n % 16 == 0;
}

/* Room for both operands' codes and for a padded d; WORKSPACE comes first. */
static char *make_room(struct plait_queue *q, struct fp8_product *p,
                       void **padded)
{
    size_t m = fp8_padded(p->m), n = fp8_padded(p->n), k = fp8_padded(p->k);
    size_t size = plait_dtype_size(p->out);
    char *room =
        cuda_scratch(q, WORKSPACE + SCALES + round_up(m * k) + round_up(n * k) +
                            round_up(m * n * size) + p->more);
    float *scales;

    if (room == NULL)
        return NULL;
    scales = (float *)(void *)(room + WORKSPACE);
    if (!p->a.kept) {
        p->a.inverse = scales;
        p->a.amax = (unsigned *)(void *)(scales + 2);
        p->a.codes = (unsigned char *)room + WORKSPACE + SCALES;
    }
    p->b.inverse = scales + 1;
    p->b.amax = (unsigned *)(void *)(scales + 3);
    p->b.codes = (unsigned char *)room + WORKSPACE + SCALES + round_up(m * k);
    *padded = p->b.codes + round_up(n * k);
    p->rest = (char *)*padded + round_up(m * n * size);
    return room;
}

static int copy_rows(struct plait_queue *q, const struct fp8_product *p,
                     void *to, size_t to_cols, const void *from,
                     size_t from_cols)
{
    size_t size = plait_dtype_size(p->out);

    return cuda_check(q, p->op,
                      cudaMemcpy2DAsync(to, to_cols * size, from,
                                        from_cols * size, p->m * size, p->n,
                                        cudaMemcpyDeviceToDevice, q->stream));
}

static struct product *set_key(struct product *key, const struct fp8_product *p)
{
    cuda_product_init(key, CUBLAS_OP_T, CUBLAS_OP_N, PLAIT_BF16_T,
                      fp8_padded(p->m), fp8_padded(p->n), fp8_padded(p->k));
    key->fp8 = p->b.e4m3 ? FP8_BOTH_E4M3 : FP8_B_E5M2;
    key->out = p->out;
    key->accumulate = p->accumulate != 0;
    return key;
}

/* The product with its bias where the library adds it; *biased says so. */
static int multiply_codes(struct plait_queue *q, struct fp8_product *p,
                          bool *biased)
{
    bool direct = is_whole(p->m) && is_whole(p->n) && (uintptr_t)p->d % 16 == 0;
    void *padded = NULL;
    char *room = make_room(q, p, &padded);
    struct operands o = {.a = p->a.codes,
                         .b = p->b.codes,
                         .d = direct ? p->d : padded,
                         .workspace = room,
                         .a_scale = p->a.inverse,
                         .b_scale = p->b.inverse};
    struct product key;
    int done = 0;

    *biased = false;
    if (room == NULL)
        return -1;
    if (!p->a.kept)
        cuda_fp8_round(q, &p->a);
    cuda_fp8_round(q, &p->b);
    if (!direct && p->accumulate &&
        copy_rows(q, p, padded, fp8_padded(p->m), p->d, p->m) != 0)
        return -1;
    set_key(&key, p);
    if (direct && p->bias != NULL && (uintptr_t)p->bias % 16 == 0) {
        o.bias = p->bias;
        key.epilogue = CUBLASLT_EPILOGUE_BIAS;
        done = cuda_multiply(q, p->op, &key, &o);
        *biased = done > 0;
        o.bias = NULL;
        key.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (done == 0 && cuda_multiply_plain(q, p->op, &key, &o) != 0)
        return -1;
    if (done < 0)
        return -1;
    return direct ? 0 : copy_rows(q, p, p->d, p->m, padded, fp8_padded(p->m));
}

/* w as it is, or transposed; with the codes that are kept, if any. */
static struct fp8_tensor weight_of(const struct plait_weight *w, bool transpose)
{
    struct fp8_tensor t = {.data = w->data,
                           .rows = w->O,
                           .cols = w->C,
                           .e4m3 = true,
                           .transpose = transpose,
                           .kept = w->rounded};

    if (w->codes == NULL)
        return t;
    t.inverse = (float *)(void *)w->codes;
    t.amax = (unsigned *)(void *)(t.inverse + 1);
    t.codes = w->codes + SCALES;
    if (transpose)
        t.codes += round_up(fp8_padded(w->O) * fp8_padded(w->C));
    return t;
}

static int fp8_weight(struct plait_queue *q, struct plait_weight *w)
{
    size_t bytes = round_up(fp8_padded(w->O) * fp8_padded(w->C));
    struct fp8_tensor t;

    if (cuda_enter_host(q, "fp8_weight") != 0)
        return -1;
    if (w->codes == NULL)
        w->codes = cuda_alloc(w->dev, SCALES + 2 * bytes);
    if (w->codes == NULL)
        return plait_queue_fail(&q->head, ENOMEM,
                                "fp8_weight: out of device memory");
    w->rounded = false;
    t = weight_of(w, false);
    cuda_fp8_round(q, &t);
    t = weight_of(w, true);
    cuda_fp8_round(q, &t);
    if (cuda_leave(q, "fp8_weight") != 0)
        return -1;
    w->rounded = true;
    return 0;
}

static int fp8_forward(struct plait_queue *q, void *out, void *pre,
                       const void *inp, struct plait_weight *w,
                       const void *bias, enum plait_activation act, size_t N)
{
    bool gelu = act == PLAIT_ACT_GELU, biased;
    size_t O = w->O, C = w->C;
    void *x = gelu && pre != NULL ? pre : out;
    struct fp8_product p = {
        .op = "fp8_forward",
        .a = weight_of(w, false),
        .b = {.data = inp, .rows = N, .cols = C, .e4m3 = true},
        .m = O,
        .n = N,
        .k = C,
        .d = x,
        .out = PLAIT_BF16_T,
        .bias = bias};

    if (cuda_enter(q) != 0)
        return -1;
    if (N == 0)
        return 0;
    if (multiply_codes(q, &p, &biased) != 0)
        return -1;
    if (bias != NULL && !biased)
        cuda_bias(q, PLAIT_BF16_T, x, bias, N, O);
    if (gelu)
        cuda_gelu(q, PLAIT_BF16_T, out, x, N * O);
    return cuda_leave(q, p.op);
}

/* With an activation the product is made beside dinp. */
static int fp8_backward_input(struct plait_queue *q, void *dinp,
                              const void *dout, struct plait_weight *w,
                              enum plait_activation act, const void *pre,
                              int accumulate, size_t N)
{
    bool gelu = act == PLAIT_ACT_GELU && pre != NULL, biased;
    size_t O = w->O, C = w->C;
    struct fp8_product p = {.op = "fp8_backward_input",
                            .a = weight_of(w, true),
                            .b = {.data = dout, .rows = N, .cols = O},
                            .m = C,
                            .n = N,
                            .k = O,
                            .d = dinp,
                            .out = PLAIT_BF16_T,
                            .accumulate = accumulate && !gelu,
                            .more = gelu && accumulate ? N * C * 2 : 0};

    if (cuda_enter(q) != 0)
        return -1;
    if (N == 0)
        return 0;
    if (p.more > 0) {
        void *padded;

        if (make_room(q, &p, &padded) == NULL)
            return -1;
        p.d = p.rest; /* scratch stays where it is */
    }
    if (multiply_codes(q, &p, &biased) != 0)
        return -1;
    if (gelu)
        cuda_gelu_gradient(q, PLAIT_BF16_T, dinp, p.d, pre, accumulate, N * C);
    return cuda_leave(q, p.op);
}

static int fp8_backward_weight(struct plait_queue *q, enum plait_dtype type,
                               float *dw, float *dbias, const void *dout,
                               const void *inp, int accumulate, size_t N,
                               size_t O, size_t C)
{
    struct fp8_product p = {
        .op = "fp8_backward_weight",
        .a = {.data = inp,
              .rows = N,
              .cols = C,
              .e4m3 = true,
              .transpose = true},
        .b = {.data = dout, .rows = N, .cols = O, .transpose = true},
        .m = C,
        .n = O,
        .k = N,
        .d = dw,
        .out = PLAIT_F32,
        .accumulate = accumulate};
    bool biased;

    if (cuda_enter(q) != 0)
        return -1;
    if (!accumulate &&
        cuda_clear_gradient(q, p.op, N ? NULL : dw, dbias, O, C) != 0)
        return -1;
    if (N == 0)
        return 0;
    if (dbias != NULL)
        cuda_column_sums(q, type, dbias, dout, N, O);
    if (multiply_codes(q, &p, &biased) != 0)
        return -1;
    return cuda_leave(q, p.op);
}

static int has_fp8(struct plait_device *dev)
{
    return dev->capability >= 89;
}

void cuda_fp8_ops(struct plait_ops *ops)
{
    ops->fp8_forward = fp8_forward;
    ops->fp8_backward_input = fp8_backward_input;
    ops->fp8_backward_weight = fp8_backward_weight;
    ops->fp8_weight = fp8_weight;
    ops->has_fp8 = has_fp8;
}
