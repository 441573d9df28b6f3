/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/unit/model_run.h"

/* A sequence of 128k tokens, split over the ranks (long_ring.sh: 4) by context
 * parallelism. The loss of some tokens from all over it, and the slope of that
 * loss in a random direction of all weights, are compared with the model
 * written here again, in double precision and without splitting: attention as a
 * sum over all keys. */

enum { T = 131072, C = 16, F = 16, V = 64, SAMPLES = 96 };

static struct plait_comm *world;
static int32_t tokens[T], targets[T];
static int sample[SAMPLES];

/* -- the model in double --------------------------------------------------- */

struct weights {
    double wte[V][C], wpe[T][C], norm1[C], bias1[C], q[C][C], k[C][C], v[C][C];
    double qb[C], kb[C], vb[C], out[C][C], outb[C], norm2[C], bias2[C];
    double up[F][C], upb[F], down[C][F], downb[C], norm[C], bias[C];
    double head[V][C];
};

/* Where the values of the runtime's tensors go. */
#define PLACE(name, member)                    \
    {                                          \
        name, offsetof(struct weights, member) \
    }
static const struct {
    const char *name;
    size_t at;
} places[] = {
    PLACE("embedding.weight", wte),
    PLACE("position.weight", wpe),
    PLACE("layers.0.attention_norm.weight", norm1),
    PLACE("layers.0.attention_norm.bias", bias1),
    PLACE("layers.0.attention.q.weight", q),
    PLACE("layers.0.attention.k.weight", k),
    PLACE("layers.0.attention.v.weight", v),
    PLACE("layers.0.attention.q.bias", qb),
    PLACE("layers.0.attention.k.bias", kb),
    PLACE("layers.0.attention.v.bias", vb),
    PLACE("layers.0.attention.out.weight", out),
    PLACE("layers.0.attention.out.bias", outb),
    PLACE("layers.0.mlp_norm.weight", norm2),
    PLACE("layers.0.mlp_norm.bias", bias2),
    PLACE("layers.0.mlp.up.weight", up),
    PLACE("layers.0.mlp.up.bias", upb),
    PLACE("layers.0.mlp.down.weight", down),
    PLACE("layers.0.mlp.down.bias", downb),
    PLACE("norm.weight", norm),
    PLACE("norm.bias", bias),
    PLACE("head.weight", head),
};
enum { NPLACES = sizeof(places) / sizeof(places[0]) };

static double *place_of(struct weights *w, const char *name)
{
    for (int i = 0; i < NPLACES; i++)
        if (!strcmp(places[i].name, name))
            return (double *)((char *)w + places[i].at);
    give_up(name, NULL);
    return NULL;
}

static void normalise(double y[C], const double x[C], const double weight[C],
                      const double bias[C])
{
    double mean = 0, var = 0;

    for (int i = 0; i < C; i++)
        mean += x[i] / C;
    for (int i = 0; i < C; i++)
        var += (x[i] - mean) * (x[i] - mean) / C;
    for (int i = 0; i < C; i++)
        y[i] = (x[i] - mean) / sqrt(var + 1e-5) * weight[i] + bias[i];
}

/* y = Mx + b, M of `rows` rows of C (= F) */
static void multiply(double *y, const double (*m)[C], const double *b,
                     const double x[C], int rows)
{
    for (int r = 0; r < rows; r++) {
        y[r] = b ? b[r] : 0;
        for (int i = 0; i < C; i++)
            y[r] += m[r][i] * x[i];
    }
}

static void embed(const struct weights *w, int t, double x[C], double n[C])
{
    for (int i = 0; i < C; i++)
        x[i] = w->wte[tokens[t]][i] + w->wpe[t][i];
    normalise(n, x, w->norm1, w->bias1);
}

