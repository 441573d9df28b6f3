/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/stuck/stacks.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/text.h"

#define LINE "plait-stuck-stack"

/* More than any job has. */
enum { RANKS_MOST = 1 << 17 };

/* -- lists --------------------------------------------------------------- */

static int order(const struct plait_stack *a, const struct plait_stack *b)
{
    int jobs = strcmp(a->job, b->job);

    if (a->owner != b->owner)
        return a->owner > b->owner ? 1 : -1;
    return jobs ? jobs : (a->rank > b->rank) - (a->rank < b->rank);
}

int plait_stacks_add(struct plait_stacks *s, const struct plait_stack *stack)
{
    struct plait_stack *more =
        realloc(s->at, (size_t)(s->n + 1) * sizeof(*more));
    int at = s->n;

    if (!more)
        return -1;
    s->at = more;
    while (at > 0 && order(&more[at - 1], stack) > 0)
        at--;
    if (at > 0 && order(&more[at - 1], stack) == 0)
        return 0;
    memmove(&more[at + 1], &more[at], (size_t)(s->n - at) * sizeof(*more));
    more[at] = *stack;
    s->n++;
    return 0;
}

void plait_stacks_clear(struct plait_stacks *s)
{
    free(s->at);
    s->at = NULL;
    s->n = 0;
}

void plait_stacks_dump(const struct plait_stacks *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct plait_stack *k = &s->at[i];

        printf(LINE " %d %d %d %d %d %d %d", k->rank, k->world, k->gpu, k->pid,
               (int)k->state, k->waits, k->moved);
        for (int axis = 0; axis < PLAIT_NAXES; axis++)
            printf(" %d %d", k->size[axis], k->at[axis]);
        printf(" %s %s %s %s\n", k->job[0] ? k->job : "-", k->host, k->program,
               k->where);
    }
}

static int read_stack(const char *line, struct plait_stack *k)
{
    int state, waits, moved, used = 0, n;

    memset(k, 0, sizeof(*k));
    k->owner = geteuid();
    if (sscanf(line, LINE " %d %d %d %d %d %d %d%n", &k->rank, &k->world,
               &k->gpu, &k->pid, &state, &waits, &moved, &used) < 7 ||
        k->rank < 0 || k->world <= k->rank || state < 0 ||
        state > PLAIT_STUCK_UNKNOWN)
        return -1;
    for (int axis = 0; axis < PLAIT_NAXES; axis++) {
        line += used;
        used = 0;
        if (sscanf(line, " %d %d%n", &k->size[axis], &k->at[axis], &used) < 2)
            return -1;
    }
    n = sscanf(line + used, " %63s %63s %31s %191[^\n]", k->job, k->host,
               k->program, k->where);
    if (n < 3)
        return -1;
    k->job[strcmp(k->job, "-") ? 63 : 0] = '\0';
    k->state = (enum plait_stuck_state)state;
    k->waits = waits != 0;
    k->moved = moved != 0;
    plait_text_clean(k->job);
    plait_text_clean(k->host);
    plait_text_clean(k->program);
    plait_text_clean(k->where);
    return 0;
}

int plait_stacks_read(const char *text, struct plait_stacks *s)
{
    for (; text && *text && s->n < RANKS_MOST; text = strchr(text, '\n')) {
        struct plait_stack stack;

        text += *text == '\n';
        if (read_stack(text, &stack) == 0 && plait_stacks_add(s, &stack) < 0)
            return -1;
    }
    return 0;
}

/* -- Python -------------------------------------------------------------- */

struct frame {
    char name[64], file[256];
    int line;
};

/* "    load (/home/me/data.py:12)" */
static int read_frame(const char *text, struct frame *f)
{
    if (strncmp(text, "    ", 4) != 0 ||
        sscanf(text, " %63[^ (] (%255[^:)]:%d", f->name, f->file, &f->line) < 2)
        return -1;
    plait_text_clean(f->name);
    plait_text_clean(f->file);
    return 0;
}

/* Whether the frame is of the program itself, not of a library. */
static bool is_own(const struct frame *f)
{
    return f->file[0] != '<' && !strstr(f->file, "/site-packages/") &&
           !strstr(f->file, "/dist-packages/") &&
           !strstr(f->file, "/lib/python") && !strstr(f->file, "/lib64/python");
}

