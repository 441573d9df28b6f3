/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes of plait simulate's picture: the spans of each rank to scale, or
 * their shares where there are too many to draw. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "topology/cli/simulate_page.h"
#include "topology/cli/svg.h"

enum {
    BOXES_MOST = 1000,  /* with numbers and tooltips; beyond, bare strokes */
    STROKES_MOST = 9000 /* a file below 200 kB */
};

static const struct {
    const char *class, *name;
} kinds[PLAIT_NSPANS] = {
    [PLAIT_SPAN_FORWARD] = {"f", "forward"},
    [PLAIT_SPAN_BACKWARD] = {"b", "backward"},
    [PLAIT_SPAN_BACKWARD_INPUT] = {"b", "backward, inputs"},
    [PLAIT_SPAN_BACKWARD_WEIGHT] = {"w", "backward, weights"},
    [PLAIT_SPAN_UPDATE] = {"u", "update"},
    [PLAIT_SPAN_BUBBLE] = {"i", "bubble"},
    [PLAIT_SPAN_WAIT_PP] = {"m", "waits for a message"},
    [PLAIT_SPAN_WAIT_DP] = {"g", "waits for gradients or weights"},
    [PLAIT_SPAN_REDUCE] = {"r", "gradients on their way"},
    [PLAIT_SPAN_GATHER] = {"a", "weights on their way"}};

const char *simulate_page_class(enum plait_span_kind kind)
{
    return kinds[kind].class;
}

double simulate_page_x(const struct simulate_page *page, double time)
{
    if (time <= page->first)
        return SIM_LEFT + time * page->scale;
    return SIM_LEFT + page->first * page->scale +
           (page->last > page->first ? SIM_STEADY : 0) +
           (time - page->last) * page->scale;
}

/* --- how much is drawn --- */

/* A part of a span that is drawn, of `part` 0 (start) and 1 (end). */
static bool cut_span(const struct simulate_page *page,
                     const struct plait_span *span, int part, double *begin,
                     double *end)
{
    *begin = part ? fmax(span->begin, page->last) : span->begin;
    *end = part ? span->end : fmin(span->end, page->first);
    return (*end - *begin) * page->scale >= 0.05; /* else too thin */
}

static int count_drawn(const struct simulate_page *page)
{
    double begin, end;
    int n = 0;

    for (int i = 0; i < page->s->nspans; i++)
        for (int part = 0; part < 2; part++)
            n += cut_span(page, &page->s->spans[i], part, &begin, &end);
    return n;
}

static void choose_scale(struct simulate_page *page)
{
    double steady = page->last > page->first ? SIM_STEADY : 0;

    page->scale =
        (SIM_CHART - steady) / (page->s->step - (page->last - page->first));
}

void simulate_page_choose(struct simulate_page *page)
{
    const struct plait_simulation *s = page->s;
    double mean = s->step / s->microbatches;
    double most = fmin(0.35 * s->step, (2 * s->stages + 8) * mean);
    double warm = 0, cool = 0;

    page->first = page->last = s->step;
    choose_scale(page);
    if (s->microbatches < 3 * s->stages + 24 && s->nspans <= STROKES_MOST)
        return;
    for (int i = 0; i < s->nspans && s->spans[i].rank == 0; i++) {
        const struct plait_span *span = &s->spans[i];

        if (span->kind == PLAIT_SPAN_FORWARD)
            cool = span->begin;
        else if (warm == 0 && (span->kind == PLAIT_SPAN_BACKWARD ||
                               span->kind == PLAIT_SPAN_BACKWARD_INPUT))
            warm = span->end;
    }
    page->first = fmin(warm + 4 * mean, most);
    page->last = s->step - fmin(s->step - cool + 4 * mean, most);
    for (choose_scale(page); count_drawn(page) > STROKES_MOST;
         choose_scale(page)) {
        page->first *= 0.7;
        page->last = s->step - 0.7 * (s->step - page->last);
    }
}

/* --- boxes --- */

static bool is_pass(enum plait_span_kind kind)
{
    return kind <= PLAIT_SPAN_BACKWARD_WEIGHT;
}

/* Every second chunk is lighter. */
static bool is_light(const struct plait_span *span)
{
    return is_pass(span->kind) && span->kind != PLAIT_SPAN_BACKWARD_WEIGHT &&
           span->chunk % 2;
}

static void describe_span(const struct simulate_page *page,
                          const struct plait_span *span)
{
    double unit = page->s->step >= 2 ? 1 : 1e3;
    const char *name = unit == 1 ? "s" : "ms";
    char of[64] = "";

    if (is_pass(span->kind) && page->s->chunks > 1)
        snprintf(of, sizeof(of), ", micro-batch %d, chunk %d", span->microbatch,
                 span->chunk);
    else if (is_pass(span->kind))
        snprintf(of, sizeof(of), ", micro-batch %d", span->microbatch);
    svg_print_title(page->out, "%s%s: %.4g to %.4g %s", kinds[span->kind].name,
                    of, span->begin * unit, span->end * unit, name);
}

