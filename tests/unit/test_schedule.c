/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "schedule_check.h"
#include "tap.h"

enum { P_MOST = 64 };

static void destroy(struct plait_schedule **s, int p)
{
    int r;

    for (r = 0; r < p; r++)
        plait_schedule_destroy(s[r]);
}

/* The most activations that a rank may hold according to the literature. */
static int bound(enum plait_schedule_kind kind, int p, int v, int m, int r)
{
    int n = m * v;

    switch (kind) {
    case PLAIT_SCHEDULE_NAIVE:
        n = 1;
        break;
    case PLAIT_SCHEDULE_GPIPE:
        break;
    case PLAIT_SCHEDULE_ZB_H1:
        n = p < m ? p : m;
        break;
    default:
        if (v == 1)
            n = p - r < m ? p - r : m;
        else if (2 * (p - r - 1) + (v - 1) * p + 1 < n)
            n = 2 * (p - r - 1) + (v - 1) * p + 1;
    }
    return n;
}

/* The length of a step in which a forward takes 1, a whole backward 2 and
 * messages nothing, found by executing the lists of actions in time. */
static long makespan(struct plait_schedule **s, int p)
{
    int v = s[0]->chunks, m = s[0]->microbatches, stages = p * v;
    long *f = malloc(sizeof(long) * stages * m);
    long *b = malloc(sizeof(long) * stages * m), clock[P_MOST] = {0}, most = 0;
    int next[P_MOST] = {0}, moved, r, i;

    for (i = 0; i < stages * m; i++)
        f[i] = b[i] = -1;
    do {
        for (moved = r = 0; r < p; r++) {
            for (; next[r] < s[r]->nactions; next[r]++, moved++) {
                const struct plait_action *a = &s[r]->actions[next[r]];
                int stage = a->chunk * p + r;
                long *done = (a->kind == PLAIT_FORWARD ? f : b) + stage * m +
                             a->microbatch;
                long ready = 0;

                if (a->kind >= PLAIT_SEND_FORWARD)
                    continue;
                if (a->kind == PLAIT_FORWARD && stage > 0)
                    ready = done[-m];
                else if (a->kind != PLAIT_FORWARD && stage < stages - 1 &&
                         a->kind != PLAIT_BACKWARD_WEIGHT)
                    ready = done[m];
                if (ready < 0)
                    break;
                clock[r] = clock[r] > ready ? clock[r] : ready;
                clock[r] += a->kind == PLAIT_BACKWARD ? 2 : 1;
                if (a->kind != PLAIT_BACKWARD_WEIGHT)
                    *done = clock[r];
            }
        }
    } while (moved);
    for (r = 0; r < p; r++)
        most = clock[r] > most ? clock[r] : most;
    free(f);
    free(b);
    return most;
}

/* The length by the literature's formulas, in the same units; 0: none is
 * given. */
static long ideal(enum plait_schedule_kind kind, long p, long v, long m)
{
    switch (kind) {
    case PLAIT_SCHEDULE_NAIVE:
        return 3 * m * p;
    case PLAIT_SCHEDULE_ZB_H1:
        return m >= p ? 3 * m + p - 1 : 0;
    default:
        return 3 * m * v + 3 * (p - 1);
    }
}

/* The most activations that one chunk holds at once. */
static int slots(const struct plait_schedule *s)
{
    int most = 0, c, i;

    for (c = 0; c < s->chunks; c++) {
        int held = 0;

        for (i = 0; i < s->nactions; i++) {
            const struct plait_action *a = &s->actions[i];

            if (a->chunk != c)
                continue;
            held += a->kind == PLAIT_FORWARD;
            most = held > most ? held : most;
            held -=
                a->kind == PLAIT_BACKWARD || a->kind == PLAIT_BACKWARD_WEIGHT;
        }
    }
    return most;
}

