/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"

enum { OP_BITS = 4, TYPE_BITS = 4, REDUCTION_BITS = 2, ROOT_BITS = 18 };
enum {
    TYPE_AT = OP_BITS,
    REDUCTION_AT = TYPE_AT + TYPE_BITS,
    ROOT_AT = REDUCTION_AT + REDUCTION_BITS,
    BYTES_AT = ROOT_AT + ROOT_BITS
};

static const char *const op_names[1 << OP_BITS] = {
    [PLAIT_OP_ALL_REDUCE] = "all-reduce",
    [PLAIT_OP_REDUCE_SCATTER] = "reduce-scatter",
    [PLAIT_OP_ALL_GATHER] = "all-gather",
    [PLAIT_OP_BROADCAST] = "broadcast",
    [PLAIT_OP_BARRIER] = "barrier",
    [PLAIT_OP_CONTROL_BROADCAST] = "broadcast",
    [PLAIT_OP_CONTROL_ALL_GATHER] = "all-gather",
    [PLAIT_OP_CONTROL_ALL_REDUCE] = "all-reduce",
};

static const char *const reduction_names[1 << REDUCTION_BITS] = {
    "sum", "maximum", "error", "unknown"};

static uint64_t bits(uint64_t value, int n)
{
    return value & ((UINT64_C(1) << n) - 1);
}

struct plait_call plait_call_make(const struct plait_operation *what,
                                  uint64_t number, const char *place)
{
    const char *name = strrchr(place, '/');
    struct plait_call call = {.number = number};

    call.what = bits((uint64_t)what->op, OP_BITS) |
                bits((uint64_t)(what->type + 1), TYPE_BITS) << TYPE_AT |
                bits((uint64_t)what->reduction, REDUCTION_BITS)
                    << REDUCTION_AT |
                bits((uint64_t)what->root, ROOT_BITS) << ROOT_AT |
                what->bytes << BYTES_AT;
    name = name ? name + 1 : place;
    strncpy(call.place, name, sizeof(call.place) - 1);
    return call;
}

static int strict = -1; /* -1: not known yet */

bool plait_call_strict(void)
{
    if (strict < 0) {
        const char *text = getenv("PLAIT_CHECK_COLLECTIVES");

        strict = text && strcmp(text, "1") == 0;
    }
    return strict;
}

void plait_call_be_strict(bool really)
{
    strict |= really;
}

bool plait_call_same(const struct plait_call *a, const struct plait_call *b)
{
    return a->what == b->what && a->number == b->number &&
           (!plait_call_strict() ||
            strncmp(a->place, b->place, sizeof(a->place)) == 0);
}

/* Up to the end of its array. */
static void copy_place(char place[24], const struct plait_call *call)
{
    memcpy(place, call->place, 24);
    place[23] = '\0';
    plait_text_clean(place);
}

/* `fully`: the operation and its size alone do not tell the two apart. */
static void describe(const struct plait_call *call, bool fully, char *text,
                     size_t size)
{
    const char *op = op_names[bits(call->what, OP_BITS)];
    uint64_t bytes = call->what >> BYTES_AT;
    char place[24], more[64] = "", of[40] = "";

    copy_place(place, call);
    if (fully)
        snprintf(
            more, sizeof(more), ", %s, type %d, root %d",
            reduction_names[bits(call->what >> REDUCTION_AT, REDUCTION_BITS)],
            (int)bits(call->what >> TYPE_AT, TYPE_BITS) - 1,
            (int)bits(call->what >> ROOT_AT, ROOT_BITS));
    if (bytes > 0)
        snprintf(of, sizeof(of), " of %" PRIu64 " bytes", bytes);
    snprintf(text, size, "%s%s%s (%s)", op ? op : "an unknown operation", of,
             more, place);
}

void plait_call_tell(const char *group, struct plait_caller a,
                     struct plait_caller b, char *text, size_t size)
{
    char first[120], second[120], other[40] = "";
    bool fully;

    if (a.rank < b.rank) {
        struct plait_caller c = a;

        a = b;
        b = c;
    }
    fully = a.call->what != b.call->what &&
            bits(a.call->what, OP_BITS) == bits(b.call->what, OP_BITS) &&
            a.call->what >> BYTES_AT == b.call->what >> BYTES_AT;
    describe(a.call, fully, first, sizeof(first));
    describe(b.call, fully, second, sizeof(second));
    if (a.call->number != b.call->number)
        snprintf(other, sizeof(other), " as number %" PRIu64, b.call->number);
    snprintf(
        text, size,
        "rank %d (%s) entered %s as number %" PRIu64 " of %s, rank %d %s%s",
        a.rank, a.host, first, a.call->number, group, b.rank, second, other);
}

void plait_call_tell_alone(const char *group, struct plait_caller a, int other,
                           const char *entered, char *text, size_t size)
{
    char what[120];

    describe(a.call, false, what, sizeof(what));
    snprintf(text, size,
             "rank %d (%s) entered %s as number %" PRIu64 " of %s, rank %d %s",
             a.rank, a.host, what, a.call->number, group, other, entered);
}
