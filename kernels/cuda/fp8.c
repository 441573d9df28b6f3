/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers in fp8 with cuBLASLt, which has only one form of the product:
 * both operands are contiguous along k, and sides are multiples of 16 bytes. So
 * the codes of an operand are made in that form, transposed and padded. */
#include <errno.h>

#include "kernels/cuda/fp8.h"
#include "kernels/cuda/matmul.h"

/* Bytes in front of codes, for their scale and, if a product had to compute it,
 * the amax. */
#define SCALES 256

/* An operand: data [rows, cols] of bf16; the product takes its codes as they
 * are, or transposed. */
struct side {
    const void *data;
    size_t rows, cols;
    bool e4m3, transpose;
    const unsigned *amax;      /* NULL: not known */
    const unsigned char *kept; /* codes of both orders after their scale, made
                                * earlier; NULL: none */
    /* Set once there are codes: */
    const unsigned char *codes;
    const float *inverse;
};

/* d [n,m] = (+=) b [n,k] . a^T [k,m]; m, n, k are not padded. */
struct fp8_product {
    const char *op;
    struct side a, b;
    size_t m, n, k;
    void *d;
    enum plait_dtype out;
    int accumulate;
    const void *bias; /* [m] or NULL */
    bool forward;     /* struct product */
    size_t more;      /* bytes of scratch that the caller also needs */
    char *rest;       /* where those begin */
};

static size_t round_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Bytes of a matrix's codes in one order. */
static size_t code_bytes(size_t rows, size_t cols)
{
    return round_up(fp8_padded(rows) * fp8_padded(cols));
}

static bool is_whole(size_t n)
{
    return n % 16 == 0;
}

static struct side weight_side(const struct plait_weight *w, bool transpose)
{
    return (struct side){.data = w->data,
                         .rows = w->O,
                         .cols = w->C,
                         .e4m3 = true,
                         .transpose = transpose,
                         .kept = w->rounded ? w->codes : NULL};
}

static struct side inp_side(const struct plait_operand *inp, size_t N, size_t C,
                            bool transpose)
{
    return (struct side){.data = inp->x,
                         .rows = N,
                         .cols = C,
                         .e4m3 = true,
                         .transpose = transpose,
                         .amax = inp->amax};
}

static struct side dout_side(const struct plait_operand *dout, size_t N,
                             size_t O, bool transpose)
{
    return (struct side){.data = dout->x,
                         .rows = N,
                         .cols = O,
                         .transpose = transpose,
                         .amax = dout->amax,
                         .kept = dout->codes};
}

/* Writes codes to `room`, after their scale. both: row by row and column by
 * column; otherwise only in the order that the product takes. */
static void round_side(struct plait_queue *q, const struct side *s, void *room,
                       bool both)
{
    unsigned char *codes = (unsigned char *)room + SCALES;
    float *inverse = room;
    struct fp8_tensor t = {.data = s->data,
                           .rows = s->rows,
                           .cols = s->cols,
                           .e4m3 = s->e4m3,
                           .inverse = inverse,
                           .amax = s->amax,
                           .found = (unsigned *)(void *)(inverse + 1)};

    if (both || !s->transpose)
        t.codes = codes;
    if (both)
        t.turned = codes + code_bytes(s->rows, s->cols);
    else if (s->transpose)
        t.turned = codes;
    cuda_fp8_round(q, &t);
}

/* Bytes of scratch that a side needs. */
static size_t side_bytes(const struct side *s)
{
    return s->kept != NULL ? 0 : SCALES + code_bytes(s->rows, s->cols);
}

/* Uses the kept codes, or makes new ones in `room`. */
static void take_codes(struct plait_queue *q, struct side *s, char *room)
{
    const unsigned char *from = s->kept;

    if (from == NULL) {
        round_side(q, s, room, false);
        from = (unsigned char *)room;
    }
    s->inverse = (const float *)(const void *)from;
    s->codes = from + SCALES;
    if (s->kept != NULL && s->transpose)
        s->codes += code_bytes(s->rows, s->cols);
}

