/* SPDX-License-Identifier: Apache-2.0 */
/* Vector clocks of streams, and the history of operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"

struct op {
    unsigned from; /* its first epoch; the next operation's ends it */
    int lane;
    unsigned tick;
    const char *name;
};

static struct op *ops; /* in order of time */
static size_t nops, room;

static struct lane {
    bool used, graph;
    int stream;
    unsigned ticks;
    size_t *op; /* indexes into ops by tick, from 1 on */
    size_t room;
} lanes[EMU_LANES];

struct emu_current emu_current;
struct emu_clock emu_host;

/* -- lanes ------------------------------------------------------------------
 */

int emu_lane_new(int stream, bool graph)
{
    int i = 0;

    while (i < EMU_LANES && lanes[i].used)
        i++;
    if (i == EMU_LANES) {
        emu_fault("more than %d streams, or streams of graphs", EMU_LANES);
        return 0;
    }
    lanes[i].used = true;
    lanes[i].graph = graph;
    lanes[i].stream = stream;
    return i;
}

void emu_lane_drop(int lane)
{
    lanes[lane].used = false;
}

unsigned emu_lane_ticks(int lane)
{
    return lanes[lane].ticks;
}

/* -- operations ---------------------------------------------------------------
 */

void emu_clock_join(struct emu_clock *clock, const struct emu_clock *other)
{
    for (int i = 0; i < EMU_LANES; i++)
        if (clock->at[i] < other->at[i])
            clock->at[i] = other->at[i];
}

static void *grow(void *list, size_t n, size_t *space, size_t size)
{
    if (n < *space)
        return list;
    *space = 2 * *space + 1024;
    list = realloc(list, *space * size);
    if (list == NULL)
        abort();
    return list;
}

/* The last epoch such that all operations up to it come before the current
 * one. */
static unsigned find_frontier(void)
{
    unsigned frontier = emu_current.from - 1;

    for (int i = 0; i < EMU_LANES; i++) {
        unsigned next = emu_current.clock.at[i] + 1;

        if (i == emu_current.lane || next > lanes[i].ticks)
            continue;
        if (ops[lanes[i].op[next]].from <= frontier)
            frontier = ops[lanes[i].op[next]].from - 1;
    }
    return frontier;
}

void emu_op_begin(struct emu_clock *clock, int lane, const char *name)
{
    struct lane *l = &lanes[lane];

    ops = grow(ops, nops, &room, sizeof(*ops));
    l->op = grow(l->op, l->ticks + 1, &l->room, sizeof(*l->op));
    clock->at[lane] = ++l->ticks;
    emu_current.clock = *clock;
    emu_current.lane = lane;
    emu_current.tick = l->ticks;
    emu_current.from = emu_shadow_next();
    emu_current.name = name;
    emu_current.frontier = find_frontier();
    l->op[l->ticks] = nops;
    ops[nops++] = (struct op){emu_current.from, lane, l->ticks, name};
}

/* Returns 1 + the index of the operation of an epoch; 0: there is none. */
static size_t find_op(unsigned epoch)
{
    size_t low = 0, high = nops;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (ops[mid].from <= epoch)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const struct op *op_at(unsigned epoch)
{
    size_t i = find_op(epoch);

    return i > 0 ? &ops[i - 1] : NULL;
}

bool emu_is_before(unsigned epoch)
{
    static unsigned last_epoch; /* cached: mostly it is the same again */
    static size_t last;

    if (epoch != last_epoch)
        last = find_op(epoch);
    last_epoch = epoch;
    return last == 0 ||
           emu_current.clock.at[ops[last - 1].lane] >= ops[last - 1].tick;
}

static void put_text(const struct op *op, char *text, size_t size)
{
    const struct lane *l = &lanes[op->lane];

    if (l->stream == 0)
        snprintf(text, size, "%s on the default stream", op->name);
    else
        snprintf(text, size, "%s on stream %d%s", op->name, l->stream,
                 l->graph ? " of a graph" : "");
}

void emu_op_text(unsigned epoch, char *text, size_t size)
{
    const struct op *op = op_at(epoch);

    if (op != NULL)
        put_text(op, text, size);
}

void emu_tick_text(int lane, unsigned tick, char *text, size_t size)
{
    put_text(&ops[lanes[lane].op[tick]], text, size);
}

void emu_host_waits(const struct emu_clock *clock)
{
    if (clock != NULL)
        emu_clock_join(&emu_host, clock);
    for (int i = 0; clock == NULL && i < EMU_LANES; i++)
        emu_host.at[i] = lanes[i].ticks;
    emu_flight_land();
}
