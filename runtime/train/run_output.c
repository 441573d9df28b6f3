/* SPDX-License-Identifier: Apache-2.0 */
/* What a run reports while it trains: the log of its steps, the trace, and the
 * lines on the terminal.
 *
 * Rank 0 alone writes. A full disk must not lose what was trained: a failure to
 * write is kept here, rank 0 writes no more, and the run ends after a
 * checkpoint as if it had got a signal. What was wrong is the error that the
 * run ends with. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/train/elastic.h"
#include "runtime/train/run_private.h"

static int open_trace(struct run *r, bool summary, struct plait_error *err)
{
    const char *dir = r->config->log.profile;

    if (summary && plait_comm_rank(r->world) == 0 &&
        !(r->output.profile = plait_profile_create()))
        return plait_errorf(err, "out of memory");
    if (!dir && !r->output.profile)
        return 0;
    r->output.trace =
        plait_trace_create(dir, plait_comm_rank(r->world),
                           plait_comm_size(r->world), r->output.profile, err);
    if (!r->output.trace)
        return -1;
    plait_comm_set_trace(r->world, r->output.trace);
    plait_mesh_set_trace(r->s->mesh, r->output.trace);
    return 0;
}

int plait_run_output_end(struct run *r, struct plait_error *err)
{
    struct plait_trace *trace = r->output.trace;

    plait_mesh_set_trace(r->s->mesh, NULL);
    plait_comm_set_trace(r->world, NULL);
    r->output.trace = NULL;
    return plait_trace_close(trace, err);
}

int plait_run_open_log(struct run *r, struct plait_error *err)
{
    struct plait_model *model = plait_trainer_model(r->trainer);
    const struct plait_start_record start = {.s = r->s,
                                             .nodes =
                                                 plait_run_measure_nodes(r),
                                             .step = r->done.step,
                                             .past = &r->goodput.past,
                                             .parameters = model->parameters,
                                             .peak = r->peak};

    if (plait_comm_rank(r->world) != 0)
        return 0;
    plait_log_destroy(r->output.log);
    plait_run_read_past(r);
    r->output.log = plait_log_create(&start, r->args, err);
    if (!r->output.log)
        return -1;
    if (r->s->elastic && r->s->elastic->losses > 0)
        plait_elastic_report(r->s, r->done.step);
    else
        plait_report_start(r->s, model, r->peak, r->done.step);
    if (r->state.resumed && r->args->init && !r->s->elastic)
        printf("--init %s is not used: it is for a run that has no checkpoint "
               "yet\n",
               r->args->init);
    plait_progress_init(&r->output.progress, stdout, r->done.step,
                        r->config->train.steps,
                        plait_is_image_model(&r->config->model));
    return 0;
}

int plait_run_output_create(struct run *r, struct plait_error *err)
{
    if (open_trace(r, r->args->profile_summary, err) < 0)
        return -1;
    return plait_run_open_log(r, err);
}

void plait_run_output_step(struct run *r, const struct plait_metrics *m)
{
    const struct plait_job_config *c = r->config;
    struct run_output *out = &r->output;
    struct plait_activity a;
    bool last = m->step == c->train.steps;

    if (plait_comm_rank(r->world) != 0 ||
        (!last && plait_elastic_outdated(r->s)))
        return;
    a = plait_activity_begin(&r->s->mesh->listeners,
                             &(struct plait_doing){.phase = PLAIT_PHASE_LOG});
    if (!out->unlogged && (m->step % c->log.every == 0 || last || m->shares)) {
        out->unlogged = plait_log_write(out->log, m, &out->why) < 0;
        plait_goodput_reported(&r->goodput);
    }
    if (!out->unlogged && c->log.histograms > 0 &&
        m->step % c->log.histograms == 0 &&
        plait_log_histograms(out->log, m->step,
                             plait_trainer_histograms(r->trainer),
                             &out->why) < 0)
        out->unlogged = true;
    plait_progress_show(&out->progress, m);
    if (plait_divergence_add(&out->divergence, m->step, m->loss))
        plait_run_say_divergence(r, &out->divergence);
    plait_activity_end(&a);
}

void plait_run_output_unread(struct run *r, struct plait_error *err)
{
    r->output.unread = true;
    r->output.why = *err;
    err->text[0] = '\0';
}

bool plait_run_output_unlogged(const struct run *r)
{
    return r->output.unlogged;
}

void plait_run_output_changes(struct run *r)
{
    plait_report_changes(&r->output.report, r->s->mesh);
}

void plait_run_output_stop(struct run *r)
{
    if (plait_comm_rank(r->world) == 0)
        plait_progress_end(&r->output.progress);
}

int plait_run_output_failed(const struct run *r, struct plait_error *err)
{
    if (!r->output.unlogged && !r->output.unread)
        return 0;
    *err = r->output.why;
    return -1;
}

void plait_run_output_destroy(struct run *r)
{
    plait_run_output_end(r, NULL);
    plait_profile_print(r->output.profile, stdout);
    plait_profile_destroy(r->output.profile);
    plait_log_destroy(r->output.log);
}
