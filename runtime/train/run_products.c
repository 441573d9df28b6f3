/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms of matrix products on GPUs. They come from the user's cache,
 * which rank 0 reads for all ranks. What is not in it is searched for after the
 * first step, when no rank has other work under way. Each product is timed by
 * one of the ranks that made it, and all others take that rank's choice, so
 * that ranks that compute the same keep getting the same bits. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/products.h"
#include "runtime/comm/consensus.h"
#include "runtime/train/cache_file.h"
#include "runtime/train/run_private.h"
#include "topology/base/clock.h"
#include "topology/base/hash.h"

/* The most products of a rank, and lines of the file: the last ones stay. */
enum { REQUESTS = 128, LINES = 2000 };

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

/* Whether `choices` has a line for the same product: n bytes of `line` name
 * it. */
static bool has_product(const char *choices, const char *line, size_t n)
{
    for (; *choices; choices = next_line(choices))
        if (strncmp(choices, line, n) == 0)
            return true;
    return false;
}

/* How many digits of an algorithm follow PLAIT_CHOICE_MARK in the line; 0: the
 * line is damaged. */
static size_t count_digits(const char *line, const char **mark)
{
    size_t n = strcspn(line, "\n");
    const char *p =
        memmem(line, n, PLAIT_CHOICE_MARK, strlen(PLAIT_CHOICE_MARK));

    *mark = p;
    return p && line[n] ? (size_t)(line + n - p) - strlen(PLAIT_CHOICE_MARK)
                        : 0;
}

