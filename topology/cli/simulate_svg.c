/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/cli/cmd_simulate.h"
#include "topology/cli/svg.h"

/* A simulated step as a picture: a lane per pipeline rank, under it a thin
 * one for the traffic beside the computing. All lengths are in pixels. */

#define LEFT 64
#define RIGHT 150  /* the rank's own figures */
#define CHART 1240 /* width of the time axis */
#define TOP 132
#define AXIS 34
#define LEGEND 52

/* Lanes get thinner where there are many. */
struct page {
    const struct simulate_job *job;
    const struct plait_simulation *s;
    double lane, traffic, pitch;
    double bottom; /* of the last lane */
    FILE *out;
};

static const char *const classes[PLAIT_NSPANS] = {
    [PLAIT_SPAN_FORWARD] = "f",        [PLAIT_SPAN_BACKWARD] = "b",
    [PLAIT_SPAN_BACKWARD_INPUT] = "b", [PLAIT_SPAN_BACKWARD_WEIGHT] = "w",
    [PLAIT_SPAN_UPDATE] = "u",         [PLAIT_SPAN_BUBBLE] = "i",
    [PLAIT_SPAN_WAIT_PP] = "m",        [PLAIT_SPAN_WAIT_DP] = "g",
    [PLAIT_SPAN_REDUCE] = "r",         [PLAIT_SPAN_GATHER] = "a"};

static const char style[] =
    "<style>text{font:13px 'DejaVu Sans',Helvetica,Arial,sans-serif;"
    "fill:#1c2733}"
    ".t{font-size:20px;font-weight:bold}.s{fill:#5b6b7b}"
    ".k{font-size:17px;font-weight:bold}.c{font-size:11px;fill:#5b6b7b}"
    ".n{font-size:10px;text-anchor:middle;fill:#fff}"
    ".d{fill:#1c2733}.x{text-anchor:middle;fill:#5b6b7b;font-size:11px}"
    ".e{text-anchor:end;fill:#5b6b7b}"
    ".f{fill:#3d7ab8}.f1{fill:#7fb0dc}"
    ".b{fill:#3f9162}.b1{fill:#7cc49b}.w{fill:#b9dba9}.u{fill:#7d5ba6}"
    ".i{fill:#e9edf1}.m{fill:#e2604f}.g{fill:#f0a33c}.r{fill:#f0a33c}"
    ".a{fill:#c98bdb}.edge{stroke:#fff;stroke-width:.7}"
    "line{stroke:#dde3e8}.slow{fill:#c0392b}</style>\n";

/* --- the chart --- */

static void print_span(const struct page *page, const struct plait_span *span)
{
    const struct plait_simulation *s = page->s;
    double x = LEFT + span->begin / s->step * CHART;
    double width = (span->end - span->begin) / s->step * CHART;
    double y = TOP + span->rank * page->pitch, height = page->lane;
    int passes = span->kind <= PLAIT_SPAN_BACKWARD_WEIGHT;
    const char *class = classes[span->kind];

    if (width < 0.05)
        return; /* too thin to be seen */
    if (span->kind >= PLAIT_SPAN_REDUCE) {
        y += page->lane + 1;
        height = page->traffic;
    }
    /* Every second chunk is lighter. White edges separate wide boxes. */
    fprintf(page->out,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
            "class=\"%s%s%s\"/>\n",
            x, y, width, height, class,
            passes && span->kind != PLAIT_SPAN_BACKWARD_WEIGHT &&
                    span->chunk % 2
                ? "1"
                : "",
            passes && width > 3 ? " edge" : "");
    if (passes && page->lane >= 14 &&
        width >= 7 + 7 * (span->microbatch > 9) + 7 * (span->microbatch > 99))
        svg_print_label(page->out, x + width / 2, y + page->lane / 2 + 4,
                        span->kind == PLAIT_SPAN_BACKWARD_WEIGHT ? "n d" : "n",
                        "%d", span->microbatch);
}

/* Ticks at a round step that gives five to twelve of them, in the unit that
 * reads best. */
static void print_axis(const struct page *page)
{
    double span = page->s->step, step = pow(10, floor(log10(span / 5))), t;
    double unit = span >= 2 ? 1 : 1e3;

    if (span / step > 24)
        step *= 5;
    else if (span / step > 12)
        step *= 2;
    for (t = 0; t <= span * (1 + 1e-9); t += step) {
        double x = LEFT + t / span * CHART;

        fprintf(page->out,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x,
                TOP - 6, x, page->bottom + 5);
        svg_print_label(page->out, x, page->bottom + 19, "x", "%.4g %s",
                        t * unit, unit == 1 ? "s" : "ms");
    }
}

static int is_slow(const struct simulate_job *job, int rank)
{
    int p = job->simulation->stages;

    return job->slow_rank[rank] != 1 || job->slow_link[rank] != 1 ||
           job->slow_link[(rank + p - 1) % p] != 1;
}

static void print_ranks(const struct page *page)
{
    const struct plait_simulation *s = page->s;
    int every = page->pitch < 14 ? 4 : 1;

    for (int i = 0; i < s->stages; i += every) {
        double y = TOP + i * page->pitch + page->lane / 2 + 5;
        const struct plait_rank_time *t = &s->ranks[i];

        svg_print_label(page->out, LEFT - 10, y,
                        is_slow(page->job, i) ? "e slow" : "e", "pp %d", i);
        svg_print_label(page->out, LEFT + CHART + 10, y, "c",
                        "%.0f %% busy, %.0f %% idle",
                        100 * t->compute / s->step, 100 * t->bubble / s->step);
    }
}