static int try_one(enum plait_schedule_kind kind, int p, int v, int m)
{
    const struct plait_schedule_form form = {kind, p, v, m};
    struct plait_schedule *s[P_MOST];
    struct plait_error err;
    long took, want;
    int r, good = 0;

    if (plait_schedule_create_all(&form, s, &err) < 0) {
        diag("%s p %d v %d m %d: %s", plait_schedule_names[kind], p, v, m,
             err.text);
        return 0;
    }
    if (check_schedule(s, p, &err) < 0) {
        diag("%s p %d v %d m %d: %s", plait_schedule_names[kind], p, v, m,
             err.text);
        goto done;
    }
    for (r = 0; r < p; r++) {
        if (s[r]->peak > bound(kind, p, v, m, r)) {
            diag("%s p %d v %d m %d: rank %d holds %d",
                 plait_schedule_names[kind], p, v, m, r, s[r]->peak);
            goto done;
        }
        if (s[r]->peak != plait_schedule_held(&form, r)) {
            diag("%s p %d v %d m %d: rank %d holds %d, not %d",
                 plait_schedule_names[kind], p, v, m, r, s[r]->peak,
                 plait_schedule_held(&form, r));
            goto done;
        }
        if (slots(s[r]) != plait_schedule_slots(&form, r)) {
            diag("%s p %d v %d m %d: a chunk of rank %d holds %d, not %d",
                 plait_schedule_names[kind], p, v, m, r, slots(s[r]),
                 plait_schedule_slots(&form, r));
            goto done;
        }
    }
    took = makespan(s, p);
    want = ideal(kind, p, v, m);
    good = !want || took == want;
    if (!good)
        diag("%s p %d v %d m %d: takes %ld, not %ld",
             plait_schedule_names[kind], p, v, m, took, want);
done:
    destroy(s, p);
    return good;
}

static void all_kinds(void)
{
    static const int some_m[] = {1, 2, 3, 5, 8, 17, 64, 100, 512};
    int kind, p, good, i;

    for (kind = 0; kind < PLAIT_NSCHEDULES; kind++) {
        for (p = 1, good = 1; p <= P_MOST; p++)
            for (i = 0; i < 9; i++)
                if (some_m[i] <= 17 || p % 21 == 1)
                    good &= try_one(kind, p, 1, some_m[i]);
        ok(good, "%s: p 1 .. 64, m up to 512", plait_schedule_names[kind]);
    }
}

static void interleaved(void)
{
    static const int some_v[] = {2, 3, 4, 8};
    int i, p, groups, good;

    for (i = 0; i < 4; i++) {
        for (p = 2, good = 1; p <= P_MOST; p += p < 9 ? 1 : 27)
            for (groups = 1; groups * p <= 512; groups *= 2)
                good &= try_one(PLAIT_SCHEDULE_INTERLEAVED, p, some_v[i],
                                groups * p);
        ok(good, "interleaved: %d chunks, p up to 64, m up to 512", some_v[i]);
    }
    ok(try_one(PLAIT_SCHEDULE_INTERLEAVED, 64, 2, 512) &&
           try_one(PLAIT_SCHEDULE_INTERLEAVED, 6, 2, 18),
       "interleaved: p 64 with m 512, three groups of 6");
}

/* The list that a rank makes for itself equals its list among those of all. */
static void alone(void)
{
    enum { P = 6, V = 2, M = 18 };
    const struct plait_schedule_form form = {PLAIT_SCHEDULE_INTERLEAVED, P, V,
                                             M};
    struct plait_schedule *s[P], *own;
    struct plait_error err;
    int same = 0, r;

    if (plait_schedule_create_all(&form, s, &err) < 0) {
        ok(0, "%s", err.text);
        return;
    }
    for (r = 0; r < P; r++) {
        own = plait_schedule_create(&form, r, &err);
        same += own && own->rank == r && own->peak == s[r]->peak &&
                own->nactions == s[r]->nactions &&
                memcmp(own->actions, s[r]->actions,
                       sizeof(*own->actions) * own->nactions) == 0;
        plait_schedule_destroy(own);
    }
    ok(same == P, "%d ranks make the same lists alone and with all", same);
    destroy(s, P);
}

static void refused(void)
{
    static const struct {
        enum plait_schedule_kind kind;
        int p, v, m, r;
        const char *says;
    } bad[] = {
        {PLAIT_SCHEDULE_1F1B, 2, 2, 4, 0, "has one chunk per rank, not 2"},
        {PLAIT_SCHEDULE_INTERLEAVED, 4, 2, 6, 0,
         "6 micro-batches are not divisible by pp 4"},
        {PLAIT_SCHEDULE_INTERLEAVED, 1, 2, 6, 0, "pp must be above 1"},
        {PLAIT_SCHEDULE_GPIPE, 2, 1, 0, 0, "must be at least 1"},
        {PLAIT_SCHEDULE_GPIPE, 2, 1, 2, 2, "must be from 0 to 1"},
    };
    struct plait_error err;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ok(!plait_schedule_create(
               &(struct plait_schedule_form){bad[i].kind, bad[i].p, bad[i].v,
                                             bad[i].m},
               bad[i].r, &err) &&
               strstr(err.text, bad[i].says),
           "%s", err.text);
}

