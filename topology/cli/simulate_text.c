/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "topology/cli/cmd_simulate.h"
#include "topology/job/stage.h"

/* A simulated step as text and as JSON. */

enum { MARGIN = 8, TICKS = 6, GAP = 5 };

/* One character for a moment: the micro-batch, or the activity. */
static char mark(const struct plait_span *span)
{
    switch (span->kind) {
    case PLAIT_SPAN_FORWARD:
        return (char)('0' + span->microbatch % 10);
    case PLAIT_SPAN_BACKWARD:
    case PLAIT_SPAN_BACKWARD_INPUT:
        return (char)('a' + span->microbatch % 10);
    case PLAIT_SPAN_BACKWARD_WEIGHT:
        return (char)('A' + span->microbatch % 10);
    case PLAIT_SPAN_UPDATE:
        return '#';
    case PLAIT_SPAN_WAIT_PP:
        return '~';
    case PLAIT_SPAN_WAIT_DP:
        return '=';
    default:
        return '.';
    }
}

/* How time becomes columns. Where a pass is narrower than a column, only the
 * beginning and the end of the step are drawn, with a gap between them: the
 * passes between them are a steady repetition. */
struct scale {
    double step, unit; /* seconds, of a column */
    int columns;
    int part;    /* columns of the beginning, and of the end; 0: all is drawn */
    double head; /* seconds of them */
};

static struct scale choose_scale(const struct plait_simulation *s, int columns)
{
    struct scale c = {
        .step = s->step, .unit = s->step / columns, .columns = columns};
    double sum = 0;
    int n = 0;

    for (int i = 0; i < s->nspans; i++)
        if (s->spans[i].kind == PLAIT_SPAN_FORWARD) {
            sum += s->spans[i].end - s->spans[i].begin;
            n++;
        }
    if (n == 0 || sum / n >= c.unit)
        return c;
    c.part = (columns - GAP) / 2;
    c.columns = 2 * c.part + GAP;
    c.unit = sum / n;
    c.head = c.part * c.unit;
    return c;
}

/* The column of a time; of one in the gap `hidden`. */
static int column_of(const struct scale *c, double t, int hidden)
{
    if (!c->part || t <= c->head)
        return (int)(t / c->unit + 0.5);
    if (t >= c->step - c->head)
        return c->columns - (int)((c->step - t) / c->unit + 0.5);
    return hidden;
}

/* What a rank does in the middle of each column. */
static void draw_rank(const struct plait_simulation *s, int rank,
                      const struct scale *c, char *line)
{
    const struct plait_span *span;
    int at, last;

    memset(line, ' ', (size_t)c->columns);
    line[c->columns] = '\0';
    for (int i = 0; i < s->nspans; i++) {
        span = &s->spans[i];
        if (span->rank != rank || span->kind >= PLAIT_SPAN_REDUCE)
            continue;
        at = column_of(c, span->begin, c->columns - c->part);
        last = column_of(c, span->end, c->part);
        for (; at < last && at < c->columns; at++)
            line[at] = mark(span);
    }
    if (c->part)
        memcpy(line + c->part, " ... ", GAP);
}

/* The times are printed above the columns in which they begin. */
static void draw_axis(const struct scale *c, FILE *out)
{
    int at = 0;

    fprintf(out, "%*s", MARGIN, "");
    for (int i = 0; i <= TICKS; i++) {
        char text[24];
        double at_s = c->step * i / TICKS;
        int n, column = c->columns * i / TICKS;

        if (c->part && i <= TICKS / 2)
            at_s = 2 * c->head * i / TICKS;
        else if (c->part)
            at_s = c->step - 2 * c->head * (TICKS - i) / TICKS;
        n = snprintf(text, sizeof(text), at_s < 1000 ? "%.3g s" : "%.0f s",
                     at_s);
        if (i == TICKS || (c->part && i == TICKS / 2))
            column -= n;
        at += fprintf(out, "%*s%s", column - at, "", text);
    }
    fputc('\n', out);
}

