/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/stuck/recorder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pickle/pickle.h"
#include "topology/base/text.h"

typedef struct plait_pickle_value value_t;

enum { WORLD_MOST = 1 << 20, GROUPS_MOST = 4096 };

/* A process group of torch. `name` is unique in the run ("0", "1", ...), `what`
 * is the description that the program gave it. */
struct plait_recorder_group {
    char name[24], what[24];
    int first, size; /* lowest rank and size, by the dumps and the list */
    int nlisted;
    int *listed;
};

/* ---- values ---- */

static int64_t get_int(const value_t *dict, const char *key, int64_t otherwise)
{
    const value_t *v = dict ? plait_pickle_find(dict, key) : NULL;

    return v && v->kind == PLAIT_PICKLE_INT ? v->i : otherwise;
}

static bool get_bool(const value_t *dict, const char *key)
{
    const value_t *v = plait_pickle_find(dict, key);

    return v && v->kind == PLAIT_PICKLE_BOOL && v->i;
}

/* Copy one line of text, truncated and cleaned. */
static void copy_text(const value_t *v, char *text, size_t size)
{
    size_t n = v && v->kind == PLAIT_PICKLE_TEXT ? v->n : 0;

    n = n < size - 1 ? n : size - 1;
    for (size_t i = 0; i < n; i++)
        text[i] = v->text[i] ? v->text[i] : '?';
    text[n] = '\0';
    plait_text_clean(text);
}

static const value_t *item(const value_t *list, size_t i)
{
    return list && list->kind == PLAIT_PICKLE_LIST && i < list->n
               ? list->items[i]
               : NULL;
}

/* ---- groups ---- */

static struct plait_recorder_group *find_group(struct plait_recorder *r,
                                               const char *name)
{
    struct plait_recorder_group *more;

    for (int i = 0; i < r->ngroups; i++)
        if (!strcmp(r->group[i].name, name))
            return &r->group[i];
    if (r->ngroups == GROUPS_MOST)
        return NULL;
    more = realloc(r->group, (size_t)(r->ngroups + 1) * sizeof(*more));
    if (!more)
        return NULL;
    r->group = more;
    more += r->ngroups++;
    memset(more, 0, sizeof(*more));
    snprintf(more->name, sizeof(more->name), "%.23s", name);
    return more;
}

/* "[0, 2, 4]" */
static int read_ranks(struct plait_recorder_group *g, const value_t *v)
{
    size_t room = v->n / 2 + 1;
    int *ranks = malloc(room * sizeof(*ranks)), n = 0;
    int64_t number = -1;

    if (!ranks)
        return -1;
    for (size_t i = 0; i < v->n; i++) {
        char c = v->text[i];

        if (c >= '0' && c <= '9') {
            number = (number < 0 ? 0 : number) * 10 + (c - '0');
            number = number < WORLD_MOST ? number : WORLD_MOST;
        }
        if (number >= 0 && (c < '0' || c > '9')) {
            if (number < WORLD_MOST)
                ranks[n++] = (int)number;
            number = -1;
        }
    }
    free(g->listed);
    g->listed = ranks;
    g->nlisted = n;
    return 0;
}

static int read_config(struct plait_recorder *r, const value_t *config)
{
    const value_t *dict = config ? plait_pickle_dict(config) : NULL;

    for (size_t i = 0; dict && i + 1 < dict->n; i += 2) {
        struct plait_recorder_group *g;
        const value_t *ranks = plait_pickle_find(dict->items[i + 1], "ranks");
        char name[24];

        copy_text(dict->items[i], name, sizeof(name));
        if (!name[0] || !ranks || ranks->kind != PLAIT_PICKLE_TEXT)
            continue;
        g = find_group(r, name);
        if (!g || read_ranks(g, ranks) < 0)
            return -1;
        copy_text(plait_pickle_find(dict->items[i + 1], "desc"), g->what,
                  sizeof(g->what));
    }
    return 0;
}

/* ---- operations ---- */

