/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data/blend.h"
#include "runtime/data/data.h"
#include "tap.h"
#include "temp_path.h"
#include "test_seed.h"

/* Datasets mixed by weights: which sample comes from which dataset, and that
 * the loader reads them in that order. */

static char dir[TEMP_PATH];

/* Writes 41 tokens first, first + 1, ... in llm.c's format. */
static struct plait_dataset *create(const char *name, int32_t first,
                                    struct plait_error *err)
{
    int32_t bytes[256 + 41] = {20240801, 7, 41};
    char path[256];
    FILE *file;
    int i;

    for (i = 0; i < 41; i++)
        bytes[256 + i] = first + i;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    if (!file || fwrite(bytes, sizeof(bytes), 1, file) != 1 || fclose(file))
        abort();
    return plait_dataset_create(path, PLAIT_DATA_LLMC, err);
}

/* For every n, each set has its share of the first n samples to within less
 * than one; its own samples come in order. */
static int keeps_shares(const double *weights, int n, int64_t first,
                        int64_t samples)
{
    struct plait_blend *b = plait_blend_create(weights, n);
    int64_t had[8], in_set, i;
    double sum = 0, most = 0;
    int k, set, good = b != NULL;

    for (k = 0; k < n; k++)
        sum += weights[k];
    for (i = first; good && i < first + samples; i++) {
        set = plait_blend_find(b, i, &in_set);
        good = set >= 0 && set < n;
        if (i == 0)
            memset(had, 0, sizeof(had));
        if (first > 0 && i < first + 64)
            had[set] = in_set; /* count from here on */
        good &= had[set] == in_set;
        had[set] = in_set + 1;
        for (k = 0; k < n && first == 0; k++)
            most = fmax(most, fabs(had[k] - (i + 1) * weights[k] / sum));
    }
    plait_blend_destroy(b);
    if (!good || most >= 1 + 1e-9)
        diag("sample %lld, off by %g", (long long)i, most);
    return good && most < 1 + 1e-9;
}

static void blends(void)
{
    static const struct {
        int n;
        double weights[8];
    } cases[] = {
        {1, {3}},
        {2, {0.7, 0.3}},
        {2, {1, 1e-6}},
        {3, {1. / 3, 1. / 3, 1. / 3}},
        {3, {123456789012., 9876543210., 55555.}},
        {5, {0.5, 0.2, 0.15, 0.1, 0.05}},
        {8, {0.9, 0.05, 0.01, 0.01, 0.01, 0.01, 0.005, 0.005}},
    };
    double weights[8];
    struct plait_blend *a, *b;
    int64_t in_set, again, counts[2] = {0};
    int i, k, good = 1;
    size_t c;

    for (c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        ok(keeps_shares(cases[c].weights, cases[c].n, 0, 20000),
           "shares of %d sets are kept after every sample", cases[c].n);
    srand(test_seed());
    for (c = 0, good = 1; c < 50; c++) {
        int n = 2 + rand() % 7;

        for (k = 0; k < n; k++)
            weights[k] = pow(rand() / (RAND_MAX + 1.0), 3) + 1e-4;
        good &= keeps_shares(weights, n, 0, 3000);
    }
    ok(good, "and those of random weights");

    a = plait_blend_create(cases[1].weights, 2);
    for (i = 0; i < 1000; i++)
        counts[plait_blend_find(a, i, &in_set)]++;
    ok(counts[0] == 700 && counts[1] == 300, "0.7 and 0.3 of 1000 samples");
    ok(plait_blend_find(a, INT64_C(1000000000000000), &in_set) == 0 &&
           in_set == INT64_C(700000000000000),
       "and of 10^15");
    plait_blend_destroy(a);

    a = plait_blend_create(cases[6].weights, 8);
    b = plait_blend_create(cases[6].weights, 8);
    for (i = 0, good = 1; i < 2000; i++) {
        int64_t at = i % 3 ? i * 7 : rand() % 20000;
        int set = plait_blend_find(a, at, &in_set);

        plait_blend_destroy(b);
        b = plait_blend_create(cases[6].weights, 8);
        good &= plait_blend_find(b, at, &again) == set && again == in_set;
    }
    ok(good, "asked for in any order, they are the same");
    plait_blend_destroy(a);
    plait_blend_destroy(b);
    weights[0] = 1;
    weights[1] = 0;
    ok(!plait_blend_create(weights, 2) && errno == EINVAL, "a weight of 0");
}

/* A blend of the files a and b: each one's samples come once per epoch of that
 * file, and the same from a start in the middle. */
static void blended_loader(void)
{
    static const double weights[] = {0.75, 0.25};
    struct plait_error err;
    struct plait_dataset *ds[2] = {create("low", 0, &err),
                                   create("high", 100, &err)};
    const struct plait_mixture mix = {ds, weights, 2};
    const struct plait_sequence_form form = {4, 200, -1};
    struct plait_share all = {.stride = 4, .count = 4};
    struct plait_share part = {
        .start = 12, .stride = 4, .first = 1, .count = 2};
    struct plait_loader *whole, *later;
    const int32_t *in, *out, *in2, *out2;
    int seen[2][10] = {{0}}, step, i, good = 1;

    whole = plait_loader_create_blend(&mix, 3, &form, &all, 1, &err);
    later = plait_loader_create_blend(&mix, 3, &form, &part, 1, &err);
    for (step = 0; step < 40; step++) {
        good &= plait_loader_next(whole, 1, &err) == 0;
        plait_loader_get(whole, 0, &in, &out);
        for (i = 0; i < 4; i++)
            seen[in[4 * i] >= 100][in[4 * i] % 100 / 4]++;
        if (step < 3)
            continue;
        good &= plait_loader_next(later, 1, &err) == 0;
        plait_loader_get(later, 0, &in2, &out2);
        good &= !memcmp(in + 4, in2, 32) && !memcmp(out + 4, out2, 32);
    }
    ok(good, "a blend, and a share of it from the middle on");
    for (i = 0; i < 10; i++)
        good &= seen[0][i] == 12 && seen[1][i] == 4;
    ok(good, "after 12 and 4 epochs each sample has come so often");
    plait_loader_destroy(whole);
    plait_loader_destroy(later);
    plait_dataset_destroy(ds[0]);
    plait_dataset_destroy(ds[1]);
}

/* Of tokens 0 .. 19 and 20 .. 39, token 24 ends a document. */
static void documents(void)
{
    struct plait_error err;
    struct plait_dataset *ds = create("low", 0, &err);
    const struct plait_mixture one = {&ds, NULL, 1};
    const struct plait_sequence_form form = {20, 41, 24};
    struct plait_share all = {.stride = 2, .count = 2};
    struct plait_loader *l =
        plait_loader_create_blend(&one, 3, &form, &all, 1, &err);
    const int32_t *in, *out, *starts;
    int i, good = l && plait_loader_next(l, 1, &err) == 0;

    plait_loader_get(l, 0, &in, &out);
    starts = plait_loader_starts(l, 0);
    for (i = 0; good && i < 40; i++)
        good = starts[i] == (in[i] > 24 ? 5 : 0);
    ok(good, "a document starts behind the end of the one before");
    plait_loader_destroy(l);
    plait_dataset_destroy(ds);
}

int main(void)
{
    char command[160];

    if (!mkdtemp(temp_path(dir, "blend")))
        return 1;
    blends();
    blended_loader();
    documents();
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
