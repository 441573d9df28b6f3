/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_trial.h"

#include <math.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tap.h"
#include "test_seed.h"

#define GUARD 64 /* elements after each array that no op may touch */

static size_t kind_size(enum trial_kind kind, enum plait_dtype type)
{
    switch (kind) {
    case KIND_T:
        return plait_dtype_size(type);
    case KIND_F64:
        return 8;
    case KIND_BF16:
        return 2;
    default:
        return 4;
    }
}

static double get(enum trial_kind kind, enum plait_dtype type, const void *p,
                  size_t i)
{
    if (kind == KIND_F64)
        return ((const double *)p)[i];
    if (kind == KIND_I32)
        return ((const int32_t *)p)[i];
    if (kind == KIND_BF16)
        return plait_f32_of_bf16(((const uint16_t *)p)[i]);
    if (kind == KIND_F32 || type == PLAIT_F32)
        return ((const float *)p)[i];
    if (type == PLAIT_BF16_T)
        return plait_f32_of_bf16(((const uint16_t *)p)[i]);
    return plait_f32_of_fp16(((const uint16_t *)p)[i]);
}

static void put(enum trial_kind kind, enum plait_dtype type, void *p, size_t i,
                double x)
{
    if (kind == KIND_F64)
        ((double *)p)[i] = x;
    else if (kind == KIND_I32)
        ((int32_t *)p)[i] = (int32_t)x;
    else if (kind == KIND_BF16)
        ((uint16_t *)p)[i] = plait_bf16_of_f32((float)x);
    else if (kind == KIND_F32 || type == PLAIT_F32)
        ((float *)p)[i] = (float)x;
    else if (type == PLAIT_BF16_T)
        ((uint16_t *)p)[i] = plait_bf16_of_f32((float)x);
    else
        ((uint16_t *)p)[i] = plait_fp16_of_f32((float)x);
}

double trial_uniform(struct trial *t, double low, double high)
{
    uint32_t bits = plait_rounding_bits(0, t->random++);

    return low + (high - low) * (bits + 0.5) * 0x1p-32;
}

static struct trial_array *add(struct trial *t, enum trial_kind kind, size_t n)
{
    struct trial_array *a = &t->array[t->narrays++];

    if (t->narrays > TRIAL_ARRAYS)
        abort();
    a->kind = kind;
    a->n = n;
    a->host = calloc(n + GUARD, kind_size(kind, t->type));
    if (a->host == NULL)
        abort();
    return a;
}

void *trial_real(struct trial *t, enum trial_kind kind, size_t n, double low,
                 double high)
{
    struct trial_array *a = add(t, kind, n);

    for (size_t i = 0; i < n + GUARD; i++)
        put(kind, t->type, a->host, i, trial_uniform(t, low, high));
    return a->host;
}

int32_t *trial_int(struct trial *t, size_t n, int32_t low, int32_t high)
{
    struct trial_array *a = add(t, KIND_I32, n);
    int32_t *p = a->host;

    for (size_t i = 0; i < n + GUARD; i++)
        p[i] = (int32_t)floor(trial_uniform(t, low, high));
    return a->host;
}

static size_t bytes_of(const struct trial *t, int i)
{
    const struct trial_array *a = &t->array[i];

    return (a->n + GUARD) * kind_size(a->kind, t->type);
}

/* Runs the case once as a graph. */
static int call_recorded(const struct trial_case *c, const int *shape,
                         struct trial_side *s)
{
    struct plait_graph *graph;
    const char *why = NULL;
    int rc;

    if (s->ops->graph_begin(s->q) < 0)
        return -1;
    s->recording = 1;
    rc = c->call(s, shape);
    s->recording = 0;
    graph = s->ops->graph_end(s->q, &why);
    if (graph == NULL) {
        diag("not recorded: %s", why);
        return -1;
    }
    rc |= s->ops->graph_run(s->q, graph);
    s->ops->graph_destroy(graph);
    return rc;
}

typedef int (*call_fn)(const struct trial_case *c, const int *shape,
                       struct trial_side *s);

static int call_directly(const struct trial_case *c, const int *shape,
                         struct trial_side *s)
{
    return c->call(s, shape);
}

