/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/stuck/wire.h"

#include <stdbool.h>
#include <string.h>

#include "topology/base/text.h"

/* Positions in a buffer. `bad`: it was too short or its content is invalid. */
struct writer {
    unsigned char *to;
    size_t room, used;
    bool bad;
};

struct reader {
    const unsigned char *from;
    size_t size, used;
    bool bad;
};

static void put_number(struct writer *w, uint64_t value, int bytes)
{
    w->bad |= w->room - w->used < (size_t)bytes;
    for (int i = 0; !w->bad && i < bytes; i++)
        w->to[w->used++] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(struct reader *r, int bytes)
{
    uint64_t value = 0;

    r->bad |= r->size - r->used < (size_t)bytes;
    for (int i = 0; !r->bad && i < bytes; i++)
        value |= (uint64_t)r->from[r->used++] << (8 * i);
    return value;
}

/* Four bytes in two's complement. */
static void put_int(struct writer *w, int value)
{
    put_number(w, (uint32_t)value, 4);
}

static int get_int(struct reader *r)
{
    return (int)(int32_t)(uint32_t)get_number(r, 4);
}

static void put_age(struct writer *w, double seconds)
{
    double ms = seconds * 1000;

    put_number(w, ms > 0 && ms < 1e15 ? (uint64_t)(ms + 0.5) : 0, 8);
}

static double get_age(struct reader *r)
{
    uint64_t ms = get_number(r, 8);

    r->bad |= ms > 1000000000000000;
    return (double)ms / 1000;
}

static void put_text(struct writer *w, const char *text)
{
    size_t n = strnlen(text, 255);

    put_number(w, n, 1);
    w->bad |= w->room - w->used < n;
    if (w->bad)
        return;
    memcpy(w->to + w->used, text, n);
    w->used += n;
}

/* One line of text, cleaned. */
static void get_text(struct reader *r, char *text, size_t size)
{
    size_t n = get_number(r, 1);

    r->bad |= n >= size || r->size - r->used < n;
    for (size_t i = 0; !r->bad && i < n; i++) {
        unsigned char c = r->from[r->used++];

        text[i] = c ? (char)c : '?';
    }
    text[r->bad ? 0 : n] = '\0';
    plait_text_clean(text);
}

static void put_op(struct writer *w, const struct plait_stuck_op *op)
{
    put_number(w, op->tag, 8);
    put_number(w, op->bytes, 8);
}

static void get_op(struct reader *r, struct plait_stuck_op *op)
{
    op->tag = get_number(r, 8);
    op->bytes = get_number(r, 8);
    r->bad |= op->tag != 0 && plait_tag_op(op->tag) >= PLAIT_NOPS;
}

static void put_group(struct writer *w, const struct plait_stuck_group *g)
{
    put_text(w, g->name);
    put_int(w, g->first);
    put_int(w, g->size);
    put_int(w, g->index);
    for (int s = 0; s < PLAIT_NSERIES; s++)
        put_number(w, g->entered[s], 8);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < PLAIT_RECORD_LAST; i++)
            put_op(w, &g->last[s][i]);
}

static void get_group(struct reader *r, struct plait_stuck_group *g)
{
    get_text(r, g->name, sizeof(g->name));
    g->first = get_int(r);
    g->size = get_int(r);
    g->index = get_int(r);
    r->bad |= g->first < 0 || g->index < 0 || g->index >= g->size;
    for (int s = 0; s < PLAIT_NSERIES; s++)
        g->entered[s] = get_number(r, 8);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < PLAIT_RECORD_LAST; i++)
            get_op(r, &g->last[s][i]);
}

int plait_stuck_pack(const struct plait_stuck_rank *rank, unsigned char *to,
                     size_t room)
{
    struct writer w = {.to = to, .room = room};

    put_int(&w, rank->rank);
    put_int(&w, rank->gpu);
    put_int(&w, rank->pid);
    put_text(&w, rank->host);
    put_number(&w, rank->state, 1);
    put_number(&w, rank->phase, 1);
    put_age(&w, rank->phase_age);
    put_number(&w, (uint64_t)rank->step, 8);
    put_int(&w, rank->waits);
    put_op(&w, &rank->in);
    put_int(&w, rank->peer);
    put_age(&w, rank->wait_age);
    put_text(&w, rank->where);
    put_int(&w, rank->unanswered);
    put_number(&w, (uint64_t)rank->ngroups, 1);
    for (int i = 0; i < rank->ngroups; i++)
        put_group(&w, &rank->group[i]);
    put_age(&w, rank->idle);
    return w.bad ? -1 : (int)w.used;
}

static bool is_sound(const struct plait_stuck_rank *r)
{
    return r->rank >= 0 && r->state <= PLAIT_STUCK_UNKNOWN &&
           r->phase < PLAIT_NPHASES && r->waits >= -1 &&
           r->waits < r->ngroups && (r->waits < 0 || r->in.tag != 0);
}

int plait_stuck_unpack(const unsigned char *from, size_t size,
                       struct plait_stuck_rank *rank)
{
    struct reader r = {.from = from, .size = size};

    memset(rank, 0, sizeof(*rank));
    rank->rank = get_int(&r);
    rank->gpu = get_int(&r);
    rank->pid = get_int(&r);
    get_text(&r, rank->host, sizeof(rank->host));
    rank->state = (enum plait_stuck_state)get_number(&r, 1);
    rank->phase = (enum plait_phase)get_number(&r, 1);
    rank->phase_age = get_age(&r);
    rank->step = (int64_t)get_number(&r, 8);
    rank->waits = get_int(&r);
    get_op(&r, &rank->in);
    rank->peer = get_int(&r);
    rank->wait_age = get_age(&r);
    get_text(&r, rank->where, sizeof(rank->where));
    rank->unanswered = get_int(&r);
    rank->ngroups = (int)get_number(&r, 1);
    if (r.bad || rank->ngroups > PLAIT_RECORD_GROUPS)
        return -1;
    for (int i = 0; i < rank->ngroups; i++)
        get_group(&r, &rank->group[i]);
    rank->idle = get_age(&r);
    return r.bad || !is_sound(rank) ? -1 : (int)r.used;
}