/* Move action `from` of rank r before action `to`. */
static void move(struct plait_schedule *s, int from, int to)
{
    struct plait_action a = s->actions[from];

    if (from > to)
        memmove(s->actions + to + 1, s->actions + to, sizeof(a) * (from - to));
    else
        memmove(s->actions + from, s->actions + from + 1,
                sizeof(a) * (to - from));
    s->actions[to] = a;
}

static int find(const struct plait_schedule *s, enum plait_action_kind kind,
                int microbatch)
{
    int i;

    for (i = 0; i < s->nactions; i++)
        if (s->actions[i].kind == kind &&
            s->actions[i].microbatch == microbatch)
            return i;
    return -1;
}

/* The checker must find broken lists, or its results prove nothing. */
static void broken(void)
{
    struct plait_schedule *s[4];
    struct plait_error err;
    int i, j, caught = 0, tried = 0;

#define BREAK(what, says)                                                    \
    do {                                                                     \
        plait_schedule_create_all(                                           \
            &(struct plait_schedule_form){PLAIT_SCHEDULE_1F1B, 4, 1, 8}, s,  \
            &err);                                                           \
        what;                                                                \
        ok(check_schedule(s, 4, &err) == -1 && strstr(err.text, says), "%s", \
           err.text);                                                        \
        destroy(s, 4);                                                       \
    } while (0)

    BREAK(s[1]->nactions--, "is not finished at the end");
    BREAK(s[1]->peak--, "more activations than the peak says");
    BREAK(s[0]->actions[0].microbatch = 8, "out of range");
    BREAK(s[0]->actions[0].kind = PLAIT_BACKWARD_INPUT,
          "not an action of this schedule");
    BREAK(s[2]->actions[3] = s[2]->actions[1], "a second one");
    BREAK(move(s[2], find(s[2], PLAIT_FORWARD, 0), 0),
          "its input was not received");
    BREAK(move(s[2], find(s[2], PLAIT_SEND_FORWARD, 0), 0),
          "its forward comes later");
    BREAK(move(s[2], find(s[2], PLAIT_RECV_FORWARD, 3), 0),
          "sent for recv-forward of chunk 0, micro-batch 0, received as "
          "recv-forward of chunk 0, micro-batch 3");
    BREAK(s[1]->rank = 2, "list 1 is not of the same run");

    /* The last rank asks for an input that comes only after its gradient. */
    plait_schedule_create_all(
        &(struct plait_schedule_form){PLAIT_SCHEDULE_NAIVE, 4, 1, 8}, s, &err);
    move(s[3], find(s[3], PLAIT_RECV_FORWARD, 1), 0);
    move(s[3], 1, 0);
    ok(check_schedule(s, 4, &err) == -1 && strstr(err.text, "waits for ever"),
       "%s", err.text);
    destroy(s, 4);

    /* Every deletion of a single action is noticed. */
    for (i = 0; i < 4; i++) {
        plait_schedule_create_all(
            &(struct plait_schedule_form){PLAIT_SCHEDULE_ZB_H1, 4, 1, 8}, s,
            &err);
        for (j = 0; j < s[i]->nactions; j++) {
            struct plait_action a = s[i]->actions[j];

            move(s[i], j, s[i]->nactions - 1);
            s[i]->nactions--;
            caught += check_schedule(s, 4, &err) == -1;
            tried++;
            s[i]->nactions++;
            move(s[i], s[i]->nactions - 1, j);
            if (memcmp(&a, &s[i]->actions[j], sizeof(a)) != 0)
                caught = -1000000;
        }
        destroy(s, 4);
    }
    ok(caught == tried, "%d of %d deletions noticed", caught, tried);
}

int main(void)
{
    all_kinds();
    interleaved();
    alone();
    refused();
    broken();
    return done_testing();
}