/* Runs the case on copies of the arrays; out[i] is array i afterwards. */
static int run_side(const struct trial *t, const struct trial_case *c,
                    const int *shape, struct trial_side *s, call_fn call,
                    void **out)
{
    int rc = 0;

    s->type = t->type;
    for (int i = 0; i < t->narrays; i++) {
        out[i] = malloc(bytes_of(t, i));
        s->p[i] = s->ops->alloc(s->dev, bytes_of(t, i));
        if (out[i] == NULL || s->p[i] == NULL)
            return -1;
        rc |=
            s->ops->to_device(s->q, s->p[i], t->array[i].host, bytes_of(t, i));
    }
    rc |= call(c, shape, s);
    rc |= s->ops->queue_sync(s->q);
    for (int i = 0; i < t->narrays; i++)
        rc |= s->ops->to_host(s->q, out[i], s->p[i], bytes_of(t, i));
    for (int i = 0; i < t->narrays; i++)
        s->ops->free(s->dev, s->p[i]);
    if (rc != 0)
        diag("%s: %s", s->ops->name,
             plait_queue_error(s->q) != NULL ? plait_queue_error(s->q)
                                             : "an op failed");
    return rc;
}

/* Tolerance of a value of T that is rounded n times here and once in ref: n + 1
 * times u, the largest relative error of one rounding (bf16 2^-8; fp16 2^-11,
 * doubled for the fp32 sums before it). Other values: that of fp32 sums. */
static double tolerance(const struct trial *t, enum trial_kind kind)
{
    int n = t->roundings > 0 ? t->roundings : 1;

    if (kind == KIND_BF16)
        return 0;
    if (kind == KIND_F32 && t->tolerance > 0)
        return t->tolerance;
    if (kind == KIND_T && t->type == PLAIT_BF16_T)
        return (n + 1) * 0x1p-8;
    if (kind == KIND_T && t->type == PLAIT_FP16_T)
        return (n + 1) * 0x1p-10;
    return 2e-5;
}

/* Counts elements of array `k` that differ: |a - b| > tol * (rms(b) + |b|),
 * where the trial's magnitude replaces a smaller rms. */
static size_t differing(const struct trial *t, int k, const void *a,
                        const void *b)
{
    const struct trial_array *array = &t->array[k];
    size_t size = kind_size(array->kind, t->type), bad = 0;
    double tol = tolerance(t, array->kind);
    double squares = 0, rms;

    for (size_t i = 0; i < array->n; i++) {
        double y = get(array->kind, t->type, b, i);

        if (isfinite(y))
            squares += y * y;
    }
    rms = sqrt(squares / (double)(array->n > 0 ? array->n : 1));
    if (array->kind == KIND_T && t->type != PLAIT_F32 && rms < t->magnitude)
        rms = t->magnitude;
    for (size_t i = 0; i < array->n; i++) {
        double x = get(array->kind, t->type, a, i);
        double y = get(array->kind, t->type, b, i);

        if (!(fabs(x - y) <= tol * rms + tol * fabs(y)) &&
            !(isinf(y) && x == y) && bad++ < 3)
            diag("array %d [%zu]: %.9g, expected %.9g", k, i, x, y);
    }
    if (memcmp((const char *)a + array->n * size,
               (const char *)array->host + array->n * size, GUARD * size)) {
        diag("array %d: written behind its end", k);
        bad++;
    }
    return bad;
}

/* Counts values that are NaN in ref's result and not here. */
static size_t lost_nans(const struct trial *t, int k, const void *a,
                        const void *b)
{
    const struct trial_array *array = &t->array[k];
    size_t lost = 0;

    for (size_t i = 0; i < array->n; i++)
        lost += isnan(get(array->kind, t->type, b, i)) &&
                !isnan(get(array->kind, t->type, a, i));
    return lost;
}

/* Compares array `k` of a trial; returns how many elements differ. */
typedef size_t (*compare_fn)(const struct trial *t, int k, const void *a,
                             const void *b);

static size_t same_bits(const struct trial *t, int k, const void *a,
                        const void *b)
{
    return memcmp(a, b, bytes_of(t, k)) != 0;
}

static size_t compare_all(const struct trial *t, compare_fn compare, void **a,
                          void **b)
{
    size_t bad = 0;

    for (int k = 0; k < t->narrays; k++)
        bad += compare(t, k, a[k], b[k]);
    return bad;
}

