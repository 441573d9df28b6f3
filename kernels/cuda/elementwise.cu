/* SPDX-License-Identifier: Apache-2.0 */
/* Ops whose elements know nothing of each other. */
#include "kernels/cuda/gelu.cuh"

static const unsigned threads = 256;

/* If all arrays begin at multiples of 16 bytes, elements below `packed` are
 * moved in packs, the rest one by one. */
template <typename T> static inline size_t packed_part(size_t n, bool aligned)
{
    return aligned ? n / pack<T>::n * pack<T>::n : 0;
}

/* -- maps of one or two arrays ------------------------------------------ */

/* out[i] = f(a[i], b[i], out[i]); b may be NULL, then f gets 0. */
template <typename T, typename F>
static __global__ void map_kernel(T *out, const T *a, const T *b, size_t packed,
                                  size_t n, F f)
{
    constexpr int V = pack<T>::n;

    GRID_LOOP(i, packed / V)
    {
        pack<T> x = load_pack(a + i * V), y = x, z;

        if (b != NULL)
            y = load_pack(b + i * V);
        if (F::reads_out)
            z = load_pack(out + i * V);
        for (int j = 0; j < V; j++)
            z.v[j] = from_float<T>(f(to_float(x.v[j]), to_float(y.v[j]),
                                     F::reads_out ? to_float(z.v[j]) : 0.0f));
        store_pack(out + i * V, z);
    }
    GRID_LOOP(i, n - packed)
    {
        size_t at = packed + i;

        out[at] =
            from_float<T>(f(to_float(a[at]), b != NULL ? to_float(b[at]) : 0.0f,
                            F::reads_out ? to_float(out[at]) : 0.0f));
    }
}

/* The arrays of a map; b may be NULL. */
struct arrays {
    enum plait_dtype type;
    void *out;
    const void *a, *b;
    size_t n;
};

template <typename F>
static void map(struct plait_queue *q, const struct arrays &m, F f)
{
    if (m.n == 0)
        return;
    for_type(m.type, [&](auto zero) {
        typedef decltype(zero) T;
        bool aligned = aligned16(m.out) && aligned16(m.a) && aligned16(m.b);
        size_t packed = packed_part<T>(m.n, aligned);
        size_t items = packed > 0 ? packed / pack<T>::n : m.n;

        map_kernel<<<grid_for(q, items, threads), threads, 0, q->stream>>>(
            (T *)m.out, (const T *)m.a, (const T *)m.b, packed, m.n, f);
    });
}

struct add_map {
    static constexpr bool reads_out = false;
    __device__ float operator()(float a, float b, float) const
    {
        return a + b;
    }
};

static int add(struct plait_queue *q, const struct plait_add *a)
{
    if (cuda_enter(q) != 0)
        return -1;
    map(q, arrays{a->type, a->out, a->a, a->b, a->n}, add_map());
    return cuda_leave(q, "add");
}

struct add_scaled_map {
    static constexpr bool reads_out = false;
    float s;
    __device__ float operator()(float a, float b, float) const
    {
        return a + s * b;
    }
};

static int add_scaled(struct plait_queue *q, const struct plait_add *a)
{
    if (cuda_enter(q) != 0)
        return -1;
    map(q, arrays{a->type, a->out, a->a, a->b, a->n}, add_scaled_map{a->s});
    return cuda_leave(q, "add_scaled");
}

struct scale_map {
    static constexpr bool reads_out = false;
    float s;
    __device__ float operator()(float a, float, float) const
    {
        return a * s;
    }
};

static int scale(struct plait_queue *q, const struct plait_scale *s)
{
    if (cuda_enter(q) != 0)
        return -1;
    map(q, arrays{s->type, s->x, s->x, NULL, s->n}, scale_map{s->s});
    return cuda_leave(q, "scale");
}

struct softcap_map {
    static constexpr bool reads_out = false;
    float s;
    __device__ float operator()(float a, float, float) const
    {
        return s * tanhf(a / s);
    }
};