static void draw(const struct plait_simulation *s, int columns, FILE *out)
{
    const struct scale c = choose_scale(s, columns);
    char *line = malloc((size_t)columns + 1);
    int split = s->schedule == PLAIT_SCHEDULE_ZB_H1;

    if (!line)
        return;
    draw_axis(&c, out);
    for (int rank = 0; rank < s->stages; rank++) {
        draw_rank(s, rank, &c, line);
        fprintf(out, "pp %-*d%s\n", MARGIN - 3, rank, line);
    }
    free(line);
    fprintf(out,
            "%*s0-9 forward, a-j backward%s of micro-batch 0, 1, ...%s\n"
            "%*s. bubble  # update  waits ~ for a message  = for gradients or "
            "weights\n",
            MARGIN, "", split ? ", A-J weight gradients,\n       " : "",
            s->microbatches > 10 ? " 9, 10 is 0 again" : "", MARGIN, "");
    if (c.part)
        fprintf(out,
                "%*s... the first and the last %.3g s of %.3g s are drawn\n",
                MARGIN, "", c.head, c.step);
}

static void print_row(const struct plait_simulation *s, const char *name,
                      const struct plait_rank_time *t, FILE *out)
{
    double share = 100 / s->step;

    fprintf(out, "%-8s%8.1f %%%8.1f %%%7.1f %%%8.1f %%%8.1f %%%8.1f %%%6d\n",
            name, share * t->compute, share * t->inner, share * t->bubble,
            share * t->wait_pp, share * t->wait_dp, share * t->hidden, t->peak);
}

static void print_table(const struct plait_simulation *s, FILE *out)
{
    struct plait_rank_time mean;
    char name[24];

    fprintf(out, "\n%-8s%10s%10s%9s%10s%10s%10s%6s\n", "", "computing",
            "tp cp ep", "bubble", "messages", "gradients", "hidden", "held");
    for (int rank = 0; rank < s->stages; rank++) {
        snprintf(name, sizeof(name), "pp %d", rank);
        print_row(s, name, &s->ranks[rank], out);
    }
    plait_simulation_mean(s, &mean);
    if (s->stages > 1)
        print_row(s, "mean", &mean, out);
}

static void print_part(const struct plait_simulation *s, const char *name,
                       double seconds, FILE *out)
{
    fprintf(out, "%-36s%9.4g s  %5.1f %%\n", name, seconds,
            100 * seconds / s->step);
}

static void print_sums(const struct simulate_job *job, FILE *out)
{
    const struct plait_simulation *s = job->simulation;
    const struct plait_estimate *e = &job->estimate;
    double rate = e->step_s / s->step;
    struct plait_rank_time mean;
    char warning[256];

    plait_simulation_mean(s, &mean);
    fprintf(out, "\n");
    print_part(s, "step", s->step, out);
    print_part(s, "  computing", mean.compute, out);
    print_part(s, "  bubble", mean.bubble, out);
    print_part(s, "  exposed communication",
               mean.inner + mean.wait_pp + mean.wait_dp, out);
    print_part(s, "    tp, cp, ep", mean.inner, out);
    print_part(s, "    messages between stages", mean.wait_pp, out);
    print_part(s, "    gradients and weights", mean.wait_dp, out);
    fprintf(out, "%-36s%9.4g s\n", "gradients and weights hidden", mean.hidden);
    if (s->stages > 1)
        fprintf(out, "bubble of equal stages by the formula  %12.1f %%\n",
                100 * simulate_ideal_bubble(s));
    fprintf(out, "%-36s%9.4g s\n", "plait estimate, by formula", e->step_s);
    for (int i = 0; i < job->nslow; i++)
        fprintf(out, "slow: %s\n", job->slow[i]);
    if (job->nslow)
        fprintf(out, "%-36s%9.4g s, now %.1f %% more\n",
                "step without what is slow", job->undisturbed,
                100 * (s->step / job->undisturbed - 1));
    fprintf(out,
            "\n%.0f tokens/s, %.1f TFLOP/s per GPU, MFU %.1f %% (attention in "
            "full), %.1f %% (causal half)\n",
            e->tokens_per_s * rate, e->tflops_per_gpu * rate,
            100 * e->mfu * rate, 100 * e->mfu_causal * rate);
    plait_gpu_type_warn(&job->model.gpu, warning, sizeof(warning));
    if (*warning)
        fprintf(out, "note: %s\n", warning);
}

