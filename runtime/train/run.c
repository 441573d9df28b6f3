/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/run_private.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/stuck/record.h"
#include "runtime/train/claims.h"
#include "runtime/train/elastic.h"
#include "runtime/train/peak.h"
#include "runtime/train/peak_file.h"
#include "runtime/train/watchdog/signals.h"
#include "topology/base/clock.h"

/* -- the start ----------------------------------------------------------- */

static int run_open(struct run *r, struct plait_session *s,
                    const struct plait_train_args *args,
                    struct plait_error *err)
{
    memset(r, 0, sizeof(*r));
    r->s = s;
    r->args = args;
    r->config = s->config;
    r->world = s->world.comm;
    plait_run_state_create(r);
    return plait_error_consensus(
        r->world, plait_run_supported(r->config, s->world.ops, err), err);
}

/* On processors the measurement is too low while other processes use the cores:
 * the highest value that any run has measured counts. *known: that of earlier
 * runs, on all ranks; 0: none. */
static int recall_peak(struct run *r, enum plait_dtype type, double *known)
{
    *known = 0;
    if (r->s->world.ops->gpu)
        return 0;
    plait_peak_key(r->s, type, r->peak_key, sizeof(r->peak_key));
    if (plait_comm_rank(r->world) == 0)
        *known = plait_peak_known(r->peak_key);
    return plait_comm_host_broadcast(r->world, known, sizeof(*known), 0);
}