static int softcap(struct plait_queue *q, const struct plait_scale *s)
{
    if (cuda_enter(q) != 0)
        return -1;
    map(q, arrays{s->type, s->x, s->x, NULL, s->n}, softcap_map{s->s});
    return cuda_leave(q, "softcap");
}

struct gelu_map {
    static constexpr bool reads_out = false;
    __device__ float operator()(float a, float, float) const
    {
        return gelu(a);
    }
};

struct gelu_gradient_map {
    static constexpr bool reads_out = false;
    __device__ float operator()(float dout, float inp, float) const
    {
        return dout * gelu_slope(inp);
    }
};

struct gelu_gradient_add_map {
    static constexpr bool reads_out = true;
    __device__ float operator()(float dout, float inp, float out) const
    {
        return out + dout * gelu_slope(inp);
    }
};

void cuda_gelu(struct plait_queue *q, enum plait_dtype type, void *out,
               const void *inp, size_t n)
{
    map(q, arrays{type, out, inp, NULL, n}, gelu_map());
}

static int gelu_forward(struct plait_queue *q,
                        const struct plait_gelu_forward *g)
{
    if (cuda_enter(q) != 0)
        return -1;
    cuda_gelu(q, g->type, g->out, g->inp, g->n);
    return cuda_leave(q, "gelu_forward");
}

void cuda_gelu_gradient(struct plait_queue *q,
                        const struct plait_gelu_backward *g, int accumulate)
{
    struct arrays m = {g->type, g->dinp, g->dout, g->inp, g->n};

    if (accumulate)
        map(q, m, gelu_gradient_add_map());
    else
        map(q, m, gelu_gradient_map());
}

static int gelu_backward(struct plait_queue *q,
                         const struct plait_gelu_backward *g)
{
    if (cuda_enter(q) != 0)
        return -1;
    cuda_gelu_gradient(q, g, 0);
    return cuda_leave(q, "gelu_backward");
}

/* -- rows ------------------------------------------------------------- */

template <typename T>
static __global__ void bias_kernel(T *x, const T *bias, size_t N, size_t O,
                                   bool packs)
{
    constexpr int V = pack<T>::n;

    if (packs) {
        size_t per_row = O / V;

        GRID_LOOP(i, N * per_row)
        {
            pack<T> y = load_pack(x + i * V);
            pack<T> b = load_pack(bias + i % per_row * V);

            for (int j = 0; j < V; j++)
                y.v[j] = from_float<T>(to_float(y.v[j]) + to_float(b.v[j]));
            store_pack(x + i * V, y);
        }
        return;
    }
    GRID_LOOP(i, N * O)
    x[i] = from_float<T>(to_float(x[i]) + to_float(bias[i % O]));
}

void cuda_bias(struct plait_queue *q, enum plait_dtype type, void *x,
               const void *bias, size_t N, size_t O)
{
    if (N * O == 0)
        return;
    for_type(type, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(x, O) && aligned16(bias);

        bias_kernel<<<grid_for(q, packs ? N * O / pack<T>::n : N * O, threads),
                      threads, 0, q->stream>>>((T *)x, (const T *)bias, N, O,
                                               packs);
    });
}

/* A gate, what it lets through and the sigmoid, clamped. */
struct clamped_gate {
    float gate, up, sigmoid;

    __device__ clamped_gate(float g, float u)
        : gate(fminf(g, PLAIT_GLU_LIMIT)),
          up(fmaxf(fminf(u, PLAIT_GLU_LIMIT), -PLAIT_GLU_LIMIT)),
          sigmoid(::sigmoid(PLAIT_GLU_SLOPE * gate))
    {
        if (g != g) /* fminf() passes over a NaN */
            gate = sigmoid = g;
        if (u != u)
            up = u;
    }
};

/* A thread takes the same V columns of gate and up. V = 1 if the rows are not
 * aligned to 16 bytes. */