static enum plait_op op_of(const char *text)
{
    static const struct {
        const char *part;
        enum plait_op op;
    } ops[] = {{"barrier", PLAIT_OP_ALL_REDUCE},
               {"all_reduce", PLAIT_OP_ALL_REDUCE},
               {"allreduce", PLAIT_OP_ALL_REDUCE},
               {"reduce_scatter", PLAIT_OP_REDUCE_SCATTER},
               {"all_gather", PLAIT_OP_ALL_GATHER},
               {"allgather", PLAIT_OP_ALL_GATHER},
               {"all_to_all", PLAIT_OP_ALL_TO_ALL},
               {"alltoall", PLAIT_OP_ALL_TO_ALL},
               {"broadcast", PLAIT_OP_BROADCAST},
               {"send", PLAIT_OP_SEND},
               {"recv", PLAIT_OP_RECV},
               {"gather", PLAIT_OP_ALL_GATHER},
               {"scatter", PLAIT_OP_BROADCAST}};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (strstr(text, ops[i].part))
            return ops[i].op;
    return PLAIT_OP_ALL_REDUCE;
}

static uint64_t size_of(const char *type)
{
    if (strstr(type, "Double") || strstr(type, "Long"))
        return 8;
    if (strstr(type, "Half") || strstr(type, "BFloat") || strstr(type, "Short"))
        return 2;
    return strstr(type, "Float8") || strstr(type, "Byte") ||
                   strstr(type, "Char") || strstr(type, "Bool")
               ? 1
               : 4;
}

/* The size of the operation's inputs, as far as the dump has it. */
static uint64_t bytes_of(const value_t *entry)
{
    const value_t *sizes = plait_pickle_find(entry, "input_sizes"),
                  *types = plait_pickle_find(entry, "input_dtypes");
    uint64_t bytes = 0;
    char type[24];

    for (size_t i = 0; item(sizes, i); i++) {
        const value_t *shape = item(sizes, i);
        uint64_t n = 1;

        copy_text(item(types, i), type, sizeof(type));
        for (size_t k = 0; item(shape, k); k++)
            n *= (uint64_t)item(shape, k)->i;
        bytes += n * size_of(type);
    }
    return bytes;
}

/* "nccl:send 0->3", "nccl:recv 3<-0": the rank after the arrow. */
static int peer_of(const char *text)
{
    const char *at = strstr(text, "->");

    at = at ? at : strstr(text, "<-");
    return at ? atoi(at + 2) : 0;
}

/* Where the program called it: the first frame outside of torch. */
static void place_of(const value_t *entry, char *text, size_t size)
{
    const value_t *frames = plait_pickle_find(entry, "frames");

    text[0] = '\0';
    for (size_t i = 0; item(frames, i); i++) {
        const value_t *frame = item(frames, i);
        char file[256], name[48], *base;

        copy_text(plait_pickle_find(frame, "filename"), file, sizeof(file));
        copy_text(plait_pickle_find(frame, "name"), name, sizeof(name));
        if (!file[0] || strstr(file, "/torch/"))
            continue;
        base = strrchr(file, '/');
        snprintf(text, size, "%.60s:%d, %s", base ? base + 1 : file,
                 (int)get_int(frame, "line", 0), name);
        return;
    }
}

/* The rank's entry for the group of that operation, added if new; NULL: the
 * rank is in too many groups. */
static struct plait_stuck_group *own_group(struct plait_recorder *r,
                                           struct plait_stuck_rank *rank,
                                           const value_t *entry)
{
    const value_t *pair = plait_pickle_find(entry, "process_group");
    struct plait_recorder_group *g;
    struct plait_stuck_group *own;
    char name[24], what[24];

    copy_text(item(pair, 0), name, sizeof(name));
    copy_text(item(pair, 1), what, sizeof(what));
    for (int i = 0; i < rank->ngroups; i++)
        if (!strcmp(rank->group[i].name, name))
            return &rank->group[i];
    g = rank->ngroups < PLAIT_RECORD_GROUPS ? find_group(r, name) : NULL;
    if (!g)
        return NULL;
    if (what[0])
        memcpy(g->what, what, sizeof(what));
    own = &rank->group[rank->ngroups++];
    memcpy(own->name, name, sizeof(own->name));
    return own;
}