/* --- titles and legend --- */

/* One of the figures above the chart. */
static void print_figure(const struct page *page, double x, const char *class,
                         const char *name, double value)
{
    if (class)
        fprintf(page->out,
                "<rect x=\"%.1f\" y=\"70\" width=\"4\" height=\"34\" "
                "class=\"%s\"/>\n",
                x - 10, class);
    svg_print_label(page->out, x, 85, "k", "%.1f %%",
                    100 * value / page->s->step);
    svg_print_label(page->out, x, 102, "c", "%s", name);
}

static void print_title(const struct page *page)
{
    const struct simulate_job *job = page->job;
    const struct plait_simulation *s = page->s;
    const struct plait_estimate *e = &job->estimate;
    double rate = e->step_s / s->step;
    struct plait_rank_time mean;
    char sizes[96];
    int n = 0;

    sizes[0] = '\0';
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->model.layout.size[i] > 1 || i == PLAIT_PP)
            n += snprintf(sizes + n, sizeof(sizes) - n, "  %s %d",
                          plait_axis_names[i], job->model.layout.size[i]);
    svg_print_label(page->out, LEFT, 34, "t",
                    "%.3g billion parameters on %d %s GPUs",
                    e->parameters / 1e9, job->model.gpus, job->model.gpu.name);
    svg_print_label(page->out, LEFT, 56, "s",
                    "%s,  %d micro-batches,%s,  zero %d%s",
                    plait_schedule_names[s->schedule], s->microbatches, sizes,
                    job->model.config->parallel.zero,
                    s->chunks > 1 ? ",  every second chunk lighter" : "");
    plait_simulation_mean(s, &mean);
    svg_print_label(page->out, LEFT, 85, "k", "%.4g s", s->step);
    svg_print_label(page->out, LEFT, 102, "c", "a step");
    svg_print_label(page->out, LEFT + 120, 85, "k", "%.4g k",
                    e->tokens_per_s * rate / 1e3);
    svg_print_label(page->out, LEFT + 120, 102, "c", "tokens a second");
    svg_print_label(page->out, LEFT + 250, 85, "k", "%.1f %%",
                    100 * e->mfu * rate);
    svg_print_label(page->out, LEFT + 250, 102, "c", "MFU");
    print_figure(page, LEFT + 370, "f", "computing", mean.compute);
    print_figure(page, LEFT + 490, "i", "bubble", mean.bubble);
    print_figure(page, LEFT + 610, "m", "exposed messages", mean.wait_pp);
    print_figure(page, LEFT + 760, "g", "exposed gradients and weights",
                 mean.wait_dp);
    print_figure(page, LEFT + 980, NULL, "tp, cp, ep inside passes",
                 mean.inner);
    print_figure(page, LEFT + 1170, NULL, "traffic hidden behind computing",
                 mean.hidden);
}

static void print_slow(const struct page *page)
{
    const struct simulate_job *job = page->job;

    for (int i = 0; i < job->nslow; i++)
        svg_print_label(page->out, LEFT + 640 + 120 * i, 34, "slow", "slow %s",
                        job->slow[i]);
    if (job->nslow)
        svg_print_label(page->out, LEFT + 640, 56, "slow",
                        "%.4g s without, %+.1f %% with", job->undisturbed,
                        100 * (page->s->step / job->undisturbed - 1));
}

static void print_legend(const struct page *page)
{
    static const struct {
        const char *class, *text;
        int width;
    } entries[] = {{"f", "forward", 100},
                   {"b", "backward", 110},
                   {"w", "weight gradients", 150},
                   {"u", "update", 95},
                   {"i", "bubble", 95},
                   {"m", "waits for a message", 180},
                   {"g",
                    "waits for gradients or weights; thin: gradients on "
                    "their way",
                    440},
                   {"a", "weights on their way", 0}};
    double x = LEFT, y = page->bottom + AXIS + 8;
    size_t i;

    for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        fprintf(page->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" "
                "class=\"%s\"/>\n",
                x, y, entries[i].class);
        svg_print_label(page->out, x + 20, y + 12, "s", "%s", entries[i].text);
        x += entries[i].width;
    }
}

void simulate_print_svg(const struct simulate_job *job, FILE *out)
{
    const struct plait_simulation *s = job->simulation;
    struct page page = {.job = job, .s = s, .out = out};
    int width = LEFT + CHART + RIGHT, height;

    page.pitch = fmin(46, fmax(6, 1400.0 / s->stages));
    page.traffic = page.pitch > 20 ? 7 : 2;
    page.lane = page.pitch - page.traffic - (page.pitch > 20 ? 9 : 2);
    page.bottom = TOP + s->stages * page.pitch;
    height = (int)(page.bottom + AXIS + LEGEND);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\">\n%s"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height, style);
    print_title(&page);
    print_slow(&page);
    print_axis(&page);
    print_ranks(&page);
    for (int i = 0; i < s->nspans; i++)
        print_span(&page, &s->spans[i]);
    print_legend(&page);
    fputs("</svg>\n", out);
}
