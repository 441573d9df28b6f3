/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_tables.h"
#include "kernels/dynamic_map.h"
#include "optim_job.h"
#include "runtime/parallel/shard.h"
#include "tap.h"
#include "test_seed.h"

/* Every optimizer, on every implementation of the ops, against its formula in
 * double: 100 steps over tensors of 20 shapes and more, drawn anew each time.
 * One process. */

enum { STEPS = 100, MODELS = 3 };
static const double scale = 0.5; /* of the gradients, as by clipping */

static const struct {
    enum plait_optim_kind kind;
    const char *keys;
} rules[] = {
    {PLAIT_OPTIM_ADAMW, "eps: 1e-6"},
    {PLAIT_OPTIM_SGD, "momentum: 0.8"},
    {PLAIT_OPTIM_SGD, "momentum: 0.9, nesterov: true"},
    {PLAIT_OPTIM_SGD, "momentum: 0"},
    {PLAIT_OPTIM_LARS, "trust: 0.01"},
    {PLAIT_OPTIM_LARS, "momentum: 0.5, nesterov: true, trust: 0.02"},
    {PLAIT_OPTIM_LARC, "trust: 0.002"},
    {PLAIT_OPTIM_LAMB, "betas: [0.8, 0.97], eps: 1e-6"},
    {PLAIT_OPTIM_NOVOGRAD, "betas: [0.9, 0.6]"},
    {PLAIT_OPTIM_LION, "betas: [0.9, 0.99]"},
    {PLAIT_OPTIM_SCHEDULEFREE, "betas: [0.9, 0.99], eps: 1e-6"},
};

enum { WARMUP = 20 }; /* of the rates that schedule-free steps are weighed by */

/* One number of a tensor, and what the tensor keeps. */
struct number {
    double w, m, v;
    double terms; /* magnitudes of m's terms: bound its rounding */
    bool loose;   /* rounding could decide its sign in Lion */
};
struct tensor {
    struct number *at;
    float *grad;
    double v;
};

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) * 0x1p-24;
}

static int between(int low, int high)
{
    return low + (int)(uniform() * (high - low + 1));
}

/* -- the formulas -------------------------------------------------------- */

struct rates {
    const struct plait_optim_config *c;
    double lr, decay, factor;
    int t;
};

static void momentum_step(const struct rates *r, struct number *x, double in,
                          double out, double d)
{
    x->m = r->c->momentum * x->m + in * d;
    x->w -= out * (r->c->nesterov ? in * d + r->c->momentum * x->m : x->m);
}

static double adam_direction(const struct rates *r, const struct number *x)
{
    const double *b = r->c->betas;

    return x->m / (1 - pow(b[0], r->t)) /
               (sqrt(x->v / (1 - pow(b[1], r->t))) + r->c->eps) +
           r->decay * x->w;
}

static void adam_moments(const struct rates *r, struct number *x, double g)
{
    const double *b = r->c->betas;

    x->terms = b[0] * fabs(x->m) + (1 - b[0]) * fabs(g);
    x->m = b[0] * x->m + (1 - b[0]) * g;
    x->v = b[1] * x->v + (1 - b[1]) * g * g;
}

static void lion_step(const struct rates *r, struct number *x, double g)
{
    const double *b = r->c->betas;
    double mixed = b[0] * x->m + (1 - b[0]) * g;

    x->loose |= fabs(mixed) < 1e-6;
    x->m = b[1] * x->m + (1 - b[1]) * g;
    x->w -= r->lr * ((mixed > 0) - (mixed < 0) + r->decay * x->w);
}