static void print_layers(const struct simulate_job *job, FILE *out)
{
    struct plait_stage_split split;
    char text[200];

    plait_stage_split_set(&split, job->model.config,
                          job->simulation->stages * job->simulation->chunks);
    plait_stage_split_print(&split, " ", text, sizeof(text));
    fprintf(out, "layers of the stages: %s, the last with the head\n\n", text);
}

static void print_title(const struct simulate_job *job, FILE *out)
{
    const struct plait_simulation *s = job->simulation;

    fprintf(out, "%.3f billion parameters on %d %s GPU%s:",
            job->estimate.parameters / 1e9, job->model.gpus,
            job->model.gpu.name, job->model.gpus == 1 ? "" : "s");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->model.layout.size[i] > 1 || i == PLAIT_PP)
            fprintf(out, " %s=%d", plait_axis_names[i],
                    job->model.layout.size[i]);
    fprintf(out, ", zero %d\n%s, %d micro-batches",
            job->model.config->parallel.zero, plait_schedule_names[s->schedule],
            s->microbatches);
    if (s->chunks > 1)
        fprintf(out, ", %d chunks a rank", s->chunks);
    fprintf(out, "; ");
    print_layers(job, out);
}

void simulate_print_text(const struct simulate_job *job, int columns, FILE *out)
{
    print_title(job, out);
    draw(job->simulation, columns - MARGIN, out);
    print_table(job->simulation, out);
    print_sums(job, out);
}

/* --- JSON --- */

static json_t *rank_to_json(const struct plait_rank_time *t)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:i}", "compute_s", t->compute,
                     "tp_cp_ep_s", t->inner, "bubble_s", t->bubble,
                     "exposed_pp_s", t->wait_pp, "exposed_dp_s", t->wait_dp,
                     "hidden_dp_s", t->hidden, "activations_held", t->peak);
}

static json_t *ranks_to_json(const struct plait_simulation *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->stages; i++)
        json_array_append_new(list, rank_to_json(&s->ranks[i]));
    return list;
}

static json_t *timeline_to_json(const struct plait_simulation *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->nspans; i++) {
        const struct plait_span *x = &s->spans[i];
        json_t *span = json_pack("{s:i,s:s,s:f,s:f}", "pp", x->rank, "kind",
                                 plait_span_names[x->kind], "begin_s", x->begin,
                                 "end_s", x->end);

        if (x->chunk >= 0) {
            json_object_set_new(span, "chunk", json_integer(x->chunk));
            json_object_set_new(span, "microbatch",
                                json_integer(x->microbatch));
        }
        json_array_append_new(list, span);
    }
    return list;
}

static json_t *layout_to_json(const struct simulate_job *job)
{
    json_t *out = json_object();

    for (int i = 0; i < PLAIT_NAXES; i++)
        json_object_set_new(out, plait_axis_names[i],
                            json_integer(job->model.layout.size[i]));
    return out;
}

json_t *simulate_to_json(const struct simulate_job *job)
{
    const struct plait_simulation *s = job->simulation;
    const struct plait_estimate *e = &job->estimate;
    double rate = e->step_s / s->step;
    struct plait_rank_time mean;
    json_t *out;

    plait_simulation_mean(s, &mean);
    out = json_pack(
        "{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:s,s:i,s:i,s:i,s:o,s:o,s:o,s:o}",
        "step_s", s->step, "estimate_step_s", e->step_s, "tokens_per_s",
        e->tokens_per_s * rate, "tflops_per_gpu", e->tflops_per_gpu * rate,
        "mfu", e->mfu * rate, "mfu_causal", e->mfu_causal * rate, "bubble",
        mean.bubble / s->step, "exposed",
        (mean.inner + mean.wait_pp + mean.wait_dp) / s->step, "ideal_bubble",
        simulate_ideal_bubble(s), "schedule", plait_schedule_names[s->schedule],
        "gpus", job->model.gpus, "microbatches", s->microbatches, "virtual",
        s->chunks, "layout", layout_to_json(job), "mean", rank_to_json(&mean),
        "ranks", ranks_to_json(s), "timeline", timeline_to_json(s));
    if (out && job->nslow)
        json_object_set_new(out, "undisturbed_step_s",
                            json_real(job->undisturbed));
    return out;
}