static int measure_peak(struct run *r, struct plait_error *err)
{
    enum plait_dtype type = plait_model_type(r->config->train.precision);
    double known;

    r->peak = plait_elastic_peak(r->s);
    if (r->peak > 0)
        return 0;
    if (recall_peak(r, type, &known) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    /* One round shows whether this run is faster than those before. */
    if (plait_peak_measure(r->s->mesh, type, known > 0 ? 1 : PLAIT_PEAK_ROUNDS,
                           &r->peak) < 0)
        return plait_errorf(err, "the speed of matrix products could not be "
                                 "measured");
    if (!r->s->world.ops->gpu && plait_comm_rank(r->world) == 0)
        plait_peak_keep(r->peak_key, r->peak);
    r->peak = fmax(r->peak, known);
    plait_elastic_note_peak(r->s, r->peak);
    return 0;
}

static int open_trainer(struct run *r, struct plait_error *err)
{
    r->trainer = plait_trainer_create(r->config, r->s->mesh, err);
    return plait_error_consensus(r->world, r->trainer ? 0 : -1, err);
}

static void run_close(struct run *r)
{
    plait_watchdog_finish(r->dog);
    plait_run_output_destroy(r);
    plait_run_copies_destroy(r);
    plait_run_saving_destroy(r);
    plait_trainer_destroy(r->trainer);
    plait_run_account_destroy(r);
    plait_run_measure_destroy(r);
}

/* A single process waits for no other one, so it is only watched if the user
 * asks. */
static int open_watch(struct run *r, struct plait_error *err)
{
    int seconds = r->config->train.timeout;
    double growth =
        (double)plait_growth_most(r->config) / r->config->train.global_batch;
    int rc = 0;

    if (!r->s->dog && seconds > 0) {
        r->s->dog = plait_watchdog_create(r->world, r->s->hang, err);
        rc = r->s->dog ? 0 : -1;
        plait_watchdog_limit_phases(r->s->dog, r->config->train.phase_timeout);
    }
    r->dog = r->s->dog;
    r->s->mesh->listeners.dog = r->dog;
    r->s->mesh->listeners.stage = plait_watchdog_stage;
    plait_watchdog_limit_steps(r->dog, seconds, growth);
    if (r->s->elastic)
        plait_watchdog_spare(r->dog);
    return plait_error_consensus(r->world, rc, err);
}

/* Before anything is read that another run may be writing. */
static int claim_files(struct run *r, struct plait_error *err)
{
    return plait_claims_take(r->s, r->args, err);
}

static int start_run(struct run *r, struct plait_error *err)
{
    struct plait_activity a =
        plait_activity_begin(&r->s->mesh->listeners,
                             &(struct plait_doing){.phase = PLAIT_PHASE_LOAD});
    struct plait_metrics before;
    int rc = 0;

    if (plait_run_start_weights(r, err) < 0)
        return -1;
    if (r->done.step < r->config->train.steps)
        rc = plait_run_open_data(r, err);
    plait_activity_end(&a);
    if (plait_error_consensus(r->world, rc, err) < 0 ||
        plait_run_saving_create(r, err) < 0 ||
        plait_run_measure_create(r, err) < 0)
        return -1;
    plait_run_measure_comm(r, &before);
    if (plait_error_consensus(r->world, plait_run_output_create(r, err), err) <
        0)
        return -1;
    plait_elastic_start(r->s, r->done.step);
    /* plait_watchdog_begin() ends it. */
    plait_activity_begin(
        &r->s->mesh->listeners,
        &(struct plait_doing){.stage = "preparing the first step"});
    return plait_run_copies_create(r, err);
}

/* -- the loop ------------------------------------------------------------ */

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* One step, and what is known of it. */
struct step {
    struct plait_activity activity;
    struct plait_step_result result;
    struct plait_metrics m;
    bool unread; /* validation data could not be read */
    bool stop;   /* the run ends after it, before its last step */
};

/* A run whose validation data cannot be read ends. */
static int evaluate_model(struct run *r, struct step *s,
                          struct plait_error *err)
{
    static const struct plait_doing doing = {
        .phase = PLAIT_PHASE_EVALUATION, .track = "run", .name = "evaluation"};
    struct plait_activity a =
        plait_activity_begin(&r->s->mesh->listeners, &doing);
    int rc;

    rc = plait_trainer_eval(r->trainer, &s->m.val, err);
    if (rc == PLAIT_TRAINER_LOST) {
        plait_run_output_unread(r, err);
        s->unread = true;
        rc = 0;
    }
    plait_activity_end(&a);
    return rc;
}

static int check_loss(struct run *r, const struct plait_step_result *result,
                      struct plait_error *err)
{
    char why[400];

    if (isfinite(result->loss) &&
        (isfinite(result->grad_norm) || result->skipped))
        return 0;
    plait_watchdog_begin(r->dog, r->done.step);
    if (plait_trainer_trace(r->trainer, why, sizeof(why), err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_errorf(err,
                 "step %" PRId64 ": loss %g, gradient norm %g; the run stops; "
                 "%s",
                 r->done.step, result->loss, result->grad_norm, why);
    return plait_error_consensus(r->world, -1, err);
}

/* The last line of the metrics names the checkpoint that the run ends with. */
static int save_last(struct run *r, struct plait_metrics *m,
                     struct plait_error *err)
{
    int rc = plait_run_save_due(r, r->done.step)
                 ? plait_run_save(r, err)
                 : plait_run_check_replicas(r, false, err);

    if (rc == 0)
        rc = plait_run_save_last(r, err);
    m->saved_step = r->saved;
    return rc;
}

/* What is due after a step that is not the last: copies, checkpoints and
 * checks. */
static int keep_state(struct run *r, struct plait_error *err)
{
    int rc;

    if (plait_run_search_products(r, err) < 0 || plait_run_copy(r, err) < 0)
        return PLAIT_RUN_BROKEN;
    if (plait_run_save_due(r, r->done.step)) {
        rc = plait_run_save(r, err);
        return rc == 0 ? plait_run_plan_save(r, false, err) : rc;
    }
    if (plait_run_check_replicas(r, false, err) < 0)
        return -1;
    return plait_run_poll_saver(r, err);
}

/* On a GPU, transfers with a lost rank, or over a link that is down, end
 * without an error and leave arbitrary data. */
static int check_lost(struct run *r, struct plait_error *err)
{
    if (!plait_comm_lost(r->world) && plait_comm_progress(r->world) == 0)
        return 0;
    return plait_errorf(err, "%s", plait_comm_error(r->world));
}

/* Whether nothing but the next step uses the weights that this one has made,
 * which ZeRO 1 and 2 may still gather: that one waits for each where it uses
 * it. All else between two steps needs them whole, and is listed here and
 * nowhere else; what is not is refused (plait_optim_read_piece()). */
static bool goes_on(const struct run *r, const struct step *s)
{
    const struct plait_job_config *c = r->config;
    int64_t step = r->done.step + 1;

    return isfinite(s->result.loss) && isfinite(s->result.grad_norm) &&
           !r->searches && r->state.trial < 0 && !s->result.stop &&
           step < c->train.steps && !is_due(step, c->train.eval_every) &&
           !is_due(step, c->train.check_replicas) &&
           !is_due(step, c->checkpoint.memory) && !plait_run_save_due(r, step);
}

/* Traffic and waits since the last step, for evaluation or saving, count for no
 * step. */
static int make_step(struct run *r, struct step *s, struct plait_error *err)
{
    bool end = plait_signals_caught() != 0 || plait_run_output_unlogged(r);

    plait_run_measure_comm(r, &s->m);
    plait_run_shares_begin(r);
    if (plait_trainer_step(r->trainer, r->done.step, end, &s->result, err) <
            0 ||
        (!goes_on(r, s) && plait_trainer_settle(r->trainer, err) < 0) ||
        check_lost(r, err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_activity_phase(&r->s->mesh->listeners, PLAIT_PHASE_BETWEEN);
    plait_watchdog_end(r->dog);
    return PLAIT_RUN_GOOD;
}

static bool is_last(const struct run *r, bool stop)
{
    return stop || r->done.step == r->config->train.steps;
}

/* The step counts: its metrics. */
static int count_step(struct run *r, struct step *s, struct plait_error *err)
{
    double seconds;

    plait_run_output_changes(r);
    r->done.step++;
    r->done.tokens += (int64_t)s->result.batch * r->config->model.seq_len;
    plait_elastic_step(r->s, r->done.step);
    seconds = plait_clock_now() - s->activity.begin;
    if (plait_run_measure_stages(r, err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_goodput_step(&r->goodput, plait_clock_unix(), seconds);
    plait_run_measure_step(r, &s->result, seconds, plait_run_save_every(r),
                           &s->m);
    plait_run_shares_step(r, &s->m);
    if (plait_run_measure_slowest(r, &s->m, err) < 0 ||
        (is_last(r, s->result.stop) && plait_run_shares_end(r, &s->m, err) < 0))
        return PLAIT_RUN_BROKEN;
    plait_activity_end(&s->activity);
    return PLAIT_RUN_GOOD;
}

/* What follows a step: an evaluation, whose batches replace those of the step,
 * checkpoints, and its line in the log, also where its loss ends the run. */
static int end_step(struct run *r, struct step *s, struct plait_error *err)
{
    int rc = check_loss(r, &s->result, err);

    if (rc == PLAIT_RUN_GOOD &&
        is_due(r->done.step, r->config->train.eval_every) &&
        (evaluate_model(r, s, err) < 0 || check_lost(r, err) < 0))
        return PLAIT_RUN_BROKEN;
    s->stop = s->result.stop || s->unread;
    if (rc == PLAIT_RUN_GOOD && is_last(r, s->stop))
        rc = save_last(r, &s->m, err);
    plait_run_output_step(r, &s->m);
    plait_run_account_step(r, &s->m);
    return rc != PLAIT_RUN_GOOD || is_last(r, s->stop) ? rc
                                                       : keep_state(r, err);
}

static int one_step(struct run *r, bool *stop, struct plait_error *err)
{
    static const struct plait_doing doing = {.track = "run", .name = "step"};
    struct step s = {.activity =
                         plait_activity_begin(&r->s->mesh->listeners, &doing)};
    int rc = make_step(r, &s, err);

    if (rc == PLAIT_RUN_GOOD)
        rc = plait_run_try(r, &s.result, err);
    if (rc == PLAIT_RUN_GOOD)
        rc = count_step(r, &s, err);
    if (rc == PLAIT_RUN_GOOD)
        rc = end_step(r, &s, err);
    *stop = s.stop;
    return rc == PLAIT_RUN_BACK ? PLAIT_RUN_GOOD : rc;
}

/* Whether a failure ended the run before its last step. */
static int end_result(struct run *r, struct plait_error *err)
{
    int rc = plait_trainer_data_lost(r->trainer, err) ? -1 : 0;

    if (plait_run_output_failed(r, err) < 0)
        rc = -1;
    return plait_error_consensus(r->world, rc, err);
}

/* After a failure that all ranks know of. A rank whose GPU has failed leaves as
 * it would in a step; the others notice here that they have lost it, so that an
 * elastic run goes on. */
static int leave_together(struct run *r, struct plait_error *err)
{
    if (plait_run_gpu_failed(r, err))
        return PLAIT_RUN_BROKEN;
    if (plait_comm_barrier(r->world) < 0 && !err->text[0])
        plait_errorf(err, "%s", plait_comm_error(r->world));
    return -1;
}

static int run_steps(struct run *r, struct plait_error *err)
{
    bool stop = false;
    int rc;

    r->s->training = true;
    plait_run_account_create(r);
    rc = plait_run_plan_save(r, true, err);
    while (rc == 0 && !stop && r->done.step < r->config->train.steps) {
        plait_record_step(r->s->mesh->listeners.record, r->done.step + 1);
        plait_watchdog_begin(r->dog, r->done.step + 1);
        rc = one_step(r, &stop, err);
    }
    plait_run_output_stop(r);
    if (rc == 0 && r->saved != r->done.step) /* no step was left to make */
        rc = plait_run_save_last(r, err);
    if (rc == 0)
        rc = plait_run_say_state(r, err);
    if (rc == 0) {
        r->s->training = false;
        plait_run_account_end(r);
        if (plait_comm_rank(r->world) == 0 && r->peak_key[0])
            plait_peak_keep(r->peak_key, r->peak);
        plait_run_report_copies(r);
        plait_run_say_end(r, stop);
        return end_result(r, err);
    }
    if (rc == PLAIT_RUN_FAILED)
        rc = leave_together(r, err);
    /* A checkpoint whose state was copied before the failure is still
     * finished. */
    if (rc == PLAIT_RUN_FAILED)
        plait_run_finish_save(r);
    return rc;
}

static int close_output(struct run *r, struct plait_error *err)
{
    return plait_error_consensus(r->world, plait_run_output_end(r, err), err);
}

int plait_run_train(struct plait_session *s,
                    const struct plait_train_args *args,
                    struct plait_error *err)
{
    static int (*const phases[])(struct run *, struct plait_error *) = {
        open_watch,   claim_files,
        measure_peak, plait_run_choose_learners,
        open_trainer, plait_run_load_products,
        start_run,    run_steps,
        close_output,
    };
    struct run r;
    int rc = run_open(&r, s, args, err);

    for (size_t i = 0;
         rc == PLAIT_RUN_GOOD && i < sizeof(phases) / sizeof(phases[0]); i++)
        rc = phases[i](&r, err);
    /* When a rank is gone, transfers cannot complete: abort them. The remaining
     * ranks go on in plait_elastic_again(). */
    if (rc < 0 && plait_elastic_lost(s)) {
        plait_elastic_note_hang(s, plait_watchdog_hung(r.dog));
        plait_comm_abort(s->world.all);
    } else if (rc == PLAIT_RUN_BROKEN) {
        return rc;
    }
    run_close(&r);
    return rc;
}
