/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "bench.h"

void bench_report_row(struct bench_row *r, double mine, json_t *rows)
{
    double median = bench_median(&r->s);
    json_t *row;

    if (r->s.count == 0) {
        printf("| %s | %s: %s | - | - | - | - |  | - |\n", r->what, r->who,
               r->version);
        return;
    }
    printf("| %s | %s | %.3g | %.3g | %.3g |", r->what, r->who, 1e3 * median,
           1e3 * bench_least(&r->s), 1e3 * bench_most(&r->s));
    if (isfinite(r->rate))
        printf(" %.3g | %s |", r->rate, r->unit);
    else
        printf(" - |  |");
    printf(" %.2f |\n", median / mine);
    fflush(stdout);
    row = json_pack("{s:s,s:s,s:f,s:f,s:f,s:i}", "what", r->what, "who", r->who,
                    "seconds", median, "least", bench_least(&r->s), "most",
                    bench_most(&r->s), "rounds", r->s.count);
    if (isfinite(r->rate))
        json_object_set_new(row, r->unit, json_real(r->rate));
    json_array_append_new(rows, row);
}
