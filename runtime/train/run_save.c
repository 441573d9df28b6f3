/* SPDX-License-Identifier: Apache-2.0 */
/* When a run saves, and what becomes of a save that fails.
 *
 * A save in the background has two halves: plait_run_save() copies the state,
 * for which training waits, and plait_run_poll_saver(), after each step, puts
 * the checkpoint in place when its files are written. A new save first finishes
 * the one before. runtime/checkpoint writes the files; this file decides when,
 * and what the run does if that fails.
 *
 * All ranks save after the same steps: a fixed number, or the step that rank 0
 * has planned and told all (plait_run_plan_save). The outcome is the same on
 * all ranks, too, as the saver agrees on it before it returns. Only a GPU that
 * has failed is one rank's own matter; that rank returns PLAIT_RUN_BROKEN,
 * which ends the run on all. Before each save the replicas are compared, so
 * that a state that has gone wrong on one of them is not what the run later
 * resumes from. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/model_extras.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/train/run_private.h"
#include "topology/base/clock.h"

/* With checkpoint.every auto: the first checkpoint is after this many steps, to
 * learn what one costs. */
enum { FIRST_SAVE = 10 };

void plait_run_describe(struct run *r)
{
    r->done.loss_scale = *plait_trainer_loss_scale(r->trainer);
    r->done.state = *plait_trainer_state(r->trainer);
    r->done.data = r->saving.data;
    r->done.planned = r->config->train.steps;
}

static bool saves_beside(const struct plait_checkpoint_config *c)
{
    return c->async && c->every != 0;
}

/* The token that ends the texts of the data; -1: not known. */
static int32_t find_end(const char *data)
{
    struct plait_error err;
    struct plait_tokenizer *t =
        data ? plait_tokenizer_beside(data, &err) : NULL;
    int32_t end = t ? plait_tokenizer_end(t) : -1;

    plait_tokenizer_destroy(t);
    return end;
}

/* Copy the tokenizer to the checkpoints, where generation looks for it.
 * Training does not need it, and goes on if that fails. */
static void copy_tokenizer(const struct run *r)
{
    const char *data = plait_parts_path(&r->config->data.train);
    char *folder = data ? plait_tokenizer_folder(data) : NULL;
    struct plait_error err;

    if (plait_directory_make(r->config->checkpoint.dir, &err) < 0 ||
        plait_model_extras_gather(folder, plait_run_origin(r), find_end(data),
                                  r->config->checkpoint.dir, &err) < 0)
        fprintf(stderr,
                "plait-train: cannot copy the tokenizer to the "
                "checkpoints: %s\n",
                err.text);
    free(folder);
}

static int open_saver(struct run *r, struct plait_error *err)
{
    const struct plait_checkpoint_config *c = &r->config->checkpoint;

    if (!c->dir)
        return 0;
    r->saving.saver = plait_saver_create(c->dir, c->keep, saves_beside(c),
                                         plait_trainer_model(r->trainer),
                                         plait_trainer_optim(r->trainer), err);
    if (!r->saving.saver)
        return -1;
    if (r->s->mesh->rank == 0 && !plait_is_image_model(&r->config->model))
        copy_tokenizer(r);
    return c->fallback
               ? plait_saver_set_fallback(r->saving.saver, c->fallback, err)
               : 0;
}

static int open_check(struct run *r, struct plait_error *err)
{
    if (!r->config->train.deterministic &&
        (r->config->train.check_replicas == 0 ||
         plait_comm_size(r->world) == 1))
        return 0;
    r->saving.check = plait_replica_check_create(
        plait_trainer_model(r->trainer), plait_trainer_optim(r->trainer), err);
    return r->saving.check ? 0 : -1;
}

int plait_run_saving_create(struct run *r, struct plait_error *err)
{
    return open_saver(r, err) < 0 ? -1 : open_check(r, err);
}

void plait_run_saving_data(struct run *r,
                           const struct plait_data_identity *data)
{
    r->saving.data = *data;
}

