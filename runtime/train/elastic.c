/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/elastic_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/comm/consensus.h"
#include "runtime/train/metrics/metrics.h"
#include "topology/base/clock.h"

/* The run ends after this many losses in a row without a new step in
 * between. */
enum { STALLED_MOST = 20 };
/* How long to wait, after a loss, for another rank that a signal has stopped. 0
 * where the watchdog has waited for it already. */
#define STOPPED_S 10
/* How much longer than a process that begins anew may take to open its GPU:
 * until it has noticed that it must, and then has come. */
#define SPARE_S 20

/* -- the beginning --------------------------------------------------------- */

static void note_members(struct plait_elastic *e, const struct plait_world *w)
{
    const struct plait_members *m = w->members;

    memcpy(e->members, m->order, (size_t)m->n * sizeof(*e->members));
    e->n = m->n;
    e->seats = w->launch.world_size;
}

static int check_elastic(const struct plait_session *s, struct plait_error *err)
{
    errno = EINVAL;
    if (!s->world.members)
        return plait_errorf(err, "--elastic: only ranks on CPUs over sockets "
                                 "(--comm socket) and on GPUs of their own "
                                 "over NCCL can go on without others");
    if (!s->world.comm)
        return 0;
    if (!s->config->checkpoint.dir)
        return plait_errorf(err, "--elastic: checkpoint.dir is missing: the "
                                 "ranks that are left go on from a checkpoint");
    if (plait_sync_parts(&s->config->sync))
        return plait_errorf(err,
                            "--elastic: with sync.mode %s a replica's weights "
                            "are lost with its ranks",
                            plait_sync_mode_names[s->config->sync.mode]);
    return 0;
}

/* All processes know the run by one number, also those that become rank 0
 * later. */
static int share_number(struct plait_session *s, struct plait_elastic *e,
                        struct plait_error *err)
{
    int rc = 0;