/* Whether the function is one in which ranks wait for each other. */
static bool is_meeting(const struct frame *f)
{
    static const char *const parts[] = {
        "all_reduce",    "allreduce", "reduce_scatter", "all_gather",
        "allgather",     "alltoall",  "all_to_all",     "barrier",
        "broadcast",     "bcast",     "synchronize",    "rendezvous",
        "batch_isend_ir"};
    static const char *const whole[] = {"recv", "send", "irecv", "isend",
                                        "sendrecv"};
    char name[sizeof(f->name)];
    size_t i;

    for (i = 0; f->name[i]; i++)
        name[i] = (char)tolower((unsigned char)f->name[i]);
    name[i] = '\0';
    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strstr(name, parts[i]))
            return true;
    for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        if (!strcmp(name, whole[i]))
            return true;
    return strstr(f->file, "/torch/distributed/") != NULL;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int plait_stack_python(const char *dump, char *where, size_t size, bool *waits)
{
    const char *line = strstr(dump, "\"MainThread\"");
    struct frame inner = {.name = ""}, own = {.name = ""}, f;
    bool meets = false;

    for (line = line ? strchr(line, '\n') : NULL;
         line && read_frame(line + 1, &f) == 0; line = strchr(line + 1, '\n')) {
        if (!inner.name[0])
            inner = f;
        if (!own.name[0])
            meets |= is_meeting(&f);
        if (!own.name[0] && is_own(&f))
            own = f;
    }
    if (!inner.name[0])
        return -1;
    if (!own.name[0] || !strcmp(inner.file, own.file))
        snprintf(where, size, "%.40s (%.60s:%d)", inner.name,
                 base_of(inner.file), inner.line);
    else
        snprintf(where, size, "%.40s, from %.40s (%.60s:%d)", inner.name,
                 own.name, base_of(own.file), own.line);
    *waits = meets;
    return 0;
}

/* -- who is guilty -------------------------------------------------------- */

static bool in_one_place(const struct plait_stack *a,
                         const struct plait_stack *b)
{
    return a->state == b->state && a->waits == b->waits &&
           !strcmp(a->where, b->where);
}

static int count_place(const struct plait_stack *k, int n, int i)
{
    int same = 0;

    for (int j = 0; j < n; j++)
        same += in_one_place(&k[i], &k[j]);
    return same;
}

/* A rank that is stopped or has ended; else, of the ranks that wait for nobody,
 * one in the place with the fewest ranks. If no rank is known to wait, it must
 * be in a place that fewer than half are in. -1: none. */
static int find_guilty(const struct plait_stack *k, int n)
{
    int who = -1, fewest = n + 1, busy = 0;

    for (int i = 0; i < n; i++)
        if (k[i].state != PLAIT_STUCK_RUNS)
            return i;
    for (int i = 0; i < n; i++) {
        int same = k[i].waits ? n + 1 : count_place(k, n, i);

        busy += !k[i].waits;
        if (same < fewest) {
            fewest = same;
            who = i;
        }
    }
    return busy < n || 2 * fewest < n ? who : -1;
}

/* -- what is said --------------------------------------------------------- */

struct line {
    char *text;
    size_t size, used;
};

static void __attribute__((format(printf, 2, 3)))
put(struct line *l, const char *fmt, ...)
{
    size_t left = l->size - l->used;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(l->text + l->used, left, fmt, ap);
    va_end(ap);
    if (n > 0)
        l->used += (size_t)n < left ? (size_t)n : left - 1;
}

/* "0-3,6": the ranks that are in the same place as rank i. */
static void put_ranks(struct line *l, const struct plait_stack *k, int n, int i)
{
    const char *between = "";

    for (int a = 0; a < n; a++) {
        int b = a;

        if (!in_one_place(&k[i], &k[a]))
            continue;
        while (b + 1 < n && in_one_place(&k[i], &k[b + 1]) &&
               k[b + 1].rank == k[b].rank + 1)
            b++;
        put(l, b > a ? "%s%d-%d" : "%s%d", between, k[a].rank, k[b].rank);
        between = ",";
        a = b;
    }
}