/* Scratch for WORKSPACE, both operands' codes, a padded d and p->more. */
static char *make_room(struct plait_queue *q, struct fp8_product *p,
                       void **padded)
{
    size_t d = round_up(fp8_padded(p->m) * fp8_padded(p->n) *
                        plait_dtype_size(p->out));
    size_t sides = side_bytes(&p->a) + side_bytes(&p->b);
    char *room = cuda_scratch(q, WORKSPACE + sides + d + p->more);

    if (room == NULL)
        return NULL;
    *padded = room + WORKSPACE + sides;
    p->rest = (char *)*padded + d;
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

/* Activations and their gradients are rounded to 16 bits anyway. Gradients of
 * weights are sums of many more terms, over micro-batches too, in fp32. */
static void set_key(struct product *key, const struct fp8_product *p)
{
    cuda_product_init(key, PLAIT_BF16_T);
    key->op_a = CUBLAS_OP_T;
    key->m = fp8_padded(p->m);
    key->n = fp8_padded(p->n);
    key->k = fp8_padded(p->k);
    key->fp8 = p->b.e4m3 ? FP8_BOTH_E4M3 : FP8_B_E5M2;
    key->out = p->out;
    key->accumulate = p->accumulate != 0;
    key->fast = p->out != PLAIT_F32;
    key->forward = p->forward;
}

/* Computes the product, with its bias if the library can add it; *biased says
 * so. */
static int multiply_codes(struct plait_queue *q, struct fp8_product *p,
                          bool *biased)
{
    bool direct = is_whole(p->m) && is_whole(p->n) && (uintptr_t)p->d % 16 == 0;
    void *padded = NULL;
    char *room = make_room(q, p, &padded);
    struct operands o = {.d = direct ? p->d : padded, .workspace = room};
    struct product key;
    int done = 0;

    *biased = false;
    if (room == NULL)
        return -1;
    take_codes(q, &p->a, room + WORKSPACE);
    take_codes(q, &p->b, room + WORKSPACE + side_bytes(&p->a));
    o.a = p->a.codes;
    o.b = p->b.codes;
    o.a_scale = p->a.inverse;
    o.b_scale = p->b.inverse;
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

static int fp8_weight(struct plait_queue *q, struct plait_weight *w)
{
    struct side s;

    if (cuda_enter_host(q, "fp8_weight") != 0)
        return -1;
    if (w->codes == NULL)
        w->codes = cuda_alloc(w->dev, plait_fp8_bytes(w->O, w->C));
    if (w->codes == NULL)
        return plait_queue_fail(&q->head, ENOMEM,
                                "fp8_weight: out of device memory");
    w->rounded = false;
    s = weight_side(w, false);
    round_side(q, &s, w->codes, true);
    if (cuda_leave(q, "fp8_weight") != 0)
        return -1;
    w->rounded = true;
    return 0;
}

static int fp8_amax(struct plait_queue *q, uint32_t *amax, const void *x,
                    size_t n)
{
    if (cuda_enter(q) != 0)
        return -1;
    cuda_fp8_amax(q, amax, x, n);
    return cuda_leave(q, "fp8_amax");
}

static int fp8_gradient(struct plait_queue *q,
                        const struct plait_fp8_gradient *g)
{
    struct side s = dout_side(&g->dout, g->N, g->O, false);

    if (cuda_enter(q) != 0)
        return -1;
    if (g->N == 0)
        return 0;
    round_side(q, &s, g->codes, true);
    return cuda_leave(q, "fp8_gradient");
}

static int fp8_forward(struct plait_queue *q, const struct plait_linear *l)
{
    bool gelu = l->act == PLAIT_ACT_GELU, biased;
    size_t N = l->N, O = l->w->O, C = l->w->C;
    void *x = gelu && l->pre != NULL ? l->pre : l->out;
    struct fp8_product p = {.op = "fp8_forward",
                            .a = weight_side(l->w, false),
                            .b = inp_side(&l->inp, N, C, false),
                            .m = O,
                            .n = N,
                            .k = C,
                            .d = x,
                            .out = PLAIT_BF16_T,
                            .bias = l->bias,
                            .forward = true};

    if (cuda_enter(q) != 0)
        return -1;
    if (N == 0)
        return 0;
    if (multiply_codes(q, &p, &biased) != 0)
        return -1;
    if (l->bias != NULL && !biased)
        cuda_bias(q, PLAIT_BF16_T, x, l->bias, N, O);
    if (gelu)
        cuda_gelu(q, PLAIT_BF16_T, l->out, x, N * O);
    return cuda_leave(q, p.op);
}

/* With an activation and accumulate, the product goes to scratch memory instead
 * of dinp. */
static int fp8_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l)
{
    bool gelu = l->act == PLAIT_ACT_GELU && l->pre != NULL, biased;
    size_t N = l->N, O = l->w->O, C = l->w->C;
    struct fp8_product p = {.op = "fp8_backward_input",
                            .a = weight_side(l->w, true),
                            .b = dout_side(&l->dout, N, O, false),
                            .m = C,
                            .n = N,
                            .k = O,
                            .d = l->dinp,
                            .out = PLAIT_BF16_T,
                            .accumulate = l->accumulate && !gelu,
                            .more = gelu && l->accumulate ? N * C * 2 : 0};

    if (cuda_enter(q) != 0)
        return -1;
    if (N == 0)
        return 0;
    if (p.more > 0) {
        void *padded;

        if (make_room(q, &p, &padded) == NULL)
            return -1;
        p.d = p.rest; /* the next call gets the same scratch memory */
    }
    if (multiply_codes(q, &p, &biased) != 0)
        return -1;
    if (gelu)
        cuda_gelu_gradient(q,
                           &(struct plait_gelu_backward){.type = PLAIT_BF16_T,
                                                         .dinp = l->dinp,
                                                         .dout = p.d,
                                                         .inp = l->pre,
                                                         .n = N * C},
                           l->accumulate);
    return cuda_leave(q, p.op);
}

static int fp8_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l)
{
    struct fp8_product p = {.op = "fp8_backward_weight",
                            .a = inp_side(&l->inp, l->N, l->C, true),
                            .b = dout_side(&l->dout, l->N, l->O, true),
                            .m = l->C,
                            .n = l->O,
                            .k = l->N,
                            .d = l->dw,
                            .out = PLAIT_F32,
                            .accumulate = l->accumulate};
    bool biased;

    if (cuda_enter(q) != 0)
        return -1;
    if (cuda_begin_gradient(q, p.op, l) != 0)
        return -1;
    if (l->N == 0)
        return 0;
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
    ops->fp8_amax = fp8_amax;
    ops->fp8_gradient = fp8_gradient;
    ops->fp8_weight = fp8_weight;
    ops->has_fp8 = has_fp8;
}