/* Attention of query t over the keys 0 to t. */
static void attend(double y[C], const double q[C], double (*k)[C],
                   double (*v)[C], int t)
{
    double most = -INFINITY, sum = 0, *p = malloc((t + 1) * sizeof(*p));

    memset(y, 0, C * sizeof(*y));
    for (int j = 0; j <= t; j++) {
        p[j] = 0;
        for (int i = 0; i < C; i++)
            p[j] += q[i] * k[j][i] / sqrt(C);
        most = fmax(most, p[j]);
    }
    for (int j = 0; j <= t; j++) {
        double e = exp(p[j] - most);

        sum += e;
        for (int i = 0; i < C; i++)
            y[i] += e * v[j][i];
    }
    for (int i = 0; i < C; i++)
        y[i] /= sum;
    free(p);
}

static double cross_entropy(const struct weights *w, const double x[C],
                            int target)
{
    double n[C], logit[V], most = -INFINITY, sum = 0;

    normalise(n, x, w->norm, w->bias);
    multiply(logit, w->head, NULL, n, V);
    for (int i = 0; i < V; i++)
        most = fmax(most, logit[i]);
    for (int i = 0; i < V; i++)
        sum += exp(logit[i] - most);
    return log(sum) + most - logit[target];
}

static double token_loss(const struct weights *w, double (*k)[C],
                         double (*v)[C], int t)
{
    double x[C], n[C], q[C], a[C], y[C], f[F];

    embed(w, t, x, n);
    multiply(q, w->q, w->qb, n, C);
    attend(a, q, k, v, t);
    multiply(y, w->out, w->outb, a, C);
    for (int i = 0; i < C; i++)
        x[i] += y[i];
    normalise(n, x, w->norm2, w->bias2);
    multiply(f, w->up, w->upb, n, F);
    for (int i = 0; i < F; i++)
        f[i] *=
            0.5 *
            (1 + tanh(sqrt(2 / M_PI) * (f[i] + 0.044715 * f[i] * f[i] * f[i])));
    multiply(y, w->down, w->downb, f, C);
    for (int i = 0; i < C; i++)
        x[i] += y[i];
    return cross_entropy(w, x, targets[t]);
}

/* The loss of this rank's share of the samples. */
static double reference(const struct weights *w)
{
    double(*k)[C] = malloc(T * sizeof(*k)), (*v)[C] = malloc(T * sizeof(*v));
    double x[C], n[C], loss = 0;
    int ranks = plait_comm_size(world);

    for (int t = 0; t < T; t++) {
        embed(w, t, x, n);
        multiply(k[t], w->k, w->kb, n, C);
        multiply(v[t], w->v, w->vb, n, C);
    }
    for (int s = plait_comm_rank(world); s < SAMPLES; s += ranks)
        loss += token_loss(w, k, v, sample[s]);
    free(k);
    free(v);
    plait_comm_host_all_reduce(world, &loss, 1, PLAIT_SUM);
    return loss;
}

/* -- the runtime --------------------------------------------------------- */

static void configure(struct plait_job_config *c)
{
    small_config(c, PLAIT_GPT2);
    c->model.layers = 1;
    c->model.hidden = C;
    c->model.heads = c->model.kv_heads = 1;
    c->model.ffn = F;
    c->model.vocab = V;
    c->model.seq_len = T;
    c->model.tie_embeddings = false;
    c->train.micro_batch = 1;
}

/* Chooses both ends, the borders of the ranks' chunks, and random tokens. */
static void choose_samples(void)
{
    uint32_t x = 12345;

    for (int i = 0; i < T; i++) {
        x = x * 1664525 + 1013904223;
        tokens[i] = x >> 26;
        targets[i] = -1;
    }
    for (int s = 0; s < SAMPLES; s++) {
        x = x * 1664525 + 1013904223;
        sample[s] = s < 32 ? s / 2 * (T / 16) + (s % 2 ? T / 16 - 1 : 0)
                           : (int)((x >> 8) % T);
        while (targets[sample[s]] >= 0)
            sample[s] = (sample[s] + 1) % T;
        targets[sample[s]] = (x >> 4) % V;
    }
}