    if (plait_comm_rank(s->world.all) == 0 &&
        getrandom(&e->run, sizeof(e->run), 0) != sizeof(e->run))
        rc = plait_errorf(err, "getrandom: %s", strerror(errno));
    if (plait_error_consensus(s->world.all, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast(s->world.all, &e->run, sizeof(e->run), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(s->world.all));
    return 0;
}

/* Give the spare processes the configuration, which they need when they take a
 * seat. Collective over all processes. */
static int share_config(struct plait_session *s, struct plait_elastic *e,
                        struct plait_error *err)
{
    size_t size = s->config_text ? strlen(s->config_text) + 1 : 0;
    int rc = 0;

    e->members = calloc((size_t)s->world.members->n, sizeof(*e->members));
    e->silent = calloc((size_t)s->world.members->n, sizeof(*e->silent));
    if (s->config_text)
        e->config_text = strdup(s->config_text);
    e->copies = plait_copies_create();
    if (!e->members || !e->silent || !e->copies ||
        (s->config_text && !e->config_text))
        rc = plait_errorf(err, "out of memory");
    if (plait_error_consensus(s->world.all, rc, err) < 0)
        return -1;
    if (s->world.comm == s->world.all)
        return 0;
    if (plait_comm_rank(s->world.all) > 0) {
        free(e->config_text);
        e->config_text = NULL;
    }
    return plait_broadcast_text(s->world.all, 0, &e->config_text, &size, err);
}

int plait_elastic_begin(struct plait_session *s, int rc,
                        struct plait_elastic *e, struct plait_error *err)
{
    struct plait_world *w = &s->world;

    if (!plait_world_elastic() || !w->all || plait_comm_size(w->all) == 1 ||
        (rc < 0 && w->comm == w->all))
        return rc;
    if (rc == 0)
        rc = check_elastic(s, err);
    if (plait_error_consensus(w->all, rc, err) < 0 ||
        share_number(s, e, err) < 0 || share_config(s, e, err) < 0)
        return -1;
    note_members(e, w);
    e->launch = s->world.launch;
    e->began = s->opened;
    s->elastic = e;
    return 0;
}

void plait_elastic_clear(struct plait_elastic *e)
{
    plait_copies_destroy(e->copies);
    free(e->config_text);
    free(e->members);
    free(e->silent);
}

/* -- after a loss ---------------------------------------------------------- */

bool plait_elastic_lost(const struct plait_session *s)
{
    if (!s->elastic || !s->world.members)
        return false;
    if (s->world.all)
        elastic_await_news(s);
    return !s->world.all || (plait_comm_lost(s->world.all) &&
                             !plait_comm_difference(s->world.all));
}

/* Tear down the old world. Only its list of processes and the GPU stay in
 * use. */
static void leave_world(struct plait_session *s, struct plait_world *kept)
{
    struct plait_elastic *e = s->elastic;
    struct plait_claims *claims = s->claims;

    s->claims = NULL; /* no other run gets in between */
    if (s->world.all)
        plait_comm_abort(s->world.all);
    plait_world_keep(&s->world, kept);
    plait_session_close(s);
    memset(s, 0, sizeof(*s));
    s->elastic = e;
    s->claims = claims;
}

static bool is_among(const int *numbers, int n, int number)
{
    for (int i = 0; i < n; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/* Into e->who: "rank 1 (node7, process 12), a spare rank (...)", the processes
 * that were lost since the world began its steps. */
static void describe_lost(struct plait_elastic *e,
                          const struct plait_members *m)
{
    size_t used = 0, size = sizeof(e->who);

    snprintf(e->who, size, "no rank");
    for (int i = 0; i < e->n && used < size; i++)
        if (!is_among(m->present, m->n, e->members[i])) {
            const struct plait_contact *c = &m->all[e->members[i]];
            char rank[20] = "a spare rank";

            if (i < e->seats)
                snprintf(rank, sizeof(rank), "rank %d", i);
            used += (size_t)snprintf(
                e->who + used, size - used, "%s%s (%s, process %d%s)",
                used ? ", " : "", rank, c->host, (int)c->pid,
                m->out[e->members[i]] ? ", which does not answer" : "");
        }
}

static int agree(struct plait_elastic *e, struct plait_members *m,
                 struct plait_error *err)
{
    const struct plait_patience patience = {.stopped = e->hung ? 0 : STOPPED_S,
                                            .away = PLAIT_AWAY_S,
                                            .slow = ELASTIC_ANEW_S + SPARE_S,
                                            .silent = e->silent};

    if (plait_members_regroup(m, &patience, err) < 0)
        return -1;
    memset(e->silent, 0, (size_t)m->size * sizeof(*e->silent));
    describe_lost(e, m);
    e->agreed = plait_clock_now();
    return 0;
}

/* The first rank tells the processes without a seat what came of the run. All
 * call it here, as places may be compared (PLAIT_CHECK_COLLECTIVES). */
static int share_outcome(struct plait_session *s, int32_t *outcome)
{
    return plait_comm_host_broadcast(s->world.all, outcome, sizeof(*outcome),
                                     0);
}

int plait_elastic_wait(struct plait_session *s, int *outcome,
                       struct plait_error *err)
{
    int32_t value = -1;

    note_members(s->elastic, &s->world);
    s->elastic->stalled = 0;
    s->elastic->hung = false;
    plait_comm_rest(s->world.all);
    if (share_outcome(s, &value) < 0) {
        s->elastic->noticed = plait_clock_now();
        return plait_errorf(err, "%s", plait_comm_error(s->world.all));
    }
    *outcome = value;
    return 1;
}

/* Takes ownership of `kept`. */
static int meet_again(struct plait_session *s, struct plait_world *kept,
                      struct plait_train_args *args, int *outcome,
                      struct plait_error *err)
{
    struct plait_elastic *e = s->elastic;
    struct plait_launch launch = e->launch;

    err->text[0] = '\0';
    if (elastic_check_device(s, kept, args, err) < 0 ||
        agree(e, kept->members, err) < 0 ||
        elastic_find_layout(e, args, kept->members, &launch.layout, err) < 0) {
        plait_world_close(kept);
        return -1;
    }
    s->opened = plait_clock_unix() - (plait_clock_now() - e->noticed);
    if (plait_world_again(&s->world, kept, &launch, err) < 0 ||
        plait_copies_agree(e->copies, s->world.all, s->world.launch.world_size,
                           err) < 0)
        return -1;
    if (!s->world.comm)
        return plait_elastic_wait(s, outcome, err);
    if (plait_session_complete(s, args, err) < 0 ||
        elastic_find_beginning(s, args, err) < 0)
        return -1;
    e->rebuilt = plait_clock_now();
    return 0;
}

static void note_loss(struct plait_elastic *e)
{
    e->noticed = plait_clock_now();
    e->behind = true;
    e->losses++;
    e->alone = false;
}

int plait_elastic_again(struct plait_session *s, struct plait_train_args *args,
                        int *outcome, struct plait_error *err)
{
    struct plait_elastic *e = s->elastic;
    struct plait_world kept;
    int rc;

    if (!e->anew)
        note_loss(e);
    /* They were of groups that are gone. */
    s->links = (struct plait_mesh_links){"", ""};
    do {
        rc = elastic_ask_device(s, args, err);
        leave_world(s, &kept);
        if (rc < 0) {
            plait_world_close(&kept);
            return -1;
        }
        if (!e->anew && ++e->stalled > STALLED_MOST) {
            plait_world_close(&kept);
            return plait_errorf(err,
                                "ranks were lost %d times without a step in "
                                "between; the run ends",
                                STALLED_MOST);
        }
        rc = meet_again(s, &kept, args, outcome, err);
    } while (rc < 0 && plait_elastic_lost(s));
    return rc;
}

void plait_elastic_end(struct plait_session *s, int outcome)
{
    int32_t value = outcome;

    if (s->elastic && s->world.comm && s->world.comm != s->world.all)
        share_outcome(s, &value);
}

/* -- reports --------------------------------------------------------------- */

/* " (1 spare rank takes a seat, 2 ranks wait)" */
static void describe_seats(const struct plait_session *s, char *text,
                           size_t size)
{
    const struct plait_elastic *e = s->elastic;
    const struct plait_members *m = s->world.members;
    int seats = s->world.launch.world_size, beside = m->n - seats, taken = 0;
    size_t used = 0;

    for (int i = e->seats; i < e->n; i++)
        taken += is_among(m->order, seats, e->members[i]);
    *text = '\0';
    if (taken > 0)
        used = (size_t)snprintf(text, size, " (%d spare rank%s%s", taken,
                                taken > 1 ? "s take seats" : " takes a seat",
                                beside ? "" : ")");
    if (beside > 0)
        snprintf(text + used, size - used, "%s%d rank%s wait%s)",
                 taken > 0 ? ", " : " (", beside, beside > 1 ? "s" : "",
                 beside > 1 ? "" : "s");
}

/* The loaded state is of `step`, so that step was reached, even if none of the
 * ranks that made it is left. */
static void note_reached(struct plait_elastic *e, int64_t step)
{
    if (e->losses == 0 || e->reached < step)
        e->reached = step;
}

void plait_elastic_report(const struct plait_session *s, int64_t step)
{
    struct plait_elastic *e = s->elastic;
    int64_t again = e->reached > step ? e->reached - step : 0;
    char seats[80];

    e->loaded = plait_clock_now();
    note_reached(e, step);
    describe_seats(s, seats, sizeof(seats));
    fprintf(stderr,
            "plait-train: %s is gone in step %" PRId64
            "; going on with dp %d of %d%s from step %" PRId64 "%s, %" PRId64
            " step%s again; %.2f s: agree %.2f, rebuild %.2f, load %.2f\n",
            e->who, e->reached + 1, s->mesh->layout.size[PLAIT_DP],
            e->launch.layout.size[PLAIT_DP], seats, step,
            e->copied ? " in memory" : "", again, again == 1 ? "" : "s",
            e->loaded - e->noticed, e->agreed - e->noticed,
            e->rebuilt - e->agreed, e->loaded - e->rebuilt);
}

void plait_elastic_note_hang(struct plait_session *s, bool hung)
{
    struct plait_elastic *e = s->elastic;

    e->hung = hung;
    for (int i = 0; i < e->n && i < e->seats; i++) {
        double silence = plait_hang_silence(s->hang, i);

        e->silent[e->members[i]] =
            silence > 0 && (hung || silence >= PLAIT_AWAY_S);
    }
}

bool plait_elastic_outdated(const struct plait_session *s)
{
    return s->elastic && plait_comm_look(s->world.all);
}

void plait_elastic_note_source(struct plait_session *s, bool copied)
{
    if (s->elastic)
        s->elastic->copied = copied;
}

void plait_elastic_start(struct plait_session *s, int64_t step)
{
    struct plait_elastic *e = s->elastic;

    if (!e)
        return;
    note_members(e, &s->world);
    note_reached(e, step);
    e->begun = true;
}

void plait_elastic_step(struct plait_session *s, int64_t step)
{
    struct plait_elastic *e = s->elastic;
    double now = plait_clock_now();

    if (!e || step <= e->reached)
        return;
    e->reached = step;
    e->stalled = e->lives = 0;
    if (e->behind && plait_comm_rank(s->world.comm) == 0)
        fprintf(stderr,
                "plait-train: back at step %" PRId64
                " after %.2f s: replay %.2f\n",
                step, now - e->noticed, now - e->loaded);
    e->behind = false;
}

double plait_elastic_peak(const struct plait_session *s)
{
    return s->elastic ? s->elastic->peak * plait_comm_size(s->world.comm) : 0;
}

void plait_elastic_note_peak(struct plait_session *s, double peak)
{
    if (s->elastic)
        s->elastic->peak = peak / plait_comm_size(s->world.comm);
}