/* Whether a and b are in the same group of that axis. */
static bool along(const struct plait_stack *a, const struct plait_stack *b,
                  int axis)
{
    for (int x = 0; x < PLAIT_NAXES; x++)
        if (x != axis && x != PLAIT_EP && a->at[x] != b->at[x])
            return false;
    return a->size[axis] > 1 && b->size[axis] > 1;
}

/* Name the group of the plan, if any, that has all ranks in the place of i, and
 * rank `with`, unless it is -1. */
static void put_group(struct line *l, const struct plait_stack *k, int n, int i,
                      int with)
{
    const struct plait_stack *of = with >= 0 ? &k[with] : &k[i];

    for (int axis = 0; axis < PLAIT_NAXES; axis++) {
        bool all = axis != PLAIT_EP;

        for (int a = 0; all && a < n; a++)
            all = !in_one_place(&k[i], &k[a]) || along(of, &k[a], axis);
        if (!all || (with < 0 && count_place(k, n, i) < 2))
            continue;
        if (with >= 0)
            put(l, " (in rank %d's %s group)", of->rank,
                plait_axis_names[axis]);
        else
            put(l, " (of one %s group)", plait_axis_names[axis]);
        return;
    }
}

static const char *word_of(const struct plait_stack *k)
{
    return k->state == PLAIT_STUCK_STOPPED ? "stopped by a signal"
           : k->state != PLAIT_STUCK_RUNS  ? "it has ended"
                                           : k->where;
}

static void put_places(struct line *l, const struct plait_stack *k, int n,
                       int guilty)
{
    for (int i = 0; i < n; i++) {
        bool first = true;

        for (int j = 0; j < i; j++)
            first &= !in_one_place(&k[i], &k[j]);
        if (!first)
            continue;
        put(l, "\n  rank%s ", count_place(k, n, i) > 1 ? "s" : "");
        put_ranks(l, k, n, i);
        put_group(l, k, n, i,
                  guilty >= 0 && !in_one_place(&k[guilty], &k[i]) ? guilty
                                                                  : -1);
        put(l, ": %s", word_of(&k[i]));
    }
}

static void put_guilty(struct line *l, const struct plait_stack *k, int n,
                       int guilty)
{
    const struct plait_stack *g = &k[guilty];
    int alike = count_place(k, n, guilty) - 1, others = 0;

    for (int i = 0; i < n; i++)
        others += k[i].waits && !in_one_place(&k[i], g);
    put(l, "rank %d (%s", g->rank, g->host);
    if (g->gpu >= 0)
        put(l, ", GPU %d", g->gpu);
    put(l, ", process %d)", g->pid);
    if (alike)
        put(l, " and %d more", alike);
    if (g->state != PLAIT_STUCK_RUNS)
        put(l, " %s",
            g->state == PLAIT_STUCK_STOPPED
                ? (alike ? "are stopped by a signal" : "is stopped by a signal")
                : (alike ? "have ended" : "has ended"));
    else
        put(l, " %s elsewhere: %s", alike ? "are" : "is", g->where);
    if (others)
        put(l, "; %d other %s", others,
            others == 1 ? "rank waits" : "ranks wait");
}

void plait_stacks_explain(const struct plait_stack *k, int n, char *text,
                          size_t size)
{
    struct line l = {.text = text, .size = size};
    int guilty = find_guilty(k, n);
    bool moved = false;

    text[0] = '\0';
    for (int i = 0; i < n; i++)
        moved |= k[i].moved;
    if (k[0].job[0])
        put(&l, "job %s: ", k[0].job);
    put(&l,
        "%d ranks of %s, by their stacks: ", k[0].world > n ? k[0].world : n,
        k[0].program);
    if (moved)
        put(&l, "it goes on");
    else if (guilty >= 0)
        put_guilty(&l, k, n, guilty);
    else
        put(&l, "none stands out");
    if (n < k[0].world)
        put(&l, "; %d of %d were found", n, k[0].world);
    if (!moved)
        put_places(&l, k, n, guilty);
}