static double step(struct run *r)
{
    const struct plait_batch b = {.batch = 1,
                                  .seq_len = T,
                                  .tokens = tokens,
                                  .targets = targets,
                                  .loss_scale = 1};
    double loss;

    clear_grads(r);
    if (plait_model_forward(r->model, &(struct plait_forward){.batch = &b,
                                                              .loss = r->loss,
                                                              .train = true}) <
            0 ||
        plait_model_backward(r->model, &(struct plait_backward){0}) < 0)
        give_up("step", NULL);
    loss = take_loss(r);
    plait_comm_host_all_reduce(world, &loss, 1, PLAIT_SUM);
    return loss;
}

/* Copies the runtime's weights to *w, sets *to to a random direction, and
 * returns the slope of the loss in that direction by the runtime's
 * gradients. */
static double slope(struct run *r, struct weights *w, struct weights *to)
{
    double sum = 0;
    uint32_t x = 777;

    for (int i = 0; i < r->model->ntensors; i++) {
        const struct plait_tensor *t = &r->model->tensors[i];
        double *at = place_of(w, t->name), *dir = place_of(to, t->name);
        float *value = malloc(t->count * sizeof(*value)), *g = grad_of(r, t);

        lively(t, value);
        for (size_t n = 0; n < t->shape[0] * t->shape[1]; n++) {
            x = x * 1664525 + 1013904223;
            at[n] = value[n];
            dir[n] = (int32_t)x / 2147483648.0;
            sum += dir[n] * g[n];
        }
        free(value);
        free(g);
    }
    plait_comm_host_all_reduce(world, &sum, 1, PLAIT_SUM);
    return sum;
}

static double loss_at(const struct weights *w, const struct weights *to,
                      double far)
{
    struct weights *moved = malloc(sizeof(*moved));
    size_t n = sizeof(*w) / sizeof(double);
    double loss;

    for (size_t i = 0; i < n; i++)
        ((double *)moved)[i] =
            ((const double *)w)[i] + far * ((const double *)to)[i];
    loss = reference(moved);
    free(moved);
    return loss;
}

static void compare(const char *what, double got, double want, double rtol)
{
    if (plait_comm_rank(world) == 0)
        ok(fabs(got - want) <= rtol * fabs(want), "%s %.9g, %.9g wanted", what,
           got, want);
}

int main(void)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_device *dev = ops->device_create(0, 1);
    struct weights *w = calloc(1, sizeof(*w)), *to = calloc(1, sizeof(*to));
    struct plait_mesh *mesh;
    struct plait_job_config config;
    struct plait_layout layout;
    struct plait_error err;
    struct run r = {0};
    double loss, steep, far = 1e-4;
    int rank;

    world = plait_comm_create(PLAIT_COMM_MPI, ops, dev, NULL, &err);
    if (!world || !w || !to)
        give_up("mpi", &err);
    rank = plait_comm_rank(world);
    choose_samples();
    configure(&config);
    plait_layout_init(&layout);
    layout.size[PLAIT_CP] = plait_comm_size(world);
    layout.size[PLAIT_DP] = 1;
    mesh = plait_mesh_create(ops, dev, world, &layout, &err);
    if (!mesh)
        give_up("groups", &err);
    r.mesh = *mesh;
    open_model(&r, &config, 1);
    loss = step(&r);
    steep = slope(&r, w, to);
    compare("128k tokens over the ring: loss", loss, reference(w), 1e-5);
    compare("its slope", steep,
            (loss_at(w, to, far) - loss_at(w, to, -far)) / (2 * far), 1e-4);
    close_model(&r);
    plait_mesh_destroy(mesh);
    plait_comm_destroy(world);
    ops->device_destroy(dev);
    free(w);
    free(to);
    return rank == 0 ? done_testing() : 0;
}