/* Copy the file's lines of other products, without damaged ones. */
static void copy_others(const char *old, const char *choices, FILE *out)
{
    const char *mark;
    size_t digits = count_digits(choices, &mark);
    int skip = -LINES;

    for (const char *line = old; *line; line = next_line(line))
        skip++;
    for (const char *line = old; *line; line = next_line(line))
        if (--skip < 0 && count_digits(line, &mark) == digits &&
            !has_product(choices, line,
                         (size_t)(mark - line) + strlen(PLAIT_CHOICE_MARK)))
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

/* If not, products keep the library's first choice of an algorithm. */
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
        rc = plait_errorf(err,
                          "cannot set the algorithms of matrix products: "
                          "%s",
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
    /* Forget the products of earlier measurements: they are not the run's. */
    free(products_of(r)->wanted(r->s->world.dev));
    rc = take_choices(r, text, err);
    if (rc > 0 && plait_comm_rank(r->world) == 0)
        fprintf(stderr,
                "plait-train: %s: ignored %d damaged line%s; the search for "
                "the fastest products is repeated\n",
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

/* Each product that some rank has made is timed by one rank. The ranks agree on
 * which by two max-reductions over a table of fixed size, whose cost grows with
 * the logarithm of the number of ranks. A product's hash gives its slot. The
 * first reduction takes the largest hash of each slot. In the second the ranks
 * that made this product bid for it, and the highest bid wins. Products that
 * lost their slot come in the next round. */
enum { SLOTS = 1024, RANK_BITS = 27 };

struct round {
    double product[SLOTS]; /* hash of 53 bits; 0: none */
    double bid[SLOTS];     /* of the rank that times it */
    char choice[SLOTS][PLAIT_CHOICE_MOST];
};

/* A product that this rank has made. */
struct request {
    uint64_t hash;
    const char *line;
};

static size_t list_requests(const char *lines, struct request *requests)
{
    size_t n = 0;

    for (; *lines && n < REQUESTS; lines = next_line(lines)) {
        uint64_t hash =
            plait_hash_bytes(PLAIT_HASH_START, lines, strcspn(lines, "\n"));

        requests[n++] = (struct request){hash >> 11 | 1, lines};
    }
    return n;
}

/* Bids depend on product and rank, so that the work spreads over the ranks. */
static double bid_of(uint64_t hash, int rank)
{
    uint64_t both[2] = {hash, (uint64_t)rank};
    uint64_t mixed = plait_hash_bytes(PLAIT_HASH_START, both, sizeof(both));

    return (double)(mixed >> 40 << RANK_BITS | (uint64_t)rank);
}

static int owner_of(double bid)
{
    return (int)((uint64_t)bid & ((1u << RANK_BITS) - 1));
}

static int agree(struct run *r, const struct request *requests, size_t n,
                 struct round *round, struct plait_error *err)
{
    int me = plait_comm_rank(r->world);

    memset(round, 0, sizeof(*round));
    for (size_t i = 0; i < n; i++) {
        double *slot = &round->product[requests[i].hash % SLOTS];

        *slot = fmax(*slot, (double)requests[i].hash);
    }
    if (plait_comm_host_all_reduce(r->world, round->product, SLOTS, PLAIT_MAX))
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    for (size_t i = 0; i < n; i++) {
        size_t slot = requests[i].hash % SLOTS;

        if (round->product[slot] == (double)requests[i].hash)
            round->bid[slot] = bid_of(requests[i].hash, me);
    }
    if (plait_comm_host_all_reduce(r->world, round->bid, SLOTS, PLAIT_MAX))
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

/* Time the products that this rank has won. Requests for a later round are left
 * in `requests`; returns how many. A product without a choice keeps the
 * library's. */
static size_t search_own(struct run *r, struct request *requests, size_t n,
                         struct round *round)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        size_t slot = requests[i].hash % SLOTS;
        char *product = NULL, *choice = NULL;

        if (round->product[slot] != (double)requests[i].hash) {
            requests[left++] = requests[i];
            continue;
        }
        if (owner_of(round->bid[slot]) != plait_comm_rank(r->world))
            continue;
        product = strndup(requests[i].line, strcspn(requests[i].line, "\n"));
        if (product)
            choice = products_of(r)->search(r->s->mesh->q, product);
        if (choice && strlen(choice) < PLAIT_CHOICE_MOST)
            strcpy(round->choice[slot], choice);
        free(choice);
        free(product);
    }
    return left;
}

/* Broadcast each choice of the round. Returns the number of products, or -1
 * with err. */
static int hand_round(struct run *r, struct round *round, FILE *found,
                      struct plait_error *err)
{
    int n = 0;

    for (int i = 0; i < SLOTS; i++) {
        if (round->product[i] == 0)
            continue;
        if (plait_comm_host_broadcast(r->world, round->choice[i],
                                      PLAIT_CHOICE_MOST,
                                      owner_of(round->bid[i])) < 0)
            return plait_errorf(err, "%s", plait_comm_error(r->world));
        fputs(round->choice[i], found);
        n++;
    }
    return n;
}

/* Write all choices to `found`; returns how many products were searched for, or
 * -1 with err. Collective. */
static int search_rounds(struct run *r, const char *lines, struct round *round,
                         FILE *found, struct plait_error *err)
{
    struct request requests[REQUESTS];
    size_t n = list_requests(lines, requests);
    int all = 0, now;

    do {
        if (agree(r, requests, n, round, err) < 0)
            return -1;
        n = search_own(r, requests, n, round);
        now = hand_round(r, round, found, err);
        all += now;
    } while (now > 0);
    return now < 0 ? -1 : all;
}

/* malloc'ed choices, and how many products they are of; NULL with err. */
static char *search_all(struct run *r, const char *lines, int *n,
                        struct plait_error *err)
{
    struct round *round = malloc(sizeof(*round));
    char *found = NULL;
    size_t size;
    FILE *out = open_memstream(&found, &size);
    int rc = lines && round && out ? 0 : plait_errorf(err, "out of memory");

    *n = -1;
    if (plait_error_consensus(r->world, rc, err) == 0)
        *n = search_rounds(r, lines, round, out, err);
    if (out && fclose(out) != 0 && *n >= 0)
        *n = plait_errorf(err, "out of memory");
    free(round);
    if (*n >= 0)
        return found;
    free(found);
    return NULL;
}

static int take_found(struct run *r, const char *found, int n, double seconds,
                      struct plait_error *err)
{
    if (take_choices(r, found, err) < 0)
        return -1;
    if (plait_comm_rank(r->world) == 0) {
        if (*found) /* else none could be timed, and nothing is new */
            keep_choices(found);
        printf("the fastest algorithms of %d matrix product%s were searched "
               "for in %.1f s\n",
               n, n == 1 ? "" : "s", seconds);
        fflush(stdout);
    }
    return 0;
}

int plait_run_search_products(struct run *r, struct plait_error *err)
{
    double begin = plait_clock_now();
    char *lines, *found;
    int n, rc;

    if (!r->searches)
        return 0;
    r->searches = false;
    lines = products_of(r)->wanted(r->s->world.dev);
    found = search_all(r, lines, &n, err);
    rc = found ? 0 : -1;
    if (n > 0)
        rc = take_found(r, found, n, plait_clock_now() - begin, err);
    free(found);
    free(lines);
    r->s->mesh->graphs.held = false;
    return rc;
}
