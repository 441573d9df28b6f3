/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/stuck/beat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x3130746165624c50) /* "PLbeat01" */

/* Ages are sent in units of 1 / PARTS seconds; NEVER stands for its own value
 * and all above. */
#define PARTS 8.0
#define NEVER 255

static void put(unsigned char **to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*to)++ = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char **from, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (uint64_t) * (*from)++ << (8 * i);
    return value;
}

int plait_beat_pack(const struct plait_beat *b, unsigned char *to, size_t room)
{
    unsigned char *at = to;

    if (room < PLAIT_BEAT_HEAD || room - PLAIT_BEAT_HEAD < b->size)
        return -1;
    put(&at, MAGIC, 8);
    put(&at, b->run, 8);
    put(&at, b->number, 8);
    put(&at, (uint32_t)b->node, 4);
    put(&at, (uint32_t)b->first, 4);
    put(&at, (uint32_t)b->count << 8 | b->kind, 4);
    if (b->size)
        memcpy(at, b->body, b->size);
    return (int)(PLAIT_BEAT_HEAD + b->size);
}

static bool is_sound(const struct plait_beat *b)
{
    if (b->node < 0 || b->first < 0 || b->kind < PLAIT_BEAT_ALIVE ||
        b->kind > PLAIT_BEAT_LAST)
        return false;
    if (b->kind == PLAIT_BEAT_ALIVE)
        return b->count <= PLAIT_BEAT_NODES &&
               b->size == 2 * (size_t)b->count && b->first < 1 << 30;
    if (b->kind == PLAIT_BEAT_RANK)
        return b->size > 0 && b->size <= PLAIT_STUCK_WIRE_MOST;
    return b->size == 0;
}

int plait_beat_unpack(const unsigned char *from, size_t size,
                      struct plait_beat *beat)
{
    const unsigned char *at = from;
    struct plait_beat b;
    uint64_t last;

    if (size < PLAIT_BEAT_HEAD || get(&at, 8) != MAGIC)
        return -1;
    b.run = get(&at, 8);
    b.number = get(&at, 8);
    b.node = (int)(int32_t)(uint32_t)get(&at, 4);
    b.first = (int)(int32_t)(uint32_t)get(&at, 4);
    last = get(&at, 4);
    b.kind = (enum plait_beat_kind)(last & 0xff);
    b.count = (int)(last >> 8);
    b.body = at;
    b.size = size - PLAIT_BEAT_HEAD;
    if (!is_sound(&b))
        return -1;
    *beat = b;
    return 0;
}

/* -- who is alive ---------------------------------------------------------- */

int plait_beat_table_init(struct plait_beat_table *t, int n, int self,
                          double now)
{
    *t = (struct plait_beat_table){.n = n, .self = self};
    t->heard = calloc((size_t)n, sizeof(*t->heard));
    t->number = calloc((size_t)n, sizeof(*t->number));
    t->speaker = calloc((size_t)n, sizeof(*t->speaker));
    if (!t->heard || !t->number || !t->speaker)
        return -1;
    plait_beat_table_reset(t, now);
    return 0;
}

void plait_beat_table_clear(struct plait_beat_table *t)
{
    free(t->heard);
    free(t->number);
    free(t->speaker);
    *t = (struct plait_beat_table){0};
}

void plait_beat_table_reset(struct plait_beat_table *t, double now)
{
    for (int i = 0; i < t->n; i++)
        t->heard[i] = now;
}

static void merge(struct plait_beat_table *t, const struct plait_beat *b,
                  double now)
{
    for (int i = 0; i < b->count && b->first + i < t->n; i++) {
        int node = b->first + i;
        double heard = now - b->body[2 * i] / PARTS;

        /* The sender is heard now anyway, so only its speaker is taken. */
        if (node == b->node)
            t->speaker[node] = b->body[2 * i + 1];
        if (node == t->self || b->body[2 * i] == NEVER ||
            heard <= t->heard[node])
            continue;
        t->heard[node] = heard;
        t->speaker[node] = b->body[2 * i + 1];
    }
}

bool plait_beat_table_take(struct plait_beat_table *t,
                           const struct plait_beat *b, double now)
{
    if (b->node >= t->n || b->node == t->self ||
        b->number <= t->number[b->node])
        return false;
    t->number[b->node] = b->number;
    t->heard[b->node] = now;
    if (b->kind == PLAIT_BEAT_ALIVE)
        merge(t, b, now);
    return true;
}

/* Rounded up, so that an age does not shrink as it is passed on. */
static unsigned char age_in_parts(double seconds)
{
    double parts = ceil(seconds * PARTS);

    return parts < 0 ? 0 : parts < NEVER ? (unsigned char)parts : NEVER;
}

void plait_beat_table_tell(const struct plait_beat_table *t, int first,
                           int count, double now, unsigned char *body)
{
    for (int i = 0; i < count; i++) {
        int node = first + i;

        body[2 * i] = node == t->self ? 0 : age_in_parts(now - t->heard[node]);
        body[2 * i + 1] = t->speaker[node];
    }
}

static int count_powers(int n)
{
    int powers = 1;

    while (powers < 30 && 1 << powers < n)
        powers++;
    return powers;
}

int plait_beat_target(int n, int self, int64_t round)
{
    return (int)(((int64_t)self + (1 << round % count_powers(n))) % n);
}

/* Three times the rounds that news needs to reach all nodes, plus 2 s for
 * threads that a busy machine delays. */
double plait_beat_limit(int n)
{
    return 2 + 3 * PLAIT_BEAT_ROUND_S * count_powers(n);
}
