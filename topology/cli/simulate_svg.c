/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "topology/cli/simulate_page.h"
#include "topology/cli/svg.h"

/* A simulated step as a picture: a lane per pipeline rank, and under it a thin
 * one for the traffic during computing. */

enum {
    LEFT = SIM_LEFT,
    CHART = SIM_CHART,
    TOP = SIM_TOP,
    RIGHT = 150, /* the rank's own figures */
    AXIS = 34,
    LEGEND = 52
};

/* A stroke has the colour of a box. */
static const char light[] =
    "text{font-size:13px}.t{font-size:16px;font-weight:bold}"
    ".k{font-size:17px;font-weight:bold}.c{font-size:11px;fill:#5b6b7b}"
    ".n{font-size:10px;text-anchor:middle;fill:#fff}.d{fill:#1c2733}"
    ".x{text-anchor:middle;fill:#5b6b7b;font-size:11px}.e{text-anchor:end}"
    ".f{fill:#3d7ab8;color:#3d7ab8}.f1{fill:#7fb0dc;color:#7fb0dc}"
    ".b{fill:#3f9162;color:#3f9162}.b1{fill:#7cc49b;color:#7cc49b}"
    ".w{fill:#b9dba9;color:#b9dba9}.u{fill:#7d5ba6;color:#7d5ba6}"
    ".i{fill:#e3e8ed;color:#e3e8ed}.m{fill:#e2604f;color:#e2604f}"
    ".g,.r{fill:#f0a33c;color:#f0a33c}.a{fill:#c98bdb;color:#c98bdb}"
    ".edge{stroke:#fff;stroke-width:.7}path{stroke:currentColor}"
    "line{stroke:#dde3e8}.cut{color:#8394a4;stroke-dasharray:4 3}"
    ".slow{fill:#c0392b}";
static const char dark[] =
    ".c,.x{fill:#9fb0c0}.n{fill:#fff}.d{fill:#1c2733}"
    ".i{fill:#2b3843;color:#2b3843}.edge{stroke:#12181f}line{stroke:#26323d}"
    ".slow{fill:#ff8b7a}";

static void print_tick(const struct simulate_page *page, double t, double unit)
{
    double x = simulate_page_x(page, t);

    fprintf(page->out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x,
            TOP - 6, x, page->bottom + 5);
    svg_print_label(page->out, x, page->bottom + 19, "x", "%.4g %s", t * unit,
                    unit == 1 ? "s" : "ms");
}

/* Ticks at a round step that gives five to twelve of them, in the unit that
 * reads best. */
static void print_axis(const struct simulate_page *page)
{
    double step = page->s->step, unit = step >= 2 ? 1 : 1e3;
    double shown = step - (page->last - page->first);
    double every = pow(10, floor(log10(shown / 5)));
    int first, last = (int)floor(step / every * (1 + 1e-9));

    if (shown / every > 24)
        every *= 5;
    else if (shown / every > 12)
        every *= 2;
    first = (int)floor(page->first / every * (1 + 1e-9));
    last = (int)floor(step / every * (1 + 1e-9));
    for (int i = 0; i <= first; i++)
        print_tick(page, i * every, unit);
    for (int i = (int)ceil(page->last / every); i <= last; i++)
        if (i > first)
            print_tick(page, i * every, unit);
}

static bool is_slow(const struct simulate_job *job, int rank)
{
    int p = job->simulation->stages;

    return job->slow_rank[rank] != 1 || job->slow_link[rank] != 1 ||
           job->slow_link[(rank + p - 1) % p] != 1;
}

static void print_ranks(const struct simulate_page *page)
{
    const struct plait_simulation *s = page->s;
    int every = page->pitch < 14 ? 4 : 1;

    for (int i = 0; i < s->stages; i += every) {
        double y = TOP + i * page->pitch + page->lane / 2 + 5;
        const struct plait_rank_time *t = &s->ranks[i];

        svg_print_label(page->out, LEFT - 10, y,
                        is_slow(page->job, i) ? "e slow" : "e weak", "pp %d",
                        i);
        svg_print_label(page->out, LEFT + CHART + 10, y, "c",
                        "%.0f %% busy, %.0f %% idle",
                        100 * t->compute / s->step, 100 * t->bubble / s->step);
    }
}

/* --- titles and legend --- */

/* One of the figures above the chart. */
static void print_figure(const struct simulate_page *page, double x,
                         const char *class, const char *name, double value)
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

static void print_title(const struct simulate_page *page)
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
                    "%.3g billion parameters on %d %s GPU%s",
                    e->parameters / 1e9, job->model.gpus, job->model.gpu.name,
                    job->model.gpus == 1 ? "" : "s");
    svg_print_label(page->out, LEFT, 56, "weak",
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

static void print_slow(const struct simulate_page *page)
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

static bool is_drawn(const struct plait_simulation *s, const char *class)
{
    for (int i = 0; i < s->nspans; i++)
        if (strcmp(simulate_page_class(s->spans[i].kind), class) == 0)
            return true;
    return false;
}

/* Only for what is drawn. */
static void print_legend(const struct simulate_page *page)
{
    static const struct {
        const char *class, *text;
    } entries[] = {{"f", "forward"},
                   {"b", "backward"},
                   {"w", "weight gradients"},
                   {"u", "update"},
                   {"i", "bubble"},
                   {"m", "waits for a message"},
                   {"g", "waits for gradients or weights"},
                   {"r", "thin: gradients on their way"},
                   {"a", "weights on their way"}};
    double x = LEFT, y = page->bottom + AXIS + 8;

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (!is_drawn(page->s, entries[i].class))
            continue;
        fprintf(page->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" "
                "class=\"%s\"/>\n",
                x, y, entries[i].class);
        svg_print_label(page->out, x + 20, y + 12, "weak", "%s",
                        entries[i].text);
        x += 48 + 7.6 * (double)strlen(entries[i].text);
    }
}

void simulate_print_svg(const struct simulate_job *job, FILE *out)
{
    const struct plait_simulation *s = job->simulation;
    struct simulate_page page = {.job = job, .s = s, .out = out};

    page.pitch = fmin(46, fmax(6, 1400.0 / s->stages));
    page.traffic = page.pitch > 20 ? 7 : 2;
    page.lane = page.pitch - page.traffic - (page.pitch > 20 ? 9 : 2);
    page.bottom = TOP + s->stages * page.pitch;
    simulate_page_choose(&page);
    svg_print_head(out, LEFT + CHART + RIGHT,
                   (int)(page.bottom + AXIS + LEGEND), light, dark);
    print_title(&page);
    print_slow(&page);
    print_axis(&page);
    print_ranks(&page);
    simulate_page_lanes(&page);
    print_legend(&page);
    fputs("</svg>\n", out);
}
