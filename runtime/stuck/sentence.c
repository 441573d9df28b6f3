/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a verdict of judge.c into one sentence for people. */
#include "config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/stuck/judge.h"

static const char *const phase_words[PLAIT_NPHASES] = {
    [PLAIT_PHASE_START] = "starting",
    [PLAIT_PHASE_DATA] = "in the data loader",
    [PLAIT_PHASE_FORWARD] = "in the forward pass",
    [PLAIT_PHASE_BACKWARD] = "in the backward pass",
    [PLAIT_PHASE_REDUCE] = "in the reduction of gradients",
    [PLAIT_PHASE_OPTIMIZER] = "in the optimizer",
    [PLAIT_PHASE_BETWEEN] = "between two steps",
    [PLAIT_PHASE_EVALUATION] = "in an evaluation",
    [PLAIT_PHASE_LOG] = "writing its progress and metrics",
    [PLAIT_PHASE_SAVE] = "saving a checkpoint",
    [PLAIT_PHASE_CHECK] = "comparing replicas",
    [PLAIT_PHASE_LOAD] = "loading its weights",
    [PLAIT_PHASE_OPEN] = "opening its data",
    [PLAIT_PHASE_FOREIGN] = "in code of its own",
};

static const char *const op_words[PLAIT_NOPS] = {
    [PLAIT_OP_ALL_REDUCE] = "all-reduce",
    [PLAIT_OP_REDUCE_SCATTER] = "reduce-scatter",
    [PLAIT_OP_ALL_GATHER] = "all-gather",
    [PLAIT_OP_ALL_TO_ALL] = "all-to-all",
    [PLAIT_OP_BROADCAST] = "broadcast",
    [PLAIT_OP_SEND] = "send",
    [PLAIT_OP_RECV] = "receive",
    [PLAIT_OP_BARRIER] = "barrier",
    [PLAIT_OP_CONTROL_BROADCAST] = "control broadcast",
    [PLAIT_OP_CONTROL_ALL_GATHER] = "control all-gather",
    [PLAIT_OP_CONTROL_ALL_REDUCE] = "control all-reduce",
};

/* A text under construction. */
struct line {
    char *text;
    size_t size, used;
};

static void __attribute__((format(printf, 2, 3)))
put(struct line *l, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(l->text + l->used, l->size - l->used, fmt, ap);
    va_end(ap);
    if (n > 0)
        l->used +=
            (size_t)n < l->size - l->used ? (size_t)n : l->size - l->used - 1;
}

static const char *op_word(const struct plait_stuck_op *op)
{
    enum plait_op kind = plait_tag_op(op->tag);

    return kind < PLAIT_NOPS ? op_words[kind] : "operation";
}

static void put_rank(struct line *l, const struct plait_stuck_rank *r)
{
    const char *between = " (";

    put(l, "rank %d", r->rank);
    if (r->host[0]) {
        put(l, "%s%s", between, r->host);
        between = ", ";
    }
    if (r->gpu >= 0) {
        put(l, "%sGPU %d", between, r->gpu);
        between = ", ";
    }
    if (r->pid > 0) {
        put(l, "%sprocess %d", between, r->pid);
        between = ", ";
    }
    if (between[0] == ',')
        put(l, ")");
}

static void put_time(struct line *l, time_t now, double age)
{
    time_t at = now - (time_t)age;
    struct tm tm;
    char text[16] = "";

    if (localtime_r(&at, &tm))
        strftime(text, sizeof(text), "%H:%M:%S", &tm);
    put(l, " since %s", text);
}

/* "the all-reduce 641 of its tp group" */
static void put_op(struct line *l, const struct plait_stuck_rank *r, int group,
                   const struct plait_stuck_op *op, const char *whose)
{
    put(l, "%s %" PRIu64 " of %s", op_word(op), plait_tag_number(op->tag),
        !strcmp(r->group[group].name, "world") ? "the" : whose);
    put(l, " %s%s", r->group[group].name,
        !strcmp(r->group[group].name, "world") ? "" : " group");
}

/* Where the guilty rank itself is. */
static void put_place(struct line *l, const struct plait_stuck_rank *r,
                      time_t now)
{
    if (r->waits >= 0 && r->waits < r->ngroups) {
        put(l, "; it waits in ");
        put_op(l, r, r->waits, &r->in, "its");
        return;
    }
    if (r->state == PLAIT_STUCK_UNKNOWN) {
        put(l, "; it left nothing to read");
        return;
    }
    put(l, "; it is %s", phase_words[r->phase]);
    put_time(l, now, r->phase_age);
    if (r->where[0])
        put(l, " (%s)", r->where);
}

static void put_waiting(struct line *l, const struct plait_verdict *v,
                        bool others, time_t now)
{
    if (v->waiting == 0)
        return;
    put(l, "; %d%s %s", v->waiting, others ? " other" : "",
        v->waiting == 1 ? "rank waits" : "ranks wait");
    put_time(l, now, v->age);
}