static void describe(char *text, size_t size, const char *ops,
                     const struct trial_case *c, enum plait_dtype type,
                     const int *shape)
{
    int n =
        snprintf(text, size, "%s: %s %s", ops, c->name, plait_dtype_name(type));

    for (int i = 0; i < TRIAL_SHAPE; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%d", i ? "," : " ",
                      shape[i]);
}

static void free_all(struct trial *t, void **out)
{
    for (int k = 0; k < t->narrays; k++) {
        free(out[k]);
        out[k] = NULL;
    }
}

/* Ref's results for the arrays as they are, and with one NaN in one array at a
 * time. */
struct expected {
    void *whole[TRIAL_ARRAYS];
    size_t at[TRIAL_ARRAYS]; /* the element of array k that is made a NaN */
    void *poisoned[TRIAL_ARRAYS][TRIAL_ARRAYS]; /* [k]: the results then */
};

/* Runs the case with element `at` of array `k` a NaN. */
static int run_poisoned(const struct trial *t, const struct trial_case *c,
                        const int *shape, struct trial_side *s, int k,
                        size_t at, void **out)
{
    const struct trial_array *array = &t->array[k];
    double kept = get(array->kind, t->type, array->host, at);
    int rc;

    put(array->kind, t->type, array->host, at, NAN);
    rc = run_side(t, c, shape, s, call_directly, out);
    put(array->kind, t->type, array->host, at, kept);
    return rc;
}

static int expected_create(struct trial *t, const struct trial_case *c,
                           const int *shape, struct trial_side *ref,
                           struct expected *e)
{
    int rc = run_side(t, c, shape, ref, call_directly, e->whole);

    for (int k = 0; k < t->narrays; k++) {
        e->at[k] = (size_t)trial_uniform(t, 0, (double)t->array[k].n);
        if (t->array[k].kind != KIND_I32)
            rc |= run_poisoned(t, c, shape, ref, k, e->at[k], e->poisoned[k]);
    }
    return rc;
}

static void expected_destroy(struct trial *t, struct expected *e)
{
    free_all(t, e->whole);
    for (int k = 0; k < t->narrays; k++)
        free_all(t, e->poisoned[k]);
}

/* A NaN in one array at a time must show in all results in which ref has it. */
static size_t poison(struct trial *t, const struct trial_case *c,
                     const int *shape, struct trial_side *side,
                     struct expected *e)
{
    void *out[TRIAL_ARRAYS] = {NULL};
    size_t bad = 0;

    for (int k = 0; k < t->narrays; k++) {
        if (t->array[k].kind == KIND_I32)
            continue;
        if (run_poisoned(t, c, shape, side, k, e->at[k], out)) {
            bad++;
        } else if (compare_all(t, lost_nans, out, e->poisoned[k]) > 0) {
            diag("a NaN at [%zu] of array %d is lost", e->at[k], k);
            bad++;
        }
        free_all(t, out);
    }
    return bad;
}

static void check_side(struct trial *t, const struct trial_case *c,
                       const int *shape, struct trial_side *side,
                       struct expected *e)
{
    void *a[TRIAL_ARRAYS] = {NULL}, *again[TRIAL_ARRAYS] = {NULL};
    call_fn once_more = side->ops->graph_begin != NULL && !trial_waits(c)
                            ? call_recorded
                            : call_directly;
    char text[160];
    size_t bad = 0;

    describe(text, sizeof(text), side->ops->name, c, t->type, shape);
    if (run_side(t, c, shape, side, call_directly, a) ||
        run_side(t, c, shape, side, once_more, again)) {
        ok(0, "%s", text);
    } else {
        bad = compare_all(t, differing, a, e->whole);
        if (compare_all(t, same_bits, a, again) > 0) {
            diag("a second run%s gives other bits",
                 once_more == call_recorded ? ", as a graph," : "");
            bad++;
        }
        bad += poison(t, c, shape, side, e);
        ok(bad == 0, "%s", text);
    }
    free_all(t, a);
    free_all(t, again);
}

/* PLAIT_TEST_ELEMENTS: cases whose arrays have more elements in all are left
 * out, for emulated processors. */
