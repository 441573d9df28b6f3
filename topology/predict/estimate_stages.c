/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>

#include "topology/job/stage.h"
#include "topology/predict/estimate_pieces.h"

/* The estimate's parts of a step in the form that a simulation plays. */

static void set_stage(const struct plait_shape *s, const struct plait_pieces *p,
                      int stage, struct plait_stage_time *t)
{
    int stages = s->pp * s->v, first = stage == 0, last = stage == stages - 1;
    int zero = s->c->parallel.zero, layers, blocks;
    double pass = plait_pieces_pass(p), deferred = plait_pieces_deferred(p);
    double weights, bytes;

    layers = plait_stage_split_at(&s->split, stage);
    weights = plait_shape_weights(s, layers, first, last);
    blocks = layers + first + last;
    bytes = plait_pieces_gradient_element(s) * weights;
    *t = (struct plait_stage_time){
        .forward = layers * (pass + p->sent) + (last ? p->work.head : 0),
        .backward_input =
            layers * (2 * pass - deferred + p->redone + p->fetched),
        .backward_weight = layers * deferred,
        .blocks = blocks,
        .buckets = (int)plait_pieces_buckets(s, bytes, blocks)};
    for (int i = PLAIT_TP; i <= PLAIT_EP; i++) {
        t->forward_comm[i] = layers * p->forward[i];
        t->backward_comm[i] = layers * p->backward[i];
    }
    if (!plait_sync_parts(&s->c->sync))
        t->reduce = (zero ? 1 : 2) * plait_pieces_reduce(s, bytes, t->buckets);
    if (zero == 3)
        t->gather = plait_pieces_half(
            s, plait_pieces_weight_element(s) * weights, blocks);
}

/* What is left of the gathering of new weights where the next step's first
 * forward hides it, with what that slows down. */
static double gather_updated(const struct plait_shape *s,
                             const struct plait_pieces *p)
{
    double bytes =
        plait_pieces_weight_element(s) * plait_work_fullest_weights(s);
    double all = plait_pieces_half(
        s, bytes,
        plait_pieces_gathers(s, plait_shape_layers(s, s->longest) + 1));
    double forward =
        plait_shape_layers(s, s->longest) * plait_pieces_forward(p);
    double hidden = plait_pieces_hides_gather(s) ? fmin(all, forward) : 0;
    double slows = plait_pieces_beside(s);

    return fmax(hidden * slows, all - hidden);
}

/* Scale all times to the slowest GPU, and to cores that are shared. */
static void wait_for_slowest(struct plait_simulation_request *r,
                             struct plait_stage_time *times, double slower)
{
    for (int i = 0; i < r->stages * r->chunks; i++) {
        times[i].forward *= slower;
        times[i].backward_input *= slower;
        times[i].backward_weight *= slower;
        for (int k = 0; k < PLAIT_NAXES; k++) {
            times[i].forward_comm[k] *= slower;
            times[i].backward_comm[k] *= slower;
        }
        times[i].gather *= slower;
        times[i].reduce *= slower;
    }
    r->message *= slower;
    r->tied *= slower;
    r->update *= slower;
    r->gather_updated *= slower;
}

int plait_simulation_request_set(struct plait_simulation_request *r,
                                 struct plait_stage_time *times,
                                 const struct plait_job_config *config,
                                 const struct plait_layout *layout,
                                 const struct plait_gpu_type *gpu,
                                 struct plait_error *err)
{
    struct plait_estimate checked;
    struct plait_shape s;
    struct plait_pieces p;
    double hidden;

    if (plait_is_image_model(&config->model)) {
        errno = EINVAL;
        return plait_errorf(err, "an image model has no timeline: its blocks "
                                 "differ; plait estimate has its time");
    }
    if (plait_shape_begin(&s, config, layout, gpu, INFINITY, &checked, err) < 0)
        return -1;
    plait_shape_finish(&s, &checked);
    plait_pieces_set(&s, &p);
    for (int i = 0; i < s.pp * s.v; i++)
        set_stage(&s, &p, i, &times[i]);
    *r = (struct plait_simulation_request){
        .schedule = config->parallel.schedule,
        .stages = s.pp,
        .chunks = s.v,
        .microbatches = (int)s.microbatches,
        .times = times,
        .message = p.message,
        .reduce_each = config->parallel.zero >= 2,
        .in_pass = config->framework != PLAIT_FRAMEWORK_PLAIT,
        .reduce_late = !s.bucketed,
        .beside = plait_pieces_beside(&s),
        .tied = p.tied,
        .update = p.work.update + p.away};
    if (config->parallel.zero == 1 || config->parallel.zero == 2)
        r->gather_updated = gather_updated(&s, &p);
    else if (plait_sync_parts(&config->sync)) /* replicas meet after it */
        r->gather_updated = plait_pieces_meeting(&s, &p, &hidden);
    wait_for_slowest(r, times,
                     checked.crowded * checked.step_s /
                         (checked.step_s - checked.straggler_s));
    return 0;
}