/* Defazio et al. (2024, arXiv 2405.15682), section 4: w is x, m is z. */
static void average_step(const struct rates *r, struct number *x, double g)
{
    const double *b = r->c->betas;
    double y, u, sum = 0, weight = 0;

    for (int t = 1; t <= r->t; t++) {
        weight = t < WARMUP ? (double)t * t / (WARMUP * WARMUP) : 1;
        sum += weight;
    }
    if (r->t == 1)
        x->m = x->w;
    y = (1 - b[0]) * x->m + b[0] * x->w;
    x->v = b[1] * x->v + (1 - b[1]) * g * g;
    u = g / (sqrt(x->v / (1 - pow(b[1], r->t))) + r->c->eps);
    x->m -= r->lr * (u + r->decay * y);
    x->w = (1 - weight / sum) * x->w + weight / sum * x->m;
}

static void number_step(const struct rates *r, struct number *x, double g)
{
    double d = r->factor * (g + r->decay * x->w);

    switch (r->c->kind) {
    case PLAIT_OPTIM_ADAMW:
    case PLAIT_OPTIM_ADAMW8BIT:
        adam_moments(r, x, g);
        /* fall through */
    case PLAIT_OPTIM_LAMB:
        x->w -= r->lr * r->factor * adam_direction(r, x);
        break;
    case PLAIT_OPTIM_LARS:
        momentum_step(r, x, r->lr, 1, d);
        break;
    case PLAIT_OPTIM_NOVOGRAD:
        x->m = r->c->betas[0] * x->m + r->factor * g + r->decay * x->w;
        x->w -= r->lr * x->m;
        break;
    case PLAIT_OPTIM_LION:
        lion_step(r, x, g);
        break;
    case PLAIT_OPTIM_SCHEDULEFREE:
        average_step(r, x, g);
        break;
    default: /* SGD, LARC */
        momentum_step(r, x, 1, r->lr, d);
    }
}

/* The layer's factor from |w| and |g|, or |u|; the papers are named in
 * runtime/optim/rule.c. */
static double factor_of(const struct rates *r, struct tensor *t, bool matrix,
                        double w, double g)
{
    double lars = r->c->trust * w / (g + r->decay * w);
    double beta = r->c->betas[1];

    if (r->c->kind == PLAIT_OPTIM_NOVOGRAD) {
        t->v = r->t == 1 ? g * g : beta * t->v + (1 - beta) * g * g;
        return 1 / (sqrt(t->v) + r->c->eps);
    }
    if (!matrix || w == 0 || g == 0)
        return 1;
    switch (r->c->kind) {
    case PLAIT_OPTIM_LARS:
        return lars;
    case PLAIT_OPTIM_LARC:
        return lars < r->lr ? lars / r->lr : 1;
    case PLAIT_OPTIM_LAMB:
        return w / g;
    default:
        return 1;
    }
}

static void tensor_step(struct rates *r, struct tensor *t, bool matrix,
                        size_t n)
{
    double w = 0, g = 0, x;

    r->decay = matrix ? r->c->weight_decay : 0;
    for (size_t i = 0; i < n; i++) {
        x = t->grad[i] * scale;
        if (r->c->kind == PLAIT_OPTIM_LAMB) {
            adam_moments(r, &t->at[i], x);
            x = adam_direction(r, &t->at[i]);
        }
        w += t->at[i].w * t->at[i].w;
        g += x * x;
    }
    r->factor = factor_of(r, t, matrix, sqrt(w), sqrt(g));
    for (size_t i = 0; i < n; i++)
        number_step(r, &t->at[i], t->grad[i] * scale);
}

/* -- the same by the runtime ---------------------------------------------- */

static int open_job(struct optim_job *job, const struct plait_ops *ops,
                    const char *yaml)
{
    struct plait_error err = {""};
    struct plait_job_config *config =
        plait_job_config_parse("test", yaml, strlen(yaml), NULL, 0, &err);

    if (optim_job_open(job, config, ops, 2, seed, &err) < 0)
        return ok(0, "setup: %s", err.text), -1;
    return 0;
}

static int read_masters(struct optim_job *job, int i, float *to)
{
    return plait_optim_read(job->optim, to, job->slices[i].master,
                            job->slices[i].count * sizeof(*to));
}

