/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_SIMULATE_PAGE_H
#define PLAIT_TOPOLOGY_CLI_SIMULATE_PAGE_H

#include "topology/cli/cmd_simulate.h"

/* The picture of a simulated step: simulate_svg.c has titles, axis and
 * legend, simulate_lanes.c what the ranks do. All lengths are in pixels. */

#define SIM_LEFT 64
#define SIM_CHART 1240 /* width of the time axis */
#define SIM_TOP 146
#define SIM_STEADY 190 /* the part of it for the steady phase */

/* Lanes get thinner where there are many. */
struct simulate_page {
    const struct simulate_job *job;
    const struct plait_simulation *s;
    double lane, traffic, pitch;
    double bottom; /* of the last lane */
    /* Drawn in full: from 0 to `first` and from `last` to the step's end, in
     * seconds; between them is the steady phase. first = last: the whole
     * step. */
    double first, last;
    double scale; /* pixels a second */
    FILE *out;
};

/* The x of a time that is drawn in full. */
double simulate_page_x(const struct simulate_page *page, double time);

/* Choose first, last and scale: of a step with many micro-batches only the
 * start and the end are drawn in full. */
void simulate_page_choose(struct simulate_page *page);

void simulate_page_lanes(const struct simulate_page *page);

/* The class of a kind of span, for colours. */
const char *simulate_page_class(enum plait_span_kind kind);

#endif
