/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank is doing: one begin and end tell the record, the trace, a GPU's
 * profiler and the watchdog, and a failure leaves the record as it was. */
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/trace/activity.h"
#include "tap.h"
#include "temp_path.h"
#include "topology/base/clock.h"

static char heard[400];        /* ranges and stages, in order */
static char folder[TEMP_PATH]; /* of the trace */
static struct plait_record *record;
static struct plait_record_group *group;
static struct plait_listeners self; /* a rank's */
static struct plait_listeners comm; /* those of a communicator */

static void hear(const char *what, const char *name)
{
    strcat(strcat(strcat(heard, what), name), ";");
}

static void hear_range(const char *name)
{
    hear("+", name);
}

static void hear_range_end(void)
{
    hear("-", "");
}

static void hear_stage(struct plait_watchdog *dog, const char *what)
{
    (void)dog;
    hear("stage ", what ? what : "none");
}

/* Whether exactly that was heard since the last call. */
static bool has_heard(const char *text)
{
    bool same = strcmp(heard, text) == 0;

    if (!same)
        diag("heard %s", heard);
    heard[0] = '\0';
    return same;
}

static void wait_a_little(void)
{
    const struct timespec t = {.tv_nsec = 20000000};

    nanosleep(&t, NULL);
}

static enum plait_phase phase(void)
{
    return (enum plait_phase)record->phase;
}

static void test_all(void)
{
    static const struct plait_doing doing = {.phase = PLAIT_PHASE_SAVE,
                                             .track = "checkpoint",
                                             .name = "saving",
                                             .range = "range",
                                             .stage = "stage"};
    double before = plait_clock_now(), seconds;
    struct plait_activity a = plait_activity_begin(&self, &doing);

    ok(phase() == PLAIT_PHASE_SAVE && record->phase_since >= before &&
           record->phase_since == a.begin,
       "a begin: the record has the phase, and since when");
    ok(has_heard("stage stage;+range;"), "the range and the stage have begun");
    wait_a_little();
    seconds = plait_activity_end(&a);
    ok(seconds >= 0.02 && seconds <= plait_clock_now() - before,
       "the end says how long it took");
    ok(phase() == PLAIT_PHASE_BETWEEN && record->phase_since >= a.begin + 0.02,
       "and the record what follows, and since when");
    ok(has_heard("-;stage none;"), "the range and the stage have ended");
}

static void test_phases(void)
{
    struct plait_activity step, a;

    step = plait_activity_begin(
        &self, &(struct plait_doing){.track = "run", .name = "whole"});
    ok(phase() == PLAIT_PHASE_BETWEEN, "no phase of its own: none is set");
    a = plait_activity_begin(
        &self, &(struct plait_doing){.phase = PLAIT_PHASE_BACKWARD});
    plait_activity_end(&a);
    ok(phase() == PLAIT_PHASE_BACKWARD,
       "a part of a step lasts until the next begins");
    plait_activity_phase(&self, PLAIT_PHASE_REDUCE);
    ok(phase() == PLAIT_PHASE_REDUCE, "which may have no end");
    plait_activity_end(&step);
    ok(phase() == PLAIT_PHASE_REDUCE, "an end without a phase sets none");
    plait_activity_begin(&self, &(struct plait_doing){.phase = PLAIT_PHASE_OPEN,
                                                      .file = "tokens.bin"});
    ok(phase() == PLAIT_PHASE_OPEN && !strcmp(record->file, "tokens.bin"),
       "a file that is opened is named");
    a = plait_activity_begin(&self,
                             &(struct plait_doing){.phase = PLAIT_PHASE_LOAD});
    plait_activity_end(&a);
    ok(phase() == PLAIT_PHASE_START, "after loading, a rank is starting");
    ok(has_heard(""), "what is not named is not told");
}

static void test_failure(void)
{
    static const struct plait_doing doing = {.phase = PLAIT_PHASE_EVALUATION,
                                             .track = "run",
                                             .name = "failed",
                                             .range = "range"};
    struct plait_activity a = plait_activity_begin(&self, &doing);

    plait_activity_drop(&a);
    ok(phase() == PLAIT_PHASE_EVALUATION,
       "what fails leaves in the record what it was in");
    ok(has_heard("+range;-;"), "and no open range");
}