template <typename T, int V, plait_glu kind>
static __global__ void swiglu_kernel(T *out, const T *inp, unsigned *amax,
                                     size_t N, size_t F)
{
    __shared__ unsigned mosts[32];
    unsigned most = 0;

    GRID_LOOP(i, N * (F / V))
    {
        size_t row = i / (F / V), col = i % (F / V) * V;
        const T *gate = inp + row * 2 * F + col;
        alignas(16) T g[V], u[V], o[V];

        copy_values<T, V>(g, gate);
        copy_values<T, V>(u, gate + F);
        for (int j = 0; j < V; j++) {
            float x = to_float(g[j]);

            if constexpr (kind == PLAIT_GLU_CLAMPED) {
                clamped_gate y(x, to_float(u[j]));

                o[j] = from_float<T>(y.gate * y.sigmoid * (y.up + 1));
            } else {
                float act = kind == PLAIT_GLU_GELU ? gelu(x) : x * sigmoid(x);

                o[j] = from_float<T>(act * to_float(u[j]));
            }
            most = max(most, magnitude(o[j]));
        }
        copy_values<T, V>(out + row * F + col, o);
    }
    if (amax != NULL)
        block_amax(amax, most, mosts);
}

template <typename T, int V, plait_glu kind>
static __global__ void swiglu_gradient_kernel(T *dinp, const T *dout,
                                              const T *inp, unsigned *amax,
                                              size_t N, size_t F)
{
    __shared__ unsigned mosts[32];
    unsigned most = 0;

    GRID_LOOP(i, N * (F / V))
    {
        size_t row = i / (F / V), col = i % (F / V) * V;
        size_t at = row * 2 * F + col;
        alignas(16) T g[V], u[V], d[V];

        copy_values<T, V>(g, inp + at);
        copy_values<T, V>(u, inp + at + F);
        copy_values<T, V>(d, dout + row * F + col);
        for (int j = 0; j < V; j++) {
            float x = to_float(g[j]), up = to_float(u[j]);
            float grad = to_float(d[j]);

            if constexpr (kind == PLAIT_GLU_CLAMPED) {
                clamped_gate y(x, up);
                float s = y.sigmoid;
                float slope = s * (1 + PLAIT_GLU_SLOPE * y.gate * (1 - s));

                g[j] =
                    from_float<T>(grad * (x > y.gate ? 0 : (y.up + 1) * slope));
                u[j] = from_float<T>(grad *
                                     (up > y.up || up < y.up ? 0 : y.gate * s));
            } else {
                constexpr bool GEGLU = kind == PLAIT_GLU_GELU;
                float s = sigmoid(x);
                float slope = GEGLU ? gelu_slope(x) : s * (1 + x * (1 - s));

                g[j] = from_float<T>(grad * up * slope);
                u[j] = from_float<T>(grad * (GEGLU ? gelu(x) : x * s));
            }
            most = max(most, max(magnitude(g[j]), magnitude(u[j])));
        }
        copy_values<T, V>(dinp + at, g);
        copy_values<T, V>(dinp + at + F, u);
    }
    if (amax != NULL)
        block_amax(amax, most, mosts);
}

static int swiglu_forward(struct plait_queue *q,
                          const struct plait_swiglu_forward *s)
{
    const char *op = "swiglu_forward";
    size_t n = s->N * s->F;

    return cuda_launch(q, op, s->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(s->inp, s->F) && aligned16(s->out);

        clear_amax(q, op, s->amax);
        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            auto kernel = s->kind == PLAIT_GLU_CLAMPED
                              ? swiglu_kernel<T, V, PLAIT_GLU_CLAMPED>
                          : s->kind == PLAIT_GLU_GELU
                              ? swiglu_kernel<T, V, PLAIT_GLU_GELU>
                              : swiglu_kernel<T, V, PLAIT_GLU_SILU>;

            kernel<<<grid_for(q, n / V, threads), threads, 0, q->stream>>>(
                (T *)s->out, (const T *)s->inp, s->amax, s->N, s->F);
        });
    });
}