static struct tensor *create_tensors(struct optim_job *job)
{
    struct tensor *t = calloc(job->nslices, sizeof(*t));

    for (int i = 0; i < job->nslices; i++) {
        size_t n = job->slices[i].count;

        t[i].at = calloc(n, sizeof(*t[i].at));
        t[i].grad = calloc(n, sizeof(*t[i].grad));
        read_masters(job, i, t[i].grad);
        for (size_t k = 0; k < n; k++)
            t[i].at[k].w = t[i].grad[k];
    }
    return t;
}

static void free_tensors(struct optim_job *job, struct tensor *t)
{
    for (int i = 0; i < job->nslices; i++) {
        free(t[i].at);
        free(t[i].grad);
    }
    free(t);
}

static int put_gradient(struct optim_job *job, int i, struct tensor *t)
{
    const struct plait_optim_slice *s = &job->slices[i];
    struct plait_mesh *mesh = job->mesh;
    float *to = job->model->regions[s->tensor->region].grad +
                s->tensor->offset + s->first;

    for (size_t k = 0; k < s->count; k++)
        t->grad[k] = (float)(uniform() - 0.45);
    return mesh->ops->to_device(mesh->q, to, t->grad,
                                s->count * sizeof(*t->grad));
}

/* The largest distance of a tensor from the formula over its norm. */
static double deviation(struct optim_job *job, struct tensor *t)
{
    double worst = 0;

    for (int i = 0; i < job->nslices; i++) {
        double diff = 0, norm = 0, d;

        read_masters(job, i, t[i].grad);
        for (size_t k = 0; k < job->slices[i].count; k++) {
            const struct number *x = &t[i].at[k];

            d = x->loose ? 0 : t[i].grad[k] - x->w;
            diff += d * d;
            norm += x->w * x->w;
        }
        d = sqrt(diff / norm);
        if (!(d <= worst))
            worst = d;
    }
    return worst;
}

static double run_steps(struct optim_job *job, int *bad)
{
    struct tensor *t = create_tensors(job);
    struct rates r = {.c = &job->config->optim};
    double worst;

    for (r.t = 1; r.t <= STEPS; r.t++) {
        r.lr = (float)(r.c->lr * (1 + 0.5 * sin(r.t)));
        for (int i = 0; i < job->nslices; i++)
            *bad |= put_gradient(job, i, &t[i]) < 0;
        *bad |= plait_optim_step(job->optim, r.lr, (float)scale, r.t) < 0;
        for (int i = 0; i < job->nslices; i++)
            tensor_step(&r, &t[i], job->slices[i].tensor->ndim == 2,
                        job->slices[i].count);
    }
    worst = deviation(job, t);
    free_tensors(job, t);
    return worst;
}

/* A model whose sizes all differ, so that no shape occurs twice. */
static void write_yaml(char *text, size_t size, int model, const char *name,
                       const char *keys)
{
    static const int low[MODELS] = {8, 24, 40};
    int heads = 2, hidden = heads * between(low[model] / 2, low[model] / 2 + 6);

    snprintf(text, size,
             "model: {family: gpt2, layers: 1, hidden: %d, heads: %d, ffn: "
             "%d, vocab: %d, seq_len: %d}\n"
             "optim: {name: %s, lr: 3e-3, weight_decay: 0.05, %s}\n"
             "lr: {schedule: constant, warmup: %d}\n",
             hidden, heads, between(64, 90), between(100, 200), between(3, 7),
             name, keys, WARMUP);
}