static int is_small(const struct trial *t)
{
    const char *most = getenv("PLAIT_TEST_ELEMENTS");
    size_t n = 0;

    for (int k = 0; k < t->narrays; k++)
        n += t->array[k].n;
    return most == NULL || n <= strtoull(most, NULL, 10);
}

/* Runs one case on every side. Ref, by far the slowest, runs once for all
 * sides. */
static void run_case(const struct trial_case *c, enum plait_dtype type,
                     const int *shape, struct trial_side *ref,
                     struct trial_side *sides, int n, uint64_t seed)
{
    struct trial t = {.ref = ref->ops,
                      .ref_queue = ref->q,
                      .type = type,
                      .random = seed,
                      .gpu = sides[0].ops->gpu};
    struct expected e = {0};

    c->setup(&t, shape);
    if (!is_small(&t))
        n = 0;
    else if (expected_create(&t, c, shape, ref, &e))
        ok(0, "ref: %s", c->name);
    else
        for (int i = 0; i < n; i++)
            check_side(&t, c, shape, &sides[i], &e);
    expected_destroy(&t, &e);
    for (int k = 0; k < t.narrays; k++)
        free(t.array[k].host);
}

static int side_open(struct trial_side *s, const struct plait_ops *ops)
{
    s->ops = ops;
    s->dev = ops->device_create(0, 0);
    s->q = s->dev != NULL ? ops->queue_create(s->dev, 0) : NULL;
    return ok(s->q != NULL, "%s: a device and a queue", ops->name);
}

static void side_close(struct trial_side *s)
{
    size_t now = 1, peak = 0;

    s->ops->memory(s->dev, &now, &peak);
    ok(now == 0 && peak > 0, "%s: all memory is given back", s->ops->name);
    s->ops->queue_destroy(s->q);
    s->ops->device_destroy(s->dev);
}

/* PLAIT_TEST_CASES: only cases whose names begin so are run or, after a !, only
 * the others. */
static int is_wanted(const struct trial_case *c)
{
    const char *only = getenv("PLAIT_TEST_CASES");
    int except = only != NULL && *only == '!';

    if (only == NULL)
        return 1;
    only += except;
    return (strncmp(c->name, only, strlen(only)) == 0) != except;
}

/* Runs every shape of every case in each of the types. */
static void run_cases(const struct trial_case *c, const enum plait_dtype *types,
                      int ntypes, struct trial_side *ref,
                      struct trial_side *sides, int n, uint64_t seed)
{
    for (; c->name != NULL; c++)
        for (int i = 0; i < TRIAL_SHAPES && is_wanted(c) && c->shapes[i][0] > 0;
             i++)
            for (int k = 0; k < ntypes; k++)
                run_case(c, types[k], c->shapes[i], ref, sides, n, seed);
}

/* All sides must be of one kind of device. */
static void run_all(struct trial_side *ref, struct trial_side *sides, int n,
                    uint64_t seed)
{
    static const enum plait_dtype types[] = {PLAIT_F32, PLAIT_BF16_T,
                                             PLAIT_FP16_T};
    static const struct trial_case *const subjects[] = {
        trial_moving,  trial_linear,  trial_layers, trial_attention,
        trial_experts, trial_moments, trial_optim,
    };
    const struct plait_ops *ops = sides[0].ops;

    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
        run_cases(subjects[i], types, 3, ref, sides, n, seed);
    run_cases(trial_image, types, 1, ref, sides, n, seed);
    if (ops->has_fp8 != NULL && ops->has_fp8(sides[0].dev))
        run_cases(trial_fp8, &types[1], 1, ref, sides, n, seed);
    else
        skip("this GPU has no fp8");
}

int trial_run_all(const struct plait_ops *const *ops)
{
    uint64_t seed = test_seed();
    struct trial_side ref = {0}, sides[TRIAL_SIDES] = {{0}};
    int n = 0;

    if (!side_open(&ref, plait_ops_ref()))
        return done_testing();
    while (n < TRIAL_SIDES && ops[n] != NULL && side_open(&sides[n], ops[n]))
        n++;
    if (n > 0)
        run_all(&ref, sides, n, seed);
    while (n-- > 0)
        side_close(&sides[n]);
    side_close(&ref);
    return done_testing();
}