static void test_operations(void)
{
    static const struct plait_doing sum = {.track = "tp",
                                           .name = "all-reduce",
                                           .range = "tp",
                                           .op = PLAIT_OP_ALL_REDUCE,
                                           .bytes = 64};
    struct plait_activity a = plait_activity_begin(&comm, &sum), wait;
    uint64_t tag = plait_op_tag(1, PLAIT_OP_ALL_REDUCE);

    ok(a.tag == tag && group->waits == tag && group->bytes == 64 &&
           group->since == a.begin && group->entered[PLAIT_SERIES_DATA] == 1,
       "an operation is entered");
    plait_activity_drop(&a);
    ok(group->waits == 0 && has_heard("+tp;-;"),
       "one that goes on beside the thread is left");
    wait = plait_activity_begin(&comm, &(struct plait_doing){.track = "tp",
                                                             .name = "wait",
                                                             .peer = 1,
                                                             .bytes = 64,
                                                             .tag = a.tag});
    ok(group->waits == tag && group->peer == 1 &&
           group->entered[PLAIT_SERIES_DATA] == 1,
       "the wait for it enters no other");
    plait_activity_end(&wait);
    plait_activity_beside(&comm, "tp", "beside", a.begin, wait.begin);
    a = plait_activity_begin(&comm, &sum);
    plait_activity_end(&a);
    ok(group->waits == 0 && a.tag == plait_op_tag(2, PLAIT_OP_ALL_REDUCE),
       "operations are counted");
    ok(phase() == PLAIT_PHASE_EVALUATION && has_heard("+tp;-;"),
       "and change no phase");
}

static int count(const char *text, const char *name)
{
    char word[64];
    int n = 0;

    snprintf(word, sizeof(word), "\"name\":\"%s\"", name);
    for (; (text = strstr(text, word)) != NULL; text++)
        n++;
    return n;
}

static void test_trace(void)
{
    char path[TEMP_PATH + 20], text[8000] = "";
    FILE *f;

    ok(plait_trace_close(self.trace, NULL) == 0, "the trace is written");
    snprintf(path, sizeof(path), "%s/rank-00000.json", folder);
    f = fopen(path, "re");
    if (!f || !fread(text, 1, sizeof(text) - 1, f))
        diag("%s cannot be read", path);
    if (f)
        fclose(f);
    unlink(path);
    rmdir(folder);
    ok(count(text, "saving") == 1 && count(text, "whole") == 1 &&
           count(text, "wait") == 1 && count(text, "all-reduce") == 1,
       "each activity that ended is in it once");
    ok(count(text, "failed") == 0, "none that failed");
    ok(count(text, "beside") == 2, "what went on beside has begin and end");
}

/* As in a program without GPUs, watch and trace. */
static void test_nobody(void)
{
    static const struct plait_listeners nobody;
    struct plait_activity a = plait_activity_begin(
        &nobody, &(struct plait_doing){.phase = PLAIT_PHASE_SAVE,
                                       .file = "file",
                                       .track = "track",
                                       .name = "name",
                                       .range = "range",
                                       .stage = "stage"});

    plait_activity_phase(&nobody, PLAIT_PHASE_DATA);
    ok(plait_activity_end(&a) >= 0 && has_heard(""),
       "nobody has to listen: the time is told all the same");
}

int main(void)
{
    static struct plait_ops ops = {.range_begin = hear_range,
                                   .range_end = hear_range_end};
    int fd = -1;

    record = plait_record_create(&fd);
    if (!record || !mkdtemp(temp_path(folder, "activity")))
        return skip_all("needs memfd and a folder for temporary files");
    group = plait_record_add_group(record, "tp", 0, 2, 0);
    self = (struct plait_listeners){
        .ops = &ops,
        .record = record,
        .trace = plait_trace_create(folder, 0, 1, NULL, NULL),
        .stage = hear_stage,
    };
    comm = self;
    comm.group = group;
    plait_record_phase(record, PLAIT_PHASE_START, plait_clock_now());
    test_all();
    test_phases();
    test_failure();
    test_operations();
    test_trace();
    test_nobody();
    plait_record_destroy(record, fd);
    return done_testing();
}