static void check_rule(const struct plait_ops *ops, int rule)
{
    double worst = 0, d;
    int bad = 0, i;

    for (i = 0; i < MODELS; i++) {
        struct optim_job job = {0};
        char yaml[512];

        write_yaml(yaml, sizeof(yaml), i,
                   plait_optimizers[rules[rule].kind].name, rules[rule].keys);
        if (open_job(&job, ops, yaml) < 0)
            return;
        d = run_steps(&job, &bad);
        if (!(d <= worst))
            worst = d;
        optim_job_close(&job);
    }
    ok(!bad && worst <= 1e-6, "%s: %s, %s: off by %.1e of a tensor's norm",
       ops->name, plait_optimizers[rules[rule].kind].name, rules[rule].keys,
       worst);
}

/* -- 8 bits --------------------------------------------------------------- */

static void check_map(void)
{
    float value[256], x, best, d;
    int wrong = 0, sign, i, k;

    for (sign = 0; sign < 2; sign++) {
        for (i = 0; i < 256; i++) {
            value[i] = plait_map_decode((uint8_t)i, sign);
            wrong += plait_map_encode(value[i], 1, sign) != i;
        }
        for (i = 0; i < 20000; i++) {
            x = (float)(pow(10, -6 * uniform()) * (sign && i % 2 ? -1 : 1));
            best = INFINITY;
            for (k = 0; k < 256; k++)
                best = fminf(best, fabsf(value[k] - x));
            d = fabsf(value[plait_map_encode(x, 1, sign)] - x);
            wrong += !(d <= best * 1.0001f);
        }
        wrong += plait_map_encode(0, 1, sign) != 0;
    }
    ok(wrong == 0, "a number's code is that of the nearest value");
    ok(plait_map_encode(1e-9f, 1, 0) == 1, "but not 0 where there is no sign");
}

static const struct plait_optim_piece *find_state(struct optim_job *job,
                                                  int slice, const char *state)
{
    const struct plait_optim_piece *p;
    int n = plait_optim_pieces(job->optim, &p);

    for (; n > 0; n--, p++)
        if (p->tensor == job->slices[slice].tensor && p->state &&
            !strcmp(p->state, state))
            return p;
    return NULL;
}

/* The error of the 8-bit code of x in a block whose largest number is given. */
static double code_error(double x, float largest, int sign)
{
    uint8_t code = plait_map_encode((float)x, plait_map_inverse(largest), sign);

    return fabs((double)plait_map_decode(code, sign) * largest - x);
}

/* The expected value of a state's number, and the sum of its terms'
 * magnitudes. */
struct wanted {
    double value, terms;
};

/* Counts numbers of a block that differ from what they should be by more than
 * rounding of their terms and 8-bit code explain. */
static int count_wrong(const struct wanted *want, const float *got, size_t n,
                       int sign, bool coded)
{
    float low = 0, high = 0, largest;
    int wrong = 0;

    for (size_t i = 0; i < n; i++) {
        low = fminf(low, (float)want[i].value);
        high = fmaxf(high, (float)want[i].value);
    }
    largest = plait_map_scale(low, high);
    for (size_t i = 0; i < n; i++) {
        double error = coded ? code_error(want[i].value, largest, sign) : 0;

        wrong += !(fabs(got[i] - want[i].value) <=
                   error + 1e-6 * (want[i].terms + fabs(largest)));
    }
    return wrong;
}

/* The same for a tensor's state; also checks whether it is kept in 8 bits. */
static int check_state(struct optim_job *job, int slice, const char *state,
                       const struct wanted *want, bool coded)
{
    const struct plait_optim_piece *p = find_state(job, slice, state);
    float got[PLAIT_MAP_BLOCK];
    int wrong = (p->home == PLAIT_PIECE_CODES) != coded;
    size_t at, n;

    for (at = 0; at < p->count; at += n) {
        n = p->count - at < PLAIT_MAP_BLOCK ? p->count - at : PLAIT_MAP_BLOCK;
        if (plait_optim_read_piece(job->optim, p, at, n, got) < 0)
            return 1;
        wrong += count_wrong(want + at, got, n, state[0] == 'm', coded);
    }
    return wrong;
}