static int swiglu_backward(struct plait_queue *q,
                           const struct plait_swiglu_backward *s)
{
    const char *op = "swiglu_backward";
    size_t n = s->N * s->F;

    return cuda_launch(q, op, s->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(s->inp, s->F) && aligned16(s->dinp) &&
                     aligned16(s->dout);

        clear_amax(q, op, s->amax);
        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            auto kernel = s->kind == PLAIT_GLU_CLAMPED
                              ? swiglu_gradient_kernel<T, V, PLAIT_GLU_CLAMPED>
                          : s->kind == PLAIT_GLU_GELU
                              ? swiglu_gradient_kernel<T, V, PLAIT_GLU_GELU>
                              : swiglu_gradient_kernel<T, V, PLAIT_GLU_SILU>;

            kernel<<<grid_for(q, n / V, threads), threads, 0, q->stream>>>(
                (T *)s->dinp, (const T *)s->dout, (const T *)s->inp, s->amax,
                s->N, s->F);
        });
    });
}

/* -- cast ------------------------------------------------------------- */

template <typename D, typename S>
static __global__ void cast_kernel(D *dst, const S *src, bool packs, size_t n)
{
    constexpr int V = 4; /* 8 or 16 bytes on either side */
    size_t packed = packs ? n / V * V : 0;

    GRID_LOOP(i, packed / V)
    {
        struct alignas(V * sizeof(S)) {
            S v[V];
        } s = *(const decltype(s) *)(src + i * V);
        struct alignas(V * sizeof(D)) {
            D v[V];
        } d;

        for (int j = 0; j < V; j++)
            d.v[j] = from_float<D>(to_float(s.v[j]));
        *(decltype(d) *)(dst + i * V) = d;
    }
    GRID_LOOP(i, n - packed)
    dst[packed + i] = from_float<D>(to_float(src[packed + i]));
}

static int cast(struct plait_queue *q, const struct plait_cast *c)
{
    size_t n = c->n;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    if (c->to == c->from)
        return cuda_check(q, "cast",
                          cudaMemcpyAsync(c->dst, c->src,
                                          n * plait_dtype_size(c->to),
                                          cudaMemcpyDeviceToDevice, q->stream));
    if (c->to >= PLAIT_I32 || c->from >= PLAIT_I32)
        return plait_queue_fail(&q->head, EINVAL,
                                "cast: takes floating-point types of 16 and 32 "
                                "bits");
    for_type(c->to, [&](auto d) {
        for_type(c->from, [&](auto s) {
            typedef decltype(d) D;
            typedef decltype(s) S;

            cast_kernel<<<grid_for(q, ceil_div(n, 4), threads), threads, 0,
                          q->stream>>>((D *)c->dst, (const S *)c->src,
                                       aligned16(c->dst) && aligned16(c->src),
                                       n);
        });
    });
    return cuda_leave(q, "cast");
}

template <typename D, typename S>
static __global__ void cast_2d_kernel(struct plait_cast_2d c)
{
    D *dst = (D *)c.dst;
    const S *src = (const S *)c.src;

    GRID_LOOP(i, c.rows * c.cols)
    {
        size_t row = i / c.cols, col = i % c.cols;
        size_t to = row * c.dst_stride + col;
        float x = to_float(src[row * c.src_stride + col]);

        if (c.accumulate)
            x += to_float(dst[to]);
        dst[to] = from_float<D>(x);
    }
}

static int cast_2d(struct plait_queue *q, const struct plait_cast_2d *c)
{
    size_t n = c->rows * c->cols;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    for_type(c->to, [&](auto d) {
        for_type(c->from, [&](auto s) {
            typedef decltype(d) D;
            typedef decltype(s) S;

            cast_2d_kernel<D, S>
                <<<grid_for(q, n, threads), threads, 0, q->stream>>>(*c);
        });
    });
    return cuda_leave(q, "cast_2d");
}

void cuda_elementwise_ops(struct plait_ops *ops)
{
    ops->cast = cast;
    ops->cast_2d = cast_2d;
    ops->add = add;
    ops->add_scaled = add_scaled;
    ops->scale = scale;
    ops->softcap = softcap;
    ops->gelu_forward = gelu_forward;
    ops->gelu_backward = gelu_backward;
    ops->swiglu_forward = swiglu_forward;
    ops->swiglu_backward = swiglu_backward;
}