void plait_run_saving_destroy(struct run *r)
{
    plait_saver_destroy(r->saving.saver);
    plait_replica_check_destroy(r->saving.check);
}

bool plait_run_gpu_failed(const struct run *r, struct plait_error *err)
{
    const char *why = plait_queue_error(r->s->mesh->q);

    if (why && !err->text[0])
        plait_errorf(err, "%s", why);
    return why != NULL;
}

static void say_notice(struct run *r)
{
    char text[512];

    if (plait_saver_notice(r->saving.saver, text, sizeof(text)))
        fprintf(stderr, "plait-train: checkpoint: %s\n", text);
}

/* Handle a save that failed on all ranks together. A disk may be full or
 * unreachable for a while: that is reported, and the next save tries again. */
static int take_failure(struct run *r, struct plait_error *err)
{
    bool disk = plait_saver_may_retry(r->saving.saver),
         diverged = errno == EDOM;
    struct plait_error why = *err;

    say_notice(r);
    if (diverged && why.text[0])
        plait_errorf(err,
                     "not saved: after step %" PRId64
                     " the state is not finite: %.300s; the loss and "
                     "gradients of that step were finite, so its update or "
                     "faulty memory is the cause",
                     r->done.step, why.text);
    if (plait_run_gpu_failed(r, err))
        return PLAIT_RUN_BROKEN;
    if (!disk)
        return -1;
    if (err->text[0])
        fprintf(stderr,
                "plait-train: a checkpoint could not be saved: %s; training "
                "goes on, the next save tries again%s\n",
                err->text,
                r->config->checkpoint.fallback
                    ? ""
                    : "; checkpoint.fallback may name a second place");
    err->text[0] = '\0';
    r->saved = -1;
    return 0;
}

static int take_outcome(struct run *r, int rc, struct plait_error *err)
{
    if (rc < 0)
        return take_failure(r, err);
    say_notice(r);
    return 0;
}

int plait_run_check_replicas(struct run *r, bool saves, struct plait_error *err)
{
    int64_t every = r->config->train.check_replicas;
    struct plait_activity a;
    int rc;

    if (!r->saving.check || every == 0 || plait_comm_size(r->world) == 1 ||
        (!saves && r->done.step % every != 0))
        return 0;
    a = plait_activity_begin(&r->s->mesh->listeners,
                             &(struct plait_doing){.phase = PLAIT_PHASE_CHECK});
    rc = plait_replica_check_run(r->saving.check, r->done.step, err);
    plait_activity_end(&a);
    return rc;
}

bool plait_run_save_due(const struct run *r, int64_t step)
{
    int64_t every = r->config->checkpoint.every;

    if (every == PLAIT_CHECKPOINT_AUTO)
        return r->saving.saver && step == r->saving.next;
    return every > 0 && step % every == 0;
}

/* Print the plan, unless it is within a factor of two of the previous one. */
static void say_plan(struct run *r, int64_t before)
{
    double step = r->goodput.trained / fmax(r->goodput.steps, 1);
    double ratio = (double)r->saving.every / (double)before;

    if (before > 0 && ratio > 0.5 && ratio < 2)
        return;
    printf("checkpoint.every auto: %" PRId64 " steps (%.3g s); a checkpoint "
           "costs %.2g s, failures are %.3g h apart\n",
           r->saving.every, (double)r->saving.every * step,
           r->goodput.saving / fmax(r->goodput.saves, 1),
           plait_goodput_between(&r->goodput, plait_clock_unix()) / 3600);
    fflush(stdout);
}

int plait_run_plan_save(struct run *r, bool first, struct plait_error *err)
{
    int64_t every = FIRST_SAVE, before = r->saving.every;

    if (!r->saving.saver ||
        r->config->checkpoint.every != PLAIT_CHECKPOINT_AUTO)
        return 0;
    if (!first && plait_comm_rank(r->world) == 0)
        every = plait_goodput_every(&r->goodput, plait_clock_unix());
    if (plait_comm_host_broadcast(r->world, &every, sizeof(every), 0) < 0) {
        plait_errorf(err, "%s", plait_comm_error(r->world));
        return PLAIT_RUN_BROKEN;
    }
    r->saving.next = r->done.step + every;
    r->saving.every = every;
    if (!first && plait_comm_rank(r->world) == 0)
        say_plan(r, before == FIRST_SAVE ? 0 : before);
    return 0;
}

