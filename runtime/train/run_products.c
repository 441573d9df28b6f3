/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms of matrix products on GPUs: taken from the user's cache, where
 * all ranks take what rank 0 has read; what is not there is searched for after
 * the first step, where no rank can be in the middle of anything. Each product
 * is timed by one of the ranks that made it, and all others take that rank's
 * choice: ranks that compute the same keep having the same bits. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/products.h"
#include "runtime/comm/trace.h"
#include "runtime/train/cache_file.h"
#include "runtime/train/run_private.h"
#include "topology/base/hash.h"

/* Products of a rank; lines of the file, of which the last stay. */
enum { WISHES = 128, LINES = 2000 };

#define MARK " : "

static const struct plait_product_ops *products_of(const struct run *r)
{
    return r->s->world.ops->products;
}

static char *file_path(void)
{
    return plait_cache_path("PLAIT_MATMUL_CACHE", "products");
}

/* -- the file ------------------------------------------------------------- */

/* malloc'ed; empty where there is no file. NULL: out of memory. */
static char *read_file(const char *path)
{
    FILE *in = path ? fopen(path, "re") : NULL, *out;
    char *text = NULL, block[4096];
    size_t size, n;
    int bad;

    out = open_memstream(&text, &size);
    while (in && out && (n = fread(block, 1, sizeof(block), in)) > 0)
        for (size_t i = 0; i < n; i++)
            putc(block[i] ? block[i] : '?', out);
    if (in)
        fclose(in);
    if (!out)
        return NULL;
    bad = ferror(out);
    if (fclose(out) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* Whether `choices` has one of the product that the line begins with. */
static bool has_product(const char *choices, const char *line, size_t n)
{
    for (; *choices; choices = next_line(choices))
        if (strncmp(choices, line, n) == 0)
            return true;
    return false;
}

/* Behind the line's MARK: digits of the algorithm; 0: it has none. */
static size_t count_digits(const char *line, const char **mark)
{
    size_t n = strcspn(line, "\n");
    const char *p = memmem(line, n, MARK, strlen(MARK));

    *mark = p;
    return p && line[n] ? (size_t)(line + n - p) - strlen(MARK) : 0;
}

/* What the file has of other products, but for damaged lines. */
static void copy_others(const char *old, const char *choices, FILE *out)
{
    const char *mark, *line;
    size_t digits = count_digits(choices, &mark);
    int skip = -LINES;

    for (line = old; *line; line = next_line(line))
        skip++;
    for (line = old; *line; line = next_line(line))
        if (--skip < 0 && count_digits(line, &mark) == digits &&
            !has_product(choices, line, (size_t)(mark - line) + strlen(MARK)))
            fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
}

static void keep_choices(const char *choices)
{
    char *path = file_path(), *old = path ? read_file(path) : NULL, *beside;
    FILE *out;

    if (old && (out = plait_cache_begin(path, &beside))) {
        copy_others(old, choices, out);
        fputs(choices, out);
        plait_cache_end(path, out, beside);
    }
    free(old);
    free(path);
}

/* -- the start ------------------------------------------------------------ */

/* Else the run's products keep the library's first choices. */
static bool may_search(const struct run *r)
{
    return products_of(r) && r->config->train.search_products &&
           !r->config->train.deterministic;
}

static int take_choices(struct run *r, const char *choices,
                        struct plait_error *err)
{
    int damaged = products_of(r)->choose(r->s->world.dev, choices), rc = 0;

    if (damaged < 0)
        rc = plait_errorf(err, "the algorithms of matrix products: %s",
                          strerror(errno));
    if (plait_error_consensus(r->world, rc, err) < 0)
        return -1;
    return damaged;
}

int plait_run_load_products(struct run *r, struct plait_error *err)
{
    char *path, *text = NULL;
    size_t size = 0;
    int rc = 0;

    if (!may_search(r))
        return 0;
    path = file_path();
    if (plait_comm_rank(r->world) == 0) {
        text = read_file(path);
        size = text ? strlen(text) : 0;
        if (!text)
            rc = plait_errorf(err, "out of memory");
    }
    if (plait_broadcast_text(r->world, rc, &text, &size, err) < 0) {
        free(path);
        return -1;
    }
    /* What was measured before is none of the run's products. */
    free(products_of(r)->wanted(r->s->world.dev));
    rc = take_choices(r, text, err);
    if (rc > 0 && plait_comm_rank(r->world) == 0)
        fprintf(stderr,
                "plait-train: %s: %d damaged line%s passed over; the products "
                "are searched for again\n",
                path, rc, rc == 1 ? "" : "s");
    free(text);
    free(path);
    if (rc < 0)
        return -1;
    r->searches = true;
    r->s->mesh->graphs.held = true;
    return 0;
}

/* -- the search ------------------------------------------------------------ */

/* A product that a rank wants. */
struct wish {
    uint64_t product; /* hash of its line */
    int rank;
};

static int compare_wishes(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;

    if (x->product != y->product)
        return x->product < y->product ? -1 : 1;
    return x->rank - y->rank;
}

static uint64_t hash_line(const char *line, size_t n)
{
    return plait_hash_bytes(PLAIT_HASH_START, line, n);
}

/* The wishes of all ranks, sorted; *n of them. NULL with err. Collective. */
static struct wish *gather_wishes(struct run *r, const char *lines, size_t *n,
                                  struct plait_error *err)
{
    int size = plait_comm_size(r->world), rc = 0;
    uint64_t own[WISHES] = {0}, *all = malloc(size * sizeof(own));
    struct wish *wishes = malloc(size * WISHES * sizeof(*wishes));

    for (int i = 0; *lines && i < WISHES; i++) {
        size_t length = strcspn(lines, "\n");

        own[i] = hash_line(lines, length);
        lines = next_line(lines);
    }
    if (!all || !wishes)
        rc = plait_errorf(err, "out of memory");
    rc = plait_error_consensus(r->world, rc, err);
    if (rc == 0 &&
        plait_comm_host_all_gather(r->world, own, all, sizeof(own)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(r->world));
    *n = 0;
    for (size_t i = 0; rc == 0 && i < (size_t)size * WISHES; i++)
        if (all[i])
            wishes[(*n)++] = (struct wish){all[i], (int)(i / WISHES)};
    free(all);
    if (rc < 0) {
        free(wishes);
        return NULL;
    }
    qsort(wishes, *n, sizeof(*wishes), compare_wishes);
    return wishes;
}

/* Leaves one wish of each product, that of the rank which searches for it: the
 * one with the fewest others. *n becomes their number. */
static int share_out(struct wish *wishes, size_t *n, int size)
{
    int *load = calloc(size, sizeof(*load));
    size_t kept = 0, from, to, best;

    if (!load)
        return -1;
    for (from = 0; from < *n; from = to) {
        best = from;
        for (to = from; to < *n && wishes[to].product == wishes[from].product;
             to++)
            if (load[wishes[to].rank] < load[wishes[best].rank])
                best = to;
        load[wishes[best].rank]++;
        wishes[kept++] = wishes[best];
    }
    *n = kept;
    free(load);
    return 0;
}

/* This rank's part; NULL: out of memory. */
static char *search_own(struct run *r, const char *lines,
                        const struct wish *wishes, size_t n)
{
    char *found = NULL;
    size_t size;
    FILE *out = open_memstream(&found, &size);

    if (!out)
        return NULL;
    for (; *lines; lines = next_line(lines)) {
        size_t length = strcspn(lines, "\n");
        struct wish own = {hash_line(lines, length), plait_comm_rank(r->world)};
        char *product, *choice = NULL;

        if (!bsearch(&own, wishes, n, sizeof(own), compare_wishes))
            continue;
        product = strndup(lines, length);
        if (product)
            choice = products_of(r)->search(r->s->mesh->q, product);
        if (choice)
            fputs(choice, out);
        free(choice);
        free(product);
    }
    if (fclose(out) == 0)
        return found;
    free(found);
    return NULL;
}

/* What all ranks have found, one behind the other; NULL with err. */
static char *join_found(struct run *r, const char *own, struct plait_error *err)
{
    int size = plait_comm_size(r->world), rc = 0;
    uint64_t length = own ? strlen(own) : 0, total = 0, at = 0;
    uint64_t *lengths = calloc(size, sizeof(*lengths));
    char *all = NULL;

    if (!own || !lengths)
        rc = plait_errorf(err, "out of memory");
    rc = plait_error_consensus(r->world, rc, err);
    if (rc == 0 && plait_comm_host_all_gather(r->world, &length, lengths,
                                              sizeof(length)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(r->world));
    for (int i = 0; rc == 0 && i < size; i++)
        total += lengths[i];
    if (rc == 0 && !(all = calloc(total + 1, 1)))
        rc = plait_errorf(err, "out of memory");
    rc = plait_error_consensus(r->world, rc, err);
    for (int i = 0; rc == 0 && i < size; i++) {
        if (lengths[i] == 0)
            continue;
        if (i == plait_comm_rank(r->world))
            memcpy(all + at, own, length);
        if (plait_comm_host_broadcast(r->world, all + at, lengths[i], i) < 0)
            rc = plait_errorf(err, "%s", plait_comm_error(r->world));
        at += lengths[i];
    }
    free(lengths);
    if (rc == 0)
        return all;
    free(all);
    return NULL;
}

static int search_all(struct run *r, const char *lines, struct plait_error *err)
{
    double begin = plait_trace_now();
    size_t n;
    struct wish *wishes = gather_wishes(r, lines, &n, err);
    char *own = NULL, *found = NULL;
    int rc = -1;

    if (!wishes)
        return -1;
    if (n > 0) {
        if (share_out(wishes, &n, plait_comm_size(r->world)) == 0)
            own = search_own(r, lines, wishes, n);
        found = join_found(r, own, err);
        free(own);
    }
    free(wishes);
    if (n == 0)
        return 0;
    if (found)
        rc = take_choices(r, found, err);
    if (rc >= 0 && plait_comm_rank(r->world) == 0) {
        keep_choices(found);
        printf("the fastest algorithms of %zu matrix product%s were searched "
               "for in %.1f s\n",
               n, n == 1 ? "" : "s", plait_trace_now() - begin);
        fflush(stdout);
    }
    free(found);
    return rc < 0 ? -1 : 0;
}

int plait_run_search_products(struct run *r, struct plait_error *err)
{
    char *lines;
    int rc;

    if (!r->searches)
        return 0;
    r->searches = false;
    lines = products_of(r)->wanted(r->s->world.dev);
    rc = plait_error_consensus(
        r->world, lines ? 0 : plait_errorf(err, "out of memory"), err);
    if (rc == 0)
        rc = search_all(r, lines, err);
    free(lines);
    r->s->mesh->graphs.held = false;
    return rc;
}