/* Edges in the colour of the page separate wide boxes. */
static void draw_box(const struct simulate_page *page,
                     const struct plait_span *span, double begin, double end)
{
    double x = simulate_page_x(page, begin),
           width = (end - begin) * page->scale;
    double y = SIM_TOP + span->rank * page->pitch, height = page->lane;
    int digits = 1 + (span->microbatch > 9) + (span->microbatch > 99) +
                 (span->microbatch > 999);
    bool pass = is_pass(span->kind);

    if (span->kind >= PLAIT_SPAN_REDUCE) {
        y += page->lane + 1;
        height = page->traffic;
    }
    fprintf(page->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "class=\"%s%s%s\">",
            x, y, width, height, kinds[span->kind].class,
            is_light(span) ? "1" : "", pass && width > 3 ? " edge" : "");
    describe_span(page, span);
    fputs("</rect>\n", page->out);
    if (pass && page->lane >= 14 && width >= 7 * digits)
        svg_print_label(
            page->out, x + width / 2, y + page->lane / 2 + 4,
            span->kind == PLAIT_SPAN_BACKWARD_WEIGHT || is_light(span) ? "n d"
                                                                       : "n",
            "%d", span->microbatch);
}

static void draw_boxes(const struct simulate_page *page)
{
    double begin, end;

    for (int i = 0; i < page->s->nspans; i++)
        for (int part = 0; part < 2; part++)
            if (cut_span(page, &page->s->spans[i], part, &begin, &end))
                draw_box(page, &page->s->spans[i], begin, end);
}

/* --- strokes, where boxes would be too many --- */

/* One path for all spans of a rank that look alike. */
static void draw_strokes(const struct simulate_page *page,
                         const struct plait_span *spans, int n, int kind,
                         bool light)
{
    bool beside = kind >= PLAIT_SPAN_REDUCE;
    double height = beside ? page->traffic : page->lane;
    double y = SIM_TOP + spans[0].rank * page->pitch + height / 2 +
               (beside ? page->lane + 1 : 0);
    double begin, end;
    bool any = false;

    for (int i = 0; i < n; i++)
        for (int part = 0; part < 2; part++) {
            double width;

            if ((int)spans[i].kind != kind || is_light(&spans[i]) != light ||
                !cut_span(page, &spans[i], part, &begin, &end))
                continue;
            if (!any)
                fprintf(page->out,
                        "<g transform=\"translate(0 %.1f)\" "
                        "stroke-width=\"%.1f\"><path class=\"%s%s\" d=\"",
                        y, height, kinds[kind].class, light ? "1" : "");
            any = true;
            width = (end - begin) * page->scale;
            fprintf(page->out, "M%.1f 0h%.1f", simulate_page_x(page, begin),
                    width > 3 ? width - 0.6 : width);
        }
    if (!any)
        return;
    fputs("\">", page->out);
    svg_print_title(page->out, "pp %d: %s%s", spans[0].rank, kinds[kind].name,
                    light ? ", every second chunk" : "");
    fputs("</path></g>\n", page->out);
}

static void draw_thin(const struct simulate_page *page)
{
    const struct plait_simulation *s = page->s;

    for (int i = 0, n; i < s->nspans; i += n) {
        for (n = 1;
             i + n < s->nspans && s->spans[i + n].rank == s->spans[i].rank;)
            n++;
        for (int kind = 0; kind < PLAIT_NSPANS; kind++)
            for (int light = 0; light < 2; light++)
                draw_strokes(page, s->spans + i, n, kind, light);
    }
}

/* --- the steady part --- */

/* The shares of a rank's activities between first and last, side by side, each
 * as wide as its share of that time. */
static void draw_shares(const struct simulate_page *page, int rank,
                        const double *sums)
{
    double all = page->last - page->first, x, width;

    x = simulate_page_x(page, page->first) + 8;
    for (int kind = 0; kind < PLAIT_SPAN_REDUCE; kind++) {
        width = sums[kind] / all * (SIM_STEADY - 16);
        if (width < 0.5)
            continue;
        fprintf(page->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "class=\"%s\" opacity=\".75\">",
                x, SIM_TOP + rank * page->pitch, width, page->lane,
                kinds[kind].class);
        svg_print_title(page->out, "pp %d, steady part: %s %.1f %%", rank,
                        kinds[kind].name, 100 * sums[kind] / all);
        fputs("</rect>\n", page->out);
        x += width;
    }
}

static void draw_steady(const struct simulate_page *page)
{
    const struct plait_simulation *s = page->s;
    double sums[PLAIT_NSPANS], seconds = page->last - page->first;
    double x = simulate_page_x(page, page->first);

    for (int i = 0; i < s->nspans;) {
        int rank = s->spans[i].rank;

        memset(sums, 0, sizeof(sums));
        for (; i < s->nspans && s->spans[i].rank == rank; i++)
            sums[s->spans[i].kind] +=
                fmax(0, fmin(s->spans[i].end, page->last) -
                            fmax(s->spans[i].begin, page->first));
        draw_shares(page, rank, sums);
    }
    for (int side = 0; side < 2; side++)
        fprintf(page->out, "<path class=\"cut\" d=\"M%.1f %dV%.1f\"/>\n",
                x + side * SIM_STEADY, SIM_TOP - 6, page->bottom + 5);
    svg_print_label(page->out, x + SIM_STEADY / 2.0, SIM_TOP - 24, "x",
                    "steady part: %.0f of %d",
                    seconds / s->step * s->microbatches, s->microbatches);
    svg_print_label(page->out, x + SIM_STEADY / 2.0, SIM_TOP - 10, "x",
                    "micro-batches, as shares");
    svg_print_label(page->out, x + SIM_STEADY / 2.0, page->bottom + 19, "x",
                    seconds >= 2 ? "%.3g s" : "%.3g ms",
                    seconds >= 2 ? seconds : 1e3 * seconds);
}

void simulate_page_lanes(const struct simulate_page *page)
{
    if (count_drawn(page) <= BOXES_MOST)
        draw_boxes(page);
    else
        draw_thin(page);
    if (page->last > page->first)
        draw_steady(page);
}
