/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/kernels.h"
#include "runtime/trace/activity.h"
#include "topology/base/clock.h"

/* -- who listens ---------------------------------------------------------- */

static void begin_range(const struct plait_ops *ops, const char *name)
{
    if (name && ops && ops->range_begin)
        ops->range_begin(name);
}

static void end_range(const struct plait_ops *ops, const char *name)
{
    if (name && ops && ops->range_end)
        ops->range_end();
}

static void set_stage(const struct plait_listeners *to, const char *what)
{
    if (to->stage)
        to->stage(to->dog, what);
}

static uint64_t enter_operation(struct plait_record_group *group,
                                const struct plait_doing *what, double now)
{
    if (!what->tag)
        return plait_record_enter(group, what->op, what->bytes, what->peer,
                                  now);
    plait_record_wait(group, what->tag, what->bytes, what->peer, now);
    return what->tag;
}

/* The phase after one has ended. The parts of a step and the opening of files
 * last until something else begins. */
static enum plait_phase phase_after(enum plait_phase phase)
{
    switch (phase) {
    case PLAIT_PHASE_LOAD:
        return PLAIT_PHASE_START;
    case PLAIT_PHASE_EVALUATION:
    case PLAIT_PHASE_LOG:
    case PLAIT_PHASE_SAVE:
    case PLAIT_PHASE_CHECK:
        return PLAIT_PHASE_BETWEEN;
    default:
        return phase;
    }
}

/* -- begin and end -------------------------------------------------------- */

struct plait_activity plait_activity_begin(const struct plait_listeners *to,
                                           const struct plait_doing *what)
{
    struct plait_activity a = {to, *what, plait_clock_now(), 0};

    if (what->file)
        plait_record_file(to->record, what->file);
    if (what->phase != PLAIT_PHASE_START)
        plait_record_phase(to->record, what->phase, a.begin);
    if (what->stage)
        set_stage(to, what->stage);
    begin_range(to->ops, what->range);
    if (to->group)
        a.tag = enter_operation(to->group, what, a.begin);
    return a;
}

void plait_activity_drop(const struct plait_activity *a)
{
    if (a->to->group)
        plait_record_leave(a->to->group);
    end_range(a->to->ops, a->what.range);
}

double plait_activity_end(const struct plait_activity *a)
{
    const struct plait_doing *what = &a->what;
    enum plait_phase after = phase_after(what->phase);
    double now;

    plait_activity_drop(a);
    now = plait_clock_now();
    if (what->track)
        plait_trace_span(a->to->trace, what->track, what->name, a->begin, now);
    if (after != what->phase)
        plait_record_phase(a->to->record, after, now);
    if (what->stage)
        set_stage(a->to, NULL);
    return now - a->begin;
}

void plait_activity_phase(const struct plait_listeners *to,
                          enum plait_phase phase)
{
    plait_record_phase(to->record, phase, plait_clock_now());
}

void plait_activity_file(const struct plait_listeners *to, const char *path)
{
    const struct plait_doing doing = {.phase = PLAIT_PHASE_OPEN, .file = path};

    plait_activity_begin(to, &doing);
}

void plait_activity_beside(const struct plait_listeners *to, const char *track,
                           const char *name, double begin, double end)
{
    plait_trace_async(to->trace, track, name, begin, end);
}