static void enter(struct plait_stuck_group *g, enum plait_series series,
                  const struct plait_stuck_op *op)
{
    uint64_t number = plait_tag_number(op->tag);

    if (number > g->entered[series])
        g->entered[series] = number;
    if (series == PLAIT_SERIES_DATA)
        g->last[series][number % PLAIT_RECORD_LAST] = *op;
}

/* The oldest operation that is not completed is the one it waits in. */
static void read_entry(struct plait_recorder *r, struct plait_stuck_rank *rank,
                       const value_t *entry, double now)
{
    struct plait_stuck_group *g = own_group(r, rank, entry);
    char kind[64], place[sizeof(rank->where)];
    const value_t *state = plait_pickle_find(entry, "state");
    bool p2p = get_bool(entry, "is_p2p");
    int64_t number =
        get_int(entry, p2p ? "p2p_seq_id" : "collective_seq_id", 0);
    double age = now - 1e-9 * (double)get_int(entry, "time_created_ns", 0);
    struct plait_stuck_op op;

    if (!g || number < 1 || number >= (int64_t)1 << 48)
        return;
    copy_text(plait_pickle_find(entry, "profiling_name"), kind, sizeof(kind));
    op.tag = plait_op_tag((uint64_t)number, op_of(kind));
    op.bytes = bytes_of(entry);
    enter(g, plait_op_series(plait_tag_op(op.tag)), &op);
    age = age > 0 && age < 1e9 ? age : 0;
    if (rank->phase_age < 0 || age <= rank->phase_age) {
        rank->phase_age = age;
        place_of(entry, place, sizeof(place));
        snprintf(rank->where, sizeof(rank->where), "%s%.110s",
                 place[0] ? "after " : "", place);
    }
    if ((state && plait_pickle_is(state, "completed")) ||
        get_bool(entry, "retired") ||
        (rank->waits >= 0 && age <= rank->wait_age))
        return;
    rank->waits = (int)(g - rank->group);
    rank->in = op;
    rank->peer = peer_of(kind);
    rank->wait_age = age;
}

/* ---- dumps ---- */

static int keep_rank(struct plait_recorder *r,
                     const struct plait_stuck_rank *rank)
{
    struct plait_stuck_rank *more =
        realloc(r->rank, (size_t)(r->n + 1) * sizeof(*more));
    int at = r->n;

    if (!more)
        return -1;
    r->rank = more;
    while (at > 0 && more[at - 1].rank > rank->rank)
        at--;
    memmove(&more[at + 1], &more[at], (size_t)(r->n - at) * sizeof(*more));
    more[at] = *rank;
    r->n++;
    if (rank->rank >= r->world)
        r->world = rank->rank + 1;
    return 0;
}

int plait_recorder_add(struct plait_recorder *r, const char *name,
                       const unsigned char *bytes, size_t size, int number,
                       double now, struct plait_error *err)
{
    struct plait_stuck_rank rank = {.rank = number,
                                    .gpu = -1,
                                    .waits = -1,
                                    .phase = PLAIT_PHASE_FOREIGN,
                                    .phase_age = -1};
    struct plait_pickle *pickle = plait_pickle_parse(name, bytes, size, err);
    const value_t *entries;
    int rc = 0;

    if (!pickle)
        return -1;
    entries = plait_pickle_find(plait_pickle_root(pickle), "entries");
    errno = EINVAL;
    if (!entries || entries->kind != PLAIT_PICKLE_LIST)
        rc = plait_errorf(err, "%s is not a dump of torch's flight recorder",
                          name);
    else if (read_config(r, plait_pickle_find(plait_pickle_root(pickle),
                                              "pg_config")) < 0)
        rc = plait_errorf(err, "out of memory");
    for (size_t i = 0; rc == 0 && i < entries->n; i++)
        if (plait_pickle_dict(entries->items[i]))
            read_entry(r, &rank, entries->items[i], now);
    rank.phase_age = rank.phase_age < 0 ? 0 : rank.phase_age;
    r->now = now > r->now ? now : r->now;
    if (rc == 0 && keep_rank(r, &rank) < 0)
        rc = plait_errorf(err, "out of memory");
    plait_pickle_destroy(pickle);
    return rc;
}

/* ---- all of them ---- */