static void put_state(struct line *l, const struct plait_stuck_rank *r,
                      const struct plait_verdict *v, time_t now)
{
    static const char *const words[][2] = {
        [PLAIT_STUCK_RUNS] = {"runs", "run"},
        [PLAIT_STUCK_STOPPED] = {"is stopped by a signal",
                                 "are stopped by a signal"},
        [PLAIT_STUCK_DEAD] = {"has ended", "have ended"},
        [PLAIT_STUCK_SILENT] = {"has not been heard of",
                                "have not been heard of"},
        [PLAIT_STUCK_UNKNOWN] = {"is not known", "are not known"},
    };
    const struct plait_stuck_rank *g = &r[v->guilty];

    put_rank(l, g);
    if (v->alike)
        put(l, " and %d more", v->alike);
    put(l, " %s", words[g->state][v->alike > 0]);
    if (g->state == PLAIT_STUCK_SILENT) {
        put_time(l, now, g->phase_age);
        put(l, ": its node is down, stopped or cut off");
    } else if (g->ngroups > 0) {
        put_place(l, g, now);
    }
}

static void put_mismatch(struct line *l, const struct plait_stuck_rank *r,
                         const struct plait_verdict *v)
{
    const struct plait_stuck_rank *w = &r[v->witness];
    const char *op = op_word(&v->other);

    put_rank(l, &r[v->guilty]);
    put(l, " entered a%s %s of %" PRIu64 " bytes where ",
        strchr("aeiou", op[0]) ? "n" : "", op, v->other.bytes);
    put_rank(l, w);
    put(l, " is in ");
    put_op(l, w, v->group, &v->op, "their");
    put(l, ", of %" PRIu64 " bytes", v->op.bytes);
}

static void put_message(struct line *l, const struct plait_stuck_rank *r,
                        const struct plait_verdict *v)
{
    const struct plait_stuck_rank *w = &r[v->witness];
    bool send = plait_tag_op(v->op.tag) == PLAIT_OP_SEND;

    put_rank(l, &r[v->guilty]);
    put(l, " %s a message of %" PRIu64 " bytes %s rank %d in their %s group",
        send ? "does not take" : "does not send", v->op.bytes,
        send ? "from" : "to", w->rank, w->group[v->group].name);
}

static void put_cycle(struct line *l, const struct plait_stuck_rank *r,
                      const struct plait_verdict *v)
{
    const struct plait_stuck_rank *w = &r[v->witness], *g = &r[v->guilty];

    put(l, "ranks wait for each other: ");
    put_rank(l, w);
    put(l, " in ");
    put_op(l, w, v->group, &v->op, "its");
    put(l, ", which ");
    put_rank(l, g);
    put(l, " has not entered: it waits in ");
    put_op(l, g, g->waits, &g->in, "its");
}

static void put_transfer(struct line *l, const struct plait_stuck_rank *r,
                         const struct plait_verdict *v)
{
    const struct plait_stuck_rank *w = &r[v->witness];

    put(l, "all ranks that are known have entered ");
    put_op(l, w, v->group, &v->op, "the");
    put(l, " of ");
    put_rank(l, w);
    put(l, ", and it does not move: a link or a device is at fault");
}

static void put_links(struct line *l, const struct plait_stuck_rank *r,
                      const struct plait_verdict *v)
{
    put(l, "links are down: no machine acknowledges what ");
    put_rank(l, &r[v->witness]);
    if (v->alike)
        put(l, " and %d more", v->alike);
    put(l, " sent");
}

void plait_stuck_sentence(const struct plait_stuck_rank *ranks, int n,
                          const struct plait_verdict *v, time_t now, char *text,
                          size_t size)
{
    struct line l = {.text = text, .size = size};
    const struct plait_stuck_rank *g =
        v->guilty >= 0 ? &ranks[v->guilty] : NULL;

    text[0] = '\0';
    switch (v->kind) {
    case PLAIT_VERDICT_NOTHING:
        put(&l, "nothing is known of %s ranks", n ? "the" : "any");
        break;
    case PLAIT_VERDICT_STATE:
        put_state(&l, ranks, v, now);
        break;
    case PLAIT_VERDICT_BEHIND:
        put_rank(&l, g);
        put(&l, " never entered ");
        put_op(&l, &ranks[v->witness], v->group, &v->op, "its");
        put_place(&l, g, now);
        break;
    case PLAIT_VERDICT_MESSAGE:
        put_message(&l, ranks, v);
        put_place(&l, g, now);
        break;
    case PLAIT_VERDICT_MISMATCH:
        put_mismatch(&l, ranks, v);
        break;
    case PLAIT_VERDICT_LEFT:
        put_rank(&l, g);
        put(&l, " has left ");
        put_op(&l, &ranks[v->witness], v->group, &v->op, "its");
        put(&l, ", which the others wait in");
        put_place(&l, g, now);
        break;
    case PLAIT_VERDICT_CYCLE:
        put_cycle(&l, ranks, v);
        break;
    case PLAIT_VERDICT_TRANSFER:
        put_transfer(&l, ranks, v);
        break;
    case PLAIT_VERDICT_LINKS:
        put_links(&l, ranks, v);
        break;
    case PLAIT_VERDICT_ALONE:
        put(&l, "no rank waits for another; longest without a change is ");
        put_rank(&l, g);
        put_place(&l, g, now);
        if (v->alike)
            put(&l, ", as %s %d more", v->alike == 1 ? "is" : "are", v->alike);
        break;
    }
    put_waiting(&l, v, v->guilty >= 0, now);
}
