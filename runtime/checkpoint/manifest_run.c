/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/manifest_run.h"

/* The oldest first. */
static json_t *window_array(const struct plait_outlier_window *w)
{
    int first = w->n < PLAIT_OUTLIER_WINDOW ? 0 : w->next;
    json_t *array = json_array();

    for (int i = 0; array && i < w->n; i++)
        if (json_array_append_new(
                array, json_real(w->at[(first + i) % PLAIT_OUTLIER_WINDOW])) <
            0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

json_t *plait_manifest_run(const struct plait_run_state *s)
{
    json_t *losses = window_array(&s->losses), *norms = window_array(&s->norms);

    if (!losses || !norms) {
        json_decref(losses);
        json_decref(norms);
        return NULL;
    }
    return json_pack("{s:I,s:I,s:[fff],s:o,s:o,s:i,s:I}", "samples",
                     (json_int_t)s->samples, "skipped", (json_int_t)s->skipped,
                     "noise", s->noise.square, s->noise.trace, s->noise.weight,
                     "losses", losses, "norms", norms, "batch", s->growth.batch,
                     "held", (json_int_t)s->growth.held);
}

static int parse_window(const json_t *array, struct plait_outlier_window *w)
{
    size_t n = json_array_size(array);

    if (!json_is_array(array) || n > PLAIT_OUTLIER_WINDOW)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_number(json_array_get(array, i)))
            return -1;
        plait_outlier_add(w, json_number_value(json_array_get(array, i)));
    }
    return 0;
}

int plait_manifest_parse_run(const json_t *json, struct plait_run_state *state)
{
    struct plait_run_state s = {0};
    json_int_t samples = 0, skipped = 0, held = 0;
    json_t *losses, *norms;

    if (json &&
        (json_unpack((json_t *)json, "{s:I,s:I,s:[FFF],s:o,s:o,s:i,s:I}",
                     "samples", &samples, "skipped", &skipped, "noise",
                     &s.noise.square, &s.noise.trace, &s.noise.weight, "losses",
                     &losses, "norms", &norms, "batch", &s.growth.batch, "held",
                     &held) < 0 ||
         samples < 0 || skipped < 0 || s.growth.batch < 0 || held < 0 ||
         parse_window(losses, &s.losses) < 0 ||
         parse_window(norms, &s.norms) < 0))
        return -1;
    s.samples = samples;
    s.skipped = skipped;
    s.growth.held = held;
    *state = s;
    return 0;
}