static bool is_world(const struct plait_recorder_group *g)
{
    return !strcmp(g->name, "0");
}

/* The rank's index in a group by the list of its ranks, which is in the order
 * of the group; -1: it is not in the list. */
static int listed_at(const struct plait_recorder_group *g, int rank)
{
    for (int i = 0; i < g->nlisted; i++)
        if (g->listed[i] == rank)
            return i;
    return !g->nlisted && is_world(g) ? rank : -1;
}

/* Without a list, a rank's index follows from the dumps that there are. */
static void measure_groups(struct plait_recorder *r)
{
    for (int i = 0; i < r->ngroups; i++) {
        struct plait_recorder_group *g = &r->group[i];

        for (int k = 0; k < r->n; k++)
            for (int j = 0; j < r->rank[k].ngroups; j++) {
                struct plait_stuck_group *own = &r->rank[k].group[j];

                if (strcmp(own->name, g->name))
                    continue;
                g->first = g->size ? g->first : r->rank[k].rank;
                own->index = g->nlisted || is_world(g)
                                 ? listed_at(g, r->rank[k].rank)
                                 : g->size;
                g->size++;
            }
        for (int k = 0; k < g->nlisted; k++) {
            if (k == 0 || g->listed[k] < g->first)
                g->first = g->listed[k];
            if (g->listed[k] >= r->world)
                r->world = g->listed[k] + 1;
        }
        g->size = g->nlisted > g->size ? g->nlisted : g->size;
    }
}

/* A rank without a dump is in the groups that list it, and in group "0", which
 * has all ranks. It counts as having entered nothing. */
static int add_missing(struct plait_recorder *r)
{
    int at = 0, world = r->world < 4096 ? r->world : 4096;

    for (int i = 0; i < world; i++) {
        struct plait_stuck_rank rank = {.rank = i,
                                        .gpu = -1,
                                        .waits = -1,
                                        .phase = PLAIT_PHASE_FOREIGN,
                                        .state = PLAIT_STUCK_UNKNOWN};

        if (at < r->n && r->rank[at].rank == i) {
            at++;
            continue;
        }
        for (int k = 0; k < r->ngroups && rank.ngroups < PLAIT_RECORD_GROUPS;
             k++) {
            const struct plait_recorder_group *g = &r->group[k];
            struct plait_stuck_group *own = &rank.group[rank.ngroups];

            own->index = listed_at(g, i);
            if (own->index < 0 && !is_world(g))
                continue;
            memcpy(own->name, g->name, sizeof(own->name));
            rank.ngroups++;
        }
        if (keep_rank(r, &rank) < 0)
            return -1;
        at++;
    }
    return 0;
}

/* The group's name for people: "world", or its description, with torch's number
 * where two groups have the same description. */
static void name_group(struct plait_recorder *r, struct plait_stuck_rank *rank,
                       int own)
{
    struct plait_stuck_group *to = &rank->group[own];
    const struct plait_recorder_group *g = find_group(r, to->name);
    const char *what;
    bool twin = false;

    if (!g)
        return;
    what = g->what[0] && strcmp(g->what, "undefined") ? g->what : g->name;
    for (int i = 0; i < r->ngroups; i++)
        twin |= &r->group[i] != g && r->group[i].first == g->first &&
                !strcmp(r->group[i].what, g->what);
    to->first = g->first;
    to->size = g->size > 0 ? g->size : 1;
    if (is_world(g))
        snprintf(to->name, sizeof(to->name), "world");
    else if (twin && what != g->name)
        snprintf(to->name, sizeof(to->name), "%.14s %.8s", what, g->name);
    else
        snprintf(to->name, sizeof(to->name), "%.23s", what);
}

int plait_recorder_close(struct plait_recorder *r)
{
    measure_groups(r);
    if (add_missing(r) < 0)
        return -1;
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->rank[i].ngroups; k++)
            name_group(r, &r->rank[i], k);
    return 0;
}

void plait_recorder_clear(struct plait_recorder *r)
{
    for (int i = 0; i < r->ngroups; i++)
        free(r->group[i].listed);
    free(r->group);
    free(r->rank);
    memset(r, 0, sizeof(*r));
}