/* A checkpoint of which the trace tells. The comparison of replicas is a part
 * of it with a phase of its own. */
static const struct plait_doing saving = {
    .phase = PLAIT_PHASE_SAVE, .track = "checkpoint", .name = "checkpoint"};

static int compare_replicas(struct run *r, struct plait_error *err)
{
    int rc = plait_run_check_replicas(r, true, err);

    if (rc == 0)
        plait_activity_phase(&r->s->mesh->listeners, PLAIT_PHASE_SAVE);
    return rc;
}

int plait_run_save(struct run *r, struct plait_error *err)
{
    struct plait_activity a;
    int rc;

    if (!r->saving.saver || r->saved == r->done.step)
        return 0;
    a = plait_activity_begin(&r->s->mesh->listeners, &saving);
    if (compare_replicas(r, err) < 0)
        return -1;
    rc = take_outcome(r, plait_saver_finish(r->saving.saver, err), err);
    if (rc < 0)
        return rc;
    plait_run_describe(r);
    r->saved = r->done.step;
    rc = saves_beside(&r->config->checkpoint)
             ? plait_saver_start(r->saving.saver, &r->done, err)
             : plait_saver_save(r->saving.saver, &r->done, err);
    rc = take_outcome(r, rc, err);
    plait_goodput_save(&r->goodput, plait_activity_end(&a), true);
    return rc;
}

int plait_run_poll_saver(struct run *r, struct plait_error *err)
{
    struct plait_activity a;
    int rc;

    if (!r->saving.saver)
        return 0;
    a = plait_activity_begin(&r->s->mesh->listeners,
                             &(struct plait_doing){.phase = PLAIT_PHASE_SAVE});
    rc = take_outcome(r, plait_saver_poll(r->saving.saver, err), err);
    plait_goodput_save(&r->goodput, plait_activity_end(&a), false);
    return rc;
}

/* Saves without a background copy: no step is left to overlap with. */
int plait_run_save_last(struct run *r, struct plait_error *err)
{
    struct plait_activity a;
    int rc;

    if (!r->saving.saver)
        return 0;
    a = plait_activity_begin(&r->s->mesh->listeners, &saving);
    rc = take_outcome(r, plait_saver_finish(r->saving.saver, err), err);
    if (rc < 0)
        return rc;
    if (r->saved != r->done.step && compare_replicas(r, err) < 0)
        return -1;
    plait_run_describe(r);
    rc = r->saved == r->done.step
             ? 0
             : plait_saver_save(r->saving.saver, &r->done, err);
    say_notice(r);
    if (rc == 0)
        r->saved = r->done.step;
    plait_activity_end(&a);
    return rc;
}

int plait_run_check_state(struct run *r, struct plait_error *err)
{
    return r->saving.saver ? plait_saver_check(r->saving.saver, err) : 0;
}

void plait_run_finish_save(struct run *r)
{
    if (r->saving.saver)
        plait_saver_finish(r->saving.saver, NULL);
}

double plait_run_save_every(const struct run *r)
{
    if (!r->saving.saver)
        return 0;
    return r->config->checkpoint.every == PLAIT_CHECKPOINT_AUTO
               ? (double)r->saving.every
               : (double)r->config->checkpoint.every;
}

int plait_run_say_state(struct run *r, struct plait_error *err)
{
    uint64_t hash = 0;

    if (!r->config->train.deterministic)
        return 0;
    if (plait_replica_check_state(r->saving.check, &hash, err) < 0)
        return -1;
    if (plait_comm_rank(r->world) == 0)
        printf("state after step %" PRId64 ": %016" PRIx64 "\n", r->done.step,
               hash);
    return 0;
}