static int read_state(struct optim_job *job, int slice, const char *state,
                      float *to)
{
    const struct plait_optim_piece *p = find_state(job, slice, state);

    return p ? plait_optim_read_piece(job->optim, p, 0, p->count, to) : -1;
}

/* One step of one tensor by the formula, from its current state. */
static int step_from_codes(struct optim_job *job, int i, struct tensor *t,
                           struct rates *r, float *read)
{
    size_t n = job->slices[i].count, k;

    if (read_state(job, i, "m", read) < 0)
        return -1;
    for (k = 0; k < n; k++)
        t->at[k].m = read[k];
    if (read_state(job, i, "v", read) < 0)
        return -1;
    for (k = 0; k < n; k++)
        t->at[k].v = read[k];
    if (read_masters(job, i, read) < 0)
        return -1;
    for (k = 0; k < n; k++)
        t->at[k].w = read[k];
    tensor_step(r, t, job->slices[i].tensor->ndim == 2, n);
    return 0;
}

static int compare_codes(struct optim_job *job, int i, struct tensor *t,
                         struct wanted *want)
{
    const struct plait_tensor *of = job->slices[i].tensor;
    bool large = of->ndim == 2 && of->shape[0] * of->shape[1] >= 4096;
    size_t n = job->slices[i].count, k;
    int wrong;

    for (k = 0; k < n; k++)
        want[k] = (struct wanted){t->at[k].m, t->at[k].terms};
    wrong = check_state(job, i, "m", want, large);
    for (k = 0; k < n; k++)
        want[k] = (struct wanted){t->at[k].v, t->at[k].v};
    return wrong + check_state(job, i, "v", want, large);
}

static int run_coded(struct optim_job *job, struct tensor *t, double *worst)
{
    float *read = calloc(job->model->count, sizeof(*read));
    struct wanted *want = calloc(job->model->count, sizeof(*want));
    double d;
    struct rates r = {.c = &job->config->optim};
    int wrong = 0, i;

    r.lr = (float)r.c->lr;
    for (r.t = 1; r.t <= STEPS; r.t++) {
        for (i = 0; i < job->nslices; i++) {
            wrong += put_gradient(job, i, &t[i]) < 0;
            wrong += step_from_codes(job, i, &t[i], &r, read) < 0;
        }
        wrong += plait_optim_step(job->optim, r.lr, (float)scale, r.t) < 0;
        for (i = 0; i < job->nslices; i++)
            wrong += compare_codes(job, i, &t[i], want);
        d = deviation(job, t);
        if (!(d <= *worst))
            *worst = d;
    }
    free(read);
    free(want);
    return wrong;
}

static void check_codes(const struct plait_ops *ops)
{
    double worst = 0;
    int wrong = 0;

    for (int i = 0; i < MODELS; i++) {
        struct optim_job job = {0};
        struct tensor *t;
        char yaml[512];

        write_yaml(yaml, sizeof(yaml), i, "adamw8bit", "eps: 1e-6");
        if (open_job(&job, ops, yaml) < 0)
            return;
        t = create_tensors(&job);
        wrong += run_coded(&job, t, &worst);
        free_tensors(&job, t);
        optim_job_close(&job);
    }
    ok(wrong == 0 && worst <= 1e-6,
       "%s: adamw8bit: each step's weights off by %.1e, %d numbers by more "
       "than their codes",
       ops->name, worst, wrong);
}

static void check_table(const struct plait_ops *ops)
{
    check_codes(ops);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        check_rule(ops, (int)i);
}

int main(void)
{
    const struct plait_ops *tables[CPU_TABLES + 1], *cuda;
    const char *why = "";

    seed = test_seed();
    check_map();
    check_table(plait_ops_ref());
    list_cpu_tables(tables);
    for (int i = 0; tables[i]; i++)
        check_table(tables[i]);
    cuda = plait_ops_cuda(&why);
    if (cuda)
        check_table(cuda);
    else
        skip(why);
    return done_testing();
}
